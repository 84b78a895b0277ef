"""MaxPool, AveragePool, LpPool, the global pools, LRN."""

# ruff: noqa: ARG001 - all lowerings have one signature
from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import integer, integers, need, real
from orinport.model.lower.network import Network, Ref, Refused, Unclear
from orinport.model.lower.window import Window, window_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Outputs

__all__ = ["global_lp_pool", "global_pool", "lp_pool", "lrn", "pool", "roi_align"]


def _add_pool(net: Network, ref: Ref, kind: str, window: Window) -> Ref:
    window.settle(None if ref.shape is None else ref.shape[2:])
    shape = None if ref.shape is None else (*ref.shape[:2], *window.result(ref.shape[2:]))
    attributes = {
        "type": kind,
        "window": window.kernel,
        "stride": window.stride,
        "pre_padding": window.pre,
        "post_padding": window.post,
        "padding_mode": window.mode,
        "exclusive": window.exclusive,
        "round_up": window.mode == "EXPLICIT_ROUND_UP",
    }
    return net.add(LayerKind.POOLING, (ref,), shape, ref.dtype, attributes)


def pool(kind: str) -> Callable[[Network, ir.Node, Inputs], Outputs]:
    """MaxPool or AveragePool to POOLING; 1-D inputs get a dimension of size 1 behind for it."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        ref = net.tensor(need(inputs, 0))
        kernel = integers(node, "kernel_shape")
        if kernel is None:
            raise Refused("kernel_shape is missing.")
        flat = ref.shape is not None and len(ref.shape) == 3
        if flat:
            ref = net.unsqueeze(ref, [3])
        if not (len(kernel) in {2, 3} or (len(kernel) == 1 and flat)):
            raise Refused(f"A pool with {len(kernel)} spatial dimensions.")
        if any(d != 1 for d in integers(node, "dilations") or ()):
            raise Refused("Dilated pools are not taken.")
        if ref.shape is not None and len(ref.shape) != 2 + max(len(kernel), 2):
            raise Refused(f"A pool with {len(kernel)} spatial dimensions on an input of rank {len(ref.shape)}.")
        window = window_of(node, kernel, ceil=net.opset >= 10 and integer(node, "ceil_mode", 0) != 0)
        if len(kernel) == 1:
            window = window.with_trailing_one()
        out = _add_pool(net, ref, kind, window)
        return [net.squeeze(out, [3]) if flat else out]

    return lower


def global_pool(op: str) -> Callable[[Network, ir.Node, Inputs], Outputs]:
    """GlobalAveragePool or GlobalMaxPool to REDUCE over the spatial dimensions."""

    def lower(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
        ref = net.tensor(need(inputs, 0))
        return [net.reduce(ref, op, _spatial_axes(ref), True)]

    return lower


def _spatial_axes(ref: Ref) -> list[int]:
    if ref.shape is None:
        raise Unclear("The rank of the input is unknown.")
    return list(range(2, len(ref.shape)))


def global_lp_pool(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """GlobalLpPool to POW, REDUCE, POW."""
    ref = net.tensor(need(inputs, 0))
    if ref.dtype not in {DType.FP32, DType.FP16}:
        raise Refused(f"Inputs of type {ref.dtype.value}; only fp32 and fp16 are taken.")
    axes = _spatial_axes(ref)
    p = float(integer(node, "p", 2))
    ones = (1,) * (len(axes) + 2)
    power = net.constant(p, ref.dtype, ones)
    root = net.constant(1.0 / p, ref.dtype, ones)
    total = net.reduce(net.elementwise(ref, power, "POW", base=None), "SUM", axes, True)
    return [net.elementwise(total, root, "POW", base=None)]


def lp_pool(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """LpPool of p = 1 or 2 to an average POOLING, multiplied by the window's size."""
    ref = net.tensor(need(inputs, 0))
    kernel = integers(node, "kernel_shape")
    p = integer(node, "p", 2)
    if kernel is None or ref.shape is None:
        raise Refused("kernel_shape or the input's shape is missing.")
    if p not in {1, 2}:
        raise Refused(f"p = {p}; only 1 and 2 are taken.")
    if ref.dtype not in {DType.FP32, DType.FP16}:
        raise Refused(f"Inputs of type {ref.dtype.value}; only fp32 and fp16 are taken.")
    if any(d != 1 for d in integers(node, "dilations") or ()):
        raise Refused("Dilated pools are not taken.")
    ceil = net.parser.has("int64") and integer(node, "ceil_mode", 0) != 0
    window = window_of(node, kernel, ceil=ceil, exclusive=False)
    if len(window.kernel) != len(ref.shape) - 2:
        raise Refused(f"A pool with {len(window.kernel)} spatial dimensions on an input of rank {len(ref.shape)}.")
    size = net.constant(float(prod(window.kernel)), ref.dtype, (1,) * len(ref.shape))
    base = net.unary(ref, "ABS") if p == 1 else net.elementwise(ref, ref, "PROD")
    out = net.elementwise(_add_pool(net, base, "AVERAGE", window), size, "PROD")
    return [out if p == 1 else net.unary(out, "SQRT")]


def roi_align(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """RoiAlign to the plugin ROIAlign_TRT."""
    refs = [net.tensor(need(inputs, i)) for i in range(3)]
    if net.parser.has("int64"):
        refs[2] = net.cast(refs[2], DType.INT32)
    data, regions = refs[0].shape, refs[1].shape
    if regions is not None and (len(regions) != 2 or regions[1] != 4):
        raise Refused("Regions that are not of shape (n, 4).")
    shape = None
    if data is not None and len(data) != 4:
        raise Refused(f"RoiAlign of an input of rank {len(data)}.")
    if data is not None and regions is not None:
        shape = (regions[0], data[1], integer(node, "output_height", 1), integer(node, "output_width", 1))
    attributes = {"op_type": "ROIAlign_TRT", "domain": ""}
    return [net.add(LayerKind.PLUGIN, refs, shape, refs[0].dtype, attributes)]


def lrn(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """LRN to LRN, across channels."""
    ref = net.tensor(need(inputs, 0))
    attributes = {
        "window": integer(node, "size", 0),
        "alpha": real(node, "alpha", 0.0001),
        "beta": real(node, "beta", 0.75),
        "k": real(node, "bias", 1.0),
        "across_channels": True,
    }
    return [net.add(LayerKind.LRN, (ref,), ref.shape, ref.dtype, attributes)]
