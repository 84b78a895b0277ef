"""Every range of a row: both ends are taken, one past each is refused, in either dimension.

The numbers stand here a second time, as the documents print them: a row that is changed by accident fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rules.layer_builders import activation, convolution, pooling, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from orinport.model.layer import Layer

ORIN, XAVIER, OLD = ("orin", "8.6.2"), ("xavier", "8.5.2"), ("xavier", "7.0.0")
NEW = ("orin", "11.4.1", "int8")
LATER = (ORIN, XAVIER, NEW)


def _pair(build: Callable[..., Layer], key: str, **fixed: Any) -> Callable[[int], tuple[Layer, ...]]:
    return lambda size: (build(**{key: (size, 1), **fixed}), build(**{key: (1, size), **fixed}))


def _number(build: Callable[..., Layer], key: str) -> Callable[[int], tuple[Layer, ...]]:
    return lambda size: (build(**{key: size}),)


def _pad(build: Callable[..., Layer], **fixed: Any) -> Callable[[int], tuple[Layer, ...]]:
    def layers(size: int) -> tuple[Layer, ...]:
        sides = ((size, 0), (0, size))
        before = tuple(build(pre_padding=side, post_padding=(0, 0), **fixed) for side in sides)
        return (*before, *(build(pre_padding=(0, 0), post_padding=side, **fixed) for side in sides))

    return layers


def deconvolution(**changes: Any) -> Layer:
    return convolution(deconvolution=True, **changes)


RANGES: list[tuple[str, Callable[[int], tuple[Layer, ...]], int, int, tuple[tuple[str, ...], ...]]] = [
    ("DLA121", _pair(convolution, "kernel"), 1, 32, LATER),
    ("DLA121", _pair(convolution, "kernel"), 1, 16, (OLD,)),
    ("DLA122", _pad(convolution, kernel=(64, 64)), 0, 31, LATER),
    ("DLA122", _pad(convolution, kernel=(64, 64)), 0, 15, (OLD, ("xavier", "5.1.6"))),
    ("DLA123", _pair(convolution, "stride"), 1, 8, (*LATER, OLD)),
    ("DLA124", _pair(convolution, "dilation"), 1, 32, LATER),
    ("DLA125", _number(convolution, "output_maps"), 1, 8192, (*LATER, OLD)),
    ("DLA126", _number(convolution, "groups"), 1, 8192, LATER),
    ("DLA131", _pair(deconvolution, "kernel"), 1, 32, LATER),
    ("DLA131", _pair(deconvolution, "kernel"), 1, 16, (OLD,)),
    ("DLA133", _pair(deconvolution, "stride"), 1, 32, LATER),
    ("DLA133", _pair(deconvolution, "stride"), 1, 8, (OLD,)),
    ("DLA135", _pad(deconvolution), 0, 0, LATER),
    ("DLA135", _pad(deconvolution), 0, 15, (OLD,)),
    ("DLA136", _number(deconvolution, "groups"), 1, 1, LATER),
    ("DLA137", _pair(deconvolution, "dilation"), 1, 1, LATER),
    ("DLA138", _number(deconvolution, "output_maps"), 1, 8192, (*LATER, OLD)),
    ("DLA140", _pair(pooling, "window"), 1, 8, (*LATER, OLD)),
    ("DLA141", _pad(pooling), 0, 7, LATER),
    ("DLA141", _pad(pooling), 0, 15, (OLD,)),
    ("DLA142", _pair(pooling, "stride"), 1, 16, (*LATER, OLD)),
    ("DLA152", lambda high: (activation("CLIP", 0, high),), 1, 127, LATER),
]


@pytest.mark.parametrize(
    ("code", "build", "size", "expected", "where"),
    [
        (code, build, size, expected, where)
        for code, build, low, high, places in RANGES
        for where in places
        for size, expected in ((low - 1, "gpu"), (low, "kept"), (high, "kept"), (high + 1, "gpu"))
    ],
)
def test_both_ends_and_one_past_each(
    code: str, build: Callable[[int], tuple[Layer, ...]], size: int, expected: str, where: tuple[str, ...]
) -> None:
    assert [verdict(code, checked, *where) for checked in build(size)] == [expected] * len(build(size))


LONG = [(1, 64), (1, 96), (1, 128), (64, 1), (96, 1), (128, 1)]


@pytest.mark.parametrize(("code", "key"), [("DLA131", "kernel"), ("DLA133", "stride")])
@pytest.mark.parametrize("size", LONG)
def test_long_forms_of_deconvolution(code: str, key: str, size: tuple[int, int]) -> None:
    assert verdict(code, deconvolution(**{key: size}), *ORIN) == "kept"
    assert verdict(code, deconvolution(**{key: (max(size), 2)}), *ORIN) == "gpu"
    assert verdict(code, deconvolution(**{key: size}), *OLD) == "gpu"


@pytest.mark.parametrize("channels", [(1, "kept"), (8192, "kept"), (8193, "gpu")])
def test_input_channels_of_deconvolution(channels: tuple[int, str]) -> None:
    number, expected = channels
    assert verdict("DLA138", convolution((1, number, 4, 4), deconvolution=True), *ORIN) == expected


@pytest.mark.parametrize(("size", "expected"), [(22, "kept"), (23, "gpu"), (32, "gpu"), (33, "kept")])
def test_square_sizes_of_deconvolution_that_are_switched_off(size: int, expected: str) -> None:
    assert verdict("DLA132", deconvolution(kernel=(size, size), stride=(size, size)), *ORIN) == expected


def test_the_ends_hold_from_the_version_of_the_row_on() -> None:
    wide = convolution(kernel=(17, 1))
    assert [verdict("DLA121", wide, "xavier", version) for version in ("7.0.0", "7.1.3")] == ["gpu", "kept"]
    dilated = deconvolution(dilation=(2, 2))
    assert [verdict("DLA137", dilated, "xavier", version) for version in ("8.2.1", "8.4.0")] == ["kept", "gpu"]
