"""Operators that work element by element: arithmetic, comparison, activations, casts, Where."""

# ruff: noqa: ARG001 - all lowerings have one signature
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import has, integer, need, real, refuse_types, text
from orinport.model.lower.network import Network, Ref, Refused, Unclear, Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Operand, Outputs

    Lowering = Callable[[Network, ir.Node, Inputs], Outputs]

__all__ = [
    "activation",
    "binary",
    "cast",
    "cast_like",
    "celu",
    "chain",
    "clip",
    "clip_constant",
    "compare_or_equal",
    "gelu",
    "hard_swish",
    "is_inf",
    "is_nan",
    "mean",
    "mish",
    "mod",
    "or_equal",
    "power",
    "prelu",
    "shrink",
    "swish",
    "unary",
    "where",
    "zeros_like",
]

_INTEGERS = frozenset({DType.INT32, DType.INT64})
_FLOAT_MAX = float(np.finfo(np.float32).max)


def chain(net: Network, operands: Sequence[Operand], op: str, *, base: str | None = "") -> Operand:
    """Bring all operands to one rank, in order, and combine them from left to right."""
    if not operands:
        raise Refused("No inputs.")
    ranks = [len(o.shape) for o in operands if o.shape is not None]
    rank = max(ranks) if len(ranks) == len(operands) else None
    refs = [net.broadcast(net.tensor(operand), rank) for operand in operands]
    _check_types(refs, op, not net.parser.has("pow_integer_base"))
    if len(refs) == 1:
        return net.identity(refs[0])
    out = refs[0]
    for ref in refs[1:]:
        out = net.elementwise(out, ref, op, base=base)
    return out


def _check_types(refs: Sequence[Ref], op: str, strict: bool) -> None:
    logic = op in {"AND", "OR", "XOR"}
    for ref in refs:
        if (ref.dtype is DType.BOOL) is not logic and op != "EQUAL":
            raise Refused(f"{op} takes only bool inputs." if logic else f"{op} does not take bool inputs.")
    if op == "POW" and strict and any(ref.dtype in _INTEGERS for ref in refs):
        raise Refused("POW does not take integer inputs.")


def binary(op: str) -> Lowering:
    """Operators of two or more inputs to ELEMENTWISE, with a SHUFFLE for each input of lower rank."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        return [chain(net, [need(inputs, i) for i in range(len(inputs))], op)]

    return lower


def power(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Pow to POW; from 10.8 on integer exponents are cast first, from 10.12 on integer bases as well."""
    base, exponent = need(inputs, 0), need(inputs, 1)
    if _INTEGERS.isdisjoint((base.dtype, exponent.dtype)) or (
        base.dtype is exponent.dtype and net.parser.has("pow_integer_base")
    ):
        return [chain(net, [base, exponent], "POW")]
    if not net.parser.has("pow_integer_base"):
        if exponent.dtype in _INTEGERS and net.parser.has("pow_integer_exponent"):
            exponent = net.cast(net.tensor(exponent), base.dtype)
        return [chain(net, [base, exponent], "POW")]
    work = DType.FP32 if base.dtype in _INTEGERS else base.dtype
    first = net.cast(net.tensor(base), work)
    out = chain(net, [first, net.cast(net.tensor(exponent), work)], "POW")
    return [net.cast(net.tensor(out), base.dtype) if base.dtype in _INTEGERS else out]


def or_equal(net: Network, a: Operand, b: Operand, op: str) -> Ref:
    """GREATER or LESS, EQUAL, and OR of both."""
    strict = net.tensor(chain(net, [a, b], op))
    same = net.tensor(chain(net, [a, b], "EQUAL"))
    return net.tensor(chain(net, [strict, same], "OR"))


def compare_or_equal(op: str) -> Lowering:
    """GreaterOrEqual and LessOrEqual."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        return [or_equal(net, net.tensor(need(inputs, 0)), net.tensor(need(inputs, 1)), op)]

    return lower


def mean(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Mean to a chain of SUM and a PROD with 1/n."""
    total = net.tensor(chain(net, [need(inputs, i) for i in range(len(inputs))], "SUM"))
    rank = 0 if total.shape is None else len(total.shape)
    scale = net.constant(1.0 / len(inputs), total.dtype, (1,) * rank)
    return [net.elementwise(total, scale, "PROD", base=None)]


def unary(op: str) -> Lowering:
    """Operators of one input to UNARY."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        ref = net.tensor(need(inputs, 0))
        if op == "NOT":
            if ref.dtype is not DType.BOOL:
                raise Refused(f"NOT takes only bool inputs, not {ref.dtype.value}.")
        elif op in {"ABS", "SIGN"} and (op == "ABS" or net.parser.has("int64")):
            refuse_types(ref, DType.BOOL, DType.UINT8)
        elif op == "NEG":
            if ref.dtype is DType.INT32:
                zero = net.constant(0, DType.INT32, ())
                zero, ref = net.broadcast_pair(zero, ref)
                return [chain(net, [zero, ref], "SUB")]
            refuse_types(ref, DType.BOOL, DType.UINT8)
        else:
            refuse_types(ref, DType.BOOL, DType.UINT8, *_INTEGERS)
        return [net.unary(ref, op)]

    return lower


def is_nan(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """IsNaN to ISNAN; before TensorRT 10 a value that does not equal itself."""
    operand = need(inputs, 0)
    if net.parser.has("is_nan_unary"):
        return unary("ISNAN")(net, node, inputs)
    same = net.tensor(chain(net, [operand, operand], "EQUAL"))
    return [net.unary(same, "NOT")]


def is_inf(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """IsInf to ISINF, with a comparison with zero where only one sign counts."""
    negative = integer(node, "detect_negative", 1) != 0
    positive = integer(node, "detect_positive", 1) != 0
    if negative and positive:
        return unary("ISINF")(net, node, inputs)
    ref = net.tensor(need(inputs, 0))
    zero = net.constant(0.0, DType.FP32, (1,) * len(ref.shape or ()))
    if net.parser.has("is_inf_cast"):
        zero = net.cast(zero, ref.dtype)
    if negative or positive:
        side = net.elementwise(ref, zero, "LESS" if negative else "GREATER", base=None)
        return [net.elementwise(side, net.unary(ref, "ISINF", base=None), "AND", base=None)]
    above = net.elementwise(ref, zero, "GREATER", base=None)
    below = net.elementwise(ref, zero, "LESS", base=None)
    return [net.elementwise(above, below, "AND", base=None)]


def _activate(net: Network, operand: Operand, kind: str, alpha: float = 0.0, beta: float = 0.0) -> Ref:
    refuse_types(operand, DType.INT32, DType.BOOL, DType.UINT8)
    return net.activation(net.tensor(operand), kind, alpha, beta)


def activation(kind: str, alpha: tuple[str, float] | None = None, beta: tuple[str, float] | None = None) -> Lowering:
    """Operators of one input to ACTIVATION; `alpha` and `beta` name an attribute and its default."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        a = real(node, *alpha) if alpha else 0.0
        b = real(node, *beta) if beta else 0.0
        return [_activate(net, need(inputs, 0), kind, a, b)]

    return lower


def gelu(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Gelu to GELU_ERF or GELU_TANH."""
    form = text(node, "approximate", "none")
    if form not in {"none", "tanh"}:
        raise Refused(f"approximate = {form!r}.")
    return [_activate(net, need(inputs, 0), "GELU_ERF" if form == "none" else "GELU_TANH")]


def hard_swish(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """HardSwish to HARD_SIGMOID and a product."""
    ref = net.tensor(need(inputs, 0))
    gate = _activate(net, ref, "HARD_SIGMOID", 1.0 / 6.0, 0.5)
    return [chain(net, [ref, gate], "PROD")]


def mish(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Mish to SOFTPLUS, TANH and a product."""
    ref = net.tensor(need(inputs, 0))
    gate = _activate(net, _activate(net, ref, "SOFTPLUS"), "TANH")
    return [chain(net, [ref, gate], "PROD")]


def swish(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Swish to a product with alpha, SIGMOID and a product."""
    ref = net.tensor(need(inputs, 0))
    scale = net.cast(net.constant(real(node, "alpha", 1.0), DType.FP32, (1,)), ref.dtype)
    scale, ref = net.broadcast_pair(scale, ref)
    inner = net.elementwise(scale, ref, "PROD", base=None)
    return [chain(net, [ref, _activate(net, inner, "SIGMOID")], "PROD")]


def clip_constant(net: Network, node: ir.Node, inputs: Inputs) -> tuple[float, float] | None:
    """Lower and upper bound of a Clip whose bounds are build-time floats; None otherwise."""
    bounds = [-_FLOAT_MAX, _FLOAT_MAX]
    if net.opset < 11:
        return real(node, "min", bounds[0]), real(node, "max", bounds[1])
    for position in (0, 1):
        operand = inputs[position + 1] if len(inputs) > position + 1 else None
        if operand is None:
            continue
        if not isinstance(operand, Weights):
            return None
        values = operand.small()
        if values is None or values.size != 1:
            raise Refused("A bound of Clip is not one value.")
        bounds[position] = float(values.reshape(-1)[0])
    return bounds[0], bounds[1]


def clip(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Clip to the activation CLIP; to MAX and MIN for integers and runtime bounds."""
    operand = need(inputs, 0)
    refuse_types(operand, DType.UINT8, DType.INT8)
    runtime = any(o is not None and not o.is_weights for o in inputs[1:])
    # The parser counts an absent bound as a runtime one.
    absent = any(o is None for o in inputs[1:])
    if not (operand.dtype in _INTEGERS or runtime or absent):
        bounds = clip_constant(net, node, inputs)
        assert bounds is not None
        return [_activate(net, operand, "CLIP", *bounds)]
    ref = net.tensor(operand)
    rank = len(ref.shape) if ref.shape is not None and net.parser.has("scalar_rank") else 0
    low = _bound(net, node, inputs, 1, ref.dtype, rank)
    high = _bound(net, node, inputs, 2, ref.dtype, rank)
    ref, low = net.broadcast_pair(ref, low)
    ref, high = net.broadcast_pair(ref, high)
    return [net.elementwise(net.elementwise(ref, low, "MAX", base=None), high, "MIN", base=None)]


def _bound(net: Network, node: ir.Node, inputs: Inputs, index: int, dtype: DType, rank: int) -> Ref:
    attribute = ("", "min", "max")[index]
    operand = inputs[index] if len(inputs) > index else None
    if operand is not None:
        return net.tensor(operand)
    limit = _limit(dtype)
    value = limit if attribute == "max" else -limit
    if has(node, attribute):
        value = real(node, attribute, value)
    return net.constant(value, dtype, (1,) * rank)


def _limit(dtype: DType) -> float:
    if dtype is DType.INT32:
        return float(2**31 - 1)
    if dtype is DType.INT64:
        return float(2**63 - 1)
    return float(np.finfo(np.float16).max) if dtype is DType.FP16 else _FLOAT_MAX


def celu(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Celu to DIV, EXP, MAX, SUB, PROD, MIN and SUM with scalar constants."""
    operand = need(inputs, 0)
    if operand.shape is None:
        raise Unclear("The rank of the input is unknown.")
    rank = len(operand.shape)
    ref = net.tensor(operand)
    zero, one, alpha = (
        net.broadcast(net.constant(value, DType.FP32, (), base=_scalar_name(net)), rank)
        for value in (0.0, 1.0, real(node, "alpha", 1.0))
    )
    grown = net.unary(net.elementwise(ref, alpha, "DIV"), "EXP")
    positive = net.elementwise(ref, zero, "MAX")
    negative = net.elementwise(alpha, net.elementwise(grown, one, "SUB"), "PROD")
    bounded = net.elementwise(zero, negative, "MIN")
    return [net.elementwise(positive, bounded, "SUM")]


def _scalar_name(net: Network) -> str | None:
    """Temporary weights carry a name of their own from TensorRT 9 on."""
    return f"{net.node_name}_weight" if net.parser.has("int64") else None


def prelu(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """PRelu to PARAMETRIC_RELU."""
    operand, slope_operand = need(inputs, 0), need(inputs, 1)
    refuse_types(operand, *_INTEGERS)
    refuse_types(slope_operand, *_INTEGERS)
    ref, slope = net.broadcast_pair(net.tensor(operand), net.tensor(slope_operand))
    attributes = {"constant_slope": slope.constant}
    return [net.add(LayerKind.PARAMETRIC_RELU, (ref, slope), ref.shape, ref.dtype, attributes)]


def zeros_like(net: Network, ref: Ref) -> Ref:
    """A tensor of zeros of the shape and type of `ref`."""
    from orinport.model.lower.vector import constant_of_shape, of_tensor, shape_of

    zero = net.constant(0.0, DType.FP32, ())
    if net.parser.has("zero_by_slice"):
        value = net.cast(zero, ref.dtype)
        return constant_of_shape(net, value, of_tensor(shape_of(net, ref).tensor(net)))
    zero, other = net.broadcast_pair(net.cast(zero, ref.dtype), ref)
    return net.elementwise(other, zero, "PROD", base=net.helper("createZeroTensor"))


def shrink(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Shrink to comparisons, SUB, SUM and two SELECT, in FP32."""
    source = net.tensor(need(inputs, 0))
    refuse_types(source, DType.BOOL, DType.UINT8)
    lambd, bias = real(node, "lambd", 0.5), real(node, "bias", 0.0)
    ref = net.cast(source, DType.FP32)
    constants = []
    for value in (lambd, -lambd, bias, 0.0):
        constant, ref = net.broadcast_pair(net.constant(value, DType.FP32, ()), ref)
        constants.append(constant)
    high, low, shift, zero = constants
    above = net.tensor(chain(net, [ref, high], "GREATER"))
    less = net.tensor(chain(net, [ref, shift], "SUB"))
    first = net.select(above, less, zero, base=None)
    below = net.tensor(chain(net, [ref, low], "LESS"))
    more = net.tensor(chain(net, [ref, shift], "SUM"))
    return [net.cast(net.select(below, more, first), source.dtype)]


def mod(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Mod to a division, a product and a difference; for floats rounded towards zero by a SELECT."""
    refuse_types(need(inputs, 0), DType.UINT8)
    a, b = net.broadcast_pair(net.tensor(need(inputs, 0)), net.tensor(need(inputs, 1)))
    whole = integer(node, "fmod", 0) == 0
    if a.dtype in _INTEGERS:
        quotient = net.elementwise(a, b, "FLOOR_DIV" if whole else "DIV", base=None)
        return [net.elementwise(a, net.elementwise(b, quotient, "PROD", base=None), "SUB")]
    if whole:
        raise Refused("Mod of floating-point inputs needs fmod = 1.")
    quotient = net.tensor(chain(net, [a, b], "DIV"))
    rest = []
    for rounding in ("FLOOR", "CEIL"):
        product = net.elementwise(b, net.unary(quotient, rounding, base=None), "PROD", base=None)
        rest.append(net.elementwise(a, product, "SUB", base=None))
    condition = or_equal(net, quotient, zeros_like(net, quotient), "GREATER")
    return [net.select(condition, rest[0], rest[1])]


def where(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Where to SELECT."""
    for index in (1, 2):
        refuse_types(need(inputs, index), DType.UINT8)
    condition, x, y = (net.tensor(need(inputs, i)) for i in range(3))
    shapes = [r.shape for r in (x, y, condition)]
    if all(s is not None for s in shapes):
        rank = max(len(s) for s in shapes if s is not None)
        x, y, condition = (net.broadcast(r, rank) for r in (x, y, condition))
    return [net.select(condition, x, y)]


def cast(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Cast to CAST; in TensorRT 8.5 to IDENTITY with an output type."""
    from orinport.model.lower.types import trt_type_of_code

    ref = net.tensor(need(inputs, 0))
    dtype = trt_type_of_code(integer(node, "to", 0), net.parser)
    if dtype is None:
        raise Refused("A cast to a type that TensorRT does not have.")
    return [add_cast(net, ref, dtype)]


def add_cast(net: Network, ref: Ref, dtype: DType) -> Ref:
    """The layer that a Cast node becomes."""
    kind = LayerKind.CAST if net.parser.has("cast_layer") else LayerKind.IDENTITY
    return net.add(kind, (ref,), ref.shape, dtype, {"to": dtype.value}, values=ref.values)


def cast_like(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """CastLike to CAST."""
    ref = net.tensor(need(inputs, 0))
    return [add_cast(net, ref, net.tensor(need(inputs, 1)).dtype)]
