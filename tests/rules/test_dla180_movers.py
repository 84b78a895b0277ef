"""Slice, SoftMax, Shuffle and Reduce: shapes, axes, modes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orinport.model.layer import Layer, LayerKind, Tensor
from rules.layer_builders import IMAGE, findings, layer, reduction, shuffle, slicing, softmax, tensor, verdict

XAVIER = ("xavier", "8.5.2")
JP51, JP60, JP62, JP72, JP722 = (("orin", v) for v in ("8.5.2", "8.6.2", "10.3.0", "10.16.2", "11.4.1"))
DRIVE = ("orin", "8.6.12")


def pad(mode: str = "FILL", fill: float | None = 0.0, extra: tuple[Tensor, ...] = ()) -> Layer:
    return slicing((0, 0, -1, -1), (1, 64, 58, 58), mode=mode, fill=fill, extra=extra)


def dropped(op: str = "MAX", shape: tuple[int, ...] = IMAGE, axes: tuple[int, ...] = (2, 3)) -> Layer:
    return reduction(op, axes, keep=False, shape=shape)


CASES: list[tuple[Any, ...]] = [
    # Slice: shape
    *[("DLA181", slicing(), "kept", *w) for w in (JP51, JP60, JP62, JP722, XAVIER)],
    ("DLA181", slicing((0, 0, 0), (1, 25200, 4), (1, 1, 1), shape=(1, 25200, 85)), "gpu", *JP60),
    ("DLA181", slicing((0,) * 5, (1, 1, 2, 3, 4), (1,) * 5, shape=(1, 2, 2, 3, 4)), "gpu", *XAVIER),
    ("DLA181", slicing((1, 0, 0, 0), (1, 8, 4, 4), shape=(2, 8, 4, 4)), "gpu", *JP60),
    ("DLA181", slicing((0, 0, 0, 0), (1, 8, 4, 4), shape=(2, 8, 4, 4)), "gpu", *JP60),
    ("DLA181", slicing((0, 0, 0, 0), (2, 4, 4, 4), shape=(2, 8, 4, 4)), "kept", *JP60),
    ("DLA181", slicing((8,), (4,), (1,), axes=(1,), shape=(2, 16, 4, 4)), "kept", *JP62),
    ("DLA181", slicing((1,), (1,), (1,), axes=(0,), shape=(2, 16, 4, 4)), "gpu", *JP62),
    ("DLA181", slicing((0, 0, 0), (1, 2, 2), (1, 1, 1), shape=(1, 4, 4)), "kept", "orin", "8.4.0"),
    # Slice: constants
    ("DLA182", slicing(), "kept", *JP60),
    ("DLA182", slicing(None, None), "gpu", *JP60),
    ("DLA182", slicing(stride=None), "gpu", *XAVIER),
    # Slice: step
    ("DLA183", slicing(), "kept", *JP60),
    ("DLA183", slicing((0, 0, 0, 0), (1, 64, 28, 28), (1, 1, 2, 2)), "gpu", *JP60),
    ("DLA183", slicing((0, 63, 0, 0), (1, 64, 56, 56), (1, -1, 1, 1)), "gpu", *XAVIER),
    ("DLA183", slicing(stride=None), "kept", *JP60),
    # Slice: mode
    *[("DLA184", slicing(), "kept", *w) for w in (JP51, JP60, JP62, JP72, JP722)],
    *[("DLA184", pad(), e, *w) for e, w in [("gpu", XAVIER), ("gpu", JP60), ("gpu", JP62), ("kept", JP72)]],
    ("DLA184", pad(), "kept", "orin", "10.4.0"),
    ("DLA184", pad("WRAP", None), "kept", "orin", "10.4.0"),
    ("DLA184", pad("WRAP", None), "gpu", *JP62),
    ("DLA184", pad(fill=1.0), "gpu", *JP72),
    ("DLA184", pad(fill=None), "gpu", *JP72),
    *[("DLA184", pad(mode, None), "gpu", *w) for mode in ("CLAMP", "REFLECT") for w in (JP60, JP72)],
    # SoftMax: axis
    ("DLA186", softmax(), "kept", *JP60),
    ("DLA186", softmax((1, 8, 4, 4), 2), "kept", *JP60),
    ("DLA186", softmax((1, 8, 4, 4), 3), "kept", *JP60),
    ("DLA186", softmax((4, 8, 4, 4), 0), "gpu", *JP60),
    ("DLA186", softmax((1, 2, 8, 4, 4), 1), "gpu", *JP62),
    ("DLA186", softmax((4, 8, 4, 4), 0), "kept", *XAVIER),  # DLA026 refuses
    # SoftMax: length
    ("DLA187", softmax((1, 8192, 1, 1)), "kept", *JP60),
    ("DLA187", softmax((1, 8193, 1, 1)), "gpu", *JP60),
    ("DLA187", softmax((4, 8192, 1, 1)), "kept", *JP60),
    ("DLA187", softmax((1, 1024, 8, 1)), "note", *JP60),
    ("DLA187", softmax((1, 1025, 8, 1)), "gpu", *JP60),
    ("DLA187", softmax((1, 8, 1024, 1024), 3), "note", *JP722),
    ("DLA187", softmax((1, 1, 1, 8192), 3), "kept", *JP51),
    # SoftMax: 8.4
    ("DLA188", softmax(), "kept", "orin", "8.4.0"),
    ("DLA188", softmax((2, 1000, 1, 1)), "gpu", "orin", "8.4.0"),
    ("DLA188", softmax((1, 19, 64, 128)), "gpu", "orin", "8.4.0"),
    ("DLA188", softmax((1, 19, 64, 128)), "note", "orin", "8.4.1"),
    ("DLA188", softmax((1, 19, 64, 128)), "kept", *JP51),
    # Shuffle: rank
    ("DLA190", shuffle(IMAGE, (1, 64, 1, 3136)), "kept", *JP60),
    ("DLA190", shuffle((1, 2048, 1, 1), (1, 2048)), "gpu", *JP60),
    ("DLA190", shuffle((1, 2048, 1, 1), (1, 2048)), "gpu", *XAVIER),
    ("DLA190", shuffle((1, 8, 4, 4), (1, 8, 16)), "unknown", *JP60),
    ("DLA190", shuffle((1, 8, 4, 4), (1, 2, 4, 4, 4)), "gpu", *JP62),
    ("DLA190", shuffle((1, 8, 16), (1, 8, 4, 4)), "gpu", *JP60),
    ("DLA190", shuffle((1, 10), (1, 10, 1, 1)), "gpu", *JP62),
    ("DLA190", shuffle((1, 8, 4, 1), (1, 8, 4), kind=LayerKind.SQUEEZE), "unknown", *JP722),
    ("DLA190", shuffle((1, 8, 4), (1, 8, 4, 1), kind=LayerKind.UNSQUEEZE), "gpu", *JP722),
    ("DLA190", shuffle((1, 10), (1, 10, 1, 1)), "kept", "xavier", "8.4.1"),  # DLA003 speaks
    # Shuffle: steps
    ("DLA191", shuffle(IMAGE, first=(0, 2, 3, 1)), "kept", *JP51),
    ("DLA191", shuffle((2, 8, 4, 4), first=(1, 0, 2, 3)), "gpu", *JP51),
    ("DLA191", shuffle((2, 8, 4, 4), first=(1, 0, 2, 3)), "unknown", *JP60),
    ("DLA191", shuffle((2, 8, 4, 4), second=(0, 1, 3, 2)), "kept", *JP60),
    ("DLA191", shuffle((1, 96, 56, 56), (64, 96, 7, 7)), "gpu", *XAVIER),
    ("DLA191", shuffle((1, 96, 56, 56), (64, 96, 7, 7)), "unknown", *JP62),
    ("DLA191", shuffle((1, 96, 56, 56), (1, 96, 28, 112)), "kept", *JP62),
    ("DLA191", shuffle((1, 1, 8192, 2), (1, 8192, 1, 2)), "kept", *JP51),
    ("DLA191", shuffle((1, 1, 8193, 2), (1, 8193, 1, 2)), "gpu", *JP51),
    ("DLA191", shuffle((1, 2, 8192, 1), (1, 16384, 1, 1)), "gpu", *JP51),
    ("DLA191", shuffle((1, 16, 8, 8), (1, 4, 2, 2, 8, 8), second=(0, 1, 4, 2, 5, 3)), "gpu", *JP51),
    ("DLA191", shuffle((1, 16, 8, 8), (1, 1024)), "kept", *JP51),  # DLA190 refuses
    # Reduce
    ("DLA195", reduction("MAX"), "kept", *JP62),
    ("DLA195", reduction("MAX", (1, 2, 3)), "kept", *JP62),
    ("DLA195", reduction("MAX", (0, 2, 3)), "gpu", *JP62),
    ("DLA195", reduction("AVG", (0, 2, 3)), "kept", *JP62),  # DLA024 refuses
    ("DLA196", reduction("MAX"), "kept", *JP62),
    ("DLA196", dropped(), "unknown", *JP62),
    ("DLA196", dropped(), "unknown", *DRIVE),
    ("DLA196", reduction("MAX", (2,), shape=(1, 8, 4)), "unknown", *JP722),
    ("DLA196", dropped(), "kept", *JP60),  # DLA024 refuses
]


@pytest.mark.parametrize(("code", "checked", "expected", "where"), [(c, x, e, w) for c, x, e, *w in CASES])
def test_limits(code: str, checked: Layer, expected: str, where: list[str]) -> None:
    assert verdict(code, checked, *where) == expected


def test_runtime_axes_are_refused_from_10_3_on() -> None:
    parameters = [tensor(f"p{i}", (4,), constant=True) for i in range(3)]
    fill = tensor("fill", (), constant=True)

    def with_axes(constant: bool) -> Layer:
        axes = tensor("axes", (4,), constant=constant)
        return slicing(extra=(*parameters, fill, axes))

    assert verdict("DLA182", with_axes(False), *JP62) == "gpu"
    assert verdict("DLA182", with_axes(True), *JP62) == "kept"
    assert verdict("DLA182", with_axes(False), *JP60) == "kept"


def test_a_shared_fill_value_is_refused() -> None:
    fill = tensor("zero", (), constant=True)
    one = pad(extra=(fill,))
    other = layer(LayerKind.ELEMENTWISE, (tensor("q"), fill), (tensor("r"),), op="SUM", index=1)
    assert verdict("DLA184", one, *JP72, layers=(one,)) == "kept"
    assert verdict("DLA184", one, *JP72, layers=(one, other)) == "gpu"


def test_the_8_5_rule_on_steps_is_said_to_be_one() -> None:
    window = shuffle((1, 96, 56, 56), (64, 96, 7, 7))
    assert "8.5" not in findings("DLA191", window, *JP51)[0].message
    (later,) = findings("DLA191", window, *JP62)
    assert "TensorRT 8.5" in later.message
    assert later.confidence.value == "inferred"
    assert "OP42" in later.rows


@given(length=st.integers(1, 9000), other=st.integers(1, 3))
def test_softmax_length_is_refused_exactly_above_its_mode(length: int, other: int) -> None:
    seen = verdict("DLA187", softmax((1, length, other, 1)), *JP60)
    if other == 1:
        assert seen == ("kept" if length <= 8192 else "gpu")
    else:
        assert seen == ("note" if length <= 1024 else "gpu")


@given(batch=st.integers(1, 4), split=st.sampled_from([1, 2, 4]))
def test_reshape_is_taken_exactly_where_the_batch_stays(batch: int, split: int) -> None:
    checked = shuffle((batch, 8, 4, 4), (batch * split, 8 // split, 4, 4))
    assert verdict("DLA191", checked, *JP51) == ("kept" if split == 1 else "gpu")


def test_ranks_of_reshapes_name_their_rows() -> None:
    assert findings("DLA190", shuffle((1, 8, 16), (1, 8, 4, 4)), *JP60)[0].rows == ("G15b",)
    assert findings("DLA190", shuffle((1, 8, 1, 1), (1, 8)), *JP60)[0].rows == ("F02",)
    assert findings("DLA190", shuffle((1, 8, 4, 4), (1, 8, 16)), *JP60)[0].rows == ("OP43",)


def test_softmax_in_8_4_names_the_contradiction() -> None:
    shape = (1, 19, 64, 128)
    assert findings("DLA188", softmax(shape), "orin", "8.4.0")[0].rows == ("M05",)
    assert findings("DLA188", softmax(shape), "orin", "8.4.1")[0].rows == ("CF08", "M05", "OP39")
