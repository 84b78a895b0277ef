"""What advice on speed is, and how a finding is made of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from orinport.predict.prediction import Bound
from orinport.rules.finding import Finding
from orinport.targets.target import Confidence, Precision

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.predict.prediction import LayerPrediction, Prediction

__all__ = ["Advice", "advise", "bound_by_weights"]


class Advice(ABC):
    """Looks at a prediction and says in plain words what costs time and what helps."""

    code: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    threshold: ClassVar[float] = 0.05
    """Share of the total time below which nothing is said."""

    @abstractmethod
    def check(self, prediction: Prediction) -> Iterator[Finding]:
        """Findings on the prediction; none if there is nothing to say."""

    def finding(
        self,
        message: str,
        action: str,
        *,
        value: object,
        limit: object = None,
        layers: Sequence[LayerPrediction] = (),
    ) -> Finding:
        """A finding on the network that names the nodes of `layers`; it changes no verdict."""
        nodes = tuple(dict.fromkeys(node for each in layers for node in each.layer.nodes))
        name = layers[0].layer.name if len(layers) == 1 else ""
        return Finding(
            self.code, name, nodes, message, value, limit, action, None, self.source, Confidence.INFERRED, None
        )


def advise(prediction: Prediction) -> tuple[Finding, ...]:
    """All advice on a prediction, in the order of the codes."""
    from orinport.predict.advice import all_advice

    if not prediction.total_us:
        return ()
    return tuple(finding for advice in all_advice() for finding in advice.check(prediction))


def bound_by_weights(prediction: Prediction) -> list[tuple[LayerPrediction, int]]:
    """Layers of the DLA that wait for weights above all, with how often each reads its weights."""
    return [
        (each, _times_weights_are_read(each, prediction.precision))
        for each in prediction.layers
        if each.device == "dla" and each.bound is not Bound.MAC and each.bytes.weights > each.bytes.moved / 2
    ]


def _times_weights_are_read(each: LayerPrediction, precision: Precision) -> int:
    """How often a layer reads its weights in one inference; 1 where their number is not known."""
    stored = int(each.layer.attributes.get("weight_values") or 0) * (1 if precision is Precision.INT8 else 2)
    return max(1, round(each.bytes.weights / stored)) if stored else 1
