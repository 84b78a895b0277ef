"""Conv, ConvTranspose, DeformConv."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import integer, integers, need, text
from orinport.model.lower.network import Network, Ref, Refused, Unclear, Weights, slice_attributes
from orinport.model.lower.vector import constant_of_shape, of_tensor, shape_of
from orinport.model.lower.window import Window, window_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Outputs

__all__ = ["conv", "conv_transpose", "deform_conv"]


def _attributes(window: Window, groups: int, maps: int, weights: Ref | Weights, has_bias: bool) -> dict[str, Any]:
    constant = weights.is_weights
    return {
        "kernel": window.kernel,
        "stride": window.stride,
        "dilation": window.dilation,
        "pre_padding": window.pre,
        "post_padding": window.post,
        "padding_mode": window.mode,
        "groups": groups,
        "output_maps": maps,
        "has_bias": has_bias,
        "constant_kernel": constant,
        "weight_values": prod(weights.shape or ()) if constant else 0,
    }


def _spatial(ref: Ref) -> tuple[int, ...] | None:
    return None if ref.shape is None else ref.shape[2:]


def conv(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Conv to CONVOLUTION. 1-D inputs get a dimension of size 1 behind, which is taken out again."""
    weights = need(inputs, 1)
    bias = inputs[2] if len(inputs) > 2 else None
    ref = net.tensor(need(inputs, 0))
    if weights.shape is None:
        raise Unclear("The shape of the kernel is unknown.")
    if len(weights.shape) < 3:
        raise Refused(f"A kernel of rank {len(weights.shape)}.")
    flat = len(weights.shape if ref.shape is None else ref.shape) == 3
    if flat:
        ref = net.unsqueeze(ref, [3])
    extra: list[Ref] = []
    kernel = (*weights.shape[2:], 1) if flat else weights.shape[2:]
    if not weights.is_weights:
        tensor = net.tensor(weights)
        extra.append(net.unsqueeze(tensor, [3]) if flat else tensor)
    if bias is not None and not bias.is_weights:
        extra.append(net.tensor(bias))
    groups = integer(node, "group", 1)
    if ref.shape is not None:
        if len(ref.shape) != len(kernel) + 2:
            raise Refused(f"A kernel with {len(kernel)} spatial dimensions on an input of rank {len(ref.shape)}.")
        if weights.shape[1] * groups != ref.shape[1]:
            raise Refused(f"The kernel has {weights.shape[1]} * {groups} input channels, the input {ref.shape[1]}.")
    window = window_of(node, kernel)
    window.settle(_spatial(ref))
    maps = weights.shape[0]
    shape = None if ref.shape is None else (ref.shape[0], maps, *window.result(ref.shape[2:]))
    attributes = _attributes(window, groups, maps, weights, bias is not None)
    out = net.add(LayerKind.CONVOLUTION, (ref, *extra), shape, ref.dtype, attributes)
    return [net.squeeze(out, [3]) if flat else out]


def conv_transpose(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """ConvTranspose to DECONVOLUTION.

    Output padding comes out of the trailing padding; what is left of it is sliced on (FILL), and the bias
    is added after that.
    """
    ref = net.tensor(need(inputs, 0))
    weights = need(inputs, 1)
    bias = inputs[2] if len(inputs) > 2 else None
    if weights.shape is None:
        raise Unclear("The shape of the kernel is unknown.")
    kernel_ref = None if weights.is_weights else net.tensor(weights)
    bias_ref = None if bias is None or bias.is_weights else net.tensor(bias)
    if ref.shape is not None and not 3 <= len(ref.shape) <= 5:
        raise Refused(f"A deconvolution of an input of rank {len(ref.shape)}.")
    flat = len(weights.shape) == 3
    if flat:
        ref = net.unsqueeze(ref, [3])
        kernel_ref = None if kernel_ref is None else net.unsqueeze(kernel_ref, [3])
    kernel = (*weights.shape[2:], 1) if flat else weights.shape[2:]
    groups = integer(node, "group", 1)
    if len(weights.shape) < 3 or (ref.shape is not None and len(ref.shape) != len(kernel) + 2):
        raise Refused(f"A kernel of rank {len(weights.shape)} on an input of another one.")
    maps = weights.shape[1] * groups
    window = window_of(node, kernel)
    left_over = _settle_transposed(node, window, ref)
    shape = None if ref.shape is None else (ref.shape[0], maps, *window.transposed_result(ref.shape[2:]))
    attributes = _attributes(window, groups, maps, weights, bias is not None and not left_over)
    layer_inputs = [ref, *(r for r in (kernel_ref, bias_ref) if r is not None)]
    out = net.add(LayerKind.DECONVOLUTION, layer_inputs, shape, ref.dtype, attributes)
    if left_over:
        out = _grown(net, out, window.output_padding)
        if bias is not None and bias.is_weights:
            values = bias.read() if isinstance(bias, Weights) else None
            ones = (1,) * len(window.kernel)
            data = 0.0 if values is None else values
            constant = net.constant(data, ref.dtype, (1, maps, *ones))
            out = net.elementwise(out, constant, "SUM", base=None)
    return [net.squeeze(out, [3]) if flat else out]


def _settle_transposed(node: ir.Node, window: Window, ref: Ref) -> bool:
    """Work out padding from output_shape and output_padding; True if output padding is left to add."""
    auto = text(node, "auto_pad", "NOTSET")
    window.settle(None if ref.shape is None else ref.shape[2:], transposed=True)
    wanted = integers(node, "output_shape")
    if wanted is not None and auto == "NOTSET" and ref.shape is not None:
        pre, post, more = [], [], list(window.output_padding)
        # The parser looks at the last spatial dimensions of output_shape only.
        sizes = wanted[len(wanted) - len(window.kernel) :] if len(wanted) >= len(window.kernel) else (*wanted, 1)
        if len(sizes) != len(window.kernel):
            raise Refused(f"output_shape has {len(wanted)} values for {len(window.kernel)} dimensions.")
        for i, size in enumerate(ref.shape[2:]):
            total = window.stride[i] * (size - 1) + more[i] + window.extent(i) - sizes[i]
            first = int(total / 2)
            if first < 0:
                raise Refused("output_shape asks for negative padding.")
            pre.append(first)
            post.append(max(total - first, 0))
            more[i] = max(first - total, 0) or more[i]
        window.pre, window.post, window.output_padding = tuple(pre), tuple(post), tuple(more)
    if auto != "NOTSET" or not any(window.output_padding):
        return False
    post, left = [], []
    for after, extra in zip(window.post, window.output_padding, strict=True):
        post.append(max(after - extra, 0))
        left.append(max(extra - after, 0))
    window.post, window.output_padding = tuple(post), tuple(left)
    return any(left)


def _grown(net: Network, ref: Ref, padding: tuple[int, ...]) -> Ref:
    """`ref` with zeros behind its spatial dimensions, by a SLICE that reads out of bounds."""
    rank = len(padding) + 2
    total = (0, 0, *padding)
    start = net.constant([0] * rank, net.int64)
    more = net.constant(list(total), net.int64)
    size_ref = net.elementwise(shape_of(net, ref).tensor(net), more, "SUM", base=None)
    shape = None if ref.shape is None else tuple(d + p for d, p in zip(ref.shape, total, strict=True))
    attributes = slice_attributes((0,) * rank, shape, (1,) * rank, "FILL", 0.0)
    return net.add(LayerKind.SLICE, (ref, start, size_ref), shape, ref.dtype, attributes, base=None)


def deform_conv(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """DeformConv to the plugin ModulatedDeformConv2d."""
    data, weights, offset = (net.tensor(need(inputs, i)) for i in range(3))
    bias = inputs[3] if len(inputs) > 3 else None
    mask = inputs[4] if len(inputs) > 4 else None
    if data.dtype not in {DType.FP32, DType.FP16}:
        raise Refused(f"Inputs of type {data.dtype.value}; only fp32 and fp16 are taken.")
    if data.shape is None or len(data.shape) not in {3, 4}:
        raise Refused("An input that is not of rank 3 or 4.")
    pads = integers(node, "pads")
    if pads is not None and pads[: len(pads) // 2] != pads[len(pads) // 2 :]:
        raise Refused("Padding that differs between the two sides of an axis.")
    flat = len(data.shape) == 3
    if flat:
        data, weights, offset = (net.unsqueeze(r, [3]) for r in (data, weights, offset))
    if mask is not None:
        mask_ref = net.tensor(mask)
        mask_ref = net.unsqueeze(mask_ref, [3]) if flat else mask_ref
    else:
        one = net.constant(1.0, data.dtype, (1,))
        mask_ref = constant_of_shape(net, one, of_tensor(shape_of(net, offset).tensor(net)))
    refs = [data, offset, mask_ref, weights]
    if bias is not None:
        refs.append(net.tensor(bias))
    attributes = {"op_type": "ModulatedDeformConv2d", "domain": ""}
    out = net.add(LayerKind.PLUGIN, refs, None, data.dtype, attributes)
    return [net.squeeze(out, [3]) if flat else out]
