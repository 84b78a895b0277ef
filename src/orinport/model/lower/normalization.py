"""BatchNormalization and the other normalizations."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import axis_of, integer, integers, need, real
from orinport.model.lower.network import Network, Ref, Refused, Unclear

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Outputs

__all__ = [
    "batch_normalization",
    "group_normalization",
    "image_scaler",
    "instance_normalization",
    "layer_normalization",
    "lp_normalization",
    "mean_variance_normalization",
]


def _rank(ref: Ref) -> int:
    if ref.shape is None:
        raise Unclear("The rank of the input is unknown.")
    return len(ref.shape)


def batch_normalization(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """BatchNormalization to SCALE per channel; to elementwise layers where a parameter is no constant."""
    if integer(node, "training_mode", 0):
        raise Refused("BatchNormalization in training mode.")
    operands = [need(inputs, i) for i in range(1, 5)]
    if not all(operand.is_weights for operand in operands):
        return [_by_elementwise(net, node, inputs)]
    mixed = any(o.dtype is not need(inputs, 0).dtype for o in operands)
    if mixed and net.parser.has("strongly_typed"):
        return [_by_elementwise(net, node, inputs)]
    ref = net.tensor(need(inputs, 0))
    rank = _rank(ref)
    shape = ref.shape
    assert shape is not None
    if rank < 4:
        ref = net.unsqueeze(ref, range(rank, 4))
    elif rank > 5:
        ref = net.shuffle(ref, (*shape[:3], prod(shape[3:])), base=net.helper("ShapeShuffle"))
    out = _add_scale(net, ref, prod(operands[0].shape or ()))
    return [out if out.shape == shape else net.shuffle(out, shape, base=net.helper("ShapeShuffle"))]


def _add_scale(net: Network, ref: Ref, channels: int) -> Ref:
    attributes = {"mode": "CHANNEL", "has_power": False, "channel_axis": 1, "weight_values": 2 * channels}
    return net.add(LayerKind.SCALE, (ref,), ref.shape, ref.dtype, attributes)


def _by_elementwise(net: Network, node: ir.Node, inputs: Inputs) -> Ref:
    ref = net.tensor(need(inputs, 0))
    rank = _rank(ref)
    parameters = [net.tensor(need(inputs, i)) for i in range(1, 5)]
    if rank > 1:
        parameters = [net.unsqueeze(p, [0, *range(2, rank)]) for p in parameters]
    epsilon = net.constant(real(node, "epsilon", 1e-5), parameters[3].dtype, (1,) * rank)
    if net.parser.has("strongly_typed"):
        parameters = [net.cast(p, ref.dtype) for p in parameters]
        epsilon = net.cast(epsilon, ref.dtype)
    scale, bias, mean, variance = parameters
    divisor = net.unary(net.elementwise(variance, epsilon, "SUM", base=None), "SQRT", base=None)
    dividend = net.elementwise(ref, mean, "SUB", base=None)
    scaled = net.elementwise(scale, net.elementwise(dividend, divisor, "DIV", base=None), "PROD", base=None)
    return net.elementwise(scaled, bias, "SUM")


def image_scaler(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ImageScaler to SCALE per channel."""
    ref = net.tensor(need(inputs, 0))
    attribute = node.attributes.get("bias")
    return [_add_scale(net, ref, 0 if attribute is None else len(attribute.value))]


def _native(net: Network, node: ir.Node, inputs: Inputs) -> Ref:
    """NORMALIZATION over the spatial dimensions, in groups of channels."""
    ref, scale, bias = (net.tensor(need(inputs, i)) for i in range(3))
    rank = _rank(ref)
    if rank < 3:
        raise Refused(f"An input of rank {rank}; at least 3 is wanted.")
    others = [0, *range(2, rank)]
    scale, bias = net.unsqueeze(scale, others), net.unsqueeze(bias, others)
    attributes = {
        "axes": tuple(range(2, rank)),
        "groups": integer(node, "num_groups", 1),
        "epsilon": real(node, "epsilon", 1e-5),
    }
    return net.add(LayerKind.NORMALIZATION, (ref, scale, bias), ref.shape, ref.dtype, attributes)


def instance_normalization(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """InstanceNormalization to NORMALIZATION; before TensorRT 10 to the plugin InstanceNormalization_TRT."""
    if net.parser.has("native_instance_norm"):
        return [_native(net, node, inputs)]
    if not all(need(inputs, i).is_weights for i in (1, 2)):
        raise Refused("Scale and bias of InstanceNormalization are not constant.")
    ref = net.tensor(need(inputs, 0))
    rank = _rank(ref)
    if not 3 <= rank <= 5:
        raise Refused(f"InstanceNormalization of an input of rank {rank}.")
    if rank == 3:
        ref = net.unsqueeze(ref, [3])
    attributes = {"op_type": "InstanceNormalization_TRT", "domain": ""}
    out = net.add(LayerKind.PLUGIN, (ref,), ref.shape, ref.dtype, attributes)
    return [net.squeeze(out, [3]) if rank == 3 else out]


def group_normalization(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """GroupNormalization to NORMALIZATION; that of opset 21 around one without scale and bias."""
    decomposed = net.parser.has("group_norm_21") and not net.parser.has("native_group_norm_21")
    if net.opset < 21 or not decomposed:
        return [_native(net, node, inputs)]
    from orinport.model.lower.vector import constant_of_shape, gather, known, of_tensor, shape_of

    ref, scale, bias = (net.tensor(need(inputs, i)) for i in range(3))
    rank = _rank(ref)
    shape = ref.shape
    assert shape is not None
    groups = integer(node, "num_groups", 1)
    others = [0, *range(2, rank)]
    grouped = net.shuffle(ref, (shape[0], groups, shape[1] // groups, prod(shape[2:])), base=net.helper("ShapeShuffle"))
    plain = []
    for value in (1.0, 0.0):
        scalar = net.constant(value, DType.FP32, ())
        count = gather(net, shape_of(net, grouped), known(1)).tensor(net)
        plain.append(constant_of_shape(net, scalar, of_tensor(count)))
    ones, zeros = net.cast(plain[0], scale.dtype), net.cast(plain[1], bias.dtype)
    ones, zeros = net.unsqueeze(ones, others), net.unsqueeze(zeros, others)
    attributes = {"axes": tuple(range(2, rank)), "groups": 1, "epsilon": real(node, "epsilon", 1e-5)}
    normal = net.add(LayerKind.NORMALIZATION, (grouped, ones, zeros), grouped.shape, ref.dtype, attributes, base=None)
    back = net.shuffle(normal, shape, base=net.helper("ShapeShuffle"))
    scale, bias = net.unsqueeze(scale, others), net.unsqueeze(bias, others)
    return [net.elementwise(net.elementwise(scale, back, "PROD", base=None), bias, "SUM", base=None)]


def layer_normalization(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """LayerNormalization to NORMALIZATION over the trailing axes."""
    ref = net.tensor(need(inputs, 0))
    rank = _rank(ref)
    scale_operand = need(inputs, 1)
    bias_operand = inputs[2] if len(inputs) > 2 else None
    if net.parser.has("int64"):
        # The parser makes both default constants, used or not.
        net.constant(0.0, ref.dtype, ())
        default = net.constant(0.0, ref.dtype, ())
        scale = net.tensor(scale_operand)
        bias = default if bias_operand is None else net.tensor(bias_operand)
    else:
        scale = net.tensor(scale_operand)
        bias = net.constant(0.0, ref.dtype, ()) if bias_operand is None else net.tensor(bias_operand)
    axis = axis_of(integer(node, "axis", -1), rank)
    ref, scale = net.broadcast_pair(ref, scale)
    ref, bias = net.broadcast_pair(ref, bias)
    attributes = {"axes": tuple(range(axis, rank)), "groups": 1, "epsilon": real(node, "epsilon", 1e-5)}
    base = "" if net.parser.has("int64") else None
    return [net.add(LayerKind.NORMALIZATION, (ref, scale, bias), ref.shape, ref.dtype, attributes, base=base)]


def mean_variance_normalization(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """MeanVarianceNormalization to REDUCE, SUB, PROD, REDUCE, SQRT, SUM and DIV."""
    ref = net.tensor(need(inputs, 0))
    if ref.dtype not in {DType.FP32, DType.FP16, DType.BF16}:
        raise Refused(f"Inputs of type {ref.dtype.value}.")
    rank = _rank(ref)
    axes = [axis_of(a, rank) for a in integers(node, "axes") or (0, 2, 3)]
    centred = net.elementwise(ref, net.reduce(ref, "AVG", axes, True), "SUB")
    variance = net.reduce(net.elementwise(centred, centred, "PROD"), "AVG", axes, True)
    deviation = net.unary(variance, "SQRT")
    epsilon = net.constant(1e-9, DType.FP32, (1,) * rank)
    return [net.elementwise(centred, net.elementwise(deviation, epsilon, "SUM"), "DIV")]


def lp_normalization(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """LpNormalization of p = 1 or 2 to a norm, made 1 where it is 0, and DIV."""
    ref = net.tensor(need(inputs, 0))
    if ref.dtype not in {DType.FP32, DType.FP16}:
        raise Refused(f"Inputs of type {ref.dtype.value}.")
    rank = _rank(ref)
    axis = axis_of(integer(node, "axis", -1), rank)
    p = integer(node, "p", 2)
    if p not in {1, 2}:
        raise Refused(f"p = {p}; only 1 and 2 are taken.")
    base = f"{net.node_name}_weight" if net.parser.has("int64") else None
    zero = net.broadcast(net.constant(0.0, ref.dtype, (), base=base), rank)
    powers = net.unary(ref, "ABS") if p == 1 else net.elementwise(ref, ref, "PROD")
    norm = net.reduce(powers, "SUM", [axis], True)
    if p == 2:
        norm = net.unary(norm, "SQRT")
    mask = net.cast(net.elementwise(norm, zero, "EQUAL"), ref.dtype)
    return [net.elementwise(ref, net.elementwise(norm, mask, "SUM"), "DIV")]
