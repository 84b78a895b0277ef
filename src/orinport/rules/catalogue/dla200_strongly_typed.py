"""FP32 tensors in a strongly typed network.

## What it checks
From TensorRT 11 a network runs in the types that it is written in: there is no FP16 flag any more. A layer that
reads or writes FP32 therefore runs in FP32, which the DLA does not take.

## Why it matters
A network exported in FP32 that ran on the DLA up to TensorRT 10 runs on the GPU as a whole.

## Example
Any FP32 network on jp7.2.2.

## What to do
Write the network in FP16: `orinport prepare` does so for such a target.

## Fix safety
Moving to FP16 changes values within FP16's precision; `prepare` proves the result.

## Source
Rows G01 and I10: TensorRT documentation 10.16 to 11.4.1 (dla-strongly-typed-networks). On the precision flags the
documents of 11.4.0 and 11.4.1 differ in wording only (CF19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType
from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding, holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


_WIDE = frozenset({DType.FP32, DType.FP64})


class StronglyTyped(NetworkRule):
    code = "DLA200"
    title = "FP32 in a strongly typed network"
    rows = ("G01", "I10", "CF19")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        if "I10" not in context.rows:
            return
        rows = holding(context, ("G01", "I10"))
        for layer in layers:
            for tensor in (*layer.inputs, *layer.outputs):
                if tensor.dtype not in _WIDE or tensor.constant:
                    continue
                yield finding(
                    self,
                    layer,
                    rows,
                    f"The layer is written in {tensor.dtype.value.upper()}, and TensorRT"
                    f" {context.target.stack.tensorrt} runs a layer in the types that it is written in.",
                    value=tensor.dtype.value,
                    limit="fp16 or int8",
                    advice="Write the network in FP16, as `orinport prepare` does for this target.",
                )
                break


RULE = StronglyTyped()
