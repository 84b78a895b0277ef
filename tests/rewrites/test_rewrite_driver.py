"""The driver: fixpoint, judging, proof, rollback, consent, cost and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from builders import network, node, run_onnx
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.rewrites.builder import REPLACES, REWRITE, Builder
from orinport.rewrites.catalogue import gemm_to_conv, matmul_to_conv, remove_identity
from orinport.rewrites.context import CostLimit, RewriteContext
from orinport.rewrites.driver import all_rewrites, documentation, find_rewrite, rewrite_model
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from rewrites.harness import apply_to

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class ReluTo(Rewrite):
    """Replaces Relu by whatever `make` builds."""

    name = "relu-to-something"
    safety: ClassVar[Safety] = Safety.EXACT
    op_types = ("Relu",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        return Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        return (self.make(match.nodes[0].inputs[0], builder),)

    def make(self, value: ir.Value, builder: Builder) -> ir.Value:
        return builder.op("Max", value, builder.like(value, 0.0))


class Wrong(ReluTo):
    name = "wrong"

    def make(self, value: ir.Value, builder: Builder) -> ir.Value:
        return builder.op("Max", value, builder.like(value, 1e-3))


class SpreadsNan(ReluTo):
    """Right for every finite number, but NaN wherever one element is infinite."""

    name = "spreads-nan"

    def make(self, value: ir.Value, builder: Builder) -> ir.Value:
        shape = builder.shape(value)
        total = builder.op("Mul", builder.op("ReduceSum", value, keepdims=1), builder.like(value, 0.0))
        return builder.op(
            "Add", builder.op("Max", value, builder.like(value, 0.0)), total, shape=shape, dtype=value.dtype
        )


class Approximate(ReluTo):
    name = "approximate"
    safety = Safety.TOLERANCE
    error = 0.01

    def make(self, value: ir.Value, builder: Builder) -> ir.Value:
        return builder.op("Max", value, builder.like(value, 0.005))


class TooApproximate(Approximate):
    name = "too-approximate"
    error = 0.001


class Endless(ReluTo):
    name = "endless"

    def make(self, value: ir.Value, builder: Builder) -> ir.Value:
        return builder.op("Relu", value)


def relu(shape: tuple[int, ...] = (2, 3)) -> onnx.ModelProto:
    return network([node("Neg", ["x"], "a"), node("Relu", ["a"], "b"), node("Abs", ["b"], "y")], {"x": shape}, ["y"])


def ops(model: object) -> list[str]:
    return [each.op_type for each in model.graph]  # type: ignore[attr-defined]


def test_a_right_rewrite_is_applied_and_recorded() -> None:
    model, log = apply_to(relu(), ReluTo())
    assert ops(model) == ["Neg", "Max", "Abs"]
    made = next(each for each in model.graph if each.op_type == "Max")
    assert made.name == "Relu_b/Max"
    assert made.outputs[0].name == "b", "the tensor keeps its name, because it is the same tensor"
    assert made.metadata_props[REWRITE] == "relu-to-something"
    assert made.metadata_props[REPLACES] == "Relu_b"
    (entry,) = log.applied
    assert (entry.replaced, entry.made) == (("Relu_b",), ("Relu_b/Max",))
    assert entry.proof.cases == 5
    assert entry.proof.equal


@pytest.mark.parametrize("wrong", [Wrong(), SpreadsNan()])
def test_a_wrong_rewrite_is_rolled_back(wrong: Rewrite) -> None:
    proto = relu()
    model, log = apply_to(proto, wrong)
    assert not log.applied
    assert ops(model) == ["Neg", "Relu", "Abs"]
    assert next(str(entry) for entry in log.rolled_back).startswith(f"{wrong.name} on Relu_b: output 0, ")
    assert len(log.rolled_back) == 1, "it is not tried again"
    assert all(value.uses() for each in model.graph for value in each.outputs[:1] if value.name != "y")
    feeds = {"x": np.asarray([[1, -2, 3], [0, 5, -6]], np.float32)}
    np.testing.assert_array_equal(run_onnx(ir.to_proto(model.ir), feeds)[0], run_onnx(proto, feeds)[0])
    assert log.document()["rolled_back"][0]["rewrite"] == wrong.name


def test_a_wrong_rewrite_does_not_stop_the_others() -> None:
    model, log = apply_to(relu(), Wrong(), ReluTo())
    assert log.counts() == {"relu-to-something": 1}
    assert len(log.rolled_back) == 1
    assert "Max" in ops(model)


def test_approximations_need_consent_and_keep_their_stated_error() -> None:
    _, log = apply_to(relu(), Approximate(), consent=[Safety.EXACT])
    assert not log.applied
    assert "nobody consented" in log.refused[0].reason
    _, log = apply_to(relu(), Approximate())
    assert log.counts() == {"approximate": 1}
    _, log = apply_to(relu(), TooApproximate())
    assert len(log.rolled_back) == 1


def test_a_rewrite_that_never_ends_is_a_defect() -> None:
    with pytest.raises(RuntimeError, match="did not come to an end"):
        apply_to(relu(), Endless())


def judge_by(off: Collection[str]) -> object:
    """Everything of these operators is off the DLA."""

    def judge(model: ir.Model) -> frozenset[str]:
        return frozenset(each.name or "" for each in model.graph if each.op_type in off)

    return judge


def test_applied_only_where_the_dla_gains() -> None:
    assert apply_to(relu(), ReluTo(), judge=judge_by({"Relu"}))[1].counts() == {"relu-to-something": 1}
    for off in ({"Max"}, set(), {"Relu", "Max"}):
        model, log = apply_to(relu(), ReluTo(), judge=judge_by(off))
        assert not log.applied
        assert ops(model) == ["Neg", "Relu", "Abs"]


def test_fewer_nodes_are_a_gain() -> None:
    proto = network(
        [node("Neg", ["x"], "a"), node("Identity", ["a"], "b"), node("Abs", ["b"], "y")], {"x": (2,)}, ["y"]
    )
    assert apply_to(proto, remove_identity.REWRITE, judge=judge_by(set()))[1].counts() == {"remove-identity": 1}


def test_refusals_are_kept_for_what_is_off_the_dla_only() -> None:
    proto = network([node("MatMul", ["a", "b"], "y")], {"a": (4, 8), "b": (8, 3)}, ["y"])
    assert len(apply_to(proto, matmul_to_conv.REWRITE, judge=judge_by({"MatMul"}))[1].refused) == 1
    assert not apply_to(proto, matmul_to_conv.REWRITE, judge=judge_by(set()))[1].refused


def test_what_would_leave_as_much_off_the_dla_is_refused_with_what_stays() -> None:
    _, log = apply_to(relu(), ReluTo(), judge=judge_by({"Relu", "Max"}))
    assert not log.applied
    assert [entry.reason for entry in log.refused] == ["1 of 1 nodes in its place would be off the DLA too: Max"]
    assert not apply_to(relu(), ReluTo(), judge=judge_by({"Max"}))[1].refused, "the Relu is on the DLA"


def test_equal_pieces_are_proved_once() -> None:
    nodes = [node("Relu", ["x"], "a"), node("Neg", ["a"], "b"), node("Relu", ["b"], "c"), node("Neg", ["c"], "y")]
    _, log = apply_to(network(nodes, {"x": (2, 3)}, ["y"]), ReluTo())
    assert [entry.proof.repeated for entry in log.applied] == [False, True]
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((4, 4)).astype(np.float32) for i in range(2)}
    nodes = [node("MatMul", ["x", "w0"], "a"), node("MatMul", ["a", "w1"], "b"), node("Neg", ["b"], "y")]
    _, log = apply_to(network(nodes, {"x": (1, 3, 4)}, ["y"], weights), matmul_to_conv.REWRITE)
    assert [entry.proof.repeated for entry in log.applied] == [False, False], "other weights are another piece"


def test_cost_limits_refuse_with_the_number() -> None:
    proto = network([node("MatMul", ["x", "w"], "y")], {"x": (8, 8)}, ["y"], {"w": np.ones((8, 8), np.float32)})
    _, log = apply_to(proto, matmul_to_conv.REWRITE, cost=CostLimit(nodes=1))
    assert "more than 1 nodes" in log.refused[0].reason
    _, log = apply_to(relu(), ReluTo(), cost=CostLimit(macs=1, macs_factor=0.1))
    assert "cost limit" in log.refused[0].reason


def test_a_type_without_engine_falls_back_or_is_refused() -> None:
    """ONNX Runtime has no float64 convolution: onnx.reference proves it instead."""
    weights = np.random.default_rng(0).standard_normal((5, 3))
    proto = network([node("MatMul", ["x", "w"], "y")], {"x": ((4, 5), np.float64)}, ["y"], {"w": weights})
    _, log = apply_to(proto, matmul_to_conv.REWRITE)
    assert log.applied[0].proof.engine == "onnx.reference"
    assert log.applied[0].proof.equal


def test_shared_constants_stay_as_they_are() -> None:
    weights = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    nodes = [node("Gemm", ["x", "w"], "a", alpha=2.0), node("Add", ["a", "w"], "y")]
    model, _ = apply_to(network(nodes, {"x": (4, 4)}, ["y"], {"w": weights}), gemm_to_conv.REWRITE)
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), weights)


def test_a_value_that_a_subgraph_reads_is_replaced_there_too() -> None:
    branches = {
        f"{side}_branch": onnx.helper.make_graph(
            [onnx.helper.make_node(op_type, ["b"], [f"b_{side}"])], side, [], [onnx.ValueInfoProto(name=f"b_{side}")]
        )
        for side, op_type in (("then", "Neg"), ("else", "Abs"))
    }
    nodes = [node("Relu", ["x"], "b"), node("If", ["flag"], "y", **branches)]
    proto = network(nodes, {"x": (2, 3), "flag": ((), np.bool_)}, {"y": (2, 3)})
    model, log = apply_to(proto, ReluTo())
    assert log.applied
    rewritten = ir.to_proto(model.ir)
    onnx.checker.check_model(rewritten)
    feeds = {"x": np.asarray([[1, -2, 3], [0, 5, -6]], np.float32), "flag": np.asarray(True)}
    np.testing.assert_array_equal(run_onnx(rewritten, feeds)[0], run_onnx(proto, feeds)[0])


def test_the_given_model_is_left_alone() -> None:
    model = load(relu())
    before = ir.to_proto(model.ir).SerializeToString()
    rewrite_model(model, rewrites=[ReluTo()])
    assert ir.to_proto(model.ir).SerializeToString() == before


def test_select_and_ignore_by_prefix() -> None:
    proto = network([node("MatMul", ["x", "w"], "y")], {"x": (8, 8)}, ["y"], {"w": np.ones((8, 8), np.float32)})
    assert rewrite_model(load(proto), select=["matmul"])[1].counts() == {"matmul-to-conv": 1}
    assert not rewrite_model(load(proto), select=["gemm"])[1].applied
    assert not rewrite_model(load(proto), ignore=["matmul"])[1].applied


SECTIONS = ("## What it does", "## Why", "## Example", "## Refused", "## Safety", "## Source")


@pytest.mark.parametrize("rewrite", all_rewrites(), ids=lambda rewrite: rewrite.name)
def test_every_rewrite_is_documented(rewrite: Rewrite) -> None:
    text = documentation(rewrite)
    assert "->" in text.splitlines()[0]
    positions = [text.find(section) for section in SECTIONS]
    assert -1 not in positions, SECTIONS[positions.index(-1)]
    assert positions == sorted(positions)
    assert text.split("## Safety")[1].strip().startswith(rewrite.safety.value)
    assert rewrite.error > 0 or rewrite.finite or rewrite.safety is not Safety.TOLERANCE, (
        "an approximation states its error"
    )
    assert find_rewrite(rewrite.name) is rewrite
    assert type(rewrite).__module__.rsplit(".", 1)[-1].replace("_", "-") == rewrite.name


def test_names_are_unique_and_fixes_exist() -> None:
    from orinport.rules import fixes

    names = [rewrite.name for rewrite in all_rewrites()]
    assert len(set(names)) == len(names)
    for constant in fixes.__all__:
        name, safety = getattr(fixes, constant)
        assert find_rewrite(name).safety.value == safety
    with pytest.raises(OrinportError):
        find_rewrite("no-such-rewrite")


class Raises(ReluTo):
    name = "raises"

    def make(self, value: ir.Value, builder: Builder) -> ir.Value:
        raise KeyError("oops")


class OtherShape(ReluTo):
    name = "other-shape"

    def make(self, value: ir.Value, builder: Builder) -> ir.Value:
        return builder.reshape(value, (1, *builder.shape(value)))


@pytest.mark.parametrize(("broken", "words"), [(Raises(), "KeyError: 'oops'"), (OtherShape(), "makes shape (1, 2, 3)")])
def test_a_broken_rewrite_is_rolled_back(broken: Rewrite, words: str) -> None:
    model, log = apply_to(relu(), broken)
    assert not log.applied
    assert ops(model) == ["Neg", "Relu", "Abs"]
    (entry,) = log.rolled_back
    assert words in str(entry)


class Pair(Rewrite):
    """Two Relu become one over their concatenation, wherever they are: wrong if one depends on the other."""

    name = "pair"
    safety: ClassVar[Safety] = Safety.EXACT
    op_types = ("Relu",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        others = [each for each in context.graph if each.op_type == "Relu" and each is not node]
        if not others:
            return None
        return Match((node, others[0]), (node.outputs[0], others[0].outputs[0]))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        values = [each.inputs[0] for each in match.nodes]
        both = builder.op("Max", builder.op("Concat", *values, axis=0), builder.like(values[0], 0.0))
        return [builder.slice(both, 0, index, index + 1) for index in range(2)]


def test_a_pair_that_would_close_a_circle_is_refused() -> None:
    ends = [node("Relu", ["n"], "b"), node("Add", ["a", "b"], "y")]
    side_by_side = [node("Relu", ["x"], "a"), node("Neg", ["x"], "n"), *ends]
    _, log = apply_to(network(side_by_side, {"x": (1, 3)}, ["y"]), Pair())
    assert log.counts() == {"pair": 1}
    chained = [node("Relu", ["x"], "a"), node("Neg", ["a"], "n"), *ends]
    _, log = apply_to(network(chained, {"x": (1, 3)}, ["y"]), Pair())
    assert not log.applied
    assert "depends on what it replaces" in log.refused[0].reason
