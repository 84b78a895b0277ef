"""Resize: sizes, scales, modes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orinport.model.layer import Layer
from rules.layer_builders import findings, resize, verdict

XAVIER = ("xavier", "8.5.2")
OLD = ("xavier", "8.2.1")
JP60, JP62 = (("orin", v) for v in ("8.6.2", "10.3.0"))


def sized(to: tuple[int, ...], shape: tuple[int, ...] = (1, 64, 20, 20), mode: str = "NEAREST") -> Layer:
    return resize(mode, None, shape=shape, to=to)


def nearest(coordinates: str, rounding: str) -> Layer:
    return resize("NEAREST", coordinates=coordinates, rounding=rounding)


def linear(coordinates: str, selector: str = "FORMULA") -> Layer:
    return resize("LINEAR", coordinates=coordinates, selector=selector)


CASES: list[tuple[Any, ...]] = [
    # by sizes
    ("DLA177", resize(), "kept", *JP60),
    ("DLA177", sized((1, 64, 40, 40)), "gpu", *JP60),
    ("DLA177", sized((1, 64, 40, 40)), "gpu", *OLD),
    ("DLA177", sized((1, 64, 40, 40)), "kept", "xavier", "8.0.1"),  # DLA003 speaks
    # scales
    *[("DLA178", resize(scales=(1, 1, s, s)), "kept", *w) for s in (1, 2, 32) for w in (JP60, XAVIER, OLD)],
    *[("DLA178", resize(scales=(1, 1, s, 1)), "gpu", *w) for s in (0.5, 1.5, 33) for w in (JP60, XAVIER, OLD)],
    *[("DLA178", resize("LINEAR", (1, 1, s, s)), "kept", *w) for s in (1, 2, 4) for w in (JP60, XAVIER)],
    *[("DLA178", resize("LINEAR", (1, 1, 2, s)), "gpu", *w) for s in (0.5, 2.5, 5) for w in (JP60, XAVIER)],
    ("DLA178", resize(scales=(1, 2, 2, 2)), "gpu", *JP60),
    ("DLA178", resize(scales=(2, 1, 2, 2)), "gpu", *JP60),
    ("DLA178", resize(scales=(1, 1, 2), shape=(1, 64, 20)), "gpu", *JP60),
    ("DLA178", sized((1, 64, 40, 60)), "kept", *JP60),
    ("DLA178", sized((1, 64, 30, 40)), "gpu", *JP60),
    ("DLA178", sized((1, 64, 100, 100), mode="LINEAR"), "gpu", *JP62),
    # modes
    ("DLA179", resize("CUBIC"), "gpu", *JP60),
    ("DLA179", resize("CUBIC"), "gpu", *OLD),
    ("DLA179", nearest("ASYMMETRIC", "FLOOR"), "kept", *JP60),
    ("DLA179", nearest("HALF_PIXEL", "HALF_DOWN"), "kept", *JP60),
    ("DLA179", nearest("HALF_PIXEL", "HALF_UP"), "kept", *XAVIER),
    ("DLA179", nearest("HALF_PIXEL", "FLOOR"), "gpu", *JP60),
    ("DLA179", nearest("ASYMMETRIC", "HALF_DOWN"), "gpu", *JP60),
    ("DLA179", nearest("ALIGN_CORNERS", "HALF_DOWN"), "gpu", *XAVIER),
    ("DLA179", resize("NEAREST", coordinates="ASYMMETRIC", selector="UPPER", rounding="FLOOR"), "gpu", *JP60),
    ("DLA179", linear("HALF_PIXEL"), "kept", *JP60),
    ("DLA179", linear("HALF_PIXEL", "UPPER"), "kept", *JP62),
    ("DLA179", linear("ASYMMETRIC"), "gpu", *JP60),
    ("DLA179", linear("ALIGN_CORNERS"), "gpu", *XAVIER),
    ("DLA179", nearest("ASYMMETRIC", "FLOOR"), "kept", *OLD),
    ("DLA179", nearest("HALF_PIXEL", "HALF_DOWN"), "gpu", *OLD),
    ("DLA179", linear("HALF_PIXEL"), "gpu", *OLD),
    ("DLA179", linear("HALF_PIXEL"), "kept", "orin", "8.4.1"),
]


@pytest.mark.parametrize(("code", "checked", "expected", "where"), [(c, x, e, w) for c, x, e, *w in CASES])
def test_resize_limits(code: str, checked: Layer, expected: str, where: list[str]) -> None:
    assert verdict(code, checked, *where) == expected


def test_a_whole_factor_offers_the_rewrite_and_another_does_not() -> None:
    (whole,) = findings("DLA177", sized((1, 64, 40, 60)), *JP60)
    (other,) = findings("DLA177", sized((1, 64, 30, 40)), *JP60)
    assert whole.fix is not None
    assert whole.fix.rewrite == "resize-sizes-to-scales"
    assert "1, 1, 2, 3" in whole.message
    assert other.fix is None


def test_the_observed_message_is_a_source_for_linear_coordinates() -> None:
    (found,) = findings("DLA179", linear("ASYMMETRIC"), *JP60)
    assert found.rows == ("Z05", "Z06b")
    assert findings("DLA179", linear("ASYMMETRIC"), "orin", "8.4.1")[0].rows == ("Z05",)


@given(factors=st.tuples(st.sampled_from([0.25, 0.5, 1, 1.5, 2, 3, 4, 5, 8, 31, 32, 33]), st.integers(1, 40)))
def test_scales_are_taken_exactly_where_whole_and_within_the_limit(factors: tuple[float, float]) -> None:
    for mode, limit in (("NEAREST", 32), ("LINEAR", 4)):
        taken = all(float(f).is_integer() and 1 <= f <= limit for f in factors)
        assert verdict("DLA178", resize(mode, (1, 1, *factors)), *JP60) == ("kept" if taken else "gpu")
