"""`GatherND(x, indices) -> Concat(Slice(x), Slice(x))`: fixed places in several dimensions as slices.

## What it does
GatherND with constant indices becomes one Slice for each stretch of elements that stay side by side, and a Concat of
them along the channels. The dimensions that are indexed together are joined to one axis, and a Transpose in front is
taken into account. With `batch_dims` the indices may differ from one row of the batch to the next.

## Why
Gather is no layer of the DLA in any of its modes; Slice and Concat along the channels are.

## Example
`x[:, :, [0, 2], [1, 3]]` as PyTorch exports it, Transpose and GatherND: pixels 1 and 19 of 64, two slices and a Concat.

## Refused
Indices known at run time; choices among samples; integers and constants; indices in so many stretches that the slices
cost more than the GPU.

## Safety
exact: bit-equal.

## Source
Rows X01a, V01a, V02 and N01 of the acceptance catalogue; ONNX operator specification, GatherND.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.catalogue._choices import match_choice, read_choice
from orinport.rewrites.catalogue.gather_elements_to_slices import build_choice
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "GatherNdToSlices", "linear_places"]


class GatherNdToSlices(Rewrite):
    """A choice of places becomes slices."""

    name = "gather-nd-to-slices"
    safety = Safety.EXACT
    op_types = ("GatherND",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        read = read_choice(node, context)
        if not isinstance(read, tuple):
            return read
        shape, indices = read
        batch = int(context.attribute(node, "batch_dims", 0))
        places = linear_places(indices, shape[batch:])
        if isinstance(places, Refusal):
            return places
        rest = shape[batch + indices.shape[-1] :]
        volume = prod(shape[batch:])
        rows = np.arange(prod(shape[:batch])).reshape((*shape[:batch], *[1] * (places.ndim - batch)))
        table = (rows * volume + places * prod(rest))[..., None] + np.arange(prod(rest))
        return match_choice(node, table.reshape((*places.shape, *rest)), context)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        return (build_choice(match, builder),)


def linear_places(indices: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64] | Refusal:
    """Index tuples, the last dimension, into the first dimensions of `shape`, each as one number."""
    sizes = np.asarray(shape[: indices.shape[-1]])
    if bool((indices < -sizes).any() or (indices >= sizes).any()):
        return Refusal("an index lies outside the tensor")
    positive = np.where(indices < 0, indices + sizes, indices)
    places: NDArray[np.int64] = np.ravel_multi_index(tuple(np.moveaxis(positive, -1, 0)), tuple(sizes))
    return places


REWRITE = GatherNdToSlices()
