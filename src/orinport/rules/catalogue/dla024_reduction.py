"""A reduction that the DLA does not take.

## What it checks
Taken is MAX, from TensorRT 10.3 on (and in DRIVE OS 6.0.9, 8.6.12). AVG, SUM and MIN are refused; below 8.6.12
every reduction is. MAX in 10.0 to 10.2, and PROD from 8.6.12 on, are `unknown`. A GlobalAveragePool or
ReduceMean arrives as AVG.

## Why it matters
Global average pooling ends most classifiers and stands in every squeeze-and-excite block.

## Example
GlobalAveragePool in ResNet-50. The builder says: "DLA cores do not support AVG Reduce operation."

## What to do
An average over height and width is a chain of average pools with windows of at most 8, or a depthwise
convolution with weights 1/(h*w) up to 32x32. A sum is that average times the number of values. A maximum is a
chain of max pools. A mean over channels is a 1x1 convolution.

## Fix safety
The rewrites reduce-to-pool, reduce-to-conv and reduce-max-to-pool are exact: the same terms in another order, maxima
and minima bit-equal. Inside of normalisations, mean-variance-to-div and lp-normalization-to-div replace the whole
within a stated error and need consent (tolerance).

## Source
Rows Q01a to Q01e, P08, P09, CF18 and OP45: operator reference, builder log of 10.3, operator table of
NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.composites import fix_of
from orinport.rules.finding import Verdict
from orinport.rules.fixes import REDUCE_MAX_TO_POOL, REDUCE_TO_CONV, REDUCE_TO_POOL
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_OTHER_AXES = "A mean over channels is a 1x1 convolution with weights 1/C; other axes can be transposed there."
_ADVICE: Mapping[str, str] = {
    "AVG": "Use average pools with windows within the limit, or a depthwise convolution with weights 1/(h*w).",
    "SUM": "Use average pools and multiply by the number of values.",
    "MAX": "Use a chain of max pools.",
    "MIN": "Multiply by -1, use a chain of max pools, multiply by -1.",
}

_FIXES: Mapping[str, tuple[str, str]] = {
    "AVG": REDUCE_TO_CONV,
    "SUM": REDUCE_TO_CONV,
    "MAX": REDUCE_MAX_TO_POOL,
    "MIN": REDUCE_MAX_TO_POOL,
}


class Reduction(LayerRule):
    code = "DLA024"
    title = "Reduction that the DLA does not take"
    rows = ("Q01a", "Q01b", "Q01c", "Q01d", "Q01e", "P08", "P09", "CF18", "OP45")
    kinds = (LayerKind.REDUCE,)
    fix = REDUCE_TO_POOL

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        op = layer["op"]
        for row in holding(context, ("Q01a", "Q01b")):
            if op in row.values["allowed"]:
                return
        version = context.target.stack.tensorrt
        spatial = _is_spatial(layer)
        advice = _ADVICE.get(op, "Compute it outside of the part for the DLA.") if spatial else _OTHER_AXES
        fix = fix_of(layer, context, _fix(layer, spatial))
        for row in holding(context, ("Q01c", "Q01e", "P08")):
            if op in row.values["refused"]:
                yield finding(
                    self,
                    layer,
                    row,
                    f"The DLA does not take a reduction by {op} over axes {list(layer['axes'])} in TensorRT {version}.",
                    value=op,
                    limit=_taken(context),
                    advice=advice,
                    fix=fix,
                )
                return
        yield finding(
            self,
            layer,
            holding(context, ("OP45",)) if op == "MAX" else (),
            f"No document says whether the DLA takes a reduction by {op} in TensorRT {version}.",
            value=op,
            limit=_taken(context),
            advice=advice,
            verdict=Verdict.UNKNOWN,
            fix=fix,
        )


def _is_spatial(layer: Layer) -> bool:
    """True if a tensor (N, C, W) or (N, C, H, W) is reduced over spatial dimensions and nothing else."""
    rank = layer.inputs[0].rank
    return rank in (3, 4) and min(layer["axes"], default=0) >= 2


def _fix(layer: Layer, spatial: bool) -> tuple[str, str] | None:
    """The rewrite for the operation and the axes; none reduces a batch."""
    shape = layer.inputs[0].shape
    if not shape or (0 in layer["axes"] and shape[0] > 1 and len(shape) > 1):
        return None
    if spatial and layer["op"] in ("AVG", "MAX"):
        return REDUCE_TO_POOL
    return _FIXES.get(layer["op"])


def _taken(context: Context) -> tuple[str, ...]:
    return tuple(op for row in holding(context, ("Q01a", "Q01b")) for op in row.values["allowed"])


RULE = Reduction()
