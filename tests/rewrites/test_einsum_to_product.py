"""einsum-to-product: equations that are products, with constant and run-time operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.einsum_to_product import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

EQUATIONS = (
    "ij,jk->ik", "bij,bjk->bik", "bhid,bhjd->bhij", "bhij,bhjd->bihd", "bthd,hdo->bto", "btc,hcd->bhtd", "i,j->ij",
    "ij,j->i", "bchw,co->bohw", "bij , kj -> bki", "ijk,jil->lk", "bnd,bmd",
)  # fmt: skip


def generate(draw: Draw) -> Pattern:
    equation = draw.choose(EQUATIONS)
    one, two = equation.replace(" ", "").split("->")[0].split(",")
    sizes = {letter: draw.integer(1, 5) for letter in one + two}
    first, second = (tuple(sizes[letter] for letter in text) for text in (one, two))
    inputs, constants = {"x": first, "z": second}, {}
    if draw.chance(0.5):
        name = draw.choose(["x", "z"])
        constants[name] = draw.array(*inputs.pop(name))
    return Pattern([node("Einsum", ["x", "z"], "y", equation=equation)], inputs, ["y"], constants, draw.opset(12))


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def einsum(equation: str, *shapes: tuple[int, ...], dtype: Any = np.float32) -> Any:
    names = [f"x{index}" for index in range(len(shapes))]
    inputs = {name: (shape, dtype) for name, shape in zip(names, shapes, strict=True)}
    return network([node("Einsum", names, "y", equation=equation)], inputs, ["y"])


def test_a_projection_is_one_convolution() -> None:
    constants = {"w": np.ones((4, 8, 32), np.float32)}
    call = node("Einsum", ["x", "w"], "y", equation="bthd,hdo->bto")
    model, _ = apply_to(network([call], {"x": (1, 16, 4, 8)}, ["y"], constants), REWRITE)
    (conv,) = (each for each in model.graph if each.op_type == "Conv")
    assert tuple(conv.inputs[1].shape) == (32, 32, 1, 1)


@pytest.mark.parametrize(
    ("equation", "shapes", "words"),
    [
        ("ij->ji", [(2, 3)], "1 operands"),
        ("ij,jk,kl->il", [(2, 2)] * 3, "3 operands"),
        ("...ij,jk->...ik", [(2, 2, 2), (2, 2)], "ellipsis"),
        ("ii,ij->j", [(2, 2), (2, 2)], "twice"),
        ("ij,ik->i", [(2, 2), (2, 2)], "summed over"),
    ],
)
def test_refusals(equation: str, shapes: list[tuple[int, ...]], words: str) -> None:
    check_refused(einsum(equation, *shapes), REWRITE, words)


def test_too_many_channels_are_refused() -> None:
    constants = {"w": np.ones((9000, 2), np.float32)}
    call = node("Einsum", ["x", "w"], "y", equation="ij,jk->ik")
    check_refused(network([call], {"x": (2, 9000)}, ["y"], constants), REWRITE, "8192")
