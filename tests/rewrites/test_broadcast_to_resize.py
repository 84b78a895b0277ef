"""broadcast-to-resize: operands of every shape that broadcasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.broadcast_to_resize import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    op_type = draw.choose(REWRITE.op_types)
    shape = (draw.integer(1, 2), draw.integer(1, 4), draw.choose([1, 2, 7, 12, 37, 40]), draw.choose([1, 3, 8, 33, 41]))
    shapes = [(shape[0], *(size if draw.chance(0.6) else 1 for size in shape[1:])) for _ in range(2)]
    constants, names = {}, ["x", "z"]
    inputs = {"x": shapes[0], "z": shapes[1]}
    constant = draw.chance(0.4)
    if constant:
        del inputs["z"]
        cut = draw.integer(0, 3)
        constants["z"] = np.asarray(
            draw.array(*shapes[1][cut:] if shape[0] == 1 else (1, *shapes[1][1:])) + draw.dtype(2)
        )
    if draw.chance(0.5):
        names.reverse()
    pattern = Pattern(
        [node(op_type, names, "y")], inputs, ["y"], constants, draw.opset(), nan=op_type in ("Add", "Mul")
    )
    pattern.applies = None
    if not constant:
        pattern.applies = shapes[0] != shapes[1]
    return pattern


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def product(first: tuple[int, ...], second: tuple[int, ...]):
    return network([node("Mul", ["x", "z"], "y")], {"x": first, "z": second}, ["y"])


def test_squeeze_and_excite_takes_two_resizes() -> None:
    model, _ = apply_to(product((1, 64, 56, 56), (1, 64, 1, 1)), REWRITE)
    assert [each.op_type for each in model.graph] == ["Resize", "Resize", "Mul"]


def test_copies_of_the_batch_are_refused() -> None:
    check_refused(product((2, 3, 4, 4), (1, 3, 4, 4)), REWRITE, "the batch")


def test_large_primes_are_copied_as_channels() -> None:
    model, _ = apply_to(product((1, 3, 37, 4), (1, 3, 1, 4)), REWRITE)
    assert [each.op_type for each in model.graph] == ["Transpose", "Conv", "Transpose", "Mul"]


def test_operands_of_lower_rank_are_refused() -> None:
    check_refused(product((1, 3, 4, 4), (4, 4)), REWRITE, "fewer than 4")
