"""A convolution that does not fit into the convolution buffer (CBUF).

## What it checks
The buffer has 16 banks. TensorRT estimates the banks for one kernel and for the input rows under it, and refuses
the layer above 16. On Orin 15 or 16 banks are reported as a risk: a layer of exactly 16 banks passed the
estimate and failed in the build (TensorRT 8.5.2).

With groups, nobody documents whether the estimate takes all input channels or those of one group. It is computed
both ways: refused if both exceed the buffer, `unknown` if only one does.

## Why it matters
All other limits may hold and the build still says "reduce size of input or weights". Wide inputs with many
channels and tall or dilated kernels fail first, and FP16 before INT8.

## Example
A 3x3 convolution over 512 channels of width 160: 16 banks in FP16, 9 in INT8. Width 161 needs 17 in FP16.

## What to do
Use INT8, split the input channels and add the partial sums, or tile the width.

## Fix safety
The rewrite split-conv-channels is exact: the same products in another order of summation.

## Source
Rows C09, C10a, C10b, CF05, OP09 and OP10: developer guides 8.4 and 8.5; NVIDIA/TensorRT issue 3499 for the case
at 16 banks. The formula is printed in the 8.4 guide only and holds on as inferred.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import SPLIT_CONV_CHANNELS
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding
from orinport.targets.buffer import buffer_banks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_HELP = "Use INT8, split the input channels and add the partial sums, or tile the width."


class ConvolutionBuffer(LayerRule):
    code = "DLA127"
    title = "Convolution does not fit into the convolution buffer"
    rows = ("C09", "C10a", "C10b", "CF05", "OP09", "OP10")
    kinds = (LayerKind.CONVOLUTION,)
    fix = SPLIT_CONV_CHANNELS

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        limit_row, formula = context.rows.get("C09"), context.rows.get("C10a")
        if limit_row is None or formula is None:
            return
        data = layer.inputs[0]
        if data.shape is None:  # DLA103 speaks
            return
        kernel = layer["kernel"]
        if len(kernel) != 2 or len(data.shape) != 4:  # DLA120 speaks on those
            return
        channels, width, dilation = data.shape[1], data.shape[3], layer["dilation"][0]
        estimate = partial(
            buffer_banks, formula.values, context.precision, width=width, kernel=kernel, dilation=dilation
        )
        limit = limit_row.values["max_banks"]
        most = estimate(channels=channels)
        tight = context.rows.get("CF05")
        if most.total < (tight.values["warn_from"] if tight else limit + 1):
            return
        groups = layer["groups"]
        least = estimate(channels=channels // groups) if groups > 1 else most
        fix = SPLIT_CONV_CHANNELS if layer["constant_kernel"] else None
        split = f"{most.weights} for a kernel and {most.data} for input rows, {context.precision.value.upper()}"
        if least.total > limit:
            yield finding(
                self,
                layer,
                (limit_row, formula),
                f"The convolution needs {least.total} banks of the convolution buffer"
                f" ({least.weights} for a kernel and {least.data} for input rows,"
                f" {context.precision.value.upper()}); the DLA has {limit}.",
                value=least.total,
                limit=limit,
                advice=_HELP,
                fix=fix,
            )
        elif most.total > limit:
            yield finding(
                self,
                layer,
                holding(context, ("C09", "C10a", "OP09")),
                f"Estimated over all input channels the convolution needs {most.total} banks of the convolution"
                f" buffer ({split}), over one of its {groups} groups {least.total}; the DLA has {limit}, and how"
                " groups count is not documented.",
                value=most.total,
                limit=limit,
                advice=_HELP,
                verdict=Verdict.UNKNOWN,
                fix=fix,
            )
        elif tight is not None:
            yield finding(
                self,
                layer,
                (limit_row, formula, tight),
                f"The convolution needs {most.total} of {limit} banks of the convolution buffer ({split}); on Orin a"
                f" layer at {limit} passed this estimate and failed in the build.",
                value=most.total,
                limit=limit,
                advice=_HELP,
                verdict=None,
            )


RULE = ConvolutionBuffer()
