"""Raising the opset: every operator that is written again means the same, and what cannot be keeps the old opset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import network, node
from orinport.rewrites.catalogue.softmax_to_channels import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    """Operators of the old form in a row, and a Softmax at the end."""
    shape = (2, *draw.shape(2, 2, 4))
    opset = draw.opset(9, 12)
    kinds = [str(kind) for kind in draw.rng.permutation(["clip", "dropout", "squeeze", "sum", "log", "plain"])]
    nodes = [node("Split", ["x"], ["s0", "s1"], axis=0, split=[1, 1]), node("Concat", ["s1", "s0"], "v", axis=0)]
    current = "v"
    for index, kind in enumerate(kinds[: draw.integer(1, 5)]):
        name = f"v{index}"
        if kind == "clip" and opset < 11:
            nodes.append(node("Clip", [current], name, min=-1.0, max=2.0))
        elif kind == "dropout":
            nodes.append(node("Dropout", [current], name))
        elif kind == "squeeze":
            nodes.append(node("Unsqueeze", [current], f"u{index}", axes=[0]))
            nodes.append(node("Squeeze", [f"u{index}"], name, axes=[0]))
        elif kind == "sum":
            nodes.append(node("ReduceSum", [current], name, axes=[draw.integer(0, 2)], keepdims=1))
        elif kind == "log":
            nodes.append(node("LogSoftmax", [current], name, axis=draw.integer(1, 2)))
        else:
            nodes.append(node("Neg", [current], name))
        current = name
    nodes.append(node("Softmax", [current], "y", axis=draw.integer(1, 2)))
    return Pattern(nodes, {"x": shape}, ["y"], {}, opset, overflow=False)


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def test_names_stay() -> None:
    nodes = [node("Clip", ["x"], "c", min=0.0, max=1.0), node("Softmax", ["c"], "y", axis=2)]
    model, log = apply_to(network(nodes, {"x": (3, 4, 5)}, ["y"], opset=9), REWRITE)
    assert model.opset == 13
    assert [each.name for each in model.graph if each.op_type == "Clip"] == ["Clip_c"]
    assert log.counts()["raise-opset"] == 2


def test_a_used_mask_keeps_the_opset() -> None:
    nodes = [node("Dropout", ["x"], ["d", "m"]), node("Cast", ["m"], "z", to=1), node("Softmax", ["d"], "y")]
    model, log = apply_to(network(nodes, {"x": (3, 4)}, ["y", "z"], opset=11), REWRITE)
    assert model.opset == 11
    assert not log.applied
    assert any("mask" in refused.reason for refused in log.refused)


def test_a_board_with_an_old_parser_keeps_the_opset() -> None:
    from dataclasses import replace

    from orinport.targets.load import load_target

    board = load_target("orin-agx-64gb/jp6.0")
    board = replace(board, stack=replace(board.stack, opset=12))
    model, _ = apply_to(network([node("Softmax", ["x"], "y")], {"x": (3, 4)}, ["y"], opset=11), REWRITE, target=board)
    assert model.opset == 11
