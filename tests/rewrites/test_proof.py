"""Proofs of whole networks: what is compared, what is found, and where it begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from builders import network, node, small_cnn
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.edges import move_edges
from orinport.rewrites.proof import compare_models

if TYPE_CHECKING:
    from numpy.typing import NDArray


def test_equal_models() -> None:
    report = compare_models(load(small_cnn()), load(small_cnn()), names=("a", "b"))
    assert report.equal
    assert (report.reference, report.candidate, report.cases, report.seed) == ("a", "b", 3, 0)
    assert report.rows[0].max_abs == 0.0
    assert report.diverges_at == ""


def test_the_first_difference_is_named() -> None:
    changed = small_cnn()
    weights = next(tensor for tensor in changed.graph.initializer if tensor.name == "w2")
    array = np.frombuffer(weights.raw_data, np.float32).copy()
    array[3] += 0.5
    weights.raw_data = array.tobytes()
    report = compare_models(load(small_cnn()), load(changed))
    assert not report.equal
    assert report.diverges_at == "c2"
    assert report.rows[0].max_rel > report.rows[0].tolerance


def test_tolerance_decides() -> None:
    def scaled(factor: float) -> object:
        nodes = [node("Mul", ["x", "k"], "y")]
        return load(network(nodes, {"x": (4, 4)}, ["y"], {"k": np.asarray(factor, np.float32)}))

    assert not compare_models(scaled(1.0), scaled(1.01)).equal
    assert compare_models(scaled(1.0), scaled(1.01), tolerance=0.02).equal
    assert not compare_models(scaled(1.0), scaled(1.01), tolerance=0.005).equal


def test_nan_is_no_equality_with_numbers() -> None:
    first = network([node("Sqrt", ["x"], "y")], {"x": (8, 8)}, ["y"])
    second = network([node("Abs", ["x"], "a"), node("Sqrt", ["a"], "y")], {"x": (8, 8)}, ["y"])
    same = compare_models(load(first), load(first))
    assert same.equal
    # Sqrt is fed positive numbers, so the two agree there; a Neg in front takes that knowledge away.
    first = network([node("Neg", ["x"], "n"), node("Sqrt", ["n"], "y")], {"x": (8, 8)}, ["y"])
    second = network([node("Neg", ["x"], "n"), node("Abs", ["n"], "a"), node("Sqrt", ["a"], "y")], {"x": (8, 8)}, ["y"])
    assert not compare_models(load(first), load(second)).equal


def test_through_moved_edges() -> None:
    nodes = [node("Reshape", ["x", "four"], "b"), node("Relu", ["b"], "r"), node("Flatten", ["r"], "y")]
    model = load(network(nodes, {"x": (1, 6)}, ["y"], {"four": np.asarray([1, 6, 1, 1], np.int64)}))
    moved, edges = move_edges(model)
    assert compare_models(model, moved, edges).equal
    with pytest.raises(OrinportError, match="shape"):
        compare_models(model, moved)


def test_other_inputs_and_outputs_are_an_error() -> None:
    first = load(network([node("Relu", ["x"], "y")], {"x": (2,)}, ["y"]))
    with pytest.raises(OrinportError, match="different inputs"):
        compare_models(first, load(network([node("Relu", ["z"], "y")], {"z": (2,)}, ["y"])))
    with pytest.raises(OrinportError, match="different outputs"):
        compare_models(first, load(network([node("Relu", ["x"], "z")], {"x": (2,)}, ["z"])))
    with pytest.raises(OrinportError, match="shape"):
        compare_models(first, load(network([node("Relu", ["x"], "y")], {"x": (3,)}, ["y"])))


def test_what_no_engine_runs_is_an_error() -> None:
    odd = network([node("Odd", ["x"], "y", domain="somewhere")], {"x": (2,)}, {"y": (2,)}, domains={"somewhere": 1})
    with pytest.raises(OrinportError, match="cannot be compared"):
        compare_models(load(odd), load(odd))


def test_equal_node_names_are_no_obstacle() -> None:
    nodes = [node("Relu", ["x"], "a", name="same"), node("Neg", ["a"], "y", name="same")]
    model = load(network(nodes, {"x": (2,)}, ["y"]))
    assert compare_models(model, model).equal


def test_weights_in_a_file_beside_the_model(tmp_path: Path) -> None:
    """Pieces and whole networks are run from memory, where nothing may refer to files."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 4)).astype(np.float32), "b": rng.standard_normal(4).astype(np.float32)}
    nodes = [node("MatMul", ["x", "w"], "m"), node("Add", ["m", "b"], "y")]
    path = tmp_path / "model.onnx"
    onnx.save(
        network(nodes, {"x": (3, 8)}, ["y"], weights),
        path,
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=0,
    )
    model = load(path)
    rewritten, log = rewrite_model(model)
    assert log.counts() == {"matmul-to-conv": 1}
    assert not log.refused
    report = compare_models(model, rewritten)
    assert report.equal
    assert report.rows[0].max_abs < 1e-5


@pytest.mark.parametrize("operator", [False, True])
def test_large_networks_are_run_from_a_file(operator: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they are not held in memory once as a proto, once as bytes and once by ONNX Runtime."""
    monkeypatch.setattr("orinport.rewrites.proof._PROTO_BYTES", 0)
    if operator:  # written with standard operators there too
        from dcnv4.networks import Guise, Writer

        proto = Writer(Guise()).network()
        assert compare_models(load(proto), load(proto)).equal
        return
    changed = small_cnn()
    weights = next(tensor for tensor in changed.graph.initializer if tensor.name == "w2")
    array = np.frombuffer(weights.raw_data, np.float32).copy()
    array[3] += 0.5
    weights.raw_data = array.tobytes()
    assert compare_models(load(small_cnn()), load(small_cnn())).equal
    assert compare_models(load(small_cnn()), load(changed)).diverges_at == "c2"


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("factor", [0.0, 0.5, 0.97])
def test_sums_in_front_of_a_division_widen_no_tolerance(
    power: int, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A norm of 2048 elements is large, what is divided by it is small: a wrong result must not pass as rounding."""
    from orinport.rewrites.catalogue import lp_normalization_to_div
    from orinport.rewrites.rewrite import Safety

    rewrite = lp_normalization_to_div.REWRITE
    right = type(rewrite).apply
    proto = network(
        [node("LpNormalization", ["x"], "y", axis=1, p=power)], {"x": (1, 2048, 1, 1)}, ["y"], opset=17
    )  # fmt: skip

    def wrong(self: Any, match: Any, builder: Any) -> Any:
        (result,) = right(self, match, builder)
        return (builder.op("Mul", result, builder.like(result, factor, ())),)

    options: dict[str, Any] = {"rewrites": [rewrite], "consent": [Safety.EXACT, Safety.TOLERANCE]}
    assert rewrite_model(load(proto), **options)[1].applied
    monkeypatch.setattr(type(rewrite), "apply", wrong)
    _, log = rewrite_model(load(proto), **options)
    assert not log.applied
    assert "differs by" in log.rolled_back[0].reason


def test_a_network_that_magnifies_rounding_is_held_to_its_own_noise() -> None:
    """A sine of ten thousand times its input: one rounding moves it past the usual tolerance, and no more is let go."""

    def sine(gain: float) -> ir.Model:
        nodes = [helper.make_node("Mul", ["x", "gain"], ["big"]), helper.make_node("Sin", ["big"], ["y"])]
        info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xy"]
        constant = helper.make_tensor("gain", TensorProto.FLOAT, [1], [gain])
        graph = helper.make_graph(nodes, "g", info[:1], info[1:], [constant])
        return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))

    rounded = compare_models(sine(1e4), sine(float(np.nextafter(np.float32(1e4), np.float32(2e4)))))
    assert rounded.equal
    assert rounded.rows[0].max_rel > 2.0**-12
    assert not compare_models(sine(1e4), sine(1.0001e4)).equal
    assert not compare_models(sine(1.0), sine(1.001)).equal


def test_large_weights_are_lent(tmp_path: Path) -> None:
    """ONNX Runtime reads weights where they lie: two runs of 128 MiB of weights make no second copy of them."""
    if not sys.platform.startswith("linux"):
        pytest.skip("peak memory is read from /proc")
    code = """
import numpy as np, onnxruntime
from builders import network, node
from orinport.model.load import load
from orinport.rewrites.proof import compare_models
import onnx_ir as ir

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) // 1024

def model(last):
    small = load(network([node("MatMul", ["x", "w"], "h"), node(last, ["h"], "y")], {"x": (1, 4096)}, ["y"],
                         {"w": np.zeros((4096, 8192), np.float32)}))
    small.graph.initializers["w"].const_value = ir.Tensor(weights, name="w")
    return small

weights = np.random.default_rng(0).standard_normal((4096, 8192), np.float32)
first, second, third = model("Relu"), model("Relu"), model("Identity")
before = peak()
assert compare_models(first, second).equal
assert not compare_models(first, third).equal
print(peak() - before)
"""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int32, np.int64, np.int8])
def test_lent_weights_are_those_of_the_network(dtype: type) -> None:
    """Weights above the size from which they are lent: equal ones are equal, and one element that differs is seen."""

    def gathered(extra: int) -> object:
        table = (np.arange(4096) % 100).astype(dtype)
        table[4000] += extra
        nodes = [node("Gather", ["table", "x"], "y", axis=0)]
        proto = network(nodes, {"x": ((3,), np.int64)}, ["y"], {"table": table.reshape(4, 1024)})
        return load(proto)

    assert compare_models(gathered(0), gathered(0)).equal
    assert not compare_models(gathered(0), gathered(20), cases=8).equal


@pytest.mark.parametrize("view", ["transposed", "reversed", "repeated", "read-only", "unaligned"])
def test_views_of_weights_are_lent(view: str) -> None:
    """A network in memory may hold any array of NumPy: what ONNX Runtime cannot read in its place is copied."""
    array = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    views = {
        "transposed": array.T,
        "reversed": array[::-1],
        "repeated": np.broadcast_to(array[:1], array.shape),
        "unaligned": np.frombuffer(b"." + array.tobytes(), np.float32, offset=1).reshape(array.shape),
    }
    held = views.get(view, array.copy())
    held.flags.writeable = False
    nodes = [node("MatMul", ["x", "w"], "y")]
    models = [load(network(nodes, {"x": (2, 64)}, ["y"], {"w": held.astype(np.float32)})) for _ in range(2)]
    models[1].graph.initializers["w"].const_value = ir.Tensor(held, name="w")
    report = compare_models(*models)
    assert report.equal
    assert report.rows[0].max_rel == 0


def test_weights_that_cannot_be_lent_go_along() -> None:
    """BFLOAT16, which NumPy does not know, and a weight that a subgraph reads."""
    rng = np.random.default_rng(0)
    table = helper.make_tensor("half", TensorProto.BFLOAT16, (64, 64), rng.standard_normal(4096).astype(np.float32))
    taken = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["inner"])], "then", [], [onnx.ValueInfoProto(name="inner")]
    )
    other = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["outer"])], "else", [], [onnx.ValueInfoProto(name="outer")]
    )
    nodes = [
        node("ReduceMax", ["x"], "largest", keepdims=0),
        node("Cast", ["largest"], "condition", to=TensorProto.BOOL),
        node("If", ["condition"], "branched", then_branch=taken, else_branch=other),
        node("Cast", ["half"], "wide", to=TensorProto.FLOAT),
        node("Add", ["branched", "wide"], "y"),
    ]
    weights = {"w": rng.standard_normal((64, 64)).astype(np.float32)}
    proto = network(nodes, {"x": (64, 64)}, {"y": (64, 64)}, weights)
    proto.graph.initializer.append(table)
    changed = onnx.ModelProto.FromString(proto.SerializeToString())
    changed.graph.initializer[0].raw_data = (weights["w"] + 1).tobytes()
    assert compare_models(load(proto), load(proto)).equal
    assert not compare_models(load(proto), load(changed)).equal


def counting(offset: float) -> Any:
    """How many numbers lie above 0.5, and which ones; the numbers themselves are moved a little by `offset`."""
    nodes = [
        node("Add", ["x", "offset"], "moved"),
        node("Greater", ["moved", "half"], "above"),
        node("NonZero", ["above"], "places"),
    ]
    weights = {"offset": np.float32(offset).reshape(1), "half": np.float32(0.5).reshape(1)}
    proto = network(nodes, {"x": (64, 64)}, {"moved": (64, 64)}, weights)
    proto.graph.output.append(helper.make_tensor_value_info("places", TensorProto.INT64, ["two", "count"]))
    proto.graph.output.append(helper.make_tensor_value_info("above", TensorProto.BOOL, (64, 64)))
    return load(proto)


def test_what_counts_behind_an_approximation_is_undecided() -> None:
    report = compare_models(counting(0.0), counting(1e-3), allowance=1e-2)
    assert [(row.output, row.equal, row.undecided) for row in report.rows] == [
        ("moved", True, False),
        ("places", False, True),
        ("above", False, True),
    ]
    assert not report.equal
    assert not report.refuted


def test_what_counts_behind_nothing_that_may_differ_is_refuted() -> None:
    report = compare_models(counting(0.0), counting(8e-4))
    assert [(row.output, row.equal, row.undecided) for row in report.rows] == [
        ("moved", True, False),
        ("places", False, False),
        ("above", False, False),
    ]
    assert report.refuted


def test_what_rounding_changes_is_undecided() -> None:
    """The sign of what two ways to add the same products differ by."""

    def chosen(order: NDArray[np.int64]) -> Any:
        nodes = [
            node("MatMul", ["x", "w"], "product"),
            node("Gather", ["x", "order"], "taken", axis=1),
            node("MatMul", ["taken", "same"], "sum"),
            node("Greater", ["product", "sum"], "above"),
        ]
        column = np.random.default_rng(0).standard_normal((128, 1)).astype(np.float32)
        proto = network(nodes, {"x": (512, 128)}, {}, {"w": column, "same": column[order], "order": order})
        proto.graph.output.append(helper.make_tensor_value_info("above", TensorProto.BOOL, (512, 1)))
        return load(proto)

    orders = [np.random.default_rng(seed).permutation(128) for seed in (1, 2)]
    report = compare_models(chosen(orders[0]), chosen(orders[1]))
    assert [(row.equal, row.undecided) for row in report.rows] == [(False, True)]
