"""`check_layers`: all rules over all layers, and the verdict of each layer.

Layer rules speak first, each layer meeting only the rules of its kind; then network rules in the order of
their codes, each seeing the verdicts so far. The gravest finding on a layer decides: blocked before gpu
before unknown before dla. Where nothing may fall back to the GPU, a refused layer blocks the network.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.catalogue import rules
from orinport.rules.finding import Finding, Verdict
from orinport.rules.forms import Forms
from orinport.rules.rule import Context, LayerRule, NetworkRule
from orinport.targets.catalogue import rows_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orinport.model.layer import Layer, Tensor
    from orinport.targets.target import Precision, Target

__all__ = ["RuleReport", "check_layers", "selected"]

_GRAVITY = {Verdict.DLA: 0, Verdict.UNKNOWN: 1, Verdict.GPU: 2, Verdict.BLOCKED: 3}


@dataclass(frozen=True, slots=True)
class RuleReport:
    """What the rules say about a network.

    `findings` are the selected ones; `verdicts` and `codes` are by `Layer.index`, and verdicts follow from
    all findings, selected or not.
    """

    findings: tuple[Finding, ...]
    verdicts: Mapping[int, Verdict]
    codes: Mapping[int, tuple[str, ...]]
    """Codes of the selected findings on each layer, sorted."""


def check_layers(
    layers: Sequence[Layer],
    *,
    inputs: Iterable[Tensor],
    outputs: Iterable[Tensor],
    target: Target,
    precision: Precision,
    standalone: bool = False,
    gpu_fallback: bool = True,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> RuleReport:
    """Findings on `layers` (in topological order, as `lower()` gives them) and each layer's verdict.

    `inputs` and `outputs` are the network's. A standalone loadable never falls back, whatever
    `gpu_fallback` says. `select` and `ignore` filter the findings by code prefix and leave the verdicts alone.
    """
    verdicts: dict[int, Verdict] = {}
    context = _context(layers, inputs, outputs, verdicts, target, precision, standalone, gpu_fallback)
    running = [layer for layer in layers if not layer.folds]
    folded = [layer for layer in reversed(layers) if layer.folds]
    index = {layer.name: layer.index for layer in layers}
    findings = _layer_findings(layers, context, verdicts)
    for rule in rules():
        if isinstance(rule, NetworkRule):
            found = list(rule.check(running, context))
            _apply(found, index, context, verdicts)
            findings += found
    _follow_readers(folded, context, verdicts)
    if not context.gpu_fallback:
        findings = [_blocking(finding) for finding in findings]
        verdicts.update({i: Verdict.BLOCKED for i, verdict in verdicts.items() if verdict is Verdict.GPU})
    shown = tuple(finding for finding in findings if selected(finding.code, select, ignore))
    return RuleReport(shown, verdicts, _codes(shown, index))


@cache
def _layer_rules() -> Mapping[LayerKind, tuple[LayerRule, ...]]:
    """The layer rules by kind; those that name no kind stand under every kind."""
    layer_rules = [rule for rule in rules() if isinstance(rule, LayerRule)]
    return {kind: tuple(rule for rule in layer_rules if not rule.kinds or kind in rule.kinds) for kind in LayerKind}


@cache
def _covered() -> frozenset[LayerKind]:
    """The kinds that some rule names."""
    return frozenset(kind for rule in rules() if isinstance(rule, LayerRule) for kind in rule.kinds)


def _context(
    layers: Sequence[Layer],
    inputs: Iterable[Tensor],
    outputs: Iterable[Tensor],
    verdicts: Mapping[int, Verdict],
    target: Target,
    precision: Precision,
    standalone: bool,
    gpu_fallback: bool,
) -> Context:
    consumers: defaultdict[str, list[Layer]] = defaultdict(list)
    producers: dict[str, Layer] = {}
    for layer in layers:
        for tensor in layer.inputs:
            consumers[tensor.name].append(layer)
        for tensor in layer.outputs:
            producers[tensor.name] = layer
    return Context(
        target=target,
        precision=precision,
        standalone=standalone,
        gpu_fallback=gpu_fallback and not standalone,
        rows=rows_for(target, precision),
        producers=producers,
        consumers={name: tuple(readers) for name, readers in consumers.items()},
        inputs=frozenset(tensor.name for tensor in inputs),
        outputs=frozenset(tensor.name for tensor in outputs),
        covered=_covered(),
        verdicts=verdicts,
    )


def _layer_findings(layers: Sequence[Layer], context: Context, verdicts: dict[int, Verdict]) -> list[Finding]:
    by_kind = _layer_rules()
    forms = Forms(context)
    findings: list[Finding] = []
    for layer in layers:
        verdict = Verdict.DLA
        if layer.kind is LayerKind.CONSTANT or not layer.folds:
            for finding in forms.findings(layer, by_kind[layer.kind]):
                findings.append(finding)
                if finding.verdict is not None and _GRAVITY[finding.verdict] > _GRAVITY[verdict]:
                    verdict = finding.verdict
        verdicts[layer.index] = verdict
    return findings


def _apply(
    findings: Iterable[Finding], index: Mapping[str, int], context: Context, verdicts: dict[int, Verdict]
) -> None:
    """Let the findings of one network rule change the verdicts of the layers that they name."""
    for finding in findings:
        if finding.layer and finding.verdict is not None:
            _worsen(verdicts, index[finding.layer], finding.verdict)
            context.memo.clear()


def _follow_readers(folded: Sequence[Layer], context: Context, verdicts: dict[int, Verdict]) -> None:
    """What folds is no layer of its own on the DLA: it goes with the layer that reads it, readers coming first."""
    for layer in folded:
        for tensor in layer.outputs:
            for reader in context.consumers.get(tensor.name, ()):
                _worsen(verdicts, layer.index, verdicts[reader.index])


def _worsen(verdicts: dict[int, Verdict], index: int, verdict: Verdict) -> None:
    if _GRAVITY[verdict] > _GRAVITY[verdicts[index]]:
        verdicts[index] = verdict


def _blocking(finding: Finding) -> Finding:
    return replace(finding, verdict=Verdict.BLOCKED) if finding.verdict is Verdict.GPU else finding


def selected(code: str, select: Sequence[str], ignore: Sequence[str]) -> bool:
    """True if findings with this code are shown: `select` and `ignore` hold prefixes of codes."""
    if select and not code.startswith(tuple(prefix.upper() for prefix in select)):
        return False
    return not code.startswith(tuple(prefix.upper() for prefix in ignore))


def _codes(findings: Iterable[Finding], index: Mapping[str, int]) -> Mapping[int, tuple[str, ...]]:
    codes: defaultdict[int, set[str]] = defaultdict(set)
    for finding in findings:
        if finding.layer:
            codes[index[finding.layer]].add(finding.code)
    return {layer: tuple(sorted(found)) for layer, found in codes.items()}
