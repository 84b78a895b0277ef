"""Property tests of rewrites: a rewrite needs only a generator of graphs, everything else is here.

    @pytest.mark.parametrize("seeds", SEEDS)
    def test_relu_to_clip(seeds):
        check_rewrite(REWRITE, generate, seeds)

A generator draws a `Pattern`: a few nodes that the rewrite is for. The harness puts it into surroundings that break
careless rewrites (names missing or equal, constants shared with others, values read twice, by a subgraph, or returned
by the network), runs the driver without a judge, and holds the result against the original.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from builders import network, run_onnx, value
from orinport.model.load import load
from orinport.rewrites.builder import REWRITE
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.runnable import counts_padding_wrong, with_padding_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orinport.model.model import Model
    from orinport.rewrites.log import RewriteLog
    from orinport.rewrites.rewrite import Rewrite, Safety

__all__ = ["SEEDS", "Draw", "Pattern", "apply_to", "check_refused", "check_rewrite", "first_refusal"]

QUICK = 32
ALL = 232
SEEDS = [
    pytest.param(range(QUICK), id="quick"),
    pytest.param(range(QUICK, ALL), id="bulk", marks=pytest.mark.slow),
]
"""Parametrise with this: some graphs in the quick suite, and as many in bulk that 200 of them are rewritten."""

ENOUGH = 200
"""So many graphs of one generator have to be rewritten in bulk."""
_MOST_DRAWN = 2
"""A generator of which less than one graph in so many is rewritten is too thin."""

_RELATIVE = {np.dtype(np.float16): 2.0**-8, np.dtype(np.float64): 1e-5}
_RELATIVE_FP32 = 1e-4
_OVERFLOW = 2e4
"""Scale of FP16 inputs at which results overflow."""


class Draw:
    """What generators draw from; everything follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.dtype: Any = np.float16 if self.chance(0.2) else np.float32

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def choose(self, options: Sequence[Any]) -> Any:
        """One of `options`."""
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return bool(self.rng.random() < probability)

    def shape(self, rank: int, low: int = 1, high: int = 6) -> tuple[int, ...]:
        """A shape of `rank` dimensions."""
        return tuple(self.integer(low, high) for _ in range(rank))

    def array(self, *shape: int, scale: float = 0.5) -> np.ndarray:
        """Normal numbers in the type of this draw."""
        return (self.rng.standard_normal(shape) * scale).astype(self.dtype)

    def opset(self, low: int = 9, high: int = 21) -> int:
        """An opset that loaders and ONNX Runtime take."""
        return int(
            self.choose([version for version in (9, 10, 11, 12, 13, 15, 17, 18, 20, 21) if low <= version <= high])
        )


@dataclass
class Pattern:
    """Nodes that a rewrite is for. Inputs are float unless given as `(shape, dtype)`."""

    nodes: list[onnx.NodeProto]
    inputs: dict[str, Any]
    outputs: list[str]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    opset: int = 17
    applies: bool | None = True
    """The rewrite has to apply, if nothing inside is returned by the network; False: must not; None: may."""
    special: bool = True
    """Infinities and NaN are fed too."""
    nan: bool = True
    """NaN is fed too; ONNX leaves open what a maximum makes of it."""
    overflow: bool = True
    """FP16 inputs are also so large that results overflow."""
    domains: dict[str, int] | None = None
    """Domains of operators that are not ONNX's own."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of what those give, in the type of the draw, which ONNX cannot infer."""
    runnable: Callable[[onnx.ModelProto], onnx.ModelProto] | None = None
    """Makes of a network with them one that ONNX Runtime runs."""


def check_rewrite(
    rewrite: Rewrite,
    generate: Callable[[Draw], Pattern],
    seeds: Sequence[int],
    *,
    consent: Sequence[Safety] | None = None,
    tolerance: float | None = None,
) -> None:
    """Every seed's graph: valid, equal in ONNX Runtime, idempotent, nothing of the original touched.

    Graphs that the rewrite leaves alone do not count in bulk: more are drawn until `ENOUGH` were rewritten.
    """
    applied, wanted = 0, ENOUGH if len(seeds) >= ENOUGH else 1
    for drawn, seed in enumerate(chain(seeds, count(max(seeds) + 1))):
        if drawn >= len(seeds) and applied >= wanted:
            break
        assert drawn < _MOST_DRAWN * len(seeds), f"{applied} of {drawn} graphs were rewritten: the generator is thin"
        draw = Draw(seed)
        pattern = generate(draw)
        proto, exposed = _dress(pattern, draw)
        try:
            applied += _check_one(rewrite, pattern, proto, draw, exposed=exposed, consent=consent, tolerance=tolerance)
        except BaseException as error:
            error.add_note(f"seed {seed}\n{onnx.printer.to_text(proto)}") if hasattr(error, "add_note") else None
            raise


def apply_to(
    proto: onnx.ModelProto, *rewrites: Rewrite, consent: Sequence[Safety] | None = None, **options: Any
) -> tuple[Model, RewriteLog]:
    """The driver with only `rewrites`, no judge, and consent to each of their safety classes."""
    given = consent if consent is not None else sorted({rewrite.safety for rewrite in rewrites})
    return rewrite_model(load(proto), rewrites=rewrites, consent=given, **options)


def first_refusal(proto: onnx.ModelProto, rewrite: Rewrite, **options: Any) -> str:
    """The reason of the only refusal; the network must not have changed."""
    _, log = apply_to(proto, rewrite, **options)
    assert not log.applied
    assert not log.rolled_back, str(log.rolled_back[0])
    assert len(log.refused) == 1, log.refused
    return log.refused[0].reason


def check_refused(proto: onnx.ModelProto, rewrite: Rewrite, words: str, **options: Any) -> None:
    """The rewrite leaves the network alone and says why, with these words in it."""
    reason = first_refusal(proto, rewrite, **options)
    assert words in reason, reason


def _check_one(
    rewrite: Rewrite,
    pattern: Pattern,
    proto: onnx.ModelProto,
    draw: Draw,
    *,
    exposed: bool,
    consent: Sequence[Safety] | None,
    tolerance: float | None,
) -> bool:
    onnx.checker.check_model(proto)
    original = proto.SerializeToString()
    model = load(proto)
    before = ir.to_proto(model.ir).SerializeToString()
    result, log = rewrite_model(
        model, rewrites=[rewrite], consent=consent if consent is not None else [rewrite.safety], seed=draw.seed
    )
    assert not log.rolled_back, str(log.rolled_back[0])
    assert proto.SerializeToString() == original, "the given model was changed"
    assert ir.to_proto(model.ir).SerializeToString() == before, "the loaded model was changed"
    if pattern.applies and not exposed:
        assert log.applied, f"not applied: {log.refused}"
    if pattern.applies is False:
        assert not log.applied, f"applied: {log.applied}"
    rewritten = ir.to_proto(result.ir)
    onnx.checker.check_model(rewritten, full_check=True)
    assert [value.name for value in rewritten.graph.output] == [value.name for value in proto.graph.output]
    _check_graph(result, log)
    _check_equal(pattern, proto, rewritten, draw, tolerance)
    again, second = rewrite_model(
        result, rewrites=[rewrite], consent=consent if consent is not None else [rewrite.safety], seed=draw.seed
    )
    assert not second.applied, f"applies twice: {second.applied}"
    assert [node.op_type for node in again.graph] == [node.op_type for node in result.graph]
    return bool(log.applied)


def _check_graph(model: Model, log: RewriteLog) -> None:
    values = [each for node in model.graph for each in node.outputs if each.name]
    names = [each.name for each in (*values, *model.graph.inputs, *model.graph.initializers.values())]
    assert len(set(names)) == len(names), "a name stands twice"
    for each in values:
        assert each.shape is not None, f"{each.name} has no shape"
        assert each.dtype is not None, f"{each.name} has no type"
    made = {name for entry in log.applied for name in entry.made}
    for node in model.graph:
        if node.name and node.name in made:
            assert REWRITE in node.metadata_props
            assert node.metadata_props.get("kept") == "yes", "metadata of the replaced node is lost"
    for each in model.graph.initializers.values():
        assert each.uses() or each.is_graph_output(), f"the constant {each.name} is left over"


def _check_equal(
    pattern: Pattern, proto: onnx.ModelProto, rewritten: onnx.ModelProto, draw: Draw, tolerance: float | None
) -> None:
    names = [value.name for value in proto.graph.output]
    special = [np.inf, np.nan][: 1 + pattern.nan] if pattern.special else []
    large = [_OVERFLOW] if pattern.overflow and draw.dtype == np.float16 else []
    for number in (None, *special, *large):
        feeds = _feeds(proto, draw, number)
        wanted, found = (run_onnx(_prepared(each, pattern), feeds) for each in (proto, rewritten))
        for name, want, have in zip(names, wanted, found, strict=True):
            _assert_equal(name, want, have, tolerance)


def _prepared(proto: onnx.ModelProto, pattern: Pattern) -> onnx.ModelProto:
    """ONNX Runtime, unlike the checker, refuses two nodes of one name; older ones count padding wrong."""
    proto = proto if pattern.runnable is None else pattern.runnable(proto)
    copy = onnx.ModelProto.FromString(
        (with_padding_apart(proto) if counts_padding_wrong() else proto).SerializeToString()
    )
    for node in copy.graph.node:
        node.name = ""
    return copy


def _assert_equal(name: str, want: np.ndarray, have: np.ndarray, tolerance: float | None) -> None:
    assert want.shape == have.shape, name
    assert want.dtype == have.dtype, name
    if want.dtype.kind != "f":
        assert np.array_equal(want, have), name
        return
    a, b = want.astype(np.float64), have.astype(np.float64)
    edge = np.finfo(want.dtype).max * 0.99
    overflow = (np.isinf(a) | np.isinf(b)) & (np.abs(a) > edge) & (np.abs(b) > edge) & (np.sign(a) == np.sign(b))
    assert np.array_equal(np.isnan(a), np.isnan(b)), f"{name}: NaN in other places"
    assert np.array_equal(np.isinf(a) & ~overflow, np.isinf(b) & ~overflow), f"{name}: infinity in other places"
    finite = np.isfinite(a) & np.isfinite(b)
    size = np.max(np.abs(a), initial=0.0, where=finite)
    gap = np.max(np.abs(np.subtract(a, b, out=np.zeros_like(a), where=finite)), initial=0.0)
    limit = tolerance if tolerance is not None else _RELATIVE.get(want.dtype, _RELATIVE_FP32)
    assert gap <= limit * max(size, 1e-30), f"{name}: {gap} where the largest value is {size}"


def _feeds(proto: onnx.ModelProto, draw: Draw, number: float | None) -> dict[str, np.ndarray]:
    feeds: dict[str, np.ndarray] = {}
    for info in proto.graph.input:
        tensor = info.type.tensor_type
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype == np.bool_:
            feeds[info.name] = draw.rng.integers(0, 2, shape).astype(bool)
        elif np.issubdtype(dtype, np.integer):
            feeds[info.name] = draw.rng.integers(0, 4, shape).astype(dtype)
        else:
            array = draw.rng.standard_normal(shape).astype(dtype)
            if number == _OVERFLOW:
                with np.errstate(over="ignore"):
                    feeds[info.name] = np.asarray(array * np.asarray(number, dtype), dtype)
                continue
            if number is not None and array.size:
                array = array.copy()
                array.reshape(-1)[draw.integer(0, array.size - 1)] = number
            feeds[info.name] = array
    return feeds


def _dress(pattern: Pattern, draw: Draw) -> tuple[onnx.ModelProto, bool]:
    """The pattern in its surroundings, and whether the network returns something that lies inside."""
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in pattern.nodes]
    inputs: dict[str, Any] = {
        name: spec if _typed(spec) else (tuple(spec), draw.dtype) for name, spec in pattern.inputs.items()
    }
    floats = [name for name, (_, dtype) in inputs.items() if np.dtype(dtype).kind == "f"]
    outputs = list(pattern.outputs)
    head: list[onnx.NodeProto] = []
    tail: list[onnx.NodeProto] = []
    for name in list(floats):
        if draw.chance(0.4):  # the value comes from a node
            shape, dtype = inputs.pop(name)
            inputs[f"{name}_fed"] = (shape, dtype)
            head.append(
                helper.make_node("Abs" if draw.chance(0.5) else "Neg", [f"{name}_fed"], [name], name=f"{name}_head")
            )
        if draw.chance(0.25):  # something else reads it too
            tail.append(helper.make_node("Neg", [name], [f"{name}_also"], name=f"{name}_reader"))
            outputs.append(f"{name}_also")
    for name, array in pattern.constants.items():
        if array.dtype.kind == "f" and array.size and draw.chance(0.3):  # a constant that others need unchanged
            inputs[f"{name}_factor"] = ((), array.dtype)
            tail.append(helper.make_node("Mul", [name, f"{name}_factor"], [f"{name}_shared"], name=f"{name}_sharer"))
            outputs.append(f"{name}_shared")
    for name in pattern.outputs:
        if draw.chance(0.25):  # the result is read twice, and not returned itself
            tail.append(helper.make_node("Neg", [name], [f"{name}_neg"], name=f"{name}_negated"))
            outputs.append(f"{name}_neg")
        if draw.chance(0.2):  # a subgraph reads it
            inputs[f"{name}_flag"] = ((), np.bool_)
            tail.append(_branch(name))
            outputs.append(f"{name}_branch")
    inside = [name for node in nodes for name in node.output if name and name not in pattern.outputs]
    exposed = bool(inside) and draw.chance(0.15)
    if exposed:
        outputs.append(draw.choose(inside))
    style = draw.choose(["named", "named", "unnamed", "equal"])
    for node in (*head, *nodes, *tail):
        node.metadata_props.add(key="kept", value="yes")
        node.name = {"named": node.name, "unnamed": "", "equal": "the same"}[style]
    proto = network(
        [*head, *nodes, *tail],
        inputs,
        list(dict.fromkeys(outputs)),
        pattern.constants,
        opset=pattern.opset,
        domains=pattern.domains,
    )
    given = [value(name, shape, draw.dtype) for name, shape in pattern.shapes.items()]
    proto.graph.value_info.extend(given)
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    known = {info.name: info for info in (*inferred.graph.value_info, *inferred.graph.output, *given)}
    for info in proto.graph.output:
        info.CopyFrom(known[info.name])
    return proto, exposed


def _typed(spec: Any) -> bool:
    return isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], tuple)


def _branch(name: str) -> onnx.NodeProto:
    """An If whose branches capture `name` from the graph around them."""
    branches = [
        helper.make_graph(
            [helper.make_node(op_type, [name], [f"{name}_{side}"])],
            side,
            [],
            [onnx.ValueInfoProto(name=f"{name}_{side}")],
        )
        for side, op_type in (("then", "Neg"), ("else", "Abs"))
    ]
    return helper.make_node(
        "If",
        [f"{name}_flag"],
        [f"{name}_branch"],
        name=f"{name}_if",
        then_branch=branches[0],
        else_branch=branches[1],
    )
