"""The portable form of FlashDeformAttn: standard ONNX operators, one GridSample a level.

    FlashDeformAttn(value, shapes, starts, v) -> ReduceSum(Concat(GridSample(level, grid), ...) * Softmax(logits))

The spatial shapes and level starts must be constants. A location x becomes the grid's coordinate 2*x - 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from orinport.dcnv4.arguments import DeformAttnArguments
from orinport.dcnv4.body import known_shape, working_type
from orinport.dcnv4.node import attention_points, label_of
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orinport.dcnv4.body import Body

__all__ = ["AttentionSite", "expand_attention"]


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """One FlashDeformAttn node with all that its portable form depends on."""

    node: ir.Node
    arguments: DeformAttnArguments
    starts: tuple[int, ...]
    queries: int
    group: int
    channels: int
    work: ir.DataType
    """The type that is computed in."""

    @classmethod
    def of(cls, node: ir.Node) -> AttentionSite:
        """Raises OrinportError if the node is inconsistent, or its shapes are not known."""
        label = label_of(node)
        if len(node.inputs) != 4:
            raise OrinportError(f"{label} has {len(node.inputs)} inputs, not 4.")
        value, shapes, starts, vectors = node.inputs
        levels, first_rows = _constant(shapes), _constant(starts)
        if levels is None or first_rows is None or levels.ndim != 2 or levels.shape[1] != 2:
            raise OrinportError(f"{label} needs constant spatial shapes (L, 2) and level starts.")
        arguments = DeformAttnArguments(tuple((int(h), int(w)) for h, w in levels), attention_points(node))
        dims = [known_shape(each, label) for each in (value, vectors)]
        row_starts = tuple(int(start) for start in first_rows.reshape(-1))
        try:
            _, queries, group, channels = arguments.check(dims[0], row_starts, dims[1])
        except OrinportError as error:
            raise OrinportError(f"{label} cannot be: {error.message}") from error
        work = working_type(None if value is None else value.dtype, label)
        return cls(node, arguments, row_starts, queries, group, channels, work)


def expand_attention(site: AttentionSite, body: Body, linear: bool) -> ir.Value:
    """The nodes of the portable form; gives its output (B, Q, G*D)."""
    value, _, _, vectors = site.node.inputs
    assert value is not None
    assert vectors is not None
    assert value.shape is not None
    batch, levels, points = value.shape[0], len(site.arguments.levels), site.arguments.points
    samples, queries, group, depth = levels * points, site.queries, site.group, site.channels
    images = batch * group if isinstance(batch, int) else None
    work, dtype = site.work, value.dtype
    assert dtype is not None
    value, vectors = body.cast(value, work), body.cast(vectors, work)
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
        locations = body.op(op_type, [locations, body.scalar(number, work, "number")], shape, work)
    locations = body.clip(locations)
    pieces = [locations]
    if levels > 1:
        one = [batch, group, queries, 2 * points]
        pieces = list(body.ops("Split", [locations, body.ints([2 * points] * levels)], [one] * levels, work, axis=3))
    sampled = []
    for piece, (height, width), start in zip(pieces, site.arguments.levels, site.starts, strict=True):
        image = _level(site, body, value, start, height * width)
        image = body.reshape(image, [-1, depth, height, width], [images, depth, height, width])
        grid = body.reshape(piece, [-1, queries, points, 2], [images, queries, points, 2])
        sampled.append(body.sample(image, grid, linear=linear))
    whole = sampled[0]
    if levels > 1:
        whole = body.op("Concat", sampled, [images, depth, queries, samples], work, axis=3)
    weights = body.op("Softmax", [logits], [batch, group, queries, samples], work, axis=3)
    weights = body.reshape(weights, [-1, 1, queries, samples], [images, 1, queries, samples])
    whole = body.op("Mul", [whole, weights], [images, depth, queries, samples], work)
    sums = body.op("ReduceSum", [whole, body.ints([3])], [images, depth, queries], work, keepdims=0)
    sums = body.reshape(sums, [-1, group * depth, queries], [batch, group * depth, queries])
    output = body.op("Transpose", [sums], [batch, queries, group * depth], work, perm=[0, 2, 1])
    return body.cast(output, dtype)


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


def _constant(value: ir.Value | None) -> NDArray[Any] | None:
    if value is None or value.is_graph_input():
        return None
    tensor = value.const_value if value.const_value is not None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()
