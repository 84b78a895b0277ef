"""A reshape or transpose with a step that the DLA does not take.

## What it checks
The layer is taken apart into transpose, reshape, transpose. Each step alone is 4-D, keeps C, H and W in 1 to
8192, and leaves the batch alone. The rule stands in the guide of TensorRT 8.5; whether later versions keep or
relax it is not documented, so there the verdict is `unknown`.

## Why it matters
Window partition moves windows into the batch; a transpose of (N, C, H, W) to (C, N, H, W) moves the batch
itself.

## Example
Reshape of (1, 96, 56, 56) to (64, 96, 7, 7).

## What to do
Keep windows in height and width, and use a convolution or pooling of that stride.

## Fix safety
No rewrite is applied.

## Source
Rows F01, OP07 and OP42: developer guide 8.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import between, bounds, finding, holding, within
from orinport.targets.target import Confidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context
    from orinport.targets.target import RuleRow


class ShuffleSteps(LayerRule):
    code = "DLA191"
    title = "A step of a reshape touches the batch or is out of range"
    rows = ("F01", "OP07", "OP42")
    kinds = (LayerKind.SHUFFLE,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("F01")
        data = layer.inputs[0]
        if row is None or data.shape is None or len(data.shape) != row.values["rank"]:  # DLA190 speaks on those
            return
        if layer.outputs[0].shape is None:
            return
        broken = _broken(layer, data.shape, row)
        if broken is None:
            return
        message, value, limit = broken
        ended = row.confidence is Confidence.INFERRED
        yield finding(
            self,
            layer,
            (row,) if not ended else holding(context, ("F01", "OP07", "OP42")),
            message + (" This is the rule of TensorRT 8.5; whether it was kept is not documented." if ended else ""),
            value=value,
            limit=limit,
            advice="Leave the batch alone, and reshape in steps that each keep (N, C, H, W).",
            verdict=Verdict.UNKNOWN if ended else Verdict.GPU,
        )


def _broken(layer: Layer, shape: tuple[int, ...], row: RuleRow) -> tuple[str, object, object] | None:
    """Message, value and limit of the first step that breaks the rule, None if all keep it."""
    first, reshape, second = layer["first_transpose"], layer["reshape"], layer["second_transpose"]
    for order in (first, second):
        if order is not None and order[0] != 0:
            return (
                f"The transpose {list(order)} moves the batch; each step has to leave it alone.",
                order,
                "batch first",
            )
    now = shape if first is None else tuple(shape[axis] for axis in first)
    for step in (now, reshape or now):
        if len(step) == row.values["rank"] and not within(step[1:], row):
            return f"A step has shape {list(step)}; the DLA takes {between(row)} for C, H and W.", step, bounds(row)
    if reshape is None:
        return None
    if second is not None and len(reshape) != row.values["rank"]:
        rank = row.values["rank"]
        return f"The reshape goes through {list(reshape)}, of rank {len(reshape)}; the DLA takes {rank}.", reshape, rank
    if reshape and reshape[0] != now[0]:
        return (
            f"The reshape turns batch {now[0]} into {reshape[0]} ({list(now)} to {list(reshape)}); it has to leave the"
            " batch alone.",
            reshape[0],
            now[0],
        )
    return None


RULE = ShuffleSteps()
