"""A reshape or transpose from or to a tensor that is not 4-D.

## What it checks
The input is 4-D. A result of rank 2 or of rank 5 and more is refused. A result of rank 3 is `unknown`: only
results of other ranks than 4 were seen refused, without a word on 3.

## Why it matters
Flatten before a classifier, the token layout of transformers, and the six dimensions that DepthToSpace goes
through all end here.

## Example
Flatten of (1, 2048, 1, 1) to (1, 2048).

## What to do
Keep the tensor 4-D up to the output: a fully connected layer is a 1x1 convolution. Where only the edge of the
network has another rank, prepare moves the edge. A channel shuffle is a 1x1 convolution with one-hot weights,
DepthToSpace a deconvolution with kernel = stride and one-hot weights, SpaceToDepth a strided convolution.

## Fix safety
The rewrites are exact. rearrange-in-4d takes a rearrangement that begins and ends in four dimensions through 4-D
tensors alone. windows-to-4d writes a 1-D convolution or pool as a 2-D one, where the parser would put such a layer on
either side.

## Source
Rows F01, F02, F03, G15b and OP43: developer guide 8.5, NvInfer.h, builder log of 10.3, operator table of
NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import REARRANGE_IN_4D, WINDOWS_TO_4D
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_FOUR = 4
_LONGEST = 8
"""Shuffles in a row that are followed to either side."""
_WINDOWS = (LayerKind.CONVOLUTION, LayerKind.DECONVOLUTION, LayerKind.POOLING)
_EDGE = "Keep the tensor (N, C, H, W); prepare moves the edge where only the output has another rank."
_REARRANGE = "A fixed rearrangement of channels or blocks is a convolution or deconvolution with one-hot weights."


class ShuffleRank(LayerRule):
    code = "DLA190"
    title = "Reshape or transpose of a tensor that is not 4-D"
    rows = ("F01", "F02", "F03", "G15b", "OP43")
    kinds = (LayerKind.SHUFFLE, LayerKind.SQUEEZE, LayerKind.UNSQUEEZE)
    fix = WINDOWS_TO_4D

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("F01")
        if row is None:
            return
        data, result = layer.inputs[0], layer.outputs[0]
        if data.shape is None or result.shape is None:  # DLA103 speaks
            return
        rank, before, after = row.values["rank"], len(data.shape), len(result.shape)
        if before == after == rank:
            return
        shapes = f"{list(data.shape)} to {list(result.shape)}"
        fix = _fix(layer, context)
        if before != rank:
            yield finding(
                self,
                layer,
                holding(context, ("G15b",)) or row,
                f"The layer goes from {shapes}, and its input has rank {before}; the DLA takes rank {rank}.",
                value=before,
                limit=rank,
                advice="Keep the tensor (N, C, H, W): a fully connected layer is a 1x1 convolution."
                if before < rank
                else _REARRANGE,
                fix=fix,
            )
            return
        doubt = context.rows.get("OP43") if after == rank - 1 else None
        if doubt is not None:
            yield finding(
                self,
                layer,
                (doubt,),
                f"The layer goes from {shapes}; whether the DLA takes a change from rank {before} to {after} is not"
                " documented.",
                value=after,
                limit=rank,
                advice=_EDGE,
                verdict=Verdict.UNKNOWN,
                fix=fix,
            )
            return
        yield finding(
            self,
            layer,
            context.rows["F02"],
            f"The layer goes from {shapes}, to rank {after}; the DLA takes rank {rank}.",
            value=after,
            limit=rank,
            advice=_REARRANGE if after > rank else _EDGE,
            fix=fix,
        )


def _fix(layer: Layer, context: Context) -> tuple[str, str] | None:
    if _is_around_a_window(layer, context):
        return WINDOWS_TO_4D
    return REARRANGE_IN_4D if _returns_to_four(layer, context) else None


def _returns_to_four(layer: Layer, context: Context) -> bool:
    """True if shuffles alone lead from one 4-D tensor over this layer to another, and the batch stays."""
    first = last = layer
    for _ in range(_LONGEST):
        if first.inputs[0].rank == _FOUR:
            break
        before = context.producers.get(first.inputs[0].name)
        if before is None or before.kind is not LayerKind.SHUFFLE:
            return False
        first = before
    for _ in range(_LONGEST):
        if last.outputs[0].rank == _FOUR:
            break
        readers = context.consumers.get(last.outputs[0].name, ())
        if len(readers) != 1 or readers[0].kind is not LayerKind.SHUFFLE:
            return False
        last = readers[0]
    start, end = first.inputs[0].shape, last.outputs[0].shape
    if start is None or end is None or len(start) != _FOUR or len(end) != _FOUR:
        return False
    return start[0] == end[0]


def _is_around_a_window(layer: Layer, context: Context) -> bool:
    """True if the parser has put the layer beside a 1-D convolution or pool to make that 2-D."""
    before = context.producers.get(layer.inputs[0].name)
    beside = [*([before] if before is not None else []), *context.consumers.get(layer.outputs[0].name, ())]
    return any(other.nodes == layer.nodes and other.kind in _WINDOWS for other in beside)


RULE = ShuffleRank()
