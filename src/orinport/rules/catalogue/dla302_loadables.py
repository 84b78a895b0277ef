"""The network splits into several loadables.

## What it checks
The number of loadables, that is of runs of DLA layers between layers that are not on the DLA. A core holds 16 from
TensorRT 8.5 on (documents and logs give 4 for 8.4 and 8 before that). The layers of those beyond go to the GPU; up
to there it is a note. Layers that share only an input, or nothing, count as loadables of their own. No document says
whether TensorRT puts them into one; where the limit is passed only because of that, the layers beyond are `unknown`.

## Why it matters
Every loadable has a launch, and every change between DLA and GPU a conversion and a synchronisation. A small CNN
ran half as fast in five loadables as in one.

## Example
A network with a refused activation after each of its 20 blocks.

## What to do
Take away the layers in between that are not on the DLA, the ones between small loadables first.

## Fix safety
No rewrite is applied.

## Source
Rows G09a, G09b, G09c, G10, W03, W04, OP53 and conflict CF02: TensorRT 8.4 and 8.5 Developer Guides, documentation 10.16
to 11.4.1, builder logs ("DLA supports only 8 subgraphs per DLA core"). Measured ratio:
NVIDIA-AI-IOT/jetson_dla_tutorial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.finding import Verdict
from orinport.rules.regions import fewest_loadables, loadables, network_finding
from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding, holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Loadables(NetworkRule):
    code = "DLA302"
    title = "Network splits into several loadables"
    rows = ("G09a", "G09b", "G09c", "G10", "W03", "W04", "CF02", "OP53")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        limits = holding(context, ("G09a", "G09b", "G09c"))
        if not limits:
            return
        row = min(limits, key=lambda limit: limit.values["max"])
        limit = row.values["max"]
        groups = loadables(layers, context)
        if len(groups) < 2:
            return
        fewest = fewest_loadables(layers, context)
        number_text = f"{len(groups)} loadables" if fewest == len(groups) else f"{fewest} to {len(groups)} loadables"
        doubtful = len(groups) > context.rows["CF02"].values["warn_above"]
        yield network_finding(
            self,
            holding(
                context,
                (row.id, "G10", "W03", *(("CF02",) if doubtful else ()), *(("OP53",) if fewest < len(groups) else ())),
            ),
            f"The DLA layers form {number_text}; a DLA core holds {limit}"
            + (", and older documents give 4 or 8." if doubtful else "."),
            value=len(groups),
            limit=limit,
            advice="Take away what lies between them, beside the smallest first.",
            verdict=None,
        )
        certain = fewest > limit
        for number, group in enumerate(groups[limit:], limit + 1):
            for layer in group:
                yield finding(
                    self,
                    layer,
                    holding(context, (row.id, "W04", *(() if certain else ("OP53",)))),
                    f"The layer belongs to loadable {number} of {len(groups)}; a DLA core holds {limit}.",
                    value=number,
                    limit=limit,
                    advice="Take away what lies between the loadables, beside the smallest first.",
                    verdict=Verdict.GPU if certain else Verdict.UNKNOWN,
                )


RULE = Loadables()
