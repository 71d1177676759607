"""The families of kernels, by name."""

from __future__ import annotations

from dataclasses import replace

from lmp.predict.kernels import batched, collective, decode, gemm, moe, pointwise, prefill
from lmp.predict.kernels.base import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        gemm.FAMILY,
        prefill.FAMILY,
        decode.FAMILY,
        replace(prefill.FAMILY, name="mla_prefill"),
        replace(decode.FAMILY, name="mla_decode"),
        batched.FAMILY,
        moe.FAMILY,
        collective.FAMILY,
        pointwise.QUANTISE,
        pointwise.POINTWISE,
    )
}
