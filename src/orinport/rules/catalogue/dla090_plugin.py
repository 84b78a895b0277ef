"""An operator that only a plugin can run.

## What it checks
Whether a layer is a plugin. Plugins run on the GPU; a standalone DLA loadable cannot hold one at all.

## Why it matters
A plugin in the middle of a network cuts it into two loadables, with a conversion and a synchronisation on either
side.

## Example
A DCNv4 or NMS plugin between two convolutions.

## What to do
Write the operator with standard operators that the DLA takes, or move it to the network's end, so that one
loadable stays in front of it. DCNv4 comes both ways: as a plugin of orinport's own, and written with GridSample.

## Fix safety
No rewrite is applied.

## Source
Rows G20a (NvInfer.h 8.4.1 to 11.1: no plugin registry for standalone loadables) and G20b (builder logs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


_DCNV4 = (
    "Either load the plugin on the board, which is fast (orinport dcnv4 plugin build), or write it with standard "
    "operators, which need no plugin but store and read a sample for every tap (orinport dcnv4 convert --to portable); "
    "both run on the GPU, and orinport predict tells the cost of either."
)
_ADVICE = {"DCNv4_Plugin": _DCNV4, "DCNv4FuseOffset_Plugin": _DCNV4}
"""Operators for which orinport has both ways."""


class Plugin(LayerRule):
    code = "DLA090"
    title = "Plugins run on the GPU"
    rows = ("G20a", "G20b")
    kinds = (LayerKind.PLUGIN,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows["G20a"] if context.standalone else context.rows["G20b"]
        where = "a standalone DLA loadable holds no plugin" if context.standalone else "plugins run on the GPU"
        yield finding(
            self,
            layer,
            row,
            f"The operator {layer['op_type']!r} needs a plugin; {where}.",
            value=layer["op_type"],
            limit=None,
            advice=_ADVICE.get(
                layer["op_type"], "Write it with operators that the DLA takes, or move it to the end of the network."
            ),
            verdict=Verdict.BLOCKED if context.standalone else Verdict.GPU,
        )


RULE = Plugin()
