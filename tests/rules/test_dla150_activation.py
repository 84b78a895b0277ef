"""Bounds and slopes of activations, Scale and LRN."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orinport.model.layer import Layer
from rules.layer_builders import (
    IMAGE,
    activation,
    concatenation,
    elementwise,
    findings,
    lrn,
    parametric_relu,
    scale,
    tensor,
    verdict,
)

XAVIER = ("xavier", "8.5.2")
JP51, JP60, JP62 = (("orin", v) for v in ("8.5.2", "8.6.2", "10.3.0"))


def clip(low: float, high: float) -> Layer:
    return activation("CLIP", low, high)


CASES: list[tuple[Any, ...]] = [
    # rank of what activations, element-wise layers and Scale work on
    *[
        ("DLA120", make(shape), expected, *JP60)
        for make in (
            lambda s: activation("RELU", shape=s),
            lambda s: scale(shape=s),
            lambda s: elementwise("SUM", tensor("a", s), tensor("b", s)),
        )
        for shape, expected in [(IMAGE, "kept"), ((1, 196, 768), "gpu"), ((1, 10), "gpu"), ((1, 2, 3, 4, 5), "gpu")]
    ],
    ("DLA120", activation("RELU", shape=(1, 10)), "gpu", *XAVIER, "int8"),
    ("DLA120", activation("RELU", shape=(1, 10)), "kept", "xavier", "7.0.0"),  # DLA003 speaks
    # ReLU
    ("DLA151", activation("RELU"), "kept", *JP60),
    ("DLA151", activation("RELU", 0.1), "gpu", *JP60),
    ("DLA151", activation("LEAKY_RELU", 0.1), "kept", *JP60),
    ("DLA151", activation("RELU", 0.1), "kept", "xavier", "8.2.1"),
    # Clip
    ("DLA152", clip(0, 6), "kept", *JP60),
    ("DLA152", clip(0, 1), "kept", *JP60),
    ("DLA152", clip(0, 0.99), "gpu", *JP60),
    ("DLA152", clip(0, 127), "kept", *XAVIER),
    ("DLA152", clip(0, 127.5), "gpu", *XAVIER),
    ("DLA152", clip(0, 3.4e38), "gpu", *JP62),
    ("DLA152", clip(-1, 1), "unknown", *JP60),
    ("DLA152", clip(0, 0.5), "unknown", "xavier", "8.2.1"),
    ("DLA152", clip(0, 6), "kept", "xavier", "8.2.1"),
    ("DLA152", activation("RELU", 0, 0), "kept", *JP60),
    # Sigmoid and TanH in INT8
    ("DLA154", activation("SIGMOID"), "note", *JP60, "int8"),
    ("DLA154", activation("TANH"), "note", "xavier", "8.0.1", "int8"),
    ("DLA154", activation("SIGMOID"), "kept", *JP60, "fp16"),
    ("DLA154", activation("RELU"), "kept", *JP60, "int8"),
    # parametric ReLU
    ("DLA155", parametric_relu(), "kept", *JP60),
    ("DLA155", parametric_relu(constant=False), "gpu", *JP60),
    ("DLA155", parametric_relu(constant=False), "gpu", *XAVIER),
    ("DLA156", parametric_relu(), "kept", *JP51),
    ("DLA156", parametric_relu((64, 1, 1)), "gpu", *JP51),
    ("DLA156", parametric_relu((64, 1, 1)), "gpu", *XAVIER),
    ("DLA156", parametric_relu((64, 1, 1)), "unknown", *JP60),
    ("DLA156", parametric_relu((64, 1, 1)), "kept", "orin", "8.4.1"),
    # Scale
    ("DLA170", scale(), "kept", *JP51),
    ("DLA170", scale("UNIFORM"), "kept", *JP51),
    ("DLA170", scale("ELEMENTWISE"), "kept", *JP62),
    ("DLA170", scale(power=True), "gpu", *JP51),
    ("DLA170", scale("OTHER"), "gpu", *JP51),
    # large constants
    ("DLA171", scale(), "kept", *JP60),
    ("DLA171", scale("ELEMENTWISE"), "note", *JP60),
    ("DLA171", scale("ELEMENTWISE"), "kept", *XAVIER),
    ("DLA171", elementwise("SUM", tensor("a"), tensor("c", IMAGE, constant=True)), "note", *JP60),
    ("DLA171", elementwise("SUM", tensor("a"), tensor("c", (1, 64, 1, 1), constant=True)), "kept", *JP60),
    ("DLA171", elementwise("SUM"), "kept", *JP60),
    # LRN
    *[("DLA172", lrn(size), "kept", *JP60) for size in (3, 5, 7, 9)],
    *[("DLA172", lrn(size), "gpu", *where) for size in (1, 4, 11) for where in (JP60, XAVIER)],
    ("DLA173", lrn(), "kept", *JP60, "fp16"),
    ("DLA173", lrn(), "note", *JP60, "int8"),
    ("DLA173", lrn(across=False), "gpu", *JP60),
    # Concatenation
    ("DLA174", concatenation(IMAGE, IMAGE), "kept", *JP60),
    ("DLA174", concatenation(IMAGE, IMAGE, axis=0), "gpu", *JP60),
    ("DLA174", concatenation(IMAGE, IMAGE, axis=2), "gpu", *XAVIER),
    ("DLA174", concatenation((1, 8, 10), (1, 8, 10), axis=0), "kept", *JP60),
    ("DLA174", concatenation((1, 10), (1, 10)), "gpu", *JP60),
    ("DLA174", concatenation((1, 85, 6400), (1, 85, 1600), axis=2), "gpu", *JP62),
    ("DLA175", concatenation(IMAGE, IMAGE), "kept", *JP60),
    ("DLA175", concatenation(IMAGE), "gpu", *JP60),
    ("DLA175", concatenation(IMAGE), "kept", "xavier", "8.2.1"),
    ("DLA176", concatenation(IMAGE, IMAGE), "kept", *JP60),
    ("DLA176", concatenation((1, 8, 20, 20), (1, 8, 10, 20), axis=2), "gpu", *JP60),
    ("DLA176", concatenation((1, 8, 20, 20), (1, 8, 20, 10), axis=3), "gpu", *XAVIER),
    ("DLA176", concatenation((1, 8, 20, 20), (1, 8, 10, 20), axis=2), "kept", "xavier", "8.2.1"),
]


@pytest.mark.parametrize(("code", "checked", "expected", "where"), [(c, x, e, w) for c, x, e, *w in CASES])
def test_limits(code: str, checked: Layer, expected: str, where: list[str]) -> None:
    assert verdict(code, checked, *where) == expected


@given(high=st.floats(0.25, 256, allow_nan=False))
def test_clip_is_refused_exactly_outside_1_to_127(high: float) -> None:
    assert verdict("DLA152", clip(0, high), *JP60) == ("kept" if 1 <= high <= 127 else "gpu")


@given(channels=st.integers(1, 300), height=st.integers(2, 64), width=st.integers(1, 64), int8=st.booleans())
def test_size_of_a_map_counts_padded_channels_in_four_bytes(channels: int, height: int, width: int, int8: bool) -> None:
    shape = (1, channels, height, width)
    checked = elementwise("SUM", tensor("a", shape), tensor("c", shape, constant=True))
    (found,) = findings("DLA171", checked, *JP60, "int8" if int8 else "fp16")
    multiple = 32 if int8 else 16
    padded = channels + (-channels) % multiple
    assert found.value == padded * height * width * 4
