"""The catalogue of datasheets, and a user's file on top of it."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from lmp.errors import UsageError
from lmp.predict.devices import CATALOGUE, check_dense, check_names, device_named, devices

ASKED_FOR = (
    "a100-sxm", "a100-sxm-40gb", "a100-pcie", "a100-pcie-40gb", "h100-sxm", "h100-pcie", "h100-nvl", "h200-sxm", "h20",
    "b200-sxm", "b300-sxm", "gb200", "l4", "l40s", "t4", "rtx-4090", "mi300x", "tpu-v5e", "tpu-v5p", "cpu",
)  # fmt: skip

TENSOR_CORES = {
    # Tensor cores of a multiprocessor x FMA of a core and cycle x 2, dense, 16 bits: whitepapers.
    "turing": 8 * 64 * 2,
    "ampere": 4 * 256 * 2,
    "ada": 4 * 128 * 2,
    "hopper": 4 * 512 * 2,
    # Twice Hopper's (Blackwell architecture brief).
    "blackwell": 4 * 1024 * 2,
    # Four matrix cores, 2,048 FLOP a unit and cycle (CDNA 3 whitepaper).
    "cdna3": 2048,
}


@pytest.mark.parametrize("name", ASKED_FOR)
def test_each_device_is_there(name: str) -> None:
    assert device_named(name).bandwidth > 10**11


def test_no_peak_is_a_sparse_one() -> None:
    """A sparse peak is twice the dense one, and more than the units can start at their boost clock."""
    held = 0
    for device in devices().values():
        if device.architecture in TENSOR_CORES:
            assert device.clock is not None
            limit = TENSOR_CORES[device.architecture] * device.sms * device.clock
            # 1.15: datasheets round, and GB200's clock is higher than the one stated for the chip.
            assert device.matmul_flops <= 1.15 * limit, device.name
            if "fp8" in device.dense:
                assert device.dense["fp8"] <= 1.15 * 2 * limit, device.name
            held += 1
    assert held >= 16


SLOWED = {
    # Sold with fewer FLOP a cycle than its units have: 148 of 632 TFLOP/s.
    "h20": 148 / 632,
    # GeForce units add up in float32 at half of their rate (Ada whitepaper, appendix A).
    "rtx-4090": 0.5,
}


def test_peaks_are_units_times_clock_times_flop_a_cycle() -> None:
    """Within 6 %: GB200's 2,500 TFLOP/s are 1.046 times 8,192 x 152 x 1.92 GHz, B300's 2,250 are 0.966 times."""
    held = 0
    for device in devices().values():
        if device.architecture in TENSOR_CORES:
            assert device.clock is not None
            reached = TENSOR_CORES[device.architecture] * device.sms * device.clock * SLOWED.get(device.name, 1.0)
            assert reached == pytest.approx(device.matmul_flops, rel=0.06), device.name
            held += 1
    assert held >= 16


def test_rates_of_narrower_dtypes_follow_those_of_16_bits() -> None:
    """Half in tfloat32, twice in fp8; L40S's datasheet rounds, 733 for 2 x 362."""
    for device in devices().values():
        for dtype, times in (("tfloat32", 0.5), ("fp8", 2.0)):
            if dtype in device.dense and device.architecture in TENSOR_CORES:
                assert device.dense[dtype] == pytest.approx(times * device.matmul_flops, rel=0.02), device.name


@pytest.mark.parametrize("dtype", ["tfloat32", "float16", "bfloat16", "fp8"])
def test_a_sparse_peak_is_refused(dtype: str) -> None:
    """Twice the catalogue's figure, as datasheets print it, of every device whose units are not slowed down."""
    refused = 0
    for device in devices().values():
        if dtype not in device.dense or device.architecture not in TENSOR_CORES or device.name in SLOWED:
            continue
        with pytest.raises(UsageError, match="give the dense peak"):
            check_dense(replace(device, dense={**device.dense, dtype: 2 * device.dense[dtype]}))
        refused += 1
    assert refused >= 10


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        # H100 SXM5, whitepaper table 3: 132 SMs, 989.4 TFLOP/s dense in bfloat16, HBM3 of 3,350 GB/s, 50 MB of L2.
        ("h100-sxm", "sms", 132),
        ("h100-sxm", "bandwidth", 3_350 * 10**9),
        ("h100-sxm", "l2", 50 * 10**6),
        ("h200-sxm", "bandwidth", 4_800 * 10**9),
        # A100 80 GB SXM: 2,039 GB/s, 400 W.
        ("a100-sxm", "power", 400),
        # L40S: 864 GB/s, 142 SMs.
        ("l40s", "bandwidth", 864 * 10**9),
        ("l40s", "sms", 142),
    ],
)
def test_values_of_datasheets(name: str, value: str, expected: int) -> None:
    assert getattr(device_named(name), value) == expected


def test_each_value_has_a_source_with_a_date() -> None:
    for device in devices().values():
        values = [f"dense.{dtype}" for dtype in device.dense]
        values += [v for v in ("bandwidth", "memory", "sms", "l2", "clock", "power", "link") if getattr(device, v)]
        for value in values:
            assert device.sources[value][-7:-3].isdigit(), (device.name, value)


def test_no_two_devices_answer_to_one_name() -> None:
    check_names(devices(), "catalogue")


def test_names_of_tables_and_reports() -> None:
    assert device_named("h100_sxm").name == device_named("H100").name == "h100-sxm"
    with pytest.raises(UsageError, match="did you mean h100-sxm"):
        device_named("h100-smx")


MINE = """
[mine]
label = "MINE"
maker = "me"
architecture = "hopper"
dense = { bfloat16 = 500 }
bandwidth = 1000
memory = 10
sms = 100
clock = 1500
on_chip = "nothing"
[[mine.sources]]
title = "my own"
date = "2026-01"
values = ["dense.bfloat16", "bandwidth", "memory", "sms", "clock", "on_chip"]
"""


def written(folder: Path, text: str | bytes) -> Path:
    file = folder / "devices.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_a_users_device(tmp_path: Path) -> None:
    found = devices(written(tmp_path, MINE))
    assert found["mine"].peak("bfloat16") == 500 * 10**12
    assert "h100-sxm" in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("sms = 100", "sms = -1"), "mine.sms"),
        (("sms = 100", 'sms = "__import__(1)"'), "mine.sms"),
        (("memory = 10", "memory = nan"), "mine.memory"),
        (("memory = 10", "memory = inf"), "mine.memory"),
        (("memory = 10", "memory = 10\nprice = 3"), "mine.price"),
        (('label = "MINE"', 'label = "\\u001b[31mred"'), "mine.label"),
        (("mine", '"../mine"'), "name"),
        (("mine", "MINE"), "name"),
        ((', "clock"', ""), "no source for clock"),
        (('"on_chip"]', '"on_chip", "magic"]'), "'magic'"),
        (('date = "2026-01"', 'date = "lately"'), "date"),
        # 4,096 FLOP x 100 x 1.5 GHz = 614 TFLOP/s; a sparse figure of such a device is 1,229.
        (("bfloat16 = 500", "bfloat16 = 1229"), "give the dense peak"),
        (("bfloat16 = 500", "bfloat17 = 500"), "mine.dense"),
        (('architecture = "hopper"', 'architecture = "hopper"\naliases = ["h100"]'), "are both called"),
    ],
)
def test_a_hostile_file(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in MINE
    with pytest.raises(UsageError) as error:
        devices(written(tmp_path, MINE.replace(*change)))
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[a", b"a = 1", b"x" * (2 << 20), b"a = " + b"[" * 3000])
def test_no_file_of_devices(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UsageError):
        devices(written(tmp_path, content))


def test_the_catalogue_has_no_other_tables() -> None:
    assert tomllib.loads(CATALOGUE.read_text()).keys() == devices().keys()
