"""fuse-dcnv4-projections and split-dcnv4-projections on generated networks: in any surroundings, and there and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from builders import node
from dcnv4.networks import SIZE, Guise, Writer
from orinport.dcnv4.arguments import Geometry
from orinport.dcnv4.node import DOMAIN, FUSED, PLAIN, node_attributes, nodes_of
from orinport.dcnv4.portable import portable_proto
from orinport.dcnv4.projections import fuse_projections
from orinport.model.save import to_proto
from orinport.rewrites.catalogue import fuse_dcnv4_projections, split_dcnv4_projections
from rewrites.harness import SEEDS, Draw, Pattern, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.rewrite import Rewrite


def drawn_geometry(draw: Draw, *, keeps_size: bool) -> Geometry:
    """Of a small operator; value and offsets belong to the same pixels only where the size is kept."""
    group, depth = draw.choose([(1, 8), (1, 16), (2, 8), (4, 4)])
    kernel = (draw.choose([1, 3, 3]), draw.choose([1, 3, 3]))
    dilation = (draw.integer(1, 2), draw.integer(1, 2))
    padding = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    stride = (1, 1) if keeps_size else draw.choose([(1, 2), (2, 1), (2, 2)])
    centre = kernel[0] * kernel[1] > 1 and draw.chance(0.3)
    return Geometry(group, depth, kernel, stride, padding, dilation, draw.choose([0.5, 1.0, 2.0]), centre)


class Parts:
    """Nodes, constants and shapes of a pattern that is being written."""

    def __init__(self, draw: Draw, geometry: Geometry, images: int, size: tuple[int, int]) -> None:
        self.draw, self.geometry, self.dims = draw, geometry, (images, *size)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def linear(self, source: str, inner: int, columns: int, name: str, shared: dict[int, str]) -> None:
        """A linear layer of 4-D rows in one of the forms that exporters write; biases may be shared."""
        draw, flat = self.draw, self.draw.chance(0.4)
        result, given = (f"{name}_l", f"{name}_f") if flat else (name, source)
        if flat:
            rank = draw.choose([2, 3])
            images, height, width = self.dims
            rows = [images * height * width] if rank == 2 else [images, height * width]
            self.constants |= {
                f"{name}_in": np.asarray([*rows, inner]),
                f"{name}_out": np.asarray([*self.dims, columns]),
            }
            self.nodes.append(node("Reshape", [source, f"{name}_in"], given))
        bias = shared.setdefault(columns, f"{name}_b") if draw.chance(0.5) else f"{name}_b"
        biased = draw.chance(0.6)
        if biased:
            self.constants.setdefault(bias, draw.array(columns))
        weights = draw.array(inner, columns, scale=0.2)
        if flat and rank == 2 and draw.chance(0.5):
            turned = draw.chance(0.5)
            self.constants[f"{name}_w"] = np.ascontiguousarray(weights.T) if turned else weights
            operands = [given, f"{name}_w", *([bias] if biased else [])]
            self.nodes.append(node("Gemm", operands, result, transB=int(turned)))
        else:
            self.constants[f"{name}_w"] = weights
            product = f"{name}_m" if biased else result
            self.nodes.append(node("MatMul", [given, f"{name}_w"], product))
            if biased:
                operands = [product, bias] if draw.chance(0.6) else [bias, product]
                self.nodes.append(node("Add", operands, result))
        if flat:
            self.nodes.append(node("Reshape", [result, f"{name}_out"], name))

    def operator(self, kind: str, inputs: list[str], result: str) -> None:
        """The DCNv4 operator behind the linear layers."""
        attributes: dict[str, Any] = node_attributes(self.geometry)
        self.nodes.append(node(kind, inputs, result, domain=DOMAIN, **attributes))
        images, *size = self.dims
        self.shapes[result] = (images, *self.geometry.output_size(*size), self.geometry.channels)

    def pattern(self, inputs: dict[str, Any], outputs: list[str], **options: Any) -> Pattern:
        """All of it."""
        pattern = Pattern(
            self.nodes, inputs, outputs, self.constants, self.draw.choose([13, 15, 16, 18, 20]), **options
        )
        pattern.domains, pattern.shapes, pattern.runnable = {DOMAIN: 1}, self.shapes, portable_proto
        return pattern


def generate_projections(draw: Draw) -> Pattern:
    """One or two operators on one tensor, each with its projections."""
    keeps_size = draw.chance(0.9)
    geometry = drawn_geometry(draw, keeps_size=keeps_size)
    parts = Parts(draw, geometry, draw.integer(1, 2), (draw.integer(3, 5), draw.integer(3, 5)))
    inner, outputs = draw.integer(2, 9), []
    shared: dict[int, str] = {}
    if not keeps_size:
        return _strided(draw, parts, inner)
    for index in range(draw.integer(1, 2)):
        for name, columns in (("v", geometry.channels), ("o", geometry.width)):
            parts.linear("x", inner, columns, f"{name}{index}", shared)
        parts.operator(PLAIN, [f"v{index}", f"o{index}"], f"y{index}")
        outputs.append(f"y{index}")
    if draw.chance(0.4):
        parts.nodes[:] = _offsets_first(parts.nodes)
    return parts.pattern({"x": (*parts.dims, inner)}, outputs)


def _offsets_first(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The same nodes, those of offsets in front of those of values."""
    return sorted(nodes, key=lambda each: (each.op_type == PLAIN, each.output[0].startswith("v")))


def _strided(draw: Draw, parts: Parts, inner: int) -> Pattern:
    """Offsets of fewer pixels than values, from the same rows; nothing may become one layer."""
    images, *size = parts.dims
    few = (images, *parts.geometry.output_size(*size))
    parts.linear("x", inner, parts.geometry.channels, "v", {})
    parts.constants["o_w"] = draw.array(inner, parts.geometry.width, scale=0.2)
    parts.nodes.append(node("MatMul", ["z", "o_w"], "o"))
    parts.operator(PLAIN, ["v", "o"], "y")
    return parts.pattern({"x": (*parts.dims, inner), "z": (*few, inner)}, ["y"], applies=False)


def generate_fused(draw: Draw) -> Pattern:
    """A fused operator behind a linear layer, or on a tensor of unknown origin."""
    geometry = drawn_geometry(draw, keeps_size=True)
    parts = Parts(draw, geometry, draw.integer(1, 2), (draw.integer(3, 5), draw.integer(3, 5)))
    width = geometry.channels + geometry.width
    if draw.chance(0.25):
        parts.operator(FUSED, ["x"], "y")
        return parts.pattern({"x": (*parts.dims, width)}, ["y"])
    inner = draw.integer(2, 9)
    parts.linear("x", inner, width, "l", {})
    outputs = [f"y{index}" for index in range(draw.integer(1, 2))]
    for name in outputs:  # one layer may feed two operators
        parts.operator(FUSED, ["l"], name)
    return parts.pattern({"x": (*parts.dims, inner)}, outputs)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("rewrite", "generate"),
    [(fuse_dcnv4_projections.REWRITE, generate_projections), (split_dcnv4_projections.REWRITE, generate_fused)],
    ids=["fuse", "split"],
)
def test_equal_in_any_surroundings(rewrite: Rewrite, generate: Any, seeds: Sequence[int]) -> None:
    check_rewrite(rewrite, generate, seeds)


def drawn(draw: Draw) -> tuple[onnx.ModelProto, bool]:
    """A network of two blocks in any guise and surroundings, and whether something inside is returned."""
    rank = draw.choose([2, 3, 4])
    gemm = rank == 2 and draw.chance(0.5)
    guise = Guise(
        rank=rank,
        gemm=gemm,
        transposed=gemm and draw.chance(0.5),
        bias=(draw.chance(0.6), draw.chance(0.6)),
        bias_first=draw.chance(0.4),
        offsets_first=draw.chance(0.4),
        shared=draw.chance(0.4),
        separate_reshapes=rank < 4 and draw.chance(0.4),
        batch=draw.choose([1, 2]),
        opset=draw.choose([13, 15, 17, 18, 20]),
    )
    group, depth = draw.choose([(1, 16), (2, 8), (2, 16), (4, 8)])
    proto = Writer(guise, group, depth).network()
    style = draw.choose(["named", "unnamed", "equal"])
    for each in proto.graph.node:
        each.name = {"named": each.name, "unnamed": "", "equal": "the same"}[style]
    dims = [guise.batch, *SIZE, group * depth]
    between = next(node.output[0] for node in proto.graph.node if node.op_type == "Tanh")
    if draw.chance(0.4):  # what an operator returns is read by others and returned
        proto.graph.node.append(helper.make_node("Neg", [between], ["read"]))
        proto.graph.output.append(helper.make_tensor_value_info("read", onnx.TensorProto.FLOAT, dims))
    exposed = draw.chance(0.2)
    if exposed:  # so is what goes into one
        operator = next(node for node in proto.graph.node if node.op_type == PLAIN)
        known = {info.name: info for info in proto.graph.value_info}
        proto.graph.output.append(known[operator.input[draw.integer(0, 1)]])
    return proto, exposed


def run(proto: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    portable = portable_proto(proto)
    for each in portable.graph.node:
        each.name = ""
    session = onnxruntime.InferenceSession(portable.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: x}))


@pytest.mark.parametrize("seeds", SEEDS)
def test_there_and_back(seeds: range) -> None:
    for seed in seeds:
        draw = Draw(seed)
        proto, exposed = drawn(draw)
        before = proto.SerializeToString()
        fusion = fuse_projections(proto)
        fused = to_proto(fusion.model)
        assert proto.SerializeToString() == before, seed
        assert fusion.proved, seed
        assert not fusion.log.rolled_back, seed
        assert len(fusion.log.applied) == 2 - exposed, (seed, fusion.log.refused)
        back = fuse_projections(fused, reverse=True)
        apart = to_proto(back.model)
        assert back.proved, seed
        assert [node.op_type for node in nodes_of(fusion.model.ir)].count(FUSED) == 2 - exposed
        assert [node.op_type for node in nodes_of(back.model.ir)] == [PLAIN, PLAIN], seed
        shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
        x = draw.rng.standard_normal(shape).astype(np.float32)
        wanted = run(proto, x)
        for made in (fused, apart):
            onnx.checker.check_model(made)
            assert [value.name for value in made.graph.output] == [value.name for value in proto.graph.output]
            for want, have in zip(wanted, run(made, x), strict=True):
                np.testing.assert_allclose(have, want, rtol=0, atol=2e-5, err_msg=str(seed))
        assert not fuse_projections(fused).log.applied or exposed, seed
        assert not fuse_projections(apart, reverse=True).log.applied, seed
