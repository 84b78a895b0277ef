"""A TensorRT release for which no document about the DLA exists.

## What it checks
TensorRT 8.3 on Orin (DRIVE OS 6.0.2 and 6.0.3): nothing is documented, so every layer is `unknown`. TensorRT 9.x
on Orin: there are headers but no guide and no platform release; verdicts follow the headers, and a note says so.

## Why it matters
Rules of other versions may hold or not. A guess would look like an answer.

## Example
A DRIVE Orin with DRIVE OS 6.0.3.

## What to do
Update the platform, or ask the board: IBuilderConfig::canRunOnDLA answers for a single layer.

## Fix safety
No rewrite is applied.

## Source
Rows OP05 and OP06: no document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.finding import Verdict
from orinport.rules.regions import network_finding
from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class UndocumentedRelease(NetworkRule):
    code = "DLA002"
    title = "No document about the DLA exists for this release"
    rows = ("OP05", "OP06")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        version = context.target.stack.tensorrt
        silent, headers = context.rows.get("OP05"), context.rows.get("OP06")
        if silent is not None:
            for layer in layers:
                yield finding(
                    self,
                    layer,
                    silent,
                    f"Nothing is documented about the DLA in TensorRT {version} on Orin.",
                    value=str(version),
                    limit=None,
                    advice="Update the platform, or ask the board: canRunOnDLA answers for a single layer.",
                    verdict=Verdict.UNKNOWN,
                )
        elif headers is not None:
            yield network_finding(
                self,
                (headers,),
                f"TensorRT {version} has headers but no guide on the DLA; verdicts follow the headers.",
                value=str(version),
                limit=None,
                advice="Ask the board: canRunOnDLA answers for a single layer.",
                verdict=None,
            )


RULE = UndocumentedRelease()
