"""A kind of layer that no document about the DLA names.

## What it checks
Whether the kind of layer stands in any list of what the DLA takes or refuses. These do not: scatter, top-k,
non-zero, non-maximum suppression, recurrent layers, loops, conditions, einsum, padding, instance, layer and
group normalisation, cumulative sums, grid sampling, attention, and a few that only compute indices.

## Why it matters
They are most likely refused, but that follows from absence only. So the verdict is `unknown`, which never
counts as taken; the layer is placed on the GPU.

## Example
A LayerNormalization node, a GridSample node, a TopK in a detection head.

## What to do
Rewrite the layer with kinds that the DLA takes, or end the part for the DLA before it.

## Fix safety
The rewrites einsum-to-product, cumsum-to-conv, fuse-pad, scatter-to-slices, scatter-nd-to-slices, topk-to-reduce-max
and topk-to-max-min are exact, and so are gru-to-conv, lstm-to-conv and rnn-to-conv, which take the loops of these
operators apart. Normalisations become layers of the DLA by layer-norm-to-pow (exact, INT8 from TensorRT 10.3 on) or
layer-norm-to-div (within a stated error, with consent).

## Source
Rows X01b, X05 and OP48: absence from NvInfer.h, from the guides and from the current documentation; operator
table of NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import (
    CUMSUM_TO_CONV,
    EINSUM_TO_PRODUCT,
    FUSE_PAD,
    LAYER_NORM_TO_DIV,
    LAYER_NORM_TO_POW,
    SCATTER_ND_TO_SLICES,
    SCATTER_TO_SLICES,
    TOPK_TO_MAX_MIN,
    TOPK_TO_REDUCE_MAX,
)
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, takes_division, takes_power

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_LOOP = "prepare unrolls RNN, GRU and LSTM into layers of the DLA; end the part before other loops."

_ADVICE: Mapping[LayerKind, str] = {
    LayerKind.TRIP_LIMIT: _LOOP,
    LayerKind.RECURRENCE: _LOOP,
    LayerKind.ITERATOR: _LOOP,
    LayerKind.LOOP_OUTPUT: _LOOP,
    LayerKind.SCATTER: "With constant indices over channels: a product with a mask, plus a 1x1 convolution with one-hot"
    " weights.",
    LayerKind.TOPK: "Return the scores and take the best ones after the network.",
    LayerKind.NMS: "Return boxes and scores and suppress after the network.",
    LayerKind.NORMALIZATION: "Use batch normalisation, which folds into the convolution, and train again.",
    LayerKind.EINSUM: "Write a product of two operands as a 1x1 convolution, or as copies, Mul and a sum.",
    LayerKind.PADDING: "Move the padding into the convolution or pooling that reads it.",
    LayerKind.RNN_V2: "Write the steps as 1x1 convolutions and element-wise layers.",
    LayerKind.CUMULATIVE: "Along 32 elements or fewer it is a depthwise convolution of ones, padded on one side.",
    LayerKind.GRID_SAMPLE: "Resize by whole numbers where that is enough; otherwise leave it to the GPU.",
}


_FIXES: Mapping[LayerKind, tuple[str, str]] = {
    LayerKind.CUMULATIVE: CUMSUM_TO_CONV,
    LayerKind.EINSUM: EINSUM_TO_PRODUCT,
    LayerKind.PADDING: FUSE_PAD,
}


_SCATTERED = 3
"""Inputs of a Scatter: data, indices, updates."""


class UndocumentedKind(LayerRule):
    code = "DLA001"
    title = "No document names this kind of layer"
    rows = ("X01b", "X05", "OP48")
    kinds = (
        LayerKind.SCATTER,
        LayerKind.TOPK,
        LayerKind.NON_ZERO,
        LayerKind.NMS,
        LayerKind.RNN_V2,
        LayerKind.TRIP_LIMIT,
        LayerKind.RECURRENCE,
        LayerKind.ITERATOR,
        LayerKind.LOOP_OUTPUT,
        LayerKind.CONDITION,
        LayerKind.CONDITIONAL_INPUT,
        LayerKind.CONDITIONAL_OUTPUT,
        LayerKind.EINSUM,
        LayerKind.PADDING,
        LayerKind.NORMALIZATION,
        LayerKind.CUMULATIVE,
        LayerKind.GRID_SAMPLE,
        LayerKind.ONE_HOT,
        LayerKind.REVERSE_SEQUENCE,
        LayerKind.RAGGED_SOFTMAX,
        LayerKind.FILL,
        LayerKind.SHAPE,
        LayerKind.ASSERTION,
        LayerKind.ATTENTION_INPUT,
        LayerKind.ATTENTION_OUTPUT,
        LayerKind.ROTARY_EMBEDDING,
        LayerKind.KV_CACHE_UPDATE,
    )

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        rows = context.rows
        row = rows["X01b"] if layer.kind is LayerKind.SCATTER else rows["X05"]
        yield finding(
            self,
            layer,
            row if layer.kind.value in row.layers else (),
            f"No document says that the DLA takes a layer of kind {layer.kind.value}.",
            value=layer.kind.value,
            limit=None,
            advice=_ADVICE.get(layer.kind, "End the part of the network that is to run on the DLA before this layer."),
            verdict=Verdict.UNKNOWN,
            fix=_fix(layer, context),
        )


def _fix(layer: Layer, context: Context) -> tuple[str, str] | None:
    if layer.kind is LayerKind.SCATTER:
        return _scatter_fix(layer)
    if layer.kind is LayerKind.TOPK:
        return _choice_fix(layer, context)
    if layer.kind is LayerKind.NORMALIZATION:
        if takes_power(context):
            return LAYER_NORM_TO_POW
        return LAYER_NORM_TO_DIV if takes_division(context) else None
    return _FIXES.get(layer.kind)


def _choice_fix(layer: Layer, context: Context) -> tuple[str, str] | None:
    """The rewrite of a TopK of which only the values are used, not the places."""
    if any(_is_read(places.name, context) for places in layer.outputs[1:]):
        return None
    count = layer.attributes.get("k")
    return None if count is None else TOPK_TO_REDUCE_MAX if count == 1 else TOPK_TO_MAX_MIN


def _scatter_fix(layer: Layer) -> tuple[str, str] | None:
    """A rewrite for constant indices; ScatterElements only in four dimensions and not among samples."""
    if len(layer.inputs) != _SCATTERED:
        return None
    data, indices, updates = layer.inputs
    if not indices.constant or (data.constant and updates.constant):
        return None
    if layer.attributes.get("mode") == "ND":
        return SCATTER_ND_TO_SLICES
    return SCATTER_TO_SLICES if data.rank == 4 and layer.attributes.get("axis", 0) % 4 else None


def _is_read(name: str, context: Context) -> bool:
    """True if a layer reads the tensor, or the network returns it; casts that nothing reads do not count."""
    if name in context.outputs:
        return True
    return any(
        reader.kind is not LayerKind.CAST or _is_read(reader.outputs[0].name, context)
        for reader in context.consumers.get(name, ())
    )


RULE = UndocumentedKind()
