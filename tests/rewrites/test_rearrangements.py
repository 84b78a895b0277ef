"""rearrange-in-4d, channel-shuffle-to-conv, depth-to-space-to-deconv, space-to-depth-to-conv, gather-to-slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from builders import light_path, network, node, run_onnx
from orinport.checking import as_precision, as_target, check_model, dla_judge
from orinport.model.load import load
from orinport.rewrites.catalogue import (
    channel_shuffle_to_conv,
    depth_to_space_to_deconv,
    gather_to_slices,
    merge_shape_movers,
    rearrange_in_4d,
    space_to_depth_to_conv,
)
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.edges import move_edges
from orinport.rewrites.proof import compare_models
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def shuffle_nodes(shape: Sequence[int], groups: int, constants: dict[str, np.ndarray]) -> list[Any]:
    """The channel shuffle as PyTorch exports it."""
    n, c, h, w = shape
    constants |= {"five": np.asarray([n, groups, c // groups, h, w]), "four": np.asarray([n, c, h, w])}
    return [
        node("Reshape", ["x", "five"], "a"),
        node("Transpose", ["a"], "b", perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["b", "four"], "y"),
    ]


def generate_shuffle(draw: Draw) -> Pattern:
    groups = draw.integer(2, 4)
    shape = (draw.integer(1, 2), groups * draw.integer(2, 3), *draw.shape(2, 1, 5))
    constants: dict[str, np.ndarray] = {}
    return Pattern(shuffle_nodes(shape, groups, constants), {"x": shape}, ["y"], constants, draw.opset())


def generate_blocks(op_type: str) -> Any:
    def generate(draw: Draw) -> Pattern:
        block, channels = draw.integer(2, 3), draw.integer(1, 3)
        n, h, w = draw.integer(1, 2), draw.integer(1, 4), draw.integer(1, 4)
        shape = (n, channels * block**2, h, w) if op_type == "DepthToSpace" else (n, channels, h * block, w * block)
        opset = draw.opset(11) if op_type == "DepthToSpace" else draw.opset(13)
        mode = draw.choose([None, "DCR", "CRD"]) if op_type == "DepthToSpace" else None
        attributes = {"mode": mode} if mode else {}
        nodes = [node(op_type, ["x"], "y", blocksize=block, **attributes)]
        return Pattern(nodes, {"x": shape}, ["y"], {}, opset, applies=None if 1 in (h, w) else True)

    return generate


def generate_six(draw: Draw) -> Pattern:
    """Blocks of pixels by reshapes and a transpose of six dimensions."""
    b = draw.integer(2, 3)
    n, c, h, w = draw.integer(1, 2), *draw.shape(3, 2, 3)
    down = draw.chance(0.5)
    if down:
        shape, six, perm, four = (n, c, h * b, w * b), (n, c, h, b, w, b), (0, 3, 5, 1, 2, 4), (n, b * b * c, h, w)
    else:
        shape, six, perm, four = (n, c * b * b, h, w), (n, c, b, b, h, w), (0, 1, 4, 2, 5, 3), (n, c, h * b, w * b)
    nodes = [
        node("Reshape", ["x", "six"], "a"),
        node("Transpose", ["a"], "b", perm=list(perm)),
        node("Reshape", ["b", "four"], "y"),
    ]
    return Pattern(nodes, {"x": shape}, ["y"], {"six": np.asarray(six), "four": np.asarray(four)}, draw.opset())


def generate_gather(axes: Sequence[int]) -> Any:
    def generate(draw: Draw) -> Pattern:
        shape = draw.shape(4, 1, 6)
        axis = draw.choose(axes)
        size = shape[axis]
        count = draw.integer(1, 6)
        indices: Any = np.asarray([draw.integer(-size if draw.chance(0.5) else 0, size - 1) for _ in range(count)])
        form = draw.choose(["scalar", "row", "row", "table"])
        indices = indices[0] if form == "scalar" else indices.reshape(1, -1) if form == "table" else indices
        kind = draw.choose([np.int64, np.int32])
        axis = axis - 4 if draw.chance(0.3) else axis
        nodes = [node("Gather", ["x", "i"], "y", axis=axis)]
        same = form == "row" and (indices % size).tolist() == list(range(size))
        constants = {"i": np.asarray(indices, kind)}
        return Pattern(nodes, {"x": shape}, ["y"], constants, draw.opset(11), applies=None if same else True)

    return generate


@pytest.mark.parametrize("seeds", SEEDS)
def test_rearrange_shuffle(seeds: Sequence[int]) -> None:
    check_rewrite(rearrange_in_4d.REWRITE, generate_shuffle, seeds)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("op_type", ["DepthToSpace", "SpaceToDepth"])
def test_rearrange_blocks(op_type: str, seeds: Sequence[int]) -> None:
    check_rewrite(rearrange_in_4d.REWRITE, generate_blocks(op_type), seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_rearrange_six_dimensions(seeds: Sequence[int]) -> None:
    check_rewrite(rearrange_in_4d.REWRITE, generate_six, seeds)


def _finite(generate: Any) -> Any:
    def finite(draw: Draw) -> Pattern:
        pattern: Pattern = generate(draw)
        pattern.special = pattern.overflow = False
        return pattern

    return finite


@pytest.mark.parametrize("seeds", SEEDS)
def test_shuffle_to_conv(seeds: Sequence[int]) -> None:
    check_rewrite(channel_shuffle_to_conv.REWRITE, _finite(generate_shuffle), seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_gather_to_conv(seeds: Sequence[int]) -> None:
    check_rewrite(channel_shuffle_to_conv.REWRITE, _finite(generate_gather([1])), seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_depth_to_space_to_deconv(seeds: Sequence[int]) -> None:
    check_rewrite(depth_to_space_to_deconv.REWRITE, _finite(generate_blocks("DepthToSpace")), seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_space_to_depth_to_conv(seeds: Sequence[int]) -> None:
    check_rewrite(space_to_depth_to_conv.REWRITE, _finite(generate_blocks("SpaceToDepth")), seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_gather_to_slices(seeds: Sequence[int]) -> None:
    check_rewrite(gather_to_slices.REWRITE, generate_gather([1, 2, 3]), seeds)


def test_infinity_stays_in_its_channel() -> None:
    """An unselected or neighbouring channel that overflows must not spread."""
    proto = network([node("Gather", ["x", "i"], "y", axis=1)], {"x": (1, 3, 1, 2)}, ["y"], {"i": np.asarray([2, 0])})
    model, log = apply_to(proto, gather_to_slices.REWRITE)
    assert log.applied
    x = np.asarray([1, 2, np.inf, np.nan, 5, 6], np.float32).reshape(1, 3, 1, 2)
    assert run_onnx(ir.to_proto(model.ir), {"x": x})[0].reshape(-1).tolist() == [5, 6, 1, 2]


def test_two_unnamed_gathers() -> None:
    gathers = [node("Gather", ["x", f"i{k}"], f"y{k}", axis=1, name="") for k in range(2)]
    proto = network(gathers, {"x": (1, 4, 2, 3)}, ["y0", "y1"], {"i0": np.asarray([3, 1]), "i1": np.asarray([0, 2])})
    for rewrite in (gather_to_slices.REWRITE, channel_shuffle_to_conv.REWRITE):
        model, log = apply_to(proto, rewrite)
        assert len(log.applied) == 2
        x = np.arange(24, dtype=np.float32).reshape(1, 4, 2, 3)
        found = run_onnx(ir.to_proto(model.ir), {"x": x})
        assert np.array_equal(found[0], x[:, [3, 1]])
        assert np.array_equal(found[1], x[:, [0, 2]])


def test_shuffles_do_not_go_round_in_circles() -> None:
    """What was taken apart for four dimensions is not joined to six again, judged or not."""
    proto = network([node("DepthToSpace", ["x"], "y", blocksize=2)], {"x": (1, 16, 3, 5)}, ["y"])
    model, log = apply_to(proto, rearrange_in_4d.REWRITE, merge_shape_movers.REWRITE)
    assert log.counts()["rearrange-in-4d"] == 1
    assert log.counts().get("merge-shape-movers", 0) <= 2
    assert all(len(value.shape or ()) == 4 for each in model.graph for value in each.outputs)


def test_large_pictures_find_another_way() -> None:
    """(1, 2, 64, H*W) with H*W above the limit is refused only if no view stays below it."""
    constants: dict[str, np.ndarray] = {}
    proto = network(shuffle_nodes((1, 8, 113, 127), 2, constants), {"x": (1, 8, 113, 127)}, ["y"], constants)
    check_refused(proto, rearrange_in_4d.REWRITE, "a side above the DLA's limit of 8192")


def test_refused() -> None:
    row = {"i": np.asarray([0, 1])}

    def gather(shape: Sequence[int], axis: int) -> Any:
        return network([node("Gather", ["x", "i"], "y", axis=axis)], {"x": tuple(shape)}, ["y"], row)

    check_refused(gather((2, 4, 5, 6), 0), gather_to_slices.REWRITE, "does not slice the batch")
    runtime = network([node("Gather", ["x", "i"], "y", axis=1)], {"x": (1, 4, 5, 6), "i": ((2,), np.int64)}, ["y"])
    for rewrite in (gather_to_slices.REWRITE, channel_shuffle_to_conv.REWRITE):
        check_refused(runtime, rewrite, "known at run time only")
    many = network(
        [node("Gather", ["x", "i"], "y", axis=1)], {"x": (1, 200, 2, 2)}, ["y"], {"i": np.arange(200)[::-1].copy()}
    )
    check_refused(many, gather_to_slices.REWRITE, "200 slices")
    blocks = network([node("SpaceToDepth", ["x"], "y", blocksize=16)], {"x": (1, 3, 32, 32)}, ["y"])
    check_refused(blocks, space_to_depth_to_conv.REWRITE, "exceed the DLA's limit of 8")
    wide = network([node("SpaceToDepth", ["x"], "y", blocksize=4)], {"x": (1, 512, 64, 64)}, ["y"])
    check_refused(wide, space_to_depth_to_conv.REWRITE, "constants of 67108864 elements")
    batch = network(
        [
            node("Transpose", ["x"], "a", perm=[1, 0, 2, 3]),
            node("Flatten", ["a"], "b"),
            node("Reshape", ["b", "s"], "y"),
        ],
        {"x": (2, 4, 5, 6)},
        ["y"],
        {"s": np.asarray([2, 4, 5, 6])},
    )
    check_refused(batch, rearrange_in_4d.REWRITE, "from one sample to another")


@pytest.mark.parametrize("target", ["orin-agx-64gb/jp6.0", "orin-agx-64gb/jp6.2"])
def test_shufflenet_ends_in_one_loadable(target: str) -> None:
    model = load(light_path("shufflenet"))
    board, numbers = as_target(target), as_precision("fp16")
    judge = dla_judge(board, numbers, standalone=False)
    rewritten, log = rewrite_model(model, target=board, precision=numbers, judge=judge)
    assert not log.rolled_back
    moved, edges = move_edges(rewritten)
    report = check_model(moved, board, numbers)
    assert report.all_dla, [(row.layer.name, row.codes) for row in report.layers if row.verdict.value != "dla"]
    assert report.placement.loadables == 1
    assert compare_models(model, moved, edges, cases=1).equal
