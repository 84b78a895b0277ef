"""The portable form of FlashDeformAttn: standard ONNX operators, one GridSample a level.

    FlashDeformAttn(value, shapes, starts, v) -> ReduceSum(Concat(GridSample(level, grid), ...) * Softmax(logits))

The spatial shapes and level starts must be constants. A location x becomes the grid's coordinate 2*x - 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from orinport.dcnv4.arguments import DeformAttnArguments
from orinport.dcnv4.node import attention_points
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orinport.dcnv4.body import Body

__all__ = ["AttentionSite", "expand_attention"]

_BOUND = 8.0
"""Locations are clipped to this in the grid's coordinates, where -1 to 1 is the picture."""


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """One FlashDeformAttn node with all that its portable form depends on."""

    node: ir.Node
    arguments: DeformAttnArguments
    starts: tuple[int, ...]
    queries: int
    group: int
    channels: int
    dtype: ir.DataType

    @classmethod
    def of(cls, node: ir.Node) -> AttentionSite:
        """Raises OrinportError if the node is inconsistent, or its shapes are not known."""
        label = f"The {node.op_type} {node.name or node.outputs[0].name!r}"
        if len(node.inputs) != 4:
            raise OrinportError(f"{label} has {len(node.inputs)} inputs, not 4.")
        value, shapes, starts, vectors = node.inputs
        levels, first_rows = _constant(shapes), _constant(starts)
        if levels is None or first_rows is None or levels.ndim != 2 or levels.shape[1] != 2:
            raise OrinportError(f"{label} needs constant spatial shapes (L, 2) and level starts.")
        arguments = DeformAttnArguments(tuple((int(h), int(w)) for h, w in levels), attention_points(node))
        dims = [_numbers(each, label) for each in (value, vectors)]
        row_starts = tuple(int(start) for start in first_rows.reshape(-1))
        try:
            _, queries, group, channels = arguments.check(dims[0], row_starts, dims[1])
        except OrinportError as error:
            raise OrinportError(f"{label} cannot be: {error.message}") from error
        dtype = None if value is None else value.dtype
        if dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
            raise OrinportError(f"{label} has a value of type {dtype.name if dtype else 'unknown'}.")
        return cls(node, arguments, row_starts, queries, group, channels, dtype)


def expand_attention(site: AttentionSite, body: Body, linear: bool) -> ir.Value:
    """The nodes of the portable form; gives its output (B, Q, G*D)."""
    value, _, _, vectors = site.node.inputs
    assert value is not None
    assert vectors is not None
    assert value.shape is not None
    batch, levels, points = value.shape[0], len(site.arguments.levels), site.arguments.points
    samples, queries, group, depth = levels * points, site.queries, site.group, site.channels
    images = batch * group if isinstance(batch, int) else None
    work = site.dtype
    if work in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        work = ir.DataType.FLOAT
        value, vectors = (body.op("Cast", [v], list(v.shape or ()), work, to=int(work)) for v in (value, vectors))
    vectors = body.op("Transpose", [vectors], [batch, group, queries, 3 * samples], work, perm=[0, 2, 1, 3])
    locations, logits = body.ops(
        "Split",
        [vectors, body.ints([2 * samples, samples])],
        [[batch, group, queries, 2 * samples], [batch, group, queries, samples]],
        work,
        axis=3,
    )
    shape = [batch, group, queries, 2 * samples]
    for op_type, number in (("Mul", 2.0), ("Add", -1.0)):
        locations = body.op(op_type, [locations, body.constant(_scalar(number, work), "number")], shape, work)
    bounds = [body.constant(_scalar(bound, work), "bound") for bound in (-_BOUND, _BOUND)]
    locations = body.op("Clip", [locations, *bounds], shape, work)
    pieces = [locations]
    if levels > 1:
        one = [batch, group, queries, 2 * points]
        pieces = list(body.ops("Split", [locations, body.ints([2 * points] * levels)], [one] * levels, work, axis=3))
    sampled = []
    for piece, (height, width), start in zip(pieces, site.arguments.levels, site.starts, strict=True):
        image = _level(site, body, value, start, height * width)
        image = body.reshape(image, [-1, depth, height, width], [images, depth, height, width])
        grid = body.reshape(piece, [-1, queries, points, 2], [images, queries, points, 2])
        sampled.append(
            body.op(
                "GridSample",
                [image, grid],
                [images, depth, queries, points],
                work,
                mode="linear" if linear else "bilinear",
                padding_mode="zeros",
                align_corners=0,
            )
        )
    whole = sampled[0]
    if levels > 1:
        whole = body.op("Concat", sampled, [images, depth, queries, samples], work, axis=3)
    weights = body.op("Softmax", [logits], [batch, group, queries, samples], work, axis=3)
    weights = body.reshape(weights, [-1, 1, queries, samples], [images, 1, queries, samples])
    whole = body.op("Mul", [whole, weights], [images, depth, queries, samples], work)
    sums = body.op("ReduceSum", [whole, body.ints([3])], [images, depth, queries], work, keepdims=0)
    sums = body.reshape(sums, [-1, group * depth, queries], [batch, group * depth, queries])
    output = body.op("Transpose", [sums], [batch, queries, group * depth], work, perm=[0, 2, 1])
    if work != site.dtype:
        output = body.op("Cast", [output], [batch, queries, group * depth], site.dtype, to=int(site.dtype))
    return output


def _level(site: AttentionSite, body: Body, value: ir.Value, start: int, rows: int) -> ir.Value:
    """Rows start .. start+rows of (B, N, G, D) as (B, G, D, rows)."""
    assert value.shape is not None
    assert value.dtype is not None
    batch, total, group, depth = value.shape
    if rows != total:
        bounds = [body.ints([number]) for number in (start, start + rows, 1)]
        value = body.op("Slice", [value, *bounds], [batch, rows, group, depth], value.dtype)
    assert value.dtype is not None
    return body.op("Transpose", [value], [batch, site.group, site.channels, rows], value.dtype, perm=[0, 2, 3, 1])


def _scalar(number: float, dtype: ir.DataType) -> NDArray[Any]:
    return np.asarray(number, dtype.numpy())


def _constant(value: ir.Value | None) -> NDArray[Any] | None:
    if value is None or value.is_graph_input():
        return None
    tensor = value.const_value if value.const_value is not None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def _numbers(value: ir.Value | None, label: str) -> list[int]:
    """The shape, with 1 for a batch that is not known by number."""
    if value is None or value.shape is None or len(value.shape) != 4:
        raise OrinportError(f"{label} has an input whose shape is not known or not of rank 4.")
    batch, *rest = value.shape
    if not all(isinstance(dim, int) for dim in rest):
        raise OrinportError(f"{label} has an input with more than its batch unknown.", "Give the shapes of the inputs.")
    return [batch if isinstance(batch, int) else 1, *(int(dim) for dim in rest)]  # type: ignore[arg-type]
