"""`strip_qdq`: a network with QuantizeLinear and DequantizeLinear becomes one without, and scales.

    x -> QuantizeLinear(s) -> DequantizeLinear(s) -> Conv(w)      =>      x -> Conv(w'),  scale of x = s

The models of NVIDIA's pytorch-quantization, of ModelOpt and of ONNX Runtime's static quantiser are taken, with weights
quantised by tensor or by channel, stored as floats before a pair or as integers before a DequantizeLinear. Weights
keep the values that the quantised network computes with. A scale belongs to the tensor before its quantiser,
whatever is handed on in integers behind it. Zero points are taken where a symmetric quantiser gives the same values
(see `zero_points`). What else is asymmetric, or quantised by channel where it is an activation, is refused: the DLA has
one symmetric scale a tensor. Nothing is settled in silence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.model.model import display_name
from orinport.model.save import copy_model
from orinport.precision.findings import (
    coarse_weights,
    conflicting_scales,
    integer_edge,
    invalid_scale,
    invalid_weight_scale,
    saturated_weights,
    weight_scales,
)
from orinport.precision.scales import LEVELS, Origin, Scale, Scales, is_valid
from orinport.precision.weight_steps import LostWeights, coarse, saturated
from orinport.precision.zero_points import INTEGER_MOVERS, bounds_of, is_symmetric, on_target
from orinport.rewrites.builder import Names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orinport.model.model import Model
    from orinport.rules.finding import Finding
    from orinport.targets.target import Target

__all__ = ["channel_axis", "has_qdq", "strip_qdq"]

_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
_INTEGER_OPERATORS = frozenset(
    {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearAdd", "QLinearConv", "QLinearMatMul"}
)
_INTEGERS = frozenset({ir.DataType.INT8, ir.DataType.UINT8})
_CHANNEL_AXIS = {"Conv": 0, "ConvTranspose": 1, "MatMul": -1}
_TOLERANCE = 0.01
"""Relative: weight scales are far below any absolute tolerance that would suit all of them."""


def has_qdq(model: Model) -> bool:
    """True if the network is quantised explicitly."""
    return any(_is(node, "QuantizeLinear", "DequantizeLinear") for node in model.ir.graph.all_nodes())


def _is(node: ir.Node, *op_types: str) -> bool:
    return node.op_type in op_types and node.domain in _DOMAINS


def strip_qdq(model: Model, target: Target | None = None) -> tuple[Model, Scales]:
    """The network without Q/DQ layers, and the scales that they had; `model` itself is left alone.

    Raises OrinportError for quantisers that a symmetric scale for each tensor cannot stand for; with a `target` it
    says whether that takes them otherwise.
    """
    for node in model.ir.graph.all_nodes():
        if node.op_type in _INTEGER_OPERATORS:
            raise OrinportError(
                f"{display_name(node)} is {node.op_type}, an operator on integers.",
                "Export the network with QuantizeLinear and DequantizeLinear around floating-point operators (QDQ).",
            )
        if _is(node, "QuantizeLinear", "DequantizeLinear") and node.graph is not model.ir.graph:
            raise OrinportError(f"{display_name(node)} stands inside a subgraph.", "Unroll the subgraph first.")
    work = _Stripper(copy_model(model), target)
    work.run()
    work.drop_unused()
    stripped = load(work.model.ir)
    return replace(stripped, name=model.name, path=model.path), work.scales()


class _Stripper:
    """One translation; the graph that it is given is edited."""

    def __init__(self, model: Model, target: Target | None) -> None:
        self.model, self.target = model, target
        self.graph: ir.Graph = model.ir.graph
        self.names = Names(model.ir)
        self.found: dict[ir.Value, list[float]] = {}
        self.findings: list[Finding] = []
        self._off_weights: dict[str, float] = {}
        self._saturated: list[LostWeights] = []
        self._coarse: list[LostWeights] = []
        self._weights: dict[str, NDArray[np.float32]] = {}
        self._integer_outputs = {value.name for value in self.graph.outputs if value.dtype in _INTEGERS}

    def run(self) -> None:
        for node in list(self.graph):
            if _is(node, "DequantizeLinear") and self._constant_input(node) is not None:
                self._bake(node)
        for node in list(self.graph):
            if _is(node, "QuantizeLinear"):
                self._quantize(node)
        for node in list(self.graph):
            if _is(node, "DequantizeLinear"):
                self._dequantize(node)
        for node in list(self.graph):
            if _is(node, "QuantizeLinear"):
                self._bypass(node, node.inputs[0])
        self._float_types()
        if self._saturated:
            self.findings.append(saturated_weights(self._saturated))
        if self._coarse:
            self.findings.append(coarse_weights(self._coarse))
        if self._off_weights:
            self.findings.append(weight_scales(list(self._off_weights), max(self._off_weights.values())))

    def drop_unused(self) -> None:
        """Take out the scales, zero points and integers that nothing reads any more."""
        for name, value in list(self.graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                self.graph.initializers.pop(name)

    def scales(self) -> Scales:
        """One scale a tensor: the largest of several, whose conflict is told; what is none is left out."""
        tensors: dict[str, Scale] = {}
        findings = list(self.findings)
        for value, given in self.found.items():
            name = value.name or ""
            valid = []
            for scale in given:
                if is_valid(scale):
                    valid.append(scale)
                else:
                    findings.append(invalid_scale(name, scale))
            if len(set(valid)) > 1:
                findings.append(conflicting_scales(name, sorted(set(valid))))
            if valid:
                tensors[name] = Scale(max(valid), Origin.QDQ)
        return Scales(tensors, "Q/DQ layers", tuple(findings), self._weights)

    # ------------------------------------------------------------------------------------------ weights

    def _constant_input(self, node: ir.Node) -> NDArray[np.float64] | None:
        """What a DequantizeLinear gives if that is known at build time."""
        source = node.inputs[0]
        if source is None:
            return None
        scale = self._parameter(node, 1)
        zero = self._parameter(node, 2)
        integers = self.model.constant(source, limit=None)
        if integers is None:
            maker, floats = self._before(node)
            if maker is None or floats is None:
                return None
            integers = _quantised(floats, self._parameter(maker, 1), self._parameter(maker, 2), _axis(maker), maker)
        if scale is None:
            raise OrinportError(f"The scale of {display_name(node)} is not constant.")
        shape = _along(integers.shape, scale, _axis(node), node)
        offset = (
            0.0 if zero is None else zero.astype(np.float64).reshape(_along(integers.shape, zero, _axis(node), node))
        )
        with np.errstate(over="ignore", invalid="ignore"):  # zeros of an infinite scale, which is told
            result: NDArray[np.float64] = (integers.astype(np.float64) - offset) * scale.astype(np.float64).reshape(
                shape
            )
        return result

    def _before(self, node: ir.Node) -> tuple[ir.Node | None, NDArray[np.generic] | None]:
        """The QuantizeLinear right before a DequantizeLinear, and what it quantises if that is constant."""
        maker = None if node.inputs[0] is None else node.inputs[0].producer()
        if maker is None or not _is(maker, "QuantizeLinear"):
            return None, None
        return maker, self.model.constant(maker.inputs[0], limit=None)

    def _bake(self, node: ir.Node) -> None:
        """Put the dequantised weights in the place of a DequantizeLinear."""
        values = self._constant_input(node)
        assert values is not None
        output = node.outputs[0]
        dtype = output.dtype or ir.DataType.FLOAT
        with np.errstate(over="ignore", invalid="ignore"):
            array = values.astype(dtype.numpy())
            self._tell_invalid(node)
            maker, floats = self._before(node)
            if maker is None or floats is None or not self._tell_lost(maker, floats, output.name or ""):
                self._compare(node, array)
        name = self.names.unique(f"{output.name}_weights")
        made = ir.Value(
            name=name, shape=ir.Shape(array.shape), type=ir.TensorType(dtype), const_value=ir.tensor(array, name=name)
        )
        self.graph.initializers[name] = made
        step = self._parameter(node, 1)
        if step is not None and step.dtype.kind == "f" and _integers_of(node) == ir.DataType.INT8:
            self._weights[name] = step.astype(np.float32).reshape(_along(array.shape, step, _axis(node), node))
        if output.is_graph_output():
            raise OrinportError(f"The output {output.name!r} is a constant.")
        output.replace_all_uses_with(made)
        maker = node.inputs[0].producer() if node.inputs[0] is not None else None
        self.graph.remove(node, safe=True)
        if maker is not None and not maker.outputs[0].uses() and not maker.outputs[0].is_graph_output():
            self.graph.remove(maker, safe=True)

    def _tell_invalid(self, node: ir.Node) -> None:
        """A finding on scales of constants that are none; zero is told too unless only zeros are scaled by it."""
        scale = self._parameter(node, 1)
        assert scale is not None
        steps = scale.astype(np.float64).reshape(-1)
        bad = ~np.isfinite(steps) | (steps < 0)
        if (steps == 0).any() and not self._is_zero_where(node, scale == 0):
            bad |= steps == 0
        if bad.any():
            name = node.outputs[0].name or ""
            self.findings.append(invalid_weight_scale(name, float(steps[bad][0]), int(bad.sum())))

    def _is_zero_where(self, node: ir.Node, unscaled: NDArray[np.bool_]) -> bool:
        """Whether the integers of constants are their zero point wherever their scale is zero."""
        integers = self.model.constant(node.inputs[0], limit=None) if node.inputs[0] is not None else None
        if integers is None:
            return False
        zero = self._parameter(node, 2)
        axis = _axis(node)
        offset = 0.0 if zero is None else zero.astype(np.float64).reshape(_along(integers.shape, zero, axis, node))
        where = unscaled.reshape(_along(integers.shape, unscaled, axis, node))
        return not ((integers.astype(np.float64) - offset != 0) & where).any()

    def _tell_lost(self, quantizer: ir.Node, floats: NDArray[np.generic], name: str) -> bool:
        """Remember weights that saturate, or whose steps are far too large; True if they do or are."""
        scale, zero, held = self._parameter(quantizer, 1), self._parameter(quantizer, 2), _integers_of(quantizer)
        if scale is None or held not in _INTEGERS or not floats.size:
            return False
        axis, values = _axis(quantizer), floats.astype(np.float64)
        steps = scale.astype(np.float64).reshape(_along(values.shape, scale, axis, quantizer))
        steps = np.where(np.isfinite(steps) & (steps > 0), steps, np.nan)  # what is none is told by itself
        offset = np.zeros(()) if zero is None else zero.reshape(_along(values.shape, zero, axis, quantizer))
        lowest = 0 if held == ir.DataType.UINT8 else -128
        cut = saturated(name, values, steps, (lowest - offset.astype(np.float64)) * steps)
        if cut is not None:
            self._saturated.append(cut)
            return True
        wide = coarse(name, values, steps)
        if wide is not None:
            self._coarse.append(wide)
        return wide is not None

    def _compare(self, node: ir.Node, array: NDArray[np.float32]) -> None:
        """Remember weights whose scales are not max |w| / 127 of each output channel."""
        scale = self._parameter(node, 1)
        axis = _output_channels(node.outputs[0], array.ndim) if array.ndim > 1 else None
        if scale is None or axis is None:
            return
        others = tuple(each for each in range(array.ndim) if each != axis)
        largest = np.abs(array.astype(np.float64)).max(axis=others)
        given = np.broadcast_to(
            np.abs(scale.astype(np.float64)).reshape(_along(array.shape, scale, _axis(node), node)), array.shape
        ).max(axis=others)
        used = largest > 0
        if not used.any():
            return
        ratio = given[used] * LEVELS / largest[used]
        worst = float(np.maximum(ratio, 1 / np.maximum(ratio, 1e-30)).max())
        if not np.isfinite(worst) or worst > 1 + _TOLERANCE:
            self._off_weights[node.outputs[0].name or ""] = worst

    # -------------------------------------------------------------------------------------- activations

    def _parameter(self, node: ir.Node, position: int) -> NDArray[np.generic] | None:
        """Scale or zero point of a quantiser; None if it has none. Raises OrinportError if it is not constant."""
        if len(node.inputs) <= position or (value := node.inputs[position]) is None:
            return None
        array = self.model.constant(value, limit=None)
        if array is None:
            what = "scale" if position == 1 else "zero point"
            raise OrinportError(
                f"The {what} of {display_name(node)} is computed at run time.",
                "Export the network with constant scales.",
            )
        return np.asarray(array)

    def _symmetric_scale(self, node: ir.Node, source: ir.Value) -> float:
        """The scale of a quantiser of `source` or of its integers, if a symmetric one gives the same values."""
        scale, zero = self._parameter(node, 1), self._parameter(node, 2)
        assert scale is not None
        if scale.size != 1:
            raise OrinportError(
                f"{display_name(node)} quantises an activation with {scale.size} scales, one a channel.",
                "The DLA has one scale a tensor: quantise activations by tensor.",
            )
        step, dtype = float(np.float32(scale.reshape(-1)[0])), _integers_of(node)
        if dtype is not None and dtype not in _INTEGERS:
            raise OrinportError(f"{display_name(node)} quantises to {dtype.name}; the DLA computes in INT8.")
        offset = _zero_of(zero)
        if (offset or dtype == ir.DataType.UINT8) and is_valid(step):
            self._require_symmetric(node, source, step, offset, unsigned=dtype == ir.DataType.UINT8)
        return step

    def _require_symmetric(self, node: ir.Node, source: ir.Value, step: float, zero: int, *, unsigned: bool) -> None:
        """Raise OrinportError unless the zero point is only another way to write symmetric integers down."""
        low, high = (0, 255) if unsigned else (-128, 127)
        if is_symmetric(step, low - zero, high - zero, bounds_of(self.model, source)):
            return
        shown = f"{'UINT8' if unsigned else 'INT8'} with zero point {zero}"
        ends = [f"{level * step:.6g}" for level in (low - zero, high - zero, -128, 127)]
        reason = "" if self.target is None else f"; {on_target(self.target)}"
        raise OrinportError(
            f"{display_name(node)} is asymmetric ({shown}): it holds {ends[0]} to {ends[1]}, and symmetric INT8 in the"
            f" same steps of {step:.6g} holds {ends[2]} to {ends[3]}{reason}.",
            "Quantise activations as INT8 with zero point 0 (ONNX Runtime: ActivationSymmetric), or as UINT8 with 128.",
        )

    def _quantize(self, node: ir.Node) -> None:
        """Record the scale of the tensor that is quantised."""
        source = _origin(node.inputs[0])
        self.found.setdefault(source, []).append(self._symmetric_scale(node, source))

    def _dequantize(self, node: ir.Node) -> None:
        source = node.inputs[0]
        assert source is not None
        root = _origin(source)
        if root.is_graph_input() and root.dtype in _INTEGERS:
            self._refuse_unsigned(root, "takes")
            self.found.setdefault(root, []).append(self._symmetric_scale(node, root))
            self.findings.append(integer_edge(root.name or "", "input"))
        elif (before := _scale_before(source)) is None:
            raise OrinportError(f"{display_name(node)} reads integers that no QuantizeLinear made.")
        else:
            self._require_same(node, before, source)
        self._bypass(node, source)

    def _require_same(self, node: ir.Node, before: ir.Node, source: ir.Value) -> None:
        """Raise OrinportError unless a DequantizeLinear takes back what the QuantizeLinear before it did."""
        made_of = _origin(before.inputs[0])
        scale, quantised = self._symmetric_scale(node, made_of), self._symmetric_scale(before, made_of)
        hint = "A pair that changes the values cannot be taken out; give both the same scale and zero point."
        if quantised != scale and not (np.isnan(scale) and np.isnan(quantised)):
            raise OrinportError(
                f"{display_name(node)} has the scale {scale:g}, and {display_name(before)} before it {quantised:g}.",
                hint,
            )
        zero, other = (_zero_of(self._parameter(each, 2)) for each in (node, before))
        if zero != other or _integers_of(node) != _integers_of(before):
            raise OrinportError(
                f"{display_name(node)} has the zero point {zero}, and {display_name(before)} before it {other}.", hint
            )
        between = _between(source)
        if zero and not between <= INTEGER_MOVERS:
            other_type = min(between - INTEGER_MOVERS)
            raise OrinportError(
                f"{display_name(node)} has the zero point {zero}, and before it {other_type} computes on integers.",
                "Quantise with zero point 0, or put the operator in front of the quantiser.",
            )

    def _refuse_unsigned(self, edge: ir.Value, what: str) -> None:
        if edge.dtype == ir.DataType.UINT8:
            raise OrinportError(
                f"The network {what} {edge.name!r} in UINT8, which the DLA has no such format for.",
                "Let the network's edges be floating point or INT8.",
            )

    def _bypass(self, node: ir.Node, source: ir.Value | None) -> None:
        """Let the readers of `node` read `source`, and take the node out."""
        assert source is not None
        output = node.outputs[0]
        for use in list(output.uses()):
            use.node.replace_input_with(use.idx, source)
        if output.is_graph_output():
            self._hand_out(output, source)
        self.graph.remove(node, safe=True)

    def _hand_out(self, output: ir.Value, source: ir.Value) -> None:
        """`source` takes the place and the name of a network output."""
        position = next(index for index, value in enumerate(self.graph.outputs) if value is output)
        name = output.name or ""
        if name in self._integer_outputs:
            self._refuse_unsigned(output, "gives")
            self._integer_outputs.discard(name)
            self.findings.append(integer_edge(name, "output"))
        if source.is_graph_input() or source.is_graph_output() or source.producer() is None:
            copy = ir.Node("", "Identity", [source], num_outputs=1, name=self.names.unique(f"{name}_copy"))
            copy.outputs[0].type, copy.outputs[0].shape = source.type, source.shape
            self.graph.append(copy)
            self.found.setdefault(copy.outputs[0], []).extend(self.found.get(_origin(source), []))
            source = copy.outputs[0]
        output.name = self.names.unique(f"{name}_quantised")
        source.name = name
        self.graph.outputs[position] = source

    def _float_types(self) -> None:
        """What was handed on in integers between a pair is floating point now."""
        for value in [*self.graph.inputs, *(output for node in self.graph for output in node.outputs)]:
            quantised = value in self.found or (value.producer() is not None and value.dtype in _INTEGERS)
            if quantised and value.dtype in _INTEGERS and _made_of_floats(value):
                value.type = ir.TensorType(ir.DataType.FLOAT)  # copies of a graph share their types


def _made_of_floats(value: ir.Value) -> bool:
    maker = value.producer()
    return maker is None or maker.op_type != "Cast"


def _origin(value: ir.Value | None) -> ir.Value:
    """The tensor behind a chain of pairs: what a second quantiser right after a pair quantises again."""
    assert value is not None
    maker = value.producer()
    while maker is not None and _is(maker, "QuantizeLinear", "DequantizeLinear") and maker.inputs[0] is not None:
        value = maker.inputs[0]
        maker = value.producer()
    return value


def _integers_of(node: ir.Node) -> ir.DataType | None:
    """The type that a quantiser gives, or that is taken back."""
    value = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    return None if value is None else value.dtype


def _zero_of(zero: NDArray[np.generic] | None) -> int:
    return 0 if zero is None or not zero.size else int(zero.reshape(-1)[0])


def _scale_before(value: ir.Value) -> ir.Node | None:
    """The QuantizeLinear whose integers reach `value`, through operators that only move them."""
    maker = value.producer()
    for _ in range(64):
        if maker is None or _is(maker, "QuantizeLinear"):
            return maker
        if not maker.inputs or maker.inputs[0] is None:
            return None
        maker = maker.inputs[0].producer()
    return None


def _between(value: ir.Value) -> set[str]:
    """The operators on the way to `value` from the QuantizeLinear that `_scale_before` finds."""
    found = set()
    maker = value.producer()
    while maker is not None and not _is(maker, "QuantizeLinear") and maker.inputs[0] is not None:
        found.add(maker.op_type)
        maker = maker.inputs[0].producer()
    return found


def _axis(node: ir.Node) -> int:
    return node.attributes["axis"].as_int() if "axis" in node.attributes else 1


def _along(shape: tuple[int, ...], parameter: NDArray[np.generic], axis: int, node: ir.Node) -> tuple[int, ...]:
    """The shape in which a scale or zero point broadcasts against `shape`."""
    if parameter.size == 1:
        return (1,) * len(shape)
    if not -len(shape) <= axis < len(shape) or shape[axis] != parameter.size or parameter.ndim != 1:
        raise OrinportError(f"{display_name(node)} has {parameter.size} scales for a tensor of shape {list(shape)}.")
    return tuple(parameter.size if index == axis % len(shape) else 1 for index in range(len(shape)))


def _quantised(
    floats: NDArray[np.generic],
    scale: NDArray[np.generic] | None,
    zero: NDArray[np.generic] | None,
    axis: int,
    node: ir.Node,
) -> NDArray[np.float64]:
    """QuantizeLinear by its definition: round to even, add the zero point, saturate."""
    if scale is None:
        raise OrinportError(f"The scale of {display_name(node)} is not constant.")
    held = _integers_of(node)
    dtype = (np.dtype(np.uint8) if held is None else held.numpy()) if zero is None else zero.dtype
    if dtype.kind not in "iu":
        raise OrinportError(
            f"{display_name(node)} quantises to {dtype.name.upper()}; the DLA computes in INT8.",
            "Quantise weights as INT8.",
        )
    bounds = np.iinfo(dtype)
    along = scale.astype(np.float32).reshape(_along(floats.shape, scale, axis, node))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # scales that are none are told
        steps = np.rint(floats.astype(np.float32) / along)
    offset = 0 if zero is None else zero.astype(np.float64).reshape(_along(floats.shape, zero, axis, node))
    result: NDArray[np.float64] = np.clip(steps.astype(np.float64) + offset, bounds.min, bounds.max)
    return result


def _output_channels(value: ir.Value, rank: int) -> int | None:
    """The axis of output channels of weights, behind a Transpose too; None where their readers do not say."""
    uses = list(value.uses())
    if not uses:
        return None
    node = uses[0].node
    if node.op_type == "Transpose" and len(uses) == 1:
        axis = _output_channels(node.outputs[0], rank)
        order = node.attributes["perm"].as_ints() if "perm" in node.attributes else range(rank)[::-1]
        return None if axis is None else order[axis]
    axis = channel_axis(node) if all(use.idx == 1 for use in uses) else None
    return None if axis is None else axis % rank


def channel_axis(node: ir.Node) -> int | None:
    """The axis of output channels of a node's weights, its second input; None if it has no weights."""
    if node.op_type == "Gemm":
        transposed = "transB" in node.attributes and node.attributes["transB"].as_int() == 1
        return 0 if transposed else 1
    return _CHANNEL_AXIS.get(node.op_type)
