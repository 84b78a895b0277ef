"""An input or output of the network that fits no DLA format.

## What it checks
Where nothing may run on the GPU, every input and output that a DLA layer touches has to be given in a format of
the DLA. CHW16 (FP16) and CHW32 (INT8) want at least three dimensions.

## Why it matters
With GPU fallback TensorRT adds a reformat on the GPU. Without, an edge in any other format ends the build; so does
FP32 linear, the default.

## Example
A network input (1, 512) without GPU fallback.

## What to do
Make the edge 4-D; `orinport prepare` does so and records the mapping. Formats are given in build.sh.

## Fix safety
No rewrite is applied; moving an edge is recorded and proved by `prepare`.

## Source
Rows B01, B02, B10, B11a, B11b, J01: TensorRT 8.4 and 8.5 Developer Guides 12.4, NvInfer.h 7.1.3 to 11.1;
NVIDIA/TensorRT issue 3438.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.finding import Verdict
from orinport.rules.regions import network_finding, on_dla
from orinport.rules.rule import NetworkRule
from orinport.rules.support import holding
from orinport.targets.catalogue import catalogue_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer, Tensor
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class EdgeFormats(NetworkRule):
    code = "DLA210"
    title = "Input or output fits no DLA format"
    rows = ("B01", "B02", "B10", "B11a", "B11b", "J01")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        if context.gpu_fallback:
            return
        # B10 speaks of CHW16; CHW32 is the same format with 32 channels of one byte.
        least = catalogue_rows()["B10"].values["min_rank"]
        for tensor in _edges(layers, context):
            if tensor.rank is None or tensor.rank >= least:
                continue
            yield network_finding(
                self,
                holding(context, ("B01", "B10", "B11a")),
                f"The network's edge {tensor.name!r} has rank {tensor.rank}; the DLA's formats want at least {least}"
                " dimensions, and nothing may be reformatted on the GPU.",
                value=tensor.rank,
                limit=least,
                advice="Make it 4-D, as `orinport prepare` does at the edges.",
                verdict=Verdict.BLOCKED,
            )


def _edges(layers: Sequence[Layer], context: Context) -> Iterator[Tensor]:
    """Inputs and outputs of the network that a DLA layer reads or writes, each once."""
    seen: set[str] = set()
    for layer in layers:
        if not on_dla(layer, context):
            continue
        for tensor in (*layer.inputs, *layer.outputs):
            if tensor.name not in seen and (tensor.name in context.inputs or tensor.name in context.outputs):
                seen.add(tensor.name)
                yield tensor


RULE = EdgeFormats()
