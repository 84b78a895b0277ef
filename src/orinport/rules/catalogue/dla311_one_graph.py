"""A standalone network that is more than one DLA graph.

## What it checks
In a standalone build, whether the DLA layers form one loadable. Where they are several only because parts share just
an input, or nothing, the whole is `unknown`: no document says whether those go into one.

## Why it matters
A standalone loadable is one graph; a second one, even if all its layers are taken, ends the build.

## Example
A network whose parts have different batch sizes.

## What to do
Build the parts separately, or bring them to one batch size.

## Fix safety
No rewrite is applied.

## Source
Rows J05 and OP53: NVIDIA/TensorRT issue 4165, "Safety certified DLA should only have one graph for the whole network."
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.finding import Verdict
from orinport.rules.regions import fewest_loadables, layer_names, loadables, network_finding
from orinport.rules.rule import NetworkRule
from orinport.rules.support import holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class OneGraph(NetworkRule):
    code = "DLA311"
    title = "Standalone network is more than one graph"
    rows = ("J05", "OP53")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = context.rows.get("J05")
        if row is None or not context.standalone:
            return
        groups = loadables(layers, context)
        if len(groups) <= row.values["max"]:
            return
        certain = fewest_loadables(layers, context) > row.values["max"]
        yield network_finding(
            self,
            (row,) if certain else (row, *holding(context, ("OP53",))),
            f"The DLA layers form {len(groups)} graphs, and a standalone loadable is one; the second starts at"
            f" {layer_names(groups[1][:1])}.",
            value=len(groups),
            limit=row.values["max"],
            advice="Build the parts separately, or make them one.",
            verdict=Verdict.BLOCKED if certain else Verdict.UNKNOWN,
        )


RULE = OneGraph()
