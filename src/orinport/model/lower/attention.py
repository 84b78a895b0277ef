"""Attention, RotaryEmbedding, RMSNormalization and TensorScatter, of TensorRT 10.14 and later.

Source: observed, ONNX parser of tensorrt-rtx 1.7.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import axis_of, has, integer, need, real, text
from orinport.model.lower.network import Network, Ref, Refused, Unclear
from orinport.model.lower.vector import known

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Operand, Outputs

__all__ = ["attention", "rms_normalization", "rotary_embedding", "tensor_scatter"]

_HEADS_FIRST = (0, 2, 1, 3)


def attention(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Attention to ATTENTION_INPUT and ATTENTION_OUTPUT, with query and key scaled in front."""
    if len([output for output in node.outputs if output.name]) != 1:
        raise Refused("Attention of more than one output.")
    if real(node, "softcap", 0.0) != 0.0:
        raise Refused("Attention with softcap.")
    if has(node, "softmax_precision"):
        raise Refused("Attention with a precision for softmax.")
    if any(operand is not None for operand in inputs[4:6]):
        raise Refused("Attention with a cache.")
    mask = inputs[3] if len(inputs) > 3 else None
    causal = integer(node, "is_causal", 0) != 0
    if mask is not None and causal:
        raise Refused("Attention that is causal and has a mask.")
    rank = len(need(inputs, 0).shape or ())
    heads = integer(node, "q_num_heads", 0), integer(node, "kv_num_heads", 0)
    query = _scaled(net, node, _heads_first(net, need(inputs, 0), heads[0]))
    key = _scaled(net, node, _heads_first(net, need(inputs, 1), heads[1]))
    value = _heads_first(net, need(inputs, 2), heads[1])
    _check(query, key, value)
    shape = query.shape
    scores = net.add(
        LayerKind.ATTENTION_INPUT,
        (query, key, value),
        shape,
        query.dtype,
        {"causal": causal},
        base=f"{net.node_name}_AttentionInput",
    )
    out = net.add(LayerKind.ATTENTION_OUTPUT, (scores,), shape, query.dtype, base=f"{net.node_name}_AttentionOutput")
    if mask is not None:
        ref = net.tensor(mask)
        if ref.shape and key.shape and ref.shape[-1] not in {1, key.shape[2]}:
            raise Refused("The mask does not cover the keys.")
        missing = 4 - len(ref.shape or ())
        net.append_input(scores, net.unsqueeze(ref, range(missing)) if missing else ref)
    if rank != 3:
        return [out]
    assert shape is not None
    flat = (shape[0], shape[2], shape[1] * shape[3])
    return [net.shuffle(out, flat, first=_HEADS_FIRST, base=net.helper("ShapeShuffle"))]


def _check(query: Ref, key: Ref, value: Ref) -> None:
    if query.shape is None or key.shape is None or value.shape is None:
        raise Unclear("The shape of an input is unknown.")
    if any(len(ref.shape or ()) != 4 for ref in (query, key, value)) or query.shape[3] != value.shape[3]:
        raise Refused("Query and value have heads of different sizes.")


def _heads_first(net: Network, operand: Operand, heads: int) -> Ref:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    ref = net.tensor(operand)
    if ref.shape is None or len(ref.shape) != 3:
        return ref
    if heads < 1:
        raise Refused("The number of heads is missing.")
    batch, length, width = ref.shape
    apart = (batch, length, heads, width // heads)
    return net.shuffle(ref, apart, second=_HEADS_FIRST, base=net.helper("ShapeShuffle"))


def _scaled(net: Network, node: ir.Node, ref: Ref) -> Ref:
    """Times the root of the scale, which is 1 / sqrt(size of a head) where none is given."""
    if ref.shape is None or len(ref.shape) != 4:
        raise Refused("Attention takes inputs of rank 3 and 4.")
    if has(node, "scale"):
        factor = net.cast(net.constant(real(node, "scale", 1.0) ** 0.5, DType.FP32, (1, 1, 1, 1)), ref.dtype)
        return net.elementwise(ref, factor, "PROD", base=None)
    factor = net.cast(known(ref.shape[3], rank=0).tensor(net), ref.dtype)
    for op in ("SQRT", "RECIP", "SQRT"):
        factor = net.unary(factor, op, base=None)
    factor = net.unsqueeze(factor, range(4))
    return net.elementwise(ref, factor, "PROD", base=None)


def rotary_embedding(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """RotaryEmbedding to ROTARY_EMBEDDING, between two SHUFFLE for an input of rank 3."""
    ref = net.tensor(need(inputs, 0))
    shape = ref.shape
    if shape is None:
        raise Unclear("The shape of the input is unknown.")
    if len(shape) == 3:
        heads = integer(node, "num_heads", 0)
        if heads < 1:
            raise Refused("The number of heads is missing.")
        ref = net.shuffle(ref, (shape[0], shape[1], heads, shape[2] // heads), second=_HEADS_FIRST)
    caches = [net.tensor(need(inputs, i)) for i in (1, 2)]
    out = net.add(LayerKind.ROTARY_EMBEDDING, (ref, *caches), ref.shape, ref.dtype)
    positions = inputs[3] if len(inputs) > 3 else None
    if positions is not None:
        net.append_input(out, net.tensor(positions))
    return [net.shuffle(out, shape, first=_HEADS_FIRST) if len(shape) == 3 else out]


def rms_normalization(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """RMSNormalization to a mean of squares, its root, a division and a product."""
    ref = net.tensor(need(inputs, 0))
    scale = net.tensor(need(inputs, 1))
    if ref.shape is None:
        raise Unclear("The rank of the input is unknown.")
    rank = len(ref.shape)
    axis = axis_of(integer(node, "axis", -1), rank)
    mean = net.reduce(net.elementwise(ref, ref, "PROD"), "AVG", range(axis, rank), True)
    epsilon = net.cast(net.constant(real(node, "epsilon", 1e-5), DType.FP32, ()), ref.dtype)
    root = net.unary(net.elementwise(mean, net.broadcast(epsilon, rank), "SUM"), "SQRT")
    normal = net.elementwise(ref, root, "DIV")
    return [net.elementwise(normal, net.broadcast(scale, rank), "PROD")]


def tensor_scatter(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """TensorScatter to KV_CACHE_UPDATE."""
    if text(node, "mode", "linear") != "linear":
        raise Refused("TensorScatter of another mode than linear.")
    cache, update = net.tensor(need(inputs, 0)), net.tensor(need(inputs, 1))
    if cache.shape is not None and len(cache.shape) != 4:
        raise Refused("A cache of another rank than 4.")
    where = net.cast(net.tensor(need(inputs, 2)), DType.INT32)
    return [net.add(LayerKind.KV_CACHE_UPDATE, (cache, update, where), cache.shape, cache.dtype)]
