"""`DCNv4FuseOffset_Plugin(Linear(x)) -> DCNv4_Plugin(Value(x), OffsetMask(x))`: the fused operator taken apart.

## What it does
A fused DCNv4 operator becomes the one with two inputs. The linear layer in front of it, found by structure, becomes
two, with the first C and the last P columns of its weights; where there is none, two Slices divide the tensor. It
undoes `fuse-dcnv4-projections`.

## Why
For a runtime that has only the operator with two inputs, or to prepare the value projection for the DLA by itself.

## Example
FlashInternImage-T at 56 x 56 pixels: `(3136, 64) x (64, 176)` becomes `(3136, 64) x (64, 64)` and
`(3136, 64) x (64, 112)`.

## Refused
Operators whose input has an unknown width.

## Safety
exact: the same products, summed in the order that the runtime takes for the narrower matrices. Rounding there moves
sampling points, so the proof allows the samples a relative error of 1e-4. Applied on request only, because it
undoes another rewrite.

## Source
NVIDIA/DL4AGX, AV-Solutions/dcnv4-trt: the value comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orinport.rewrites.catalogue._dcnv4 import DOMAIN, FUSED, PLAIN, channels_of
from orinport.rewrites.catalogue._linear import Branch, branch_behind, reshape_to
from orinport.rewrites.catalogue.split_parallel_linear import build_columns
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "SplitDCNv4Projections"]


@dataclass(frozen=True, slots=True)
class _Data:
    operator: ir.Node
    channels: int
    joined: ir.Value
    width: int
    branch: Branch | None


class SplitDCNv4Projections(Rewrite):
    """The fused DCNv4 operator becomes the one with two inputs."""

    name = "split-dcnv4-projections"
    safety = Safety.EXACT
    op_types = (f"{DOMAIN}::{FUSED}",)
    on_request = True
    error = 1e-4

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        joined = node.inputs[0]
        width = None if joined is None or joined.shape is None else joined.shape[-1]
        if joined is None or not isinstance(width, int):
            return Refusal("the width of its input is not known")
        channels = channels_of(node, context)
        if isinstance(channels, Refusal):
            return channels
        if width <= channels:
            return Refusal(f"its input has {width} channels, which leaves no offsets beside {channels} of the value")
        found = branch_behind(joined, context)
        branch = found if isinstance(found, Branch) else None
        nodes = (node,) if branch is None else (*branch.nodes, node)
        return Match(nodes, (node.outputs[0],), _Data(node, channels, joined, width, branch))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        data: _Data = match.data
        channels, width = data.channels, data.width
        output = match.outputs[0]
        assert output.shape is not None
        pieces = [_piece(builder, data, start, end) for start, end in ((0, channels), (channels, width))]
        attributes: dict[str, Any] = dict(data.operator.attributes)
        result = builder.op(
            PLAIN,
            *pieces,
            domain=DOMAIN,
            shape=list(output.shape),  # type: ignore[arg-type]
            dtype=builder.context.dtype(data.joined),
            **attributes,
        )
        return (result,)


def _piece(builder: Builder, data: _Data, start: int, end: int) -> ir.Value:
    """Columns start .. end of what the fused operator read."""
    joined = data.joined
    dtype = builder.context.dtype(joined)
    assert joined.shape is not None
    shape = [*joined.shape[:-1], end - start]
    if data.branch is None:
        bounds = [builder.ints([number]) for number in (start, end, len(shape) - 1)]
        return builder.op("Slice", joined, *bounds, shape=shape, dtype=dtype)  # type: ignore[arg-type]
    piece = build_columns(builder, data.branch.linear, start, end)
    if piece.shape is not None and list(piece.shape) == shape:
        return piece
    return reshape_to(builder, piece, shape)


REWRITE = SplitDCNv4Projections()
