"""The whole catalogue on random networks of many operators: equal, valid, finished, and nothing left to do."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from builders import network, node
from orinport.checking import as_precision, as_target, dla_judge
from orinport.model.load import load
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.edges import move_edges
from orinport.rewrites.proof import compare_models
from rewrites.harness import SEEDS, Draw

if TYPE_CHECKING:
    from collections.abc import Sequence


class Growing:
    """A network that grows by one operator at a time and knows its values' shapes."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {"x": (draw.integer(1, 2), *draw.shape(3, 2, 8))}
        self.opset = draw.choose([11, 13, 17, 20])
        self.current = "x"

    def constant(self, array: np.ndarray) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = array
        return name

    def add(self, op_type: str, shape: Sequence[int], *others: str, **attributes: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op_type, [self.current, *others], name, **attributes))
        self.shapes[name] = tuple(shape)
        self.current = name

    def grow(self) -> None:
        draw, shape = self.draw, self.shapes[self.current]
        kind = draw.choose(["activation", "constant", "reshape", "transpose", "product", "residual", "softmax", "map"])
        if kind == "activation":
            self.add(draw.choose(["Relu", "Sigmoid", "Tanh", "Identity", "Abs"]), shape)
        elif kind == "constant":
            form = [size if draw.chance(0.5) else 1 for size in shape][draw.integer(0, len(shape)) :]
            self.add(draw.choose(["Add", "Mul", "Sub"]), shape, self.constant(draw.array(*form)))
        elif kind == "reshape":
            flat = [(shape[0], prod(shape[1:])), (prod(shape[:-1]), shape[-1]), (1, *shape), (shape[0], 1, *shape[1:])]
            wanted = draw.choose([each for each in flat if len(each) <= 5] + [_four(shape)])
            self.add("Reshape", wanted, self.constant(np.asarray(wanted, np.int64)))
        elif kind == "transpose":
            perm = [int(axis) for axis in draw.rng.permutation(len(shape))]
            self.add("Transpose", [shape[axis] for axis in perm], perm=perm)
        elif kind == "product" and len(shape) >= 2:
            width = draw.integer(1, 8)
            weights = self.constant(draw.array(shape[-1], width) / np.float32(np.sqrt(shape[-1])))
            self.add("MatMul", (*shape[:-1], width), weights)
        elif kind == "residual":
            alike = [name for name, each in self.shapes.items() if each == shape and name != self.current]
            if alike:
                self.add("Add", shape, draw.choose(alike))
        elif kind == "softmax":
            self.add("Softmax", shape, axis=draw.integer(0, len(shape) - 1))
        elif len(shape) == 4:
            self.grow_map(shape)

    def grow_map(self, shape: tuple[int, ...]) -> None:
        draw = self.draw
        n, c, h, w = shape
        kind = draw.choose(["conv", "pool", "mean", "max", "norm"])
        if kind == "conv":
            out = draw.integer(1, 8)
            weights = self.constant(draw.array(out, c, 1, 1) / np.float32(np.sqrt(c)))
            self.add("Conv", (n, out, h, w), weights, self.constant(draw.array(out)), kernel_shape=[1, 1])
        elif kind == "pool":
            self.add("AveragePool", shape, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        elif kind == "norm":
            values = [np.abs(draw.array(c)) + np.float32(0.5) for _ in range(4)]
            self.add("BatchNormalization", shape, *map(self.constant, values))
        else:
            self.add("GlobalAveragePool" if kind == "mean" else "GlobalMaxPool", (n, c, 1, 1))


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) <= 4:
        return (*shape, *[1] * (4 - len(shape)))
    return (*shape[:3], prod(shape[3:]))


def random_network(seed: int) -> onnx.ModelProto:
    draw = Draw(seed)
    draw.dtype = np.float32
    growing = Growing(draw)
    for _ in range(draw.integer(4, 16)):
        growing.grow()
    growing.add("Neg", growing.shapes[growing.current])
    outputs = [growing.current]
    if len(growing.nodes) > 3 and draw.chance(0.3):
        outputs.append(growing.nodes[draw.integer(0, len(growing.nodes) - 2)].output[0])
    used = {name for each in growing.nodes for name in each.input}
    constants = {name: array for name, array in growing.constants.items() if name in used}
    return network(growing.nodes, {"x": growing.shapes["x"]}, outputs, constants, opset=growing.opset)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("judged", [False, True])
def test_random_networks(seeds: Sequence[int], judged: bool) -> None:
    board, precision = as_target("orin-agx-64gb/jp6.2"), as_precision("fp16")
    judge = dla_judge(board, precision, standalone=False) if judged else None
    for seed in seeds:
        proto = random_network(seed)
        model = load(proto)
        rewritten, log = rewrite_model(model, target=board, precision=precision, judge=judge)
        text = f"seed {seed}, {log.counts()}\n{onnx.printer.to_text(proto)}"
        assert not log.rolled_back, f"{log.rolled_back[0]}\n{text}"
        moved, edges = move_edges(rewritten, judge=judge)
        onnx.checker.check_model(ir.to_proto(moved.ir), full_check=True)
        report = compare_models(model, moved, edges, cases=2, seed=seed)
        assert report.equal, f"{report.rows}\n{text}"
        again = rewrite_model(rewritten, target=board, precision=precision, judge=judge)[1]
        assert not again.applied, f"{again.applied}\n{text}"
        if judge is not None:
            before, after = (_work_off(each.ir, judge(each.ir)) for each in (model, rewritten))
            assert after <= before, f"{before} nodes of work off the DLA became {after}\n{text}"


def _work_off(model: ir.Model, off: frozenset[str]) -> int:
    from orinport.rewrites.context import MOVERS, label

    return sum(label(each) in off and each.op_type not in MOVERS for each in model.graph)
