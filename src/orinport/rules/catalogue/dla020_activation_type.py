"""An activation that the DLA does not take.

## What it checks
Taken are ReLU, Sigmoid, TanH and Clip, and Leaky ReLU from TensorRT 8.4 on (before, headers omit it:
`unknown`). In INT8, Sigmoid and TanH are documented from 8.0 on. All others are refused: HardSigmoid, ELU,
SELU, Softplus, Softsign, GELU, thresholded ReLU.

## Why it matters
One such activation after every convolution keeps a whole network off the DLA.

## Example
HardSigmoid in MobileNetV3. The builder says: "Activation type: HARD_SIGMOID is not supported on DLA."

## What to do
SiLU passes as Sigmoid and Mul. HardSwish passes as Clip(x + 3, 0, 6) * x / 6. ELU, SELU, GELU: train again with
one that is taken.

## Fix safety
The rewrites hard-activation-to-clip (HardSigmoid and HardSwish by a Clip) and softsign-to-div (from TensorRT 10.3 on)
are exact. activation-to-sigmoid (Softplus, Elu, Selu, Celu, Mish), gelu-to-tanh and thresholded-relu-to-clip
approximate within a stated error and need consent (tolerance).

## Source
Rows A01a, A01b, A04, A05, A06, OP15 and CF07: NvInfer.h, developer guides 8.4 and 8.5, release notes 8.0.1,
builder logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import (
    ACTIVATION_TO_SIGMOID,
    GELU_TO_TANH,
    HARD_ACTIVATION_TO_CLIP,
    SOFTSIGN_TO_DIV,
    THRESHOLDED_RELU_TO_CLIP,
)
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding, speaking, takes_division
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_THROUGH_FP16 = ("SIGMOID", "TANH")
_ADVICE: Mapping[str, str] = {
    "HARD_SIGMOID": "Write it as Clip(alpha * x + beta, 0, 1): Mul, Add and Clip, which the DLA takes.",
    "GELU_ERF": "Use x * Sigmoid(1.702 * x), an approximation of GELU that the DLA takes; check the accuracy.",
    "GELU_TANH": "Use x * Sigmoid(1.702 * x), an approximation of GELU that the DLA takes; check the accuracy.",
    "LEAKY_RELU": "Write it as max(x, slope * x): Mul and Max, which the DLA takes.",
}

_FIXES: Mapping[str, tuple[str, str]] = {
    "ELU": ACTIVATION_TO_SIGMOID,
    "GELU_ERF": GELU_TO_TANH,
    "GELU_TANH": GELU_TO_TANH,
    "HARD_SIGMOID": HARD_ACTIVATION_TO_CLIP,
    "SELU": ACTIVATION_TO_SIGMOID,
    "SOFTPLUS": ACTIVATION_TO_SIGMOID,
    "SOFTSIGN": SOFTSIGN_TO_DIV,
    "THRESHOLDED_RELU": THRESHOLDED_RELU_TO_CLIP,
}


class ActivationType(LayerRule):
    code = "DLA020"
    title = "Activation that the DLA does not take"
    rows = ("A01a", "A01b", "A04", "A05", "A06", "OP15", "CF07")
    kinds = (LayerKind.ACTIVATION,)
    fix = HARD_ACTIVATION_TO_CLIP

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        kind, rows = layer["type"], context.rows
        for name in ("A01a", "A01b"):
            row = rows.get(name)
            if row is not None and kind in row.values["allowed"]:
                if context.precision is not Precision.INT8 or kind not in _THROUGH_FP16 or "A04" in rows:
                    return
                yield finding(
                    self,
                    layer,
                    row,
                    f"{kind} in INT8 is documented from TensorRT 8.0 on only.",
                    value=kind,
                    limit="fp16",
                    advice="Run this layer in FP16.",
                    verdict=Verdict.UNKNOWN,
                )
                return
        if speaking(context, ("A01a", "A01b")) is None:  # DLA003 speaks
            return
        refused = rows["A05"]
        certain = kind in refused.values["refused"]
        yield finding(
            self,
            layer,
            refused if certain else holding(context, ("OP15", "CF07") if kind == "LEAKY_RELU" else ()),
            f"The DLA does not take the activation {kind}."
            if certain
            else f"No document of this TensorRT version says whether the DLA takes the activation {kind}.",
            value=kind,
            limit=tuple(op for row in holding(context, ("A01a", "A01b")) for op in row.values["allowed"]),
            advice=_ADVICE.get(kind, "Use ReLU, Clip, Sigmoid or TanH, or SiLU as Sigmoid and Mul."),
            verdict=Verdict.GPU if certain else Verdict.UNKNOWN,
            fix=_FIXES.get(kind) if kind != "SOFTSIGN" or takes_division(context) else None,
        )


RULE = ActivationType()
