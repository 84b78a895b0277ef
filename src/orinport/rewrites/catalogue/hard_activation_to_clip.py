"""`HardSwish(x) -> Mul(x, Clip(x + 3, 0, 6) / 6)`: hard activations by a clip.

## What it does
HardSigmoid becomes a multiplication, an addition and a Clip from 0 to 1; HardSwish the product of its input with a Clip
from 0 to 6, divided by 6.

## Why
Neither is an activation of the DLA; clips from 0 on are, and sums and products too.

## Example
MobileNetV3: `HardSwish(x)` is Add, Clip, Mul, Mul. A factor of 1 and a shift of 0 are left out.

## Refused
Integers; slopes and shifts that the element type does not hold.

## Safety
exact: the same arithmetic, rounded between the steps. An infinity and NaN stay where they are.

## Source
Rows A03a, A05 and A06 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rewrites.catalogue._pointwise import refused_input
from orinport.rewrites.catalogue._scalars import add, multiply
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "HardActivationToClip"]


class HardActivationToClip(Rewrite):
    """HardSwish and HardSigmoid become clips."""

    name = "hard-activation-to-clip"
    safety = Safety.EXACT
    op_types = ("HardSigmoid", "HardSwish")

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if (refusal := refused_input(node, context)) is not None:
            return refusal
        return Match((node,), (node.outputs[0],))

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        value = node.inputs[0]
        assert value is not None
        if node.op_type == "HardSwish":
            gate = builder.clip(add(builder, value, 3.0), 0.0, 6.0)
            return (builder.op("Mul", value, multiply(builder, gate, 1.0 / 6.0)),)
        alpha, beta = (builder.context.attribute(node, name, own) for name, own in (("alpha", 0.2), ("beta", 0.5)))
        line = add(builder, multiply(builder, value, float(alpha)), float(beta))
        return (builder.clip(line, 0.0, 1.0),)


REWRITE = HardActivationToClip()
