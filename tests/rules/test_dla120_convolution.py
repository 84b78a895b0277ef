"""Convolution and FullyConnected: every limit at the limit and one past it, per platform and version."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orinport.model.layer import LayerKind
from orinport.targets.buffer import buffer_banks
from orinport.targets.catalogue import catalogue_rows
from orinport.targets.target import Precision
from rules.layer_builders import convolution, findings, layer, tensor, verdict


def _fully_connected(maps: int = 10, shape: tuple[int, ...] = (1, 64, 7, 7)) -> object:
    return layer(
        LayerKind.FULLY_CONNECTED,
        (tensor("x", shape),),
        (tensor("y", (1, maps, 1, 1)),),
        output_maps=maps,
        has_bias=True,
        weight_values=1,
    )


OLD = ("xavier", "7.0.0")
XAVIER = ("xavier", "8.5.2")
ORIN = ("orin", "8.6.2")

CASES = [
    # spatial dimensions
    ("DLA120", convolution(), "kept", *ORIN),
    ("DLA120", convolution((1, 8, 4, 16, 16), kernel=(3, 3, 3)), "gpu", *ORIN),
    ("DLA120", convolution((1, 8, 16), kernel=(3,)), "gpu", *ORIN),
    ("DLA120", convolution((1, 8, 4, 16, 16), kernel=(3, 3, 3)), "gpu", *XAVIER),
    ("DLA120", convolution((1, 8, 4, 16, 16), kernel=(3, 3, 3)), "kept", "xavier", "5.1.6"),
    ("DLA120", _fully_connected(), "kept", *ORIN),
    ("DLA120", _fully_connected(shape=(1, 64)), "gpu", *ORIN),
    # kernel
    ("DLA121", convolution(kernel=(32, 32)), "kept", *ORIN),
    ("DLA121", convolution(kernel=(33, 1)), "gpu", *ORIN),
    ("DLA121", convolution(kernel=(1, 33)), "gpu", *XAVIER),
    ("DLA121", convolution(kernel=(33, 1)), "gpu", "orin", "11.4.1", "int8"),
    ("DLA121", convolution(kernel=(16, 16)), "kept", *OLD),
    ("DLA121", convolution(kernel=(17, 1)), "gpu", *OLD),
    ("DLA121", convolution(kernel=(17, 1)), "kept", "xavier", "7.1.3"),
    # padding
    ("DLA122", convolution(pre_padding=(1, 1), post_padding=(1, 1)), "kept", *ORIN),
    ("DLA122", convolution(kernel=(32, 32), pre_padding=(31, 31), post_padding=(31, 31)), "kept", *ORIN),
    ("DLA122", convolution(kernel=(40, 40), pre_padding=(32, 0), post_padding=(0, 0)), "gpu", *ORIN),
    ("DLA122", convolution(kernel=(40, 40), pre_padding=(0, 0), post_padding=(0, 32)), "gpu", *ORIN),
    ("DLA122", convolution(kernel=(1, 1), pre_padding=(1, 1), post_padding=(1, 1)), "gpu", *ORIN),
    ("DLA122", convolution(kernel=(3, 5), pre_padding=(0, 0), post_padding=(2, 4)), "kept", *XAVIER),
    ("DLA122", convolution(kernel=(3, 5), pre_padding=(0, 0), post_padding=(3, 4)), "gpu", *XAVIER),
    ("DLA122", convolution(kernel=(1, 1), pre_padding=(1, 1), post_padding=(1, 1)), "kept", *OLD),
    ("DLA122", convolution(dilation=(6, 6), pre_padding=(6, 6), post_padding=(6, 6)), "gpu", *ORIN),
    ("DLA122", convolution(kernel=(3, 3), pre_padding=(15, 15), post_padding=(15, 15)), "kept", *OLD),
    ("DLA122", convolution(kernel=(3, 3), pre_padding=(16, 0), post_padding=(0, 0)), "gpu", *OLD),
    # stride
    ("DLA123", convolution(stride=(8, 8)), "kept", *ORIN),
    ("DLA123", convolution(stride=(9, 1)), "gpu", *ORIN),
    ("DLA123", convolution(stride=(1, 16)), "gpu", *OLD),
    # dilation
    ("DLA124", convolution(dilation=(32, 32)), "kept", *ORIN),
    ("DLA124", convolution(dilation=(1, 33)), "gpu", *XAVIER),
    ("DLA124", convolution(dilation=(1, 33)), "kept", *OLD),
    # output maps
    ("DLA125", convolution(output_maps=8192), "kept", *ORIN),
    ("DLA125", convolution(output_maps=8193), "gpu", *ORIN),
    ("DLA125", _fully_connected(8192), "kept", *XAVIER),
    ("DLA125", _fully_connected(8193), "gpu", *XAVIER),
    # groups
    ("DLA126", convolution(groups=64), "kept", *ORIN),
    ("DLA126", convolution((1, 8192, 4, 4), groups=8192), "kept", *ORIN),
    ("DLA126", convolution((1, 8193, 4, 4), groups=8193), "gpu", *XAVIER),
    ("DLA126", convolution((1, 8193, 4, 4), groups=8193), "kept", *OLD),
    # convolution buffer
    ("DLA127", convolution((1, 64, 56, 56)), "kept", *ORIN),
    ("DLA127", convolution((1, 512, 80, 138)), "kept", *ORIN),  # 1 + 13 banks
    ("DLA127", convolution((1, 512, 80, 139)), "note", *ORIN),  # 1 + 14
    ("DLA127", convolution((1, 512, 80, 160)), "note", *ORIN),  # 1 + 15
    ("DLA127", convolution((1, 512, 80, 161)), "gpu", *ORIN),  # 1 + 16
    ("DLA127", convolution((1, 512, 80, 160)), "kept", *XAVIER),
    ("DLA127", convolution((1, 512, 80, 161)), "gpu", *XAVIER),
    ("DLA127", convolution((1, 512, 80, 277)), "kept", *ORIN, "int8"),
    ("DLA127", convolution((1, 512, 80, 321)), "gpu", *ORIN, "int8"),
    ("DLA127", convolution((1, 512, 80, 171)), "kept", "xavier", "8.2.1"),
    ("DLA127", convolution((1, 512, 80, 160), dilation=(2, 1)), "gpu", *ORIN),
    ("DLA127", convolution((1, 512, 80, 160), dilation=(1, 2)), "note", *ORIN),
    ("DLA127", convolution((1, 512, 80, 400), groups=512), "unknown", *ORIN),
    ("DLA127", convolution((1, 64, 80, 400), groups=64), "kept", *ORIN),
    ("DLA127", convolution((1, 1024, 80, 500), groups=2), "gpu", *ORIN),
    # constant kernel
    ("DLA128", convolution(), "kept", *ORIN),
    ("DLA128", convolution(constant_kernel=False, weight_values=0), "unknown", *ORIN),
    ("DLA128", convolution(deconvolution=True, constant_kernel=False, weight_values=0), "unknown", *XAVIER),
    # FP16 on Orin
    ("DLA129", convolution(), "note", *ORIN),
    ("DLA129", convolution(), "kept", *ORIN, "int8"),
    ("DLA129", convolution(), "kept", *XAVIER),
]


@pytest.mark.parametrize(("code", "checked", "expected", "where"), [(c, x, e, w) for c, x, e, *w in CASES])
def test_convolution_limits(code: str, checked: object, expected: str, where: list[str]) -> None:
    assert verdict(code, checked, *where) == expected


def test_the_kernel_finding_has_value_limit_source_and_help() -> None:
    (found,) = findings("DLA121", convolution(kernel=(33, 33)), *ORIN)
    assert "33x33" in found.message
    assert "1 to 32" in found.message
    assert found.value == (33, 33)
    assert found.limit == (1, 32)
    assert "NvInfer.h" in found.source
    assert found.confidence.value == "documented"
    assert found.rows == ("C02a",)
    assert found.help


def test_the_buffer_estimate_is_inferred_after_84() -> None:
    wide = convolution((1, 512, 80, 171))
    assert findings("DLA127", wide, "orin", "8.4.1")[0].confidence.value == "documented"
    assert findings("DLA127", wide, "orin", "8.6.2")[0].confidence.value == "inferred"


def test_the_buffer_finding_names_both_parts_and_the_limit() -> None:
    (found,) = findings("DLA127", convolution((1, 512, 80, 171)), *ORIN)
    assert found.value == 18
    assert found.limit == 16
    assert "1 for a kernel and 17 for input rows" in found.message


def _reference(c: int, w: int, kh: int, kw: int, dil_h: int, int8: bool) -> int:
    """The estimate as dla-rules writes it down, independently of the implementation."""
    e = 1 if int8 else 2
    wt = ceil(ceil(c * kh * kw * e / 128) * 128 / 32768)
    entries = ceil(ceil(c * e / 32) * w / 4)
    rows = (kh - 1) * dil_h + 1
    return wt + ceil(entries * rows / 256)


@given(
    c=st.integers(1, 8192),
    w=st.integers(1, 8192),
    kh=st.integers(1, 32),
    kw=st.integers(1, 32),
    dil=st.integers(1, 32),
    int8=st.booleans(),
)
def test_bank_estimate_equals_the_published_formula(c: int, w: int, kh: int, kw: int, dil: int, int8: bool) -> None:
    row = catalogue_rows()["C10a"]
    banks = buffer_banks(
        row.values,
        Precision.INT8 if int8 else Precision.FP16,
        channels=c,
        width=w,
        kernel=(kh, kw),
        dilation=dil,
    )
    assert banks.total == _reference(c, w, kh, kw, dil, int8)


def test_the_published_example_of_the_bank_estimate() -> None:
    row = catalogue_rows()["C10a"]
    fp16, int8 = (
        buffer_banks(row.values, precision, channels=512, width=160, kernel=(3, 3))
        for precision in (Precision.FP16, Precision.INT8)
    )
    assert (fp16.weights, fp16.data) == (1, 15)
    assert (int8.weights, int8.data) == (1, 8)


@given(
    kernel=st.tuples(st.integers(1, 48), st.integers(1, 48)),
    before=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    after=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_padding_is_refused_exactly_above_31_or_from_the_kernel_on(
    kernel: tuple[int, int], before: tuple[int, int], after: tuple[int, int]
) -> None:
    broken = any(p > 31 or p >= k for pads in (before, after) for p, k in zip(pads, kernel, strict=True) if p)
    seen = verdict("DLA122", convolution(kernel=kernel, pre_padding=before, post_padding=after), *ORIN)
    assert seen == ("gpu" if broken else "kept")


def test_3d_convolution_is_refused_by_name() -> None:
    (found,) = findings("DLA120", convolution((1, 8, 4, 16, 16), kernel=(3, 3, 3)), *ORIN)
    assert found.rows == ("C01", "C12a")
    assert "3-D" in found.help
    (flat,) = findings("DLA120", convolution((1, 8, 16), kernel=(3,)), *ORIN)
    assert flat.rows == ("C01",)
    assert "height 1" in flat.help
