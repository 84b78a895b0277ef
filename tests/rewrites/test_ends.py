"""Cutting off a network's tail: the two parts chained compute what the whole did, wherever the cut is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import orinport
from builders import network, node, run_onnx
from orinport.model.load import load
from orinport.rewrites.context import label
from orinport.rewrites.edges import move_edges
from orinport.rewrites.ends import chain, cut_tail, fit_tail
from orinport.rewrites.rewrite import Refusal
from rewrites.harness import SEEDS, Draw

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

JP62, JP722 = "orin-agx-64gb/jp6.2", "orin-agx-64gb/jp7.2.2"


def detector(*, side: int = 32, keep: bool = False) -> onnx.ModelProto:
    """Convolutions, and a head that takes boxes and scores apart, decodes boxes and picks the best scores."""
    rng = np.random.default_rng(0)
    cells = side * side
    constants = {
        "w": (rng.standard_normal((16, 3, 3, 3)) * 0.2).astype(np.float32),
        "w2": (rng.standard_normal((18, 16, 1, 1)) * 0.2).astype(np.float32),
        "flat_shape": np.asarray([1, 18, -1], np.int64),
        "parts": np.asarray([4, 14], np.int64),
        "anchor": rng.standard_normal((1, 4, cells)).astype(np.float32),
        "count": np.asarray([5], np.int64),
    }
    nodes = [
        node("Conv", ["image", "w"], "c", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], "features"),
        node("Conv", ["features", "w2"], "raw"),
        node("Reshape", ["raw", "flat_shape"], "flat"),
        node("Split", ["flat", "parts"], ["box", "cls"], axis=1),
        node("Exp", ["box"], "size"),
        node("Mul", ["size", "anchor"], "boxes"),
        node("Sigmoid", ["cls"], "scores"),
        node("ReduceMax", ["scores"], "best", axes=[1], keepdims=0),
        node("TopK", ["best", "count"], ["top", "where"]),
    ]
    outputs = ["boxes", "top", *(["features"] if keep else [])]
    return network(nodes, {"image": (1, 3, side, side)}, outputs, constants, opset=13)


def classifier(last: str, **attributes: Any) -> onnx.ModelProto:
    """A convolution, a pool, and something that picks."""
    weights = np.random.default_rng(0).standard_normal((10, 3, 4, 4)).astype(np.float32)
    nodes = [node("Conv", ["image", "w"], "logits"), node(last, ["logits"], "y", **attributes)]
    return network(nodes, {"image": (1, 3, 4, 4)}, ["y"], {"w": weights}, opset=13)


def run_chained(folder: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Both files of a bundle, one after the other, as a user runs them."""
    head, tail = (onnx.load(folder / f"{name}.onnx") for name in ("model", "tail"))  # noqa: TID251
    for each in (head, tail):
        onnx.checker.check_model(each, full_check=True)
    names = [value.name for value in head.graph.output]
    known = {**feeds, **dict(zip(names, run_onnx(head, feeds), strict=True))}
    given = {value.name: known[value.name] for value in tail.graph.input}
    return {**known, **dict(zip([value.name for value in tail.graph.output], run_onnx(tail, given), strict=True))}


@pytest.mark.parametrize("keep", [False, True], ids=["inside", "returned"])
@pytest.mark.parametrize("keep_io", [False, True], ids=["moved", "kept"])
def test_a_detection_head(keep: bool, keep_io: bool, tmp_path: Path) -> None:
    proto = detector(keep=keep)
    report = orinport.prepare(proto, target=JP62, output=tmp_path / "b", cut_tail=True, keep_io=keep_io)
    assert report.after.all_dla
    assert report.after.placement.loadables == 1
    assert report.proof is not None
    assert report.proof.equal
    assert {row.output for row in report.proof.rows} == {value.name for value in proto.graph.output}
    feeds = {"image": np.random.default_rng(3).standard_normal((1, 3, 32, 32)).astype(np.float32)}
    found = run_chained(tmp_path / "b", feeds)
    for value, want in zip(proto.graph.output, run_onnx(proto, feeds), strict=True):
        np.testing.assert_allclose(found[value.name], want, rtol=1e-5, atol=1e-6)
    document = json.loads((tmp_path / "b/report.json").read_text())
    inputs = document["tail"]["inputs"]
    head = onnx.load(tmp_path / "b/model.onnx")  # noqa: TID251
    assert inputs == [value.name for value in head.graph.output if value.name != "features"]
    assert {"Exp_size", "TopK_top"} <= set(document["tail"]["nodes"])
    assert document["tail"]["outputs"] == ["boxes", "top"]
    assert "tail.onnx" in document["files"]
    assert f"tail.onnx makes boxes, top from {', '.join(inputs)}" in (tmp_path / "b/report.txt").read_text()
    assert orinport.verify(proto, tmp_path / "b").equal


def test_strongly_typed_tails_take_fp16(tmp_path: Path) -> None:
    proto = detector()
    report = orinport.prepare(proto, target=JP722, output=tmp_path / "b", cut_tail=True)
    assert report.tail is not None
    image = np.random.default_rng(3).standard_normal((1, 3, 32, 32)).astype(np.float32)
    found = run_chained(tmp_path / "b", {"image": image.astype(np.float16)})
    want = run_onnx(proto, {"image": image})
    assert {found[name].dtype for name in report.tail.inputs} == {np.dtype(np.float16)}
    assert found["boxes"].dtype == np.float32
    np.testing.assert_allclose(found["boxes"], want[0], rtol=2e-2, atol=2e-2)


def test_a_bundle_without_tail_replaces_one_with(tmp_path: Path) -> None:
    orinport.prepare(detector(), target=JP62, output=tmp_path / "b", cut_tail=True)
    report = orinport.prepare(detector(), target=JP62, output=tmp_path / "b", force=True)
    assert report.tail is None
    assert not (tmp_path / "b/tail.onnx").exists()


@pytest.mark.parametrize(
    ("last", "attributes"), [("Softmax", {"axis": 1}), ("ArgMax", {"axis": 1}), ("LogSoftmax", {"axis": 1})]
)
def test_what_picks_at_the_end_goes_with_the_tail(last: str, attributes: dict[str, Any], tmp_path: Path) -> None:
    """Even a Softmax that the DLA takes."""
    proto = classifier(last, **attributes)
    report = orinport.prepare(proto, target=JP62, output=tmp_path / "b", cut_tail=True)
    assert report.tail is not None
    assert report.tail.inputs == ("logits",)
    assert report.after.all_dla
    feeds = {"image": np.random.default_rng(3).standard_normal((1, 3, 4, 4)).astype(np.float32)}
    np.testing.assert_allclose(run_chained(tmp_path / "b", feeds)["y"], run_onnx(proto, feeds)[0], rtol=1e-5)


def test_nothing_to_cut_is_said(tmp_path: Path) -> None:
    proto = classifier("Relu")
    report = orinport.prepare(proto, target=JP62, output=tmp_path / "b", cut_tail=True)
    assert report.tail is None
    assert any("the DLA takes the network to its end" in note for note in report.notes)
    assert not (tmp_path / "b/tail.onnx").exists()


def test_a_layer_in_the_middle_does_not_take_the_end_along() -> None:
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((4, 4, 3, 3)).astype(np.float32) for name in ("a", "b")}
    nodes = [
        node("Conv", ["x", "a"], "first", name="first"),
        node("Erf", ["first"], "middle", name="middle"),
        node("Conv", ["middle", "b"], "y", name="last"),
    ]
    model = load(network(nodes, {"x": (1, 4, 9, 9)}, ["y"], weights))
    found = cut_tail(model, lambda _: {"middle"})
    assert isinstance(found, Refusal)
    assert "middle, stands before 34% of the MACs" in found.reason


def generate(draw: Draw) -> onnx.ModelProto:
    """A random graph that branches, joins, reshapes, and has a subgraph and outputs in the middle."""
    shape = (1, 4, 3, 5)
    values: list[tuple[str, tuple[int, ...]]] = [("x", shape), ("z", shape)]
    nodes: list[onnx.NodeProto] = []
    constants = {
        "k": draw.array(4, 4, 1, 1).astype(np.float32),
        "flat": np.asarray([1, 4, 15], np.int64),
        "map": np.asarray(shape, np.int64),
    }
    for index in range(draw.integer(4, 12)):
        name, out = f"v{index}", shape
        source, dims = draw.choose(values[-4:])
        how = draw.choose(["Neg", "Conv", "Add", "Reshape", "Transpose", "If"])
        if how == "Conv" and len(dims) == 4:
            nodes.append(node("Conv", [source, "k"], name))
        elif how == "Add":
            other = draw.choose([each for each, size in values if size == dims])
            nodes.append(node("Add", [source, other], name))
            out = dims
        elif how == "Reshape":
            out = (1, 4, 15) if len(dims) == 4 else shape
            nodes.append(node("Reshape", [source, "flat" if len(dims) == 4 else "map"], name))
        elif how == "Transpose" and len(dims) == 4:
            nodes.append(node("Transpose", [source], name + "t", perm=[0, 1, 3, 2]))
            nodes.append(node("Transpose", [name + "t"], name, perm=[0, 1, 3, 2]))
        elif how == "If":
            other = draw.choose([each for each, size in values if size == dims])
            branches = {
                f"{side}_branch": helper.make_graph(
                    [helper.make_node(op_type, [read], [f"{name}_{side}"], name=f"{name}_{side}")],
                    side,
                    [],
                    [helper.make_tensor_value_info(f"{name}_{side}", 1, dims)],
                )
                for side, op_type, read in (("then", "Neg", source), ("else", "Abs", other))
            }
            nodes.append(node("If", ["flag"], name, **branches))
            out = dims
        else:
            nodes.append(node("Neg", [source], name))
            out = dims
        values.append((name, out))
    read = {each for made in nodes for each in made.input}
    ends = [name for name, _ in values[2:] if name not in read or draw.chance(0.15)]
    return network(nodes, {"x": shape, "z": shape, "flag": ((), np.bool_)}, ends, constants, opset=17)


@pytest.mark.parametrize("seeds", SEEDS)
def test_chained_equal_wherever_the_cut_is(seeds: Sequence[int]) -> None:
    done = 0
    for seed in seeds:
        draw = Draw(seed)
        proto = generate(draw)
        model = load(proto)
        labels = [label(each) for each in model.ir.graph]
        off = {name for name in labels if draw.chance(0.25)}
        before = ir.to_proto(model.ir).SerializeToString()
        cut = cut_tail(model, lambda _, off=off: off)
        assert ir.to_proto(model.ir).SerializeToString() == before
        if isinstance(cut, Refusal):
            continue
        done += 1
        assert set(cut.nodes) & off
        head, edges = move_edges(cut.head)
        tail = fit_tail(cut.tail, head, edges)
        for part in (head, tail):
            onnx.checker.check_model(ir.to_proto(part.ir), full_check=True)
        feeds: dict[str, np.ndarray] = {
            name: draw.rng.standard_normal((1, 4, 3, 5)).astype(np.float32) for name in "xz"
        }
        feeds["flag"] = np.asarray(draw.chance(0.5))
        names = [value.name for value in proto.graph.output]
        want = dict(zip(names, run_onnx(proto, feeds), strict=True))
        board = chain(head, tail, names)
        moved = {(edge.kind, edge.name): edge for edge in edges}
        given = {name: moved["input", name].to_board(a) if ("input", name) in moved else a for name, a in feeds.items()}
        found = dict(zip(names, run_onnx(ir.to_proto(board.ir), given), strict=True))
        for name in names:
            have = moved["output", name].from_board(found[name]) if ("output", name) in moved else found[name]
            np.testing.assert_allclose(have, want[name], rtol=1e-5, atol=1e-5, err_msg=f"seed {seed}")
    assert done > len(seeds) // 4


def test_int8_bundles_have_tails_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", image=np.random.default_rng(3).standard_normal((4, 3, 32, 32)).astype(np.float32))
    options = {"precision": "int8", "data": tmp_path / "data.npz", "cut_tail": True}
    report = orinport.prepare(detector(), target=JP62, output=tmp_path / "b", **options)
    assert report.tail is not None
    assert report.tail.inputs == ("raw",)
    scales = json.loads((tmp_path / "b/scales.json").read_text())
    assert "raw" in json.dumps(scales)
    assert orinport.verify(detector(), tmp_path / "b").equal
