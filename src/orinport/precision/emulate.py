"""`emulate`: a network that computes in ONNX Runtime what the DLA computes, in INT8 and FP16.

    x -> Conv(w) -> Relu -> y      =>      quantize(x) -> Conv(integers of w) -> times, round, saturate -> integers of y

Integers travel in FP32 tensors. A convolution of them is exact as long as every partial sum stays below 2**24, in
whatever order it is summed up; that bound is worked out from the weights and the range of the input, and a
convolution that breaks it is cut by input channels into several that keep it, added up in FP64. The conversion behind
it multiplies by an INT16 and shifts, as NVDLA v1 does: the product has at most 46 bits, which FP64 holds. Rounding
ties away from zero is rounding to even after a nudge by 2**-50, less than what keeps any other value from a tie.
Point-wise conversions have at most 24 bits and stay in FP32, nudged by one unit in the last place. So the results are
those of `nvdla_arithmetic`, bit for bit.

What is not known: NVIDIA has not published how Orin's DLA post-processes. It does so in a format called FP19, not
in NVDLA v1's integers, so results on a board may differ where a rounding falls the other way; no board has been
measured. That weights have one scale an output channel is taken over from TensorRT on the GPU. What
runs on the GPU is computed in FP32 here. A ReLU or Clip behind a convolution, fully connected layer or sum that
nothing else reads is fused with it.

From TensorRT 11 on types decide, wherever a layer runs (`Typed`): a tensor with Q/DQ is stored in INT8 whatever reads
it, weights have the steps that their DequantizeLinear states, and inputs come in FP16. A pair between a convolution
and its ReLU counts as the tensor's range, as in a cache: NVIDIA's own way of writing Q/DQ for the DLA has one there
(see `explicit`), and what the DLA makes of it is not documented (row I13).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from orinport.errors import OrinportError
from orinport.model.layer import LayerKind
from orinport.model.model import display_name, shape_of
from orinport.precision.complete import is_quantisable
from orinport.precision.emulate_weights import Form, largest_sum, quantized_weights
from orinport.precision.nvdla_arithmetic import INT8, Multiplier, quantize, reciprocal
from orinport.precision.scales import Origin, Scales

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from orinport.model.layer import Layer
    from orinport.model.model import Model
    from orinport.precision.emulate_weights import Weights

__all__ = ["Arithmetic", "Emulated", "Shown", "Typed", "arithmetic_of", "emulate"]

_OPSET = 11
"""Round, and Clip with its bounds as inputs."""
_EXACT = 1 << 24
"""FP32 holds every integer up to here."""
_NUDGE = 1 + 2.0**-50
_SHARED = 64
"""Elements up to which equal constants are stored once."""
_OTHER_FLOATS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


class Arithmetic(str, Enum):
    """What a node computes in."""

    INT8 = "int8"
    FP16 = "fp16"
    FP32 = "fp32"
    """It is not on the DLA."""


@dataclass(frozen=True, slots=True)
class Typed:
    """That the network's own types decide, and what they say of inputs and of tensors between layers."""

    singles: frozenset[str] = frozenset()
    """Inputs in FP32."""
    stored: frozenset[str] | None = None
    """Tensors with a Q/DQ pair, which are stored in INT8 whatever reads them; None for all that have a scale."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A tensor of the network as the emulation holds it."""

    output: str
    """Name of the emulation's output; an input of the network where it is not quantised."""
    scale: float | None
    """Step of the integers that it holds; None if it holds real numbers."""


@dataclass(frozen=True, slots=True)
class Emulated:
    """The emulation: a network of its own, whose outputs are the tensors of the original."""

    model: ir.Model
    tensors: Mapping[str, Shown]
    """By name, in the order of execution; what fusion leaves out is missing."""
    arithmetic: Mapping[str, Arithmetic]
    """By display name of the node."""


# ---------------------------------------------------------------------------------------------- what runs how

_FP16_KINDS = frozenset({LayerKind.SOFTMAX, LayerKind.SLICE, LayerKind.LRN})
_FP16_ACTIVATIONS = frozenset({"SIGMOID", "TANH"})
"""Rows V01b, M01b, A04 and L01b of the catalogue: no INT8, or computed in FP16."""


def arithmetic_of(layers: Sequence[Layer], on_dla: Collection[int], scales: Scales | None) -> dict[str, Arithmetic]:
    """What each ONNX node computes in, by display name; `on_dla` holds indices of layers, no `scales` means FP16.

    With scales a layer is INT8 if it may be and all its floating-point tensors have one (row I01), and FP16 otherwise.
    """
    found: dict[str, Arithmetic] = {}
    order = (Arithmetic.INT8, Arithmetic.FP16, Arithmetic.FP32)
    for layer in layers:
        if layer.folds:
            continue
        if layer.index not in on_dla:
            kind = Arithmetic.FP32
        else:
            kind = Arithmetic.INT8 if scales is not None and _is_int8(layer, scales) else Arithmetic.FP16
        for node in layer.nodes:
            found[node] = max(kind, found.get(node, kind), key=order.index)
    return found


def _is_int8(layer: Layer, scales: Scales) -> bool:
    if layer.kind in _FP16_KINDS or (layer.kind is LayerKind.ACTIVATION and layer["type"] in _FP16_ACTIVATIONS):
        return False
    tensors = [tensor for tensor in (*layer.inputs, *layer.outputs) if is_quantisable(tensor)]
    return all(tensor.name in scales for tensor in tensors)


def emulate(
    model: Model,
    arithmetic: Mapping[str, Arithmetic],
    scales: Scales,
    *,
    typed: Typed | None = None,
    exact: Mapping[str, NDArray[Any]] | None = None,
    known: dict[Any, Weights] | None = None,
) -> Emulated:
    """The emulation of `model`; nodes that `arithmetic` does not name compute in FP32.

    `typed` is for software whose networks are strongly typed. `exact` has constants from before their rounding to INT8,
    by name, which layers in FP16 read in their place. `known` keeps quantised weights from one emulation of the
    same network to the next. Raises OrinportError for networks with subgraphs, in other types than FP32 (see
    `to_single`), and for opsets below 11.
    """
    if model.opset < _OPSET:
        raise OrinportError(
            f"Emulation takes opset {_OPSET} or newer, and {model.name!r} has {model.opset}.",
            "Run orinport prepare on it first and emulate what that writes.",
        )
    for node in model.graph:
        if any(
            attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
            for attribute in node.attributes.values()
        ):
            raise OrinportError(f"{display_name(node)} holds a subgraph, which is not emulated.", "Unroll it first.")
    other = next((value for node in model.graph for value in node.outputs if value.dtype in _OTHER_FLOATS), None)
    if other is not None:
        raise OrinportError(
            f"Emulation takes networks in FP32 and FP16, and {other.name!r} is {other.dtype!s}.",
            "Emulate the network from before its conversion.",
        )
    work = _Emulator(model, arithmetic, scales, typed, exact or {}, {} if known is None else known)
    work.run()
    return Emulated(work.result(), work.shown(), dict(arithmetic))


# ---------------------------------------------------------------------------------------------- building


@dataclass(slots=True)
class _Held:
    """A tensor in the emulation: as integers, as real numbers, or both."""

    integers: ir.Value | None = None
    floats: ir.Value | None = None
    scale: float = 0.0
    low: int = INT8[0]
    high: int = INT8[1]
    half: bool = False
    """The real numbers are rounded to FP16 already."""


_MOVERS = frozenset(
    {
        "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Reshape", "SpaceToDepth", "Split",
        "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""They hand on the integers of their first input."""


class _Emulator:
    """Builds the emulation node by node, in the order of the network."""

    def __init__(
        self,
        model: Model,
        arithmetic: Mapping[str, Arithmetic],
        scales: Scales,
        typed: Typed | None,
        exact: Mapping[str, NDArray[Any]],
        known: dict[Any, Weights],
    ) -> None:
        self.model, self.arithmetic, self.scales, self.typed = model, arithmetic, scales, typed
        self.exact, self.known = exact, known
        self.nodes: list[ir.Node] = []
        self.initializers: dict[tuple[Any, ...], ir.Value] = {}
        self.held: dict[ir.Value, _Held] = {}
        self.inputs: list[ir.Value] = []
        self._fused: set[ir.Node] = set()
        self._leaving = set(model.graph.outputs)
        self._handlers: dict[str, Callable[[ir.Node], bool]] = {
            "Conv": self._product,
            "ConvTranspose": self._product,
            "Gemm": self._product,
            "MatMul": self._product,
            "Add": self._sum,
            "Sub": self._sum,
            "Sum": self._sum,
            "Mul": self._elementwise_product,
            "Max": self._extreme,
            "Min": self._extreme,
            "Relu": self._clip,
            "Clip": self._clip,
            "MaxPool": self._max_pool,
            "GlobalMaxPool": self._max_pool,
            "AveragePool": self._average_pool,
            "GlobalAveragePool": self._average_pool,
            "Concat": self._concat,
            **dict.fromkeys(_MOVERS, self._move),
        }

    # ---------------------------------------------------------------------------------------- values

    def _name(self, base: str) -> str:
        return f"{base}_{len(self.nodes)}_{len(self.initializers)}"

    def constant(self, array: NDArray[Any] | np.generic) -> ir.Value:
        """A constant; small ones are shared."""
        array = np.asarray(array)
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= _SHARED else (len(self.initializers),)
        if key not in self.initializers:
            name = self._name("constant")
            self.initializers[key] = _value(name, array.shape, ir.tensor(array, name=name))
        return self.initializers[key]

    def _given(self, value: ir.Value, *, half: bool) -> ir.Value:
        """A constant of the network, rounded to FP16 where the node that reads it computes so."""
        key = (id(value), half)
        if key not in self.initializers:
            array = self.exact.get(value.name or "") if half else None
            if array is None:
                array = self.model.constant(value, limit=None)
            assert array is not None
            if half and array.dtype == np.float32:
                with np.errstate(over="ignore"):
                    array = array.astype(np.float16).astype(np.float32)
            name = self._name("given")
            self.initializers[key] = _value(name, array.shape, ir.tensor(array, name=name))
        return self.initializers[key]

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: int) -> ir.Value:
        """The one output of a new node."""
        return self.node(op_type, inputs, [ir.AttrInt64(name, each) for name, each in attributes.items()], "", 1)[0]

    def node(
        self, op_type: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr], domain: str, outputs: int
    ) -> Sequence[ir.Value]:
        """The outputs of a new node."""
        made = ir.Node(domain, op_type, inputs, attributes, num_outputs=outputs, name=self._name(op_type))
        for index, value in enumerate(made.outputs):
            value.name = f"{made.name}_{index}"
        self.nodes.append(made)
        return made.outputs

    def _like(self, node: ir.Node, inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        """The outputs of a node as `node`, with other inputs."""
        return self.node(node.op_type, inputs, list(node.attributes.values()), node.domain, len(node.outputs))

    def _scale(self, value: ir.Value | None) -> float | None:
        """Step of the integers of a tensor; None if it is not quantised."""
        found = None if value is None else self.scales.get(value.name or "")
        return None if found is None or found.origin is Origin.FUSED else found.value

    def _kind(self, node: ir.Node) -> Arithmetic:
        return self.arithmetic.get(display_name(node), Arithmetic.FP32)

    def _is_runtime(self, value: ir.Value | None) -> bool:
        return value is not None and not self.model.is_constant(value)

    # ---------------------------------------------------------------------------------------- forms

    def integers(self, value: ir.Value) -> ir.Value:
        """A tensor as integers of its scale."""
        held = self.held[value]
        if held.integers is None:
            scale = self._scale(value)
            assert scale is not None
            assert held.floats is not None
            held.integers, held.scale = self._quantized(held.floats, scale), scale
        return held.integers

    def floats(self, value: ir.Value) -> ir.Value:
        """A tensor as real numbers."""
        held = self.held[value]
        if held.floats is None:
            assert held.integers is not None
            held.floats = self.op("Mul", held.integers, self.constant(np.float32(held.scale)))
        return held.floats

    def _quantized(self, floats: ir.Value, scale: float, low: int = INT8[0], high: int = INT8[1]) -> ir.Value:
        double = self.op("Cast", floats, to=int(ir.DataType.DOUBLE))
        quotient = self.op("Mul", double, self.constant(np.float64(1 / np.float64(scale) * _NUDGE)))
        return self._rounded(quotient, low, high)

    def _rounded(self, value: ir.Value, low: int, high: int) -> ir.Value:
        """Rounded and saturated, in FP32; `value` is nudged already."""
        rounded = self.op("Cast", self.op("Round", value), to=int(ir.DataType.FLOAT))
        return self.op("Clip", rounded, self.constant(np.float32(low)), self.constant(np.float32(high)))

    def _converted(self, wide: ir.Value, factors: NDArray[np.float64], low: int, high: int) -> ir.Value:
        """Integers of up to 32 bits times an INT16, shifted, rounded and saturated."""
        exact = np.array([Multiplier.of(factor).value for factor in factors.flat]).reshape(factors.shape)
        return self._rounded(self.op("Mul", self._double(wide), self.constant(exact * _NUDGE)), low, high)

    def _double(self, value: ir.Value) -> ir.Value:
        if value.dtype == ir.DataType.DOUBLE:
            return value
        double = self.op("Cast", value, to=int(ir.DataType.DOUBLE))
        double.type = ir.TensorType(ir.DataType.DOUBLE)
        return double

    def _rescaled(self, narrow: ir.Value, before: float, after: float, low: int, high: int) -> ir.Value:
        """Integers of at most 9 bits from one scale to another."""
        multiplier = Multiplier.of(before / after)
        product = narrow
        if multiplier.value != 1.0:
            nudged = np.nextafter(np.float32(multiplier.value), np.float32(np.inf))
            product = self.op("Round", self.op("Mul", narrow, self.constant(nudged)))
        return self.op("Clip", product, self.constant(np.float32(low)), self.constant(np.float32(high)))

    def _handed_on(self, value: ir.Value, integers: ir.Value, source: _Held) -> None:
        """`value` holds integers that come from `source`, in its own scale if it has one."""
        scale = self._scale(value)
        if scale is not None and scale != source.scale:
            integers = self._rescaled(integers, source.scale, scale, source.low and INT8[0], INT8[1])
            self.held[value] = _Held(integers, None, scale, source.low and INT8[0], INT8[1])
        else:
            self.held[value] = _Held(integers, None, source.scale, source.low, source.high)

    def _put(self, value: ir.Value, integers: ir.Value, low: int = INT8[0], high: int = INT8[1]) -> None:
        scale = self._scale(value)
        assert scale is not None
        self.held[value] = _Held(integers, None, scale, low, high)

    # ---------------------------------------------------------------------------------------- the walk

    def run(self) -> None:
        """Emulate every node."""
        for value in self.model.graph.inputs:
            given = ir.Value(name=value.name, shape=value.shape, type=value.type)
            self.inputs.append(given)
            half = self.typed is not None and value.name not in self.typed.singles
            if half and value.dtype == ir.DataType.FLOAT:
                self.held[value] = _Held(floats=self._to_half(given), half=True)
            else:
                self.held[value] = _Held(floats=given)
            self._store(value)
        for node in self.model.graph:
            if node in self._fused or all(self.model.is_constant(value) for value in node.outputs):
                continue
            if self._kind(node) is Arithmetic.INT8 and node.domain == "":
                handler = self._handlers.get(node.op_type)
                if handler is not None and self._all_scaled(node) and handler(node):
                    continue
            self._real(node)

    def _all_scaled(self, node: ir.Node) -> bool:
        """Every tensor that an integer handler touches has a scale, but for a product that a sum takes as it is."""
        outputs = () if node.op_type in _PRODUCTS else node.outputs
        return all(
            self._scale(value) is not None
            for value in (*node.inputs, *outputs)
            if value is not None and self._is_runtime(value) and value.dtype == ir.DataType.FLOAT
        )

    def _real(self, node: ir.Node) -> None:
        """A node on real numbers: FP32, FP16, or INT8 with one rounding at the end."""
        kind = self._kind(node)
        half = kind is Arithmetic.FP16
        inputs: list[ir.Value | None] = []
        for value in node.inputs:
            if value is None:
                inputs.append(None)
            elif self._is_runtime(value):
                inputs.append(self._half(value) if half else self.floats(value))
            else:
                inputs.append(self._given(value, half=half))
        for value, made in zip(node.outputs, self._like(node, inputs), strict=True):
            if value.dtype != ir.DataType.FLOAT:
                self.held[value] = _Held(floats=made)
                continue
            held = _Held(floats=self._to_half(made), half=True) if half else _Held(floats=made)
            self.held[value] = held
            if kind is Arithmetic.INT8 and self._scale(value) is not None:
                self.integers(value)
                held.floats = None
            elif half or self.typed is not None:
                self._store(value)

    def _store(self, value: ir.Value) -> None:
        """A tensor that INT8 layers read is stored in INT8, whatever made it; other readers get what is stored."""
        if value.dtype != ir.DataType.FLOAT or self._scale(value) is None:
            return
        paired = self.typed is not None and (self.typed.stored is None or value.name in self.typed.stored)
        if paired or any(self._kind(use.node) is Arithmetic.INT8 for use in value.uses()):
            self.integers(value)
            self.held[value].floats = None

    def _half(self, value: ir.Value) -> ir.Value:
        held = self.held[value]
        floats = self.floats(value)
        if value.dtype != ir.DataType.FLOAT or held.half:
            return floats
        return self._to_half(floats)

    def _to_half(self, value: ir.Value) -> ir.Value:
        return self.op("Cast", self.op("Cast", value, to=int(ir.DataType.FLOAT16)), to=int(ir.DataType.FLOAT))

    def _fused_clip(self, value: ir.Value) -> tuple[ir.Value, int, int]:
        """The tensor behind a ReLU or Clip that is fused with what makes `value`, and its bounds as integers."""
        uses = list(value.uses())
        if value in self._leaving or len(uses) != 1:
            return value, *INT8
        node = uses[0].node
        bounds = self._bounds(node)
        if bounds is None or self._kind(node) is not Arithmetic.INT8 or self._scale(node.outputs[0]) is None:
            return value, *INT8
        self._fused.add(node)
        return node.outputs[0], *bounds

    def _bounds(self, node: ir.Node) -> tuple[int, int] | None:
        """Bounds of a ReLU or Clip in integers of its output; None if it is neither, or they are not constant."""
        scale = self._scale(node.outputs[0])
        if node.op_type == "Relu":
            return 0, INT8[1]
        if node.op_type != "Clip" or scale is None:
            return None
        bounds = list(INT8)
        for index in (1, 2):
            value = node.inputs[index] if len(node.inputs) > index else None
            if value is None:
                continue
            array = self.model.constant(value)
            if array is None or array.size != 1 or not np.isfinite(array).all():
                return None
            bounds[index - 1] = int(quantize(array.astype(np.float32).reshape(()), scale))
        return bounds[0], bounds[1]

    # ---------------------------------------------------------------------------------------- products

    def _product(self, node: ir.Node) -> bool:
        """Convolution, deconvolution and fully connected layers with constant weights."""
        source, weights = node.inputs[0], self.model.constant(node.inputs[1], limit=None)
        bias = self.model.constant(node.inputs[2], limit=None) if len(node.inputs) > 2 else None
        has_bias = len(node.inputs) > 2 and node.inputs[2] is not None
        if source is None or not self._is_runtime(source) or weights is None or (has_bias and bias is None):
            return False
        form = Form.of(node, weights)
        if form is None or not np.isfinite(weights).all() or (bias is not None and not np.isfinite(bias).all()):
            return False
        if bias is not None and bias.size not in (1, form.kernels):
            return False
        x = self.integers(source)
        held = self.held[source]
        key = node, held.scale
        if key not in self.known:
            named = node.inputs[1]
            given = None if self.typed is None or named is None else self.scales.weights.get(named.name or "")
            self.known[key] = quantized_weights(form, weights, bias, held.scale, given)
        numbers, units, adds = self.known[key]
        sums = self._sums(node, form, x, numbers, adds, held)
        shape = form.broadcast(len(shape_of(node.outputs[0]) or ()))
        if self._scale(node.outputs[0]) is None:
            factor = self.constant(units.reshape(shape))
            real = self.op("Cast", self.op("Mul", self._double(sums), factor), to=int(ir.DataType.FLOAT))
            self.held[node.outputs[0]] = _Held(floats=real)
            return True
        result, low, high = self._fused_clip(node.outputs[0])
        scale = self._scale(result)
        assert scale is not None
        factors = (units / np.float64(scale)).reshape(shape)
        self._put(result, self._converted(sums, factors, low, high), low, high)
        return True

    def _sums(
        self, node: ir.Node, form: Form, x: ir.Value, numbers: NDArray[np.int8], bias: NDArray[np.int64], held: _Held
    ) -> ir.Value:
        """The accumulator with the bias, exact: in FP32 if it fits; if not, in parts that are added up in FP64."""
        whole = largest_sum(numbers, held.low, held.high) + np.abs(bias)
        if whole.max(initial=0) < _EXACT:
            added = [self.constant(bias.astype(np.float32))] if bias.any() else []
            weights = self.constant(form.weights(numbers).astype(np.float32))
            return self._bare(node, x, weights, added)
        total: ir.Value | None = None
        for part in form.cut(
            numbers, lambda each: bool(largest_sum(each, held.low, held.high).max(initial=0) < _EXACT)
        ):
            sums = self._double(self._bare(node, x, self.constant(form.weights(part).astype(np.float32)), []))
            if total is not None:
                sums = self.op("Add", total, sums)
                sums.type = ir.TensorType(ir.DataType.DOUBLE)
            total = sums
        assert total is not None
        shape = form.broadcast(len(shape_of(node.outputs[0]) or ()))
        total = self.op("Add", total, self.constant(bias.astype(np.float64).reshape(shape)))
        total.type = ir.TensorType(ir.DataType.DOUBLE)
        return total

    def _bare(self, node: ir.Node, x: ir.Value, weights: ir.Value, bias: list[ir.Value]) -> ir.Value:
        if node.op_type == "MatMul" and bias:
            return self.op("Add", self.op("MatMul", x, weights), bias[0])
        return self._like(node, [x, weights, *bias])[0]

    # ---------------------------------------------------------------------------------------- point-wise and pooling

    def _two(self, node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
        """The operands of a node if both exist at run time."""
        left, right = (*node.inputs, None)[:2]
        if len(node.inputs) != 2 or left is None or right is None:
            return None
        return (left, right) if self._is_runtime(left) and self._is_runtime(right) else None

    def _sum(self, node: ir.Node) -> bool:
        operands = self._two(node)
        if operands is None:
            return False
        left, right = self.integers(operands[0]), self.integers(operands[1])
        first, second = self.held[operands[0]].scale, self.held[operands[1]].scale
        if first != second:
            return False
        result, low, high = self._fused_clip(node.outputs[0])
        scale = self._scale(result)
        assert scale is not None
        total = self._like(node, [left, right])[0]
        self._put(result, self._rescaled(total, first, scale, low, high), low, high)
        return True

    def _elementwise_product(self, node: ir.Node) -> bool:
        operands = self._two(node)
        if operands is None:
            return False
        product = self._like(node, [self.integers(operands[0]), self.integers(operands[1])])[0]
        result, low, high = self._fused_clip(node.outputs[0])
        scale = self._scale(result)
        assert scale is not None
        factor = self.held[operands[0]].scale * self.held[operands[1]].scale / scale
        self._put(result, self._converted(product, np.array(factor), low, high), low, high)
        return True

    def _extreme(self, node: ir.Node) -> bool:
        operands = self._two(node)
        if operands is None:
            return False
        integers = [self.integers(operands[0]), self.integers(operands[1])]
        first, second = self.held[operands[0]], self.held[operands[1]]
        if first.scale != second.scale:
            return False
        source = _Held(scale=first.scale, low=min(first.low, second.low), high=max(first.high, second.high))
        self._handed_on(node.outputs[0], self._like(node, integers)[0], source)
        return True

    def _clip(self, node: ir.Node) -> bool:
        source, bounds = node.inputs[0], self._bounds(node)
        if source is None or bounds is None:
            return False
        integers = self.integers(source)
        scale = self._scale(node.outputs[0])
        assert scale is not None
        self._put(node.outputs[0], self._rescaled(integers, self.held[source].scale, scale, *bounds), *bounds)
        return True

    def _max_pool(self, node: ir.Node) -> bool:
        source = node.inputs[0]
        if source is None or len(node.outputs) != 1:
            return False
        self._handed_on(node.outputs[0], self._like(node, [self.integers(source)])[0], self.held[source])
        return True

    def _average_pool(self, node: ir.Node) -> bool:
        source = node.inputs[0]
        shape = None if source is None else shape_of(source)
        window = None if shape is None else _average_window(node, shape)
        if source is None or window is None:
            return False
        mean = self._like(node, [self.integers(source)])[0]
        sums = self.op("Round", self.op("Mul", mean, self.constant(np.float32(prod(window)))))
        for length in (window[1], window[0]):
            factor = np.float64(reciprocal(length)) / 65536
            double = self.op("Mul", self._double(sums), self.constant(factor * _NUDGE))
            sums = self.op("Round", double)
            sums.type = ir.TensorType(ir.DataType.DOUBLE)
        narrow = self.op("Cast", sums, to=int(ir.DataType.FLOAT))
        clipped = self.op("Clip", narrow, self.constant(np.float32(INT8[0])), self.constant(np.float32(INT8[1])))
        self._handed_on(node.outputs[0], clipped, self.held[source])
        return True

    def _concat(self, node: ir.Node) -> bool:
        if not all(self._is_runtime(value) for value in node.inputs):
            return False
        scale = self._scale(node.outputs[0])
        assert scale is not None
        parts, low = [], 0
        for value in node.inputs:
            assert value is not None
            integers, held = self.integers(value), self.held[value]
            low = min(low, held.low)
            same = held.scale == scale
            parts.append(integers if same else self._rescaled(integers, held.scale, scale, *INT8))
        self._put(node.outputs[0], self._like(node, parts)[0], low and INT8[0])
        return True

    def _move(self, node: ir.Node) -> bool:
        source = node.inputs[0]
        if source is None or not self._is_runtime(source) or any(self._is_runtime(value) for value in node.inputs[1:]):
            return False
        others = [None if value is None else self._given(value, half=False) for value in node.inputs[1:]]
        results = self._like(node, [self.integers(source), *others])
        for value, made in zip(node.outputs, results, strict=True):
            if value.dtype == ir.DataType.FLOAT:
                self._handed_on(value, made, self.held[source])
            else:
                self.held[value] = _Held(floats=made)
        return True

    # ---------------------------------------------------------------------------------------- the result

    def _made(self) -> dict[ir.Value, ir.Value]:
        """The floating-point tensors of the network that exist in the emulation, and what stands for them."""
        pairs = ((value, held.floats if held.integers is None else held.integers) for value, held in self.held.items())
        return {value: made for value, made in pairs if made is not None and value.dtype == ir.DataType.FLOAT}

    def shown(self) -> dict[str, Shown]:
        """What each of them is called in the emulation."""
        found = {}
        for value, made in self._made().items():
            held = self.held[value]
            found[value.name or ""] = Shown(made.name or "", held.scale if made is held.integers else None)
        return found

    def result(self) -> ir.Model:
        """The emulation, with every tensor of `shown` as an output."""
        given = set(self.inputs)
        outputs: dict[ir.Value, None] = {}
        for value, made in self._made().items():
            if made not in given and made not in outputs:
                made.type, made.shape = ir.TensorType(ir.DataType.FLOAT), value.shape
                outputs[made] = None
        graph = ir.Graph(
            self.inputs,
            list(outputs),
            nodes=self.nodes,
            initializers=list(self.initializers.values()),
            opset_imports=dict(self.model.graph.opset_imports),
            name="emulated",
        )
        return ir.Model(graph, ir_version=max(self.model.ir.ir_version, 7))


def _value(name: str, shape: tuple[int, ...], tensor: ir.TensorProtocol) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(tensor.dtype), const_value=tensor)


def _average_window(node: ir.Node, shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Window of an average that counts its padding; None if it does not, or has not two dimensions."""
    if len(shape) != 4:
        return None
    if node.op_type == "GlobalAveragePool":
        return (shape[2], shape[3]) if prod(shape[2:]) * -INT8[0] < _EXACT else None
    attributes = node.attributes
    window = tuple(attributes["kernel_shape"].as_ints())
    pads = tuple(attributes["pads"].as_ints()) if "pads" in attributes else (0,)
    automatic = "auto_pad" in attributes and attributes["auto_pad"].as_string() not in ("NOTSET", "VALID")
    counted = "count_include_pad" in attributes and attributes["count_include_pad"].as_int() == 1
    round_up = "ceil_mode" in attributes and attributes["ceil_mode"].as_int() == 1
    dilated = "dilations" in attributes and any(each != 1 for each in attributes["dilations"].as_ints())
    if round_up or dilated or ((any(pads) or automatic) and not counted):
        return None
    return window[0], window[1]
