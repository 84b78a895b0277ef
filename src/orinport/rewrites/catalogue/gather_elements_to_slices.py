"""`GatherElements(x, indices) -> Concat(Slice(x), Slice(x))`: fixed indices for each element as slices.

## What it does
GatherElements with constant indices becomes one Slice for each stretch of elements that stay side by side, and a Concat
of them along the channels. Where the indices change along one axis only, that is a choice of its rows; where they also
change along others, these axes are joined first. Dimensions of the indices that are smaller than those of the data are
cropped.

## Why
Gather is no layer of the DLA in any of its modes; Slice and Concat along the channels are.

## Example
`torch.gather(x, 1, order)` with a constant order of 3 channels, the same at every pixel: three slices and a Concat.

## Refused
Indices known at run time; choices among samples; integers and constants; indices in so many stretches that the slices
cost more than the GPU.

## Safety
exact: bit-equal.

## Source
Rows X01a, V01a, V02 and N01 of the acceptance catalogue; ONNX operator specification, GatherElements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._choices import AMONG_SAMPLES, match_choice, read_choice
from orinport.rewrites.catalogue._selection import take
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "GatherElementsToSlices", "build_choice"]


class GatherElementsToSlices(Rewrite):
    """A choice for each element becomes slices."""

    name = "gather-elements-to-slices"
    safety = Safety.EXACT
    op_types = ("GatherElements",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        read = read_choice(node, context)
        if not isinstance(read, tuple):
            return read
        shape, indices = read
        axis = int(context.attribute(node, "axis", 0)) % len(shape)
        size = shape[axis]
        if indices.min() < -size or indices.max() >= size:
            return Refusal(f"an index lies outside {size} elements")
        crop = tuple(size if each == axis else indices.shape[each] for each in range(len(shape)))
        if len(shape) == 4 and crop[0] != shape[0]:
            return Refusal(AMONG_SAMPLES)
        places: list[NDArray[np.int64]] = list(np.indices(indices.shape, sparse=True))
        places[axis] = np.where(indices < 0, indices + size, indices)
        table = np.ravel_multi_index(tuple(np.broadcast_arrays(*places)), crop)
        return match_choice(node, table, context, crop)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        return (build_choice(match, builder),)


def build_choice(match: Match, builder: Builder) -> ir.Value:
    """The slices of a match of `match_choice`, in the shape of its output."""
    source, crop, choice, after = match.data
    for axis, size in enumerate(crop or ()):
        if size != builder.shape(source)[axis]:
            source = builder.slice(source, axis, 0, size)
    chosen = take(builder, builder.reshape(source, choice.board), choice.axis, choice.indices)
    return builder.shuffle(chosen, after)


REWRITE = GatherElementsToSlices()
