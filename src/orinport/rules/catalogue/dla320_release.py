"""Documents differ on whether this release has a DLA.

## What it checks
TensorRT 10.8 to 10.16. The documentation calls 10.7 the last 10.x release with DLA; headers, parser options and a
build log of later ones show it on Orin. It is a note: orinport believes the JetPack or DRIVE release that is named.

## Why it matters
If the doubt is right, every layer runs on the GPU.

## Example
Any network for jp7.2.

## What to do
Run `orinport doctor` on the board, or trtexec with a DLA core: it says so if there is none.

## Fix safety
No rewrite is applied.

## Source
Conflict CF01 and OP01: TensorRT documentation 11.3 to 11.4.1; NvOnnxParser.h 10.11 to 10.16; builder log 10.16.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.regions import network_finding, on_dla
from orinport.rules.rule import NetworkRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Release(NetworkRule):
    code = "DLA320"
    title = "Documents differ on whether this release has a DLA"
    rows = ("CF01", "OP01")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = context.rows.get("CF01")
        if row is None or not any(on_dla(layer, context) for layer in layers):
            return
        stack = context.target.stack
        yield network_finding(
            self,
            (row,),
            f"{row.text.rstrip('.')}; {stack.title} carries {stack.tensorrt}.",
            value=str(stack.tensorrt),
            limit=None,
            advice="Run trtexec with a DLA core on the board: it says so if there is none.",
            verdict=None,
        )


RULE = Release()
