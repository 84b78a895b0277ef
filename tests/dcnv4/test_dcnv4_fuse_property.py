"""fuse-dcnv4-projections and split-dcnv4-projections on generated networks, there and back."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from dcnv4.networks import SIZE, Guise, Writer
from orinport.dcnv4.node import FUSED, PLAIN, nodes_of
from orinport.dcnv4.portable import portable_proto
from orinport.dcnv4.projections import fuse_projections
from orinport.model.save import to_proto
from rewrites.harness import SEEDS, Draw


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
    for node in proto.graph.node:
        node.name = {"named": node.name, "unnamed": "", "equal": "the same"}[style]
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
    for node in portable.graph.node:
        node.name = ""
    session = onnxruntime.InferenceSession(portable.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: range) -> None:
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
