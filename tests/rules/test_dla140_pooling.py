"""Pooling: every limit at the limit and one past it, per platform and version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orinport.model.layer import Layer
from rules.layer_builders import findings, pooling, verdict

OLD = ("xavier", "7.0.0")
XAVIER = ("xavier", "8.5.2")
ORIN = ("orin", "8.6.2")


def padded(**changes: object) -> Layer:
    """The average pool of Inception: 3x3, stride 1, padding 1, exclusive."""
    attributes: dict[str, object] = {
        "type": "AVERAGE",
        "window": (3, 3),
        "stride": (1, 1),
        "pre_padding": (1, 1),
        "post_padding": (1, 1),
        "exclusive": True,
        **changes,
    }
    return pooling(**attributes)


ceil_over = {"type": "AVERAGE", "window": (3, 3), "stride": (2, 2), "exclusive": True, "round_up": True}

CASES = [
    ("DLA025", pooling(type="AVERAGE"), "kept", *ORIN),
    ("DLA025", pooling(type="MAX"), "kept", *XAVIER),
    ("DLA025", pooling(type="MAX_AVERAGE_BLEND"), "gpu", *ORIN),
    ("DLA120", pooling(), "kept", *ORIN),
    ("DLA120", pooling((1, 8, 4, 16, 16), window=(2, 2, 2)), "gpu", *XAVIER),
    # window
    ("DLA140", pooling(window=(8, 8)), "kept", *ORIN),
    ("DLA140", pooling(window=(9, 8)), "gpu", *ORIN),
    ("DLA140", pooling(window=(1, 9)), "gpu", *OLD),
    # padding
    ("DLA141", pooling(pre_padding=(7, 7), post_padding=(7, 7)), "kept", *ORIN),
    ("DLA141", pooling(pre_padding=(8, 0), post_padding=(0, 0)), "gpu", *ORIN),
    ("DLA141", pooling(pre_padding=(0, 0), post_padding=(0, 8)), "gpu", *XAVIER),
    ("DLA141", pooling(pre_padding=(7, 7), post_padding=(7, 7)), "kept", *OLD),
    ("DLA141", pooling(pre_padding=(8, 8), post_padding=(8, 8)), "gpu", *OLD),
    ("DLA141", pooling(pre_padding=(0, 0), post_padding=(15, 15)), "kept", *OLD),
    ("DLA141", pooling(pre_padding=(0, 0), post_padding=(16, 15)), "gpu", *OLD),
    # stride
    ("DLA142", pooling(stride=(16, 16)), "kept", *ORIN),
    ("DLA142", pooling(stride=(17, 1)), "gpu", *ORIN),
    # exclusive padding
    ("DLA143", padded(exclusive=False), "kept", *ORIN),
    ("DLA143", padded(exclusive=False), "kept", *XAVIER),
    ("DLA143", padded(), "unknown", *ORIN),
    ("DLA143", padded(), "unknown", "orin", "10.3.0", "int8"),
    ("DLA143", padded(), "unknown", "orin", "11.4.1"),
    ("DLA143", padded(), "gpu", *XAVIER),
    ("DLA143", padded(), "gpu", "xavier", "8.2.1"),
    ("DLA143", padded(), "unknown", "xavier", "7.2.1"),
    ("DLA143", padded(type="MAX"), "kept", *XAVIER),
    ("DLA143", padded(pre_padding=(0, 0), post_padding=(0, 0)), "kept", *ORIN),
    ("DLA143", padded(pre_padding=(0, 0), post_padding=(0, 0)), "unknown", *XAVIER),
    ("DLA143", padded(pre_padding=(0, 0)), "unknown", *ORIN),
    ("DLA143", pooling((1, 8, 56, 56), **ceil_over), "unknown", *ORIN),
    ("DLA143", pooling((1, 8, 57, 57), **ceil_over), "kept", *ORIN),
    ("DLA143", pooling(None, **ceil_over), "unknown", *ORIN),
]


@pytest.mark.parametrize(("code", "checked", "expected", "where"), [(c, x, e, w) for c, x, e, *w in CASES])
def test_pooling_limits(code: str, checked: Layer, expected: str, where: list[str]) -> None:
    assert verdict(code, checked, *where) == expected


@pytest.mark.parametrize("where", [ORIN, XAVIER])
def test_exclusive_padding_offers_the_rewrite(where: tuple[str, str]) -> None:
    (found,) = findings("DLA143", padded(), *where)
    assert found.fix is not None
    assert (found.fix.rewrite, found.fix.safety) == ("average-pool-to-inclusive", "exact")


def test_ignored_exclusive_padding_is_said_to_give_wrong_values() -> None:
    (found,) = findings("DLA143", padded(), "xavier", "7.2.1")
    assert "wrong" in found.message
    assert "P06a" in found.rows


@given(
    window=st.tuples(st.integers(1, 12), st.integers(1, 12)), stride=st.tuples(st.integers(1, 20), st.integers(1, 20))
)
def test_window_and_stride_are_refused_exactly_above_8_and_16(window: tuple[int, int], stride: tuple[int, int]) -> None:
    layer = pooling(window=window, stride=stride)
    assert verdict("DLA140", layer, *ORIN) == ("gpu" if max(window) > 8 else "kept")
    assert verdict("DLA142", layer, *ORIN) == ("gpu" if max(stride) > 16 else "kept")
