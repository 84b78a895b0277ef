"""What rules about the network share: findings without a layer, and the loadables that the verdicts so far give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.partition import group_positions, levels, sources_of
from orinport.rules.finding import Verdict
from orinport.rules.support import finding, holding
from orinport.words import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context, Rule
    from orinport.targets.target import RuleRow

__all__ = ["fewest_loadables", "layer_names", "loadables", "network_finding", "on_dla", "too_large"]


def network_finding(
    rule: Rule,
    rows: Sequence[RuleRow],
    message: str,
    *,
    value: object,
    limit: object,
    advice: str,
    verdict: Verdict | None,
) -> Finding:
    """A finding of `rule` on the network as a whole."""
    return finding(rule, None, rows, message, value=value, limit=limit, advice=advice, verdict=verdict)


def too_large(
    rule: Rule,
    layers: Sequence[Layer],
    context: Context,
    row: RuleRow,
    size: Callable[[Layer], int],
    what: str,
    *,
    advice: str,
) -> Iterator[Finding]:
    """A finding for each loadable whose `size`, in bytes over its layers, reaches the row's `max_bytes`."""
    limit: int = row.values["max_bytes"]
    if sum(map(size, layers)) < limit:
        return
    for group in loadables(layers, context):
        total = sum(map(size, group))
        if total >= limit:
            yield network_finding(
                rule,
                holding(context, rule.rows),
                f"The {what} of the loadable of {layer_names(group)} take {total:,} bytes;"
                f" the DLA takes less than {limit:,}.",
                value=total,
                limit=limit,
                advice=advice,
                verdict=Verdict.UNKNOWN if context.gpu_fallback else Verdict.BLOCKED,
            )


def on_dla(layer: Layer, context: Context) -> bool:
    """True if the verdict on `layer` so far is dla."""
    return context.verdicts[layer.index] is Verdict.DLA


def loadables(layers: Sequence[Layer], context: Context) -> tuple[tuple[Layer, ...], ...]:
    """The runs of DLA layers that become one loadable each, as the verdicts stand.

    Layers of one loadable touch each other and share one batch size, and no way leaves a loadable and comes
    back to it.
    """

    if "loadables" not in context.memo:
        colours = [_colour(layer, context) for layer in layers]
        sources = sources_of(layers)
        groups = [group for group in group_positions(sources, colours) if colours[group[0]] != _GPU]
        context.memo["loadables"] = tuple(tuple([layers[position] for position in group]) for group in groups)
        ranks = set(zip(colours, levels(sources, colours), strict=True))
        context.memo["fewest_loadables"] = sum(colour != _GPU for colour, _ in ranks)
    found: tuple[tuple[Layer, ...], ...] = context.memo["loadables"]
    return found


_GPU = ("gpu", None)


def _colour(layer: Layer, context: Context) -> tuple[str, int | None]:
    if context.verdicts[layer.index] is Verdict.DLA:
        return "dla", layer.outputs[0].batch if layer.outputs else None
    return _GPU


def fewest_loadables(layers: Sequence[Layer], context: Context) -> int:
    """How many loadables there are at least: if layers that share only an input, or nothing, go into one (row OP53)."""
    loadables(layers, context)
    found: int = context.memo["fewest_loadables"]
    return found


def layer_names(layers: Sequence[Layer]) -> str:
    """The first few names of `layers`, and how many more there are."""
    return some([repr(layer.name) for layer in layers])
