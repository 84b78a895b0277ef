"""Deconvolution: every limit at the limit and one past it, per platform and version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orinport.model.layer import Layer
from rules.layer_builders import IMAGE, convolution, findings, verdict


def deconvolution(shape: tuple[int, ...] = IMAGE, **changes: Any) -> Layer:
    return convolution(shape, deconvolution=True, **changes)


OLD = ("xavier", "7.0.0")
XAVIER = ("xavier", "8.5.2")
ORIN = ("orin", "8.6.2")

CASES = [
    ("DLA120", deconvolution(), "kept", *ORIN),
    ("DLA120", deconvolution((1, 8, 4, 16, 16), kernel=(2, 2, 2)), "gpu", *ORIN),
    # kernel
    ("DLA131", deconvolution(kernel=(32, 32)), "kept", *ORIN),
    ("DLA131", deconvolution(kernel=(33, 32)), "gpu", *ORIN),
    *(("DLA131", deconvolution(kernel=k), "kept", *XAVIER) for k in [(1, 64), (1, 96), (1, 128), (64, 1), (128, 1)]),
    ("DLA131", deconvolution(kernel=(2, 64)), "gpu", *XAVIER),
    ("DLA131", deconvolution(kernel=(1, 65)), "gpu", *XAVIER),
    ("DLA131", deconvolution(kernel=(16, 16)), "kept", *OLD),
    ("DLA131", deconvolution(kernel=(17, 16)), "gpu", *OLD),
    ("DLA131", deconvolution(kernel=(1, 64)), "gpu", *OLD),
    # sizes that are switched off
    ("DLA132", deconvolution(kernel=(22, 22), stride=(22, 22)), "kept", *ORIN),
    ("DLA132", deconvolution(kernel=(23, 23), stride=(23, 23)), "gpu", *ORIN),
    ("DLA132", deconvolution(kernel=(32, 32), stride=(32, 32)), "gpu", *XAVIER),
    ("DLA132", deconvolution(kernel=(32, 32), stride=(16, 16)), "unknown", *ORIN),
    ("DLA132", deconvolution(kernel=(4, 4), stride=(23, 23)), "unknown", *ORIN),
    ("DLA132", deconvolution(kernel=(24, 25), stride=(24, 25)), "unknown", *ORIN),
    ("DLA132", deconvolution(kernel=(1, 64), stride=(1, 64)), "kept", *ORIN),
    ("DLA132", deconvolution(kernel=(32, 32), stride=(32, 32)), "kept", "xavier", "8.2.1"),
    # stride
    ("DLA133", deconvolution(stride=(32, 32)), "kept", *ORIN),
    ("DLA133", deconvolution(stride=(33, 1)), "gpu", *ORIN),
    ("DLA133", deconvolution(stride=(96, 1)), "kept", *ORIN),
    ("DLA133", deconvolution(stride=(8, 8)), "kept", *OLD),
    ("DLA133", deconvolution(stride=(9, 8)), "gpu", *OLD),
    # stride equal to kernel
    ("DLA134", deconvolution(kernel=(2, 2), stride=(2, 2)), "kept", "xavier", "8.2.1"),
    ("DLA134", deconvolution(kernel=(4, 4), stride=(2, 2)), "gpu", "xavier", "8.2.1"),
    ("DLA134", deconvolution(kernel=(4, 4), stride=(2, 2)), "kept", "xavier", "8.0.1"),
    ("DLA134", deconvolution(kernel=(4, 4), stride=(2, 2)), "kept", "xavier", "8.4.1"),
    ("DLA134", deconvolution(kernel=(4, 4), stride=(2, 2)), "kept", *ORIN),
    # padding
    ("DLA135", deconvolution(), "kept", *ORIN),
    ("DLA135", deconvolution(pre_padding=(1, 1), post_padding=(1, 1)), "gpu", *ORIN),
    ("DLA135", deconvolution(post_padding=(0, 1)), "gpu", *XAVIER, "int8"),
    ("DLA135", deconvolution(pre_padding=(15, 15), post_padding=(15, 15)), "kept", *OLD),
    ("DLA135", deconvolution(pre_padding=(16, 0)), "gpu", *OLD),
    # groups
    ("DLA136", deconvolution(groups=1), "kept", *ORIN),
    ("DLA136", deconvolution(groups=2), "gpu", *ORIN),
    ("DLA136", deconvolution(groups=2), "kept", *OLD),
    # dilation
    ("DLA137", deconvolution(dilation=(1, 1)), "kept", *ORIN),
    ("DLA137", deconvolution(dilation=(1, 2)), "gpu", *ORIN),
    ("DLA137", deconvolution(dilation=(1, 2)), "kept", "xavier", "8.2.1"),
    # channels
    ("DLA138", deconvolution((1, 8192, 4, 4), output_maps=8192), "kept", *ORIN),
    ("DLA138", deconvolution(output_maps=8193), "gpu", *ORIN),
    ("DLA138", deconvolution((1, 8193, 4, 4)), "gpu", *ORIN),
    ("DLA138", deconvolution((1, 8193, 4, 4)), "kept", "xavier", "8.2.1"),
    ("DLA138", deconvolution(output_maps=8193), "gpu", *OLD),
]


@pytest.mark.parametrize(("code", "checked", "expected", "where"), [(c, x, e, w) for c, x, e, *w in CASES])
def test_deconvolution_limits(code: str, checked: Layer, expected: str, where: list[str]) -> None:
    assert verdict(code, checked, *where) == expected


def test_both_channel_limits_are_named_apart() -> None:
    found = findings("DLA138", deconvolution((1, 9000, 4, 4), output_maps=9000), *ORIN)
    assert [f.rows for f in found] == [("D08a",), ("D08b",)]


@given(kernel=st.tuples(st.integers(1, 140), st.integers(1, 140)))
def test_kernel_is_taken_exactly_within_32_or_in_one_of_six_long_forms(kernel: tuple[int, int]) -> None:
    long_forms = {(1, 64), (1, 96), (1, 128), (64, 1), (96, 1), (128, 1)}
    taken = max(kernel) <= 32 or kernel in long_forms
    assert verdict("DLA131", deconvolution(kernel=kernel), *ORIN) == ("kept" if taken else "gpu")
