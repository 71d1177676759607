"""The verdict's line: pins and assumptions stand in it, those on the sizes of a call first."""

from __future__ import annotations

from lmp.link.verdict import conditions, verdict
from lmp.records import Finding, Verification

VERIFIED = Verification(status="verified", points=12)


def test_conditions_stand_in_the_line() -> None:
    assert verdict(VERIFIED) == "verified at 12 points"
    assert verdict(Verification(status="verified", points=1)) == "verified at 1 point"
    of_all = verdict(VERIFIED, ["{hidden_size} % {num_heads} == 0", "{seq_len} <= 640"], {"num_key_value_heads": 4})
    assert (
        of_all == "verified at 12 points, where seq_len <= 640; num_key_value_heads = 4; hidden_size % num_heads == 0"
    )


def test_many_conditions_are_counted() -> None:
    texts = [f"{{hidden_size}} > {n}" for n in range(5)]
    assert conditions([*texts, "{cache_len} < 9"], {}) == (
        "cache_len < 9; hidden_size > 0; hidden_size > 1; hidden_size > 2; and 2 more conditions"
    )


def test_what_is_not_verified_says_why() -> None:
    assert verdict(Verification(status="unverified", reason="no time"), ["{seq_len} < 3"]) == "UNVERIFIED: no time"
    finding = Finding(line=1, quantity="flops", point="p", claimed="1", counted="2")
    failed = Verification(status="failed", findings=[finding, finding])
    assert verdict(failed) == "FAILED: 2 differences from execution"


def test_what_pins_imply_is_not_said_again() -> None:
    assert conditions(["1 % {step} == 0", "{step} <= {heads}"], {"step": 1}) == "step = 1; step <= heads"
