"""Layers that repeat: a rule that had nothing to say about a layer has nothing to say about another of the same form.

The form is the layer's kind, its attributes, and shapes and types of its tensors. A rule that looks at other layers, or
at the network's edges, says so by what it asks of the context, and is asked about each layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context, LayerRule

__all__ = ["Forms"]


class Forms:
    """The rules that have to be asked about the layers of each form."""

    def __init__(self, context: Context) -> None:
        around: Any = _Around()
        self.context = context
        self.alone = replace(
            context, producers=around, consumers=around, inputs=around, outputs=around, verdicts=around, memo=around
        )
        self._speaking: dict[Hashable, tuple[LayerRule, ...]] = {}

    def findings(self, layer: Layer, rules: Iterable[LayerRule]) -> list[Finding]:
        """What `rules` find on `layer`, in their order."""
        form = _form(layer)
        speaking = self._speaking.get(form)
        if speaking is not None:
            return [finding for rule in speaking for finding in rule.check(layer, self.context)]
        found: list[Finding] = []
        asked = []
        for rule in rules:
            alone = self._alone(rule, layer)
            if alone is None or alone:
                asked.append(rule)
                found += rule.check(layer, self.context) if alone is None else alone
        self._speaking[form] = tuple(asked)
        return found

    def _alone(self, rule: LayerRule, layer: Layer) -> list[Finding] | None:
        """What `rule` finds by the layer alone; None if it has to look at others."""
        try:
            return list(rule.check(layer, self.alone))
        except _LooksAroundError:
            return None


def _form(layer: Layer) -> Hashable:
    inputs = layer.inputs
    form: list[Hashable] = [layer.kind, len(inputs), *layer.attributes.items()]
    for tensor in (*inputs, *layer.outputs):
        form += (tensor.shape, tensor.dtype, tensor.constant)
    if len(inputs) > 1:  # the same tensor may be read twice
        form.append(len({tensor.name for tensor in inputs}))
    return tuple(form)


class _LooksAroundError(Exception):
    """A rule asked for what a layer alone does not tell."""


class _Around(Mapping[Any, Any], AbstractSet[Any]):
    """Stands for what the context says about other layers: whoever looks at it raises."""

    def __getitem__(self, key: object) -> NoReturn:
        raise _LooksAroundError

    def __contains__(self, key: object) -> NoReturn:
        raise _LooksAroundError

    def __iter__(self) -> NoReturn:
        raise _LooksAroundError

    def __len__(self) -> NoReturn:
        raise _LooksAroundError
