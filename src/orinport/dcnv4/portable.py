"""The portable form: DCNv4 as standard ONNX operators, and back.

    DCNv4_Plugin(value, offset_mask) <-> ReduceSum(GridSample(value, grid) * masks)

All taps of a pixel become columns of one sampling grid: value (N, H, W, G*D) is seen as N*G images of D channels, the
grid has Ho*Wo rows and K columns. ONNX Runtime runs it and TensorRT builds it without any plugin. The batch may be
dynamic, height and width must be known. Half types are sampled in float32 and rounded once.

Coordinates are clipped to eight image sizes, which changes no result (all of it lies outside) but keeps infinite
offsets from becoming NaN. A NaN offset gives whatever the runtime's GridSample and Clip make of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.version_converter
import onnx_ir as ir

from orinport.dcnv4.arguments import Geometry
from orinport.dcnv4.attention import AttentionSite, expand_attention
from orinport.dcnv4.body import Body, known_shape, replace_node, working_type
from orinport.dcnv4.node import ATTENTION, FUSED, PLAIN, custom_nodes, label_of, make_node, node_geometry
from orinport.errors import OrinportError, first_line
from orinport.model.infer import infer_missing
from orinport.model.prune import prune
from orinport.rewrites.builder import Names

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LOWEST_OPSET", "portable_proto", "to_plugin", "to_portable"]

LOWEST_OPSET = 16
"""The first operator set with GridSample."""
_LINEAR_FROM = 20
"""From this operator set on, the mode is called linear, before it bilinear."""


def to_portable(model: ir.Model) -> int:
    """Replace every DCNv4 and FlashDeformAttn node of `model`, in place; gives their number.

    Raises OrinportError, before anything is changed, if a node is inconsistent or its height, width or type is not
    known, or if the operator set is older than GridSample.
    """
    nodes = custom_nodes(model)
    if not nodes:
        return 0
    opset = model.graph.opset_imports.get("", 1)
    if opset < LOWEST_OPSET:
        raise OrinportError(
            f"The portable form needs opset {LOWEST_OPSET}, and the network has {opset}.", "Convert the network first."
        )
    infer_missing(model)
    sites = [AttentionSite.of(node) if node.op_type == ATTENTION else _Site.of(node) for node in nodes]
    names = Names(model)
    for site in sites:
        body = Body(site.node, names)
        if isinstance(site, AttentionSite):
            output = expand_attention(site, body, opset >= _LINEAR_FROM)
        else:
            output = _expand(site, body, opset >= _LINEAR_FROM)
        replace_node(site.node, body.nodes, output, names)
    _forget_domain(model)
    return len(nodes)


def portable_proto(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A network with every DCNv4 and FlashDeformAttn node in portable form, its opset raised if need be.

    `proto` is not changed. Raises OrinportError as `to_portable` does.
    """
    model = ir.from_proto(_with_grid_sample(proto))
    to_portable(model)
    result: onnx.ModelProto = ir.to_proto(model)
    return result


def _with_grid_sample(proto: onnx.ModelProto) -> onnx.ModelProto:
    """`proto` at an operator set with GridSample."""
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 1)
    if opset >= LOWEST_OPSET:
        return proto
    try:
        raised: onnx.ModelProto = onnx.version_converter.convert_version(proto, LOWEST_OPSET)
    except (RuntimeError, ValueError) as error:
        reason = first_line(error)
        raise OrinportError(f"The network cannot be raised from opset {opset} to {LOWEST_OPSET}: {reason}") from error
    raised.ir_version = max(raised.ir_version, 8)
    return raised


@dataclass(frozen=True, slots=True)
class _Site:
    """One node with all that its portable form depends on."""

    node: ir.Node
    geometry: Geometry
    size: tuple[int, int]
    output: tuple[int, int]
    width: int
    work: ir.DataType
    """The type that is computed in."""

    @classmethod
    def of(cls, node: ir.Node) -> _Site:
        label = label_of(node)
        geometry = node_geometry(node)
        shapes = [known_shape(value, label) for value in node.inputs]
        wanted = 1 if node.op_type == FUSED else 2
        if len(shapes) != wanted:
            raise OrinportError(f"{label} has {len(shapes)} inputs, not {wanted}.")
        try:
            if node.op_type == FUSED:
                _, rows, columns, width = geometry.check_fused(shapes[0])
            else:
                _, rows, columns, width = geometry.check(*shapes)
        except OrinportError as error:
            raise OrinportError(f"{label} cannot be: {error.message}") from error
        first = node.inputs[0]
        dtype = None if first is None else first.dtype
        work = working_type(dtype, label)
        if any(value is not None and value.dtype not in (dtype, None) for value in node.inputs):
            raise OrinportError(f"{label} has inputs of different types.")
        return cls(node, geometry, (shapes[0][1], shapes[0][2]), (rows, columns), width, work)


def _expand(site: _Site, body: Body, linear: bool) -> ir.Value:
    """The nodes of the portable form; gives its output (N, Ho, Wo, G*D)."""
    g, (height, width), (rows, columns) = site.geometry, site.size, site.output
    group, depth, taps, pixels = g.group, g.group_channels, g.taps, rows * columns
    value, vectors, dtype = _inputs(site, body)
    assert value.shape is not None
    batch = value.shape[0]
    images = batch * group if isinstance(batch, int) else None
    work = site.work
    value = body.op("Transpose", [value], [batch, g.channels, height, width], work, perm=[0, 3, 1, 2])
    value = body.reshape(value, [-1, depth, height, width], [images, depth, height, width])
    if site.width != g.used_width:
        vectors = body.slice(vectors, 0, g.used_width)
    vectors = body.reshape(vectors, [-1, pixels, group, 3 * taps], [batch, pixels, group, 3 * taps])
    vectors = body.op("Transpose", [vectors], [batch, group, pixels, 3 * taps], work, perm=[0, 2, 1, 3])
    offsets, masks = body.ops(
        "Split",
        [vectors, body.ints([2 * taps, taps])],
        [[batch, group, pixels, 2 * taps], [batch, group, pixels, taps]],
        work,
        axis=3,
    )
    scale, base = grid_constants(g, site.size, site.output, work.numpy())
    shape = [batch, group, pixels, 2 * taps]
    grid = body.op("Mul", [offsets, body.constant(scale, "scale")], shape, work)
    grid = body.op("Add", [grid, body.constant(base, "base")], shape, work)
    grid = body.reshape(body.clip(grid), [-1, pixels, taps, 2], [images, pixels, taps, 2])
    samples = body.sample(value, grid, linear=linear)
    masks = body.reshape(masks, [-1, 1, pixels, taps], [images, 1, pixels, taps])
    samples = body.op("Mul", [samples, masks], [images, depth, pixels, taps], work)
    sums = body.op("ReduceSum", [samples, body.ints([3])], [images, depth, pixels], work, keepdims=0)
    sums = body.reshape(sums, [-1, g.channels, rows, columns], [batch, g.channels, rows, columns])
    output = body.op("Transpose", [sums], [batch, rows, columns, g.channels], work, perm=[0, 2, 3, 1])
    return body.cast(output, dtype)


def _inputs(site: _Site, body: Body) -> tuple[ir.Value, ir.Value, ir.DataType]:
    """Value and offset_mask in the type that is computed in, and the type that they had."""
    values = [value for value in site.node.inputs if value is not None]
    if site.node.op_type == FUSED:
        channels = site.geometry.channels
        values = [
            body.slice(values[0], 0, channels),
            body.slice(values[0], channels, channels + site.width),
        ]
    dtype = values[0].dtype
    assert dtype is not None
    value, vectors = (body.cast(each, site.work) for each in values)
    return value, vectors, dtype


def grid_constants(
    geometry: Geometry, size: tuple[int, int], output: tuple[int, int], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(2*K) factors and (Ho*Wo, 2*K) summands that turn offsets (dx, dy) into GridSample's coordinates.

    A pixel coordinate x becomes (2*x + 1)/W - 1 (align_corners 0), so 2*offset_scale/W is the factor of dx.
    """
    (height, width), (rows, columns) = size, output
    at_y = np.arange(rows) * geometry.stride[0] + geometry.origin[0]
    at_x = np.arange(columns) * geometry.stride[1] + geometry.origin[1]
    tap_y, tap_x = geometry.offset_scale * np.array(geometry.tap_offsets).T
    base = np.empty((rows, columns, geometry.taps, 2))
    base[..., 0] = (2 * (at_x[None, :, None] + tap_x) + 1) / width - 1
    base[..., 1] = (2 * (at_y[:, None, None] + tap_y) + 1) / height - 1
    factors = np.array([2 * geometry.offset_scale / width, 2 * geometry.offset_scale / height])
    scale = np.tile(factors, geometry.taps)
    return scale.astype(dtype), base.reshape(rows * columns, 2 * geometry.taps).astype(dtype)


def _forget_domain(model: ir.Model) -> None:
    used = {node.domain for node in model.graph.all_nodes()}
    for domain in [domain for domain in model.graph.opset_imports if domain and domain not in used]:
        del model.graph.opset_imports[domain]


# From the portable form back to nodes


def to_plugin(model: ir.Model) -> int:
    """Replace every portable form in `model` by the node that it stands for, in place; gives their number.

    A form is recognised by its structure and its constants, whatever its names: the geometry is worked out from
    the sampling grid, and the grid made anew from it must be equal. Value and offsets that are cut from one tensor
    give the fused node.
    """
    from orinport.dcnv4.recognise import recognise

    names = Names(model)
    count = 0
    for sampling in [node for node in model.graph if node.op_type == "GridSample" and node.domain == ""]:
        found = recognise(sampling)
        if found is None:
            continue
        node = make_node(found.geometry, found.inputs, names.unique(f"{found.last.name}_{PLAIN}"), like=sampling)
        replace_node(found.last, [node], node.outputs[0], names)
        model.graph.opset_imports.setdefault(node.domain, 1)
        count += 1
    if count:
        prune(model.graph)
    return count
