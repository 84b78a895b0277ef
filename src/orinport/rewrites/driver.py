"""The driver: applies rewrites to a fixpoint, and proves every application before it enters the network.

One application goes like this. The rewrite matches and builds its nodes beside the network. What is replaced
and what replaces it are cut out as two small models. The judge says of both which nodes the DLA would not take;
if the second is not better, the application is declined. Both run in ONNX Runtime on the same inputs; if they
differ, it is dropped and logged as a defect of ours. Only then the graph changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx_ir as ir

from orinport.errors import OrinportError
from orinport.model.model import Model
from orinport.rewrites.builder import Builder, Names, RefusedError
from orinport.rewrites.context import MOVERS, CostLimit, RewriteContext, label
from orinport.rewrites.cost import macs, takes_sums
from orinport.rewrites.log import Applied, Proof, Refused, RewriteLog, RolledBack
from orinport.rewrites.opset import RAISED, RaiseOpset, raise_refusal
from orinport.rewrites.piece import Digests, Piece, cut, in_order, run_time_inputs
from orinport.rewrites.proof import prove
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.rewrites.runner import NotProvableError
from orinport.rewrites.valid import require_valid
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.targets.target import Target

__all__ = ["Clock", "Judge", "all_rewrites", "documentation", "find_rewrite", "rewrite_model", "stated_error"]

Judge = Callable[[ir.Model], Collection[str]]
"""Says which nodes of a model the DLA does not take, by display name (see `label`)."""

Clock = Callable[[ir.Model], float]
"""Predicts how long the DLA takes for a model, in us."""

_MAX_ROUNDS = 500


def all_rewrites() -> tuple[Rewrite, ...]:
    """Every rewrite of the catalogue, by name: one instance `REWRITE` a module."""
    package = import_module("orinport.rewrites.catalogue")
    found = [
        import_module(f"{package.__name__}.{module.name}").REWRITE
        for module in iter_modules(package.__path__)
        if not module.name.startswith("_")
    ]
    return tuple(sorted(found, key=lambda rewrite: rewrite.name))


def find_rewrite(name: str) -> Rewrite:
    """The rewrite of this name; OrinportError if there is none."""
    for rewrite in all_rewrites():
        if rewrite.name == name:
            return rewrite
    raise OrinportError(f"There is no rewrite named {name!r}.", "orinport rewrite --list shows them all.")


def stated_error(applied: Iterable[tuple[str, Safety]]) -> float:
    """The errors that applied rewrites (name, safety) state as their own, added up.

    Relative to an output's largest magnitude. Raises OrinportError for a name that is not in the catalogue.
    """
    return sum(find_rewrite(name).error for name, safety in applied if safety is Safety.TOLERANCE)


def documentation(rewrite: Rewrite) -> str:
    """The rewrite's page: the docstring of its module. The first line shows what becomes of what."""
    return (import_module(type(rewrite).__module__).__doc__ or "").strip()


def rewrite_model(
    model: Model,
    *,
    target: Target | None = None,
    precision: Precision = Precision.FP16,
    judge: Judge | None = None,
    clock: Clock | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    consent: Collection[Safety] = (Safety.EXACT,),
    cost: CostLimit | None = None,
    seed: int = 0,
    rewrites: Sequence[Rewrite] | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[Model, RewriteLog]:
    """Rewrite a copy of `model` until nothing more applies; gives the copy and the log.

    With a `judge` a rewrite is applied only where it takes work to the DLA or leaves less of it; without
    one, wherever it matches. `select` and `ignore` are prefixes of rewrite names; `consent` says which safety
    classes may be applied. Rewrites on request apply only where `select` names them; those for speed need a `clock`
    that says what is faster, or to be selected. `rewrites` replaces the catalogue.
    """
    from orinport.model.save import copy_model

    chosen = [
        rewrite
        for rewrite in (all_rewrites() if rewrites is None else rewrites)
        if (
            rewrite.name.startswith(tuple(select))
            if select
            else rewrites is not None or not (rewrite.on_request or (rewrite.for_speed and clock is None))
        )
        and not (ignore and rewrite.name.startswith(tuple(ignore)))
    ]
    copy = copy_model(model)
    driver = _Driver(copy.ir, chosen, judge, clock, seed, progress, target, precision, consent, cost)
    driver.run()
    if driver.log.applied:
        require_valid(copy.ir, model.ir)
    return copy, driver.log


class _Score(NamedTuple):
    """How far a piece is from the DLA; less is better, the first difference decides."""

    off_work: int
    off_movers: int
    nodes: int


class _Driver:
    def __init__(
        self,
        model: ir.Model,
        rewrites: Sequence[Rewrite],
        judge: Judge | None,
        clock: Clock | None,
        seed: int,
        progress: Callable[[str], None] | None,
        target: Target | None,
        precision: Precision,
        consent: Collection[Safety],
        cost: CostLimit | None,
    ) -> None:
        self.model = model
        self.graph = model.graph
        self.log = RewriteLog()
        self.context = RewriteContext(model, target=target, precision=precision, consent=consent, cost=cost)
        self._judge = judge
        self._clock = clock
        self._seed = seed
        self._progress = progress
        self._names = Names(model)
        self._shared: dict[tuple[Any, ...], ir.Value] = {}
        self._digests = Digests()
        self._proofs: dict[tuple[bytes, bytes, float, bool], Proof] = {}
        self._verdicts: dict[bytes, frozenset[str]] = {}
        self._times: dict[bytes, float] = {}
        self._settled: dict[tuple[Any, ...], str] = {}
        self._declined = ""
        self._second_best: set[tuple[Any, ...]] = set()
        self._takes_second_best = False
        self._refusals: dict[tuple[str, str], str] = {}
        self._off: frozenset[str] | None = None
        self._opset_refusal: Refused | None = None
        self._by_op: dict[str, list[Rewrite]] = {}
        for rewrite in rewrites:
            for op_type in rewrite.op_types:
                self._by_op.setdefault(op_type, []).append(rewrite)

    def run(self) -> None:
        """Rounds over all nodes until one changes nothing."""
        self._raise_opset()
        while self.log.rounds < _MAX_ROUNDS:
            self.log.rounds += 1
            self._refusals = {}
            self._off = None if self._judge is None else frozenset(self._judge(self.model))
            if self._round():
                self._takes_second_best = False
                self.graph.sort()
                continue
            if self._takes_second_best or not self._second_best:
                break
            self._takes_second_best = True  # where nothing takes all of a node to the DLA
        else:
            raise RuntimeError(f"rewriting did not come to an end in {_MAX_ROUNDS} rounds: {self.log.counts()}")
        self.log.refused = [Refused(name, node, reason) for (name, node), reason in self._refusals.items()]
        if self._opset_refusal is not None:
            self.log.refused.append(self._opset_refusal)

    def _raise_opset(self) -> None:
        """To opset 13, if a Softmax that the DLA does not take could then become a layer of it."""
        old = self.context.opset
        target = self.context.target
        kinds = {name for name in ("LogSoftmax", "Softmax") if self._by_op.get(name)}
        if old >= RAISED or not kinds or (target is not None and target.stack.opset < RAISED):
            return
        off = None if self._judge is None else frozenset(self._judge(self.model))
        if not any(node.op_type in kinds and (off is None or label(node) in off) for node in self.graph):
            return
        rewrite = RaiseOpset()
        refusal = raise_refusal(self.context)
        steps = [] if refusal else [(node, rewrite.match(node, self.context)) for node in self.graph]
        steps = [(node, found) for node, found in steps if found is not None and node.op_type in rewrite.op_types]
        refusal = refusal or next((found for _, found in steps if isinstance(found, Refusal)), None)
        if refusal is not None:
            self._opset_refusal = Refused(rewrite.name, f"opset {old}", refusal.reason)
            return
        self._write_again(rewrite, [(node, found) for node, found in steps if isinstance(found, Match)])

    def _write_again(self, rewrite: RaiseOpset, steps: Sequence[tuple[ir.Node, Match]]) -> None:
        """Every node of `steps` in the form of the raised opset, proved one by one, or none of them."""
        builders: list[Builder] = []
        ready = []
        for node, match in steps:
            inputs = run_time_inputs([node], self.context)
            try:
                before = cut([node], match.outputs, inputs, self.context, self._digests)
                self.context.assumed_opset = RAISED
                builders.append(Builder(self.context, match, rewrite, self._names, self._shared))
                results = tuple(rewrite.apply(match, builders[-1]))
                self._require_fit(rewrite, match, results, builders[-1])
                after = cut(builders[-1].nodes, results, inputs, self.context, self._digests)
                proof = self._prove(rewrite, before, after)
                problem = "" if proof.equal else proof.detail
            except (RefusedError, NotProvableError) as error:
                problem = str(error)
            finally:
                self.context.assumed_opset = None
            if problem:
                self._opset_refusal = Refused(rewrite.name, label(node), problem)
                for builder in builders:
                    builder.discard()
                return
            ready.append((node, match, builders[-1], results, proof))
        moved: dict[ir.Value, ir.Value] = {}
        for node, match, builder, made_values, proof in ready:
            results = tuple(moved.get(value, value) for value in made_values)
            self._commit(node, match, [node], builder.nodes, results)
            moved |= dict(zip(match.outputs, results, strict=True))
            if len(builder.nodes) == 1 and node.name and node.name not in self._names.repeated:
                builder.nodes[0].name = node.name
            made = tuple(label(new) for new in builder.nodes)
            self.log.applied.append(Applied(rewrite.name, rewrite.safety, (label(node),), made, proof))
        self.graph.opset_imports[""] = RAISED
        self.graph.sort()

    def _round(self) -> bool:
        applied = False
        for node in list(self.graph):
            if node.graph is None:
                continue
            key = node.op_type if self.context.standard(node) else f"{node.domain}::{node.op_type}"
            for rewrite in self._by_op.get(key, ()):
                if self._try(rewrite, node):
                    applied = True
                    break
        return applied

    def _try(self, rewrite: Rewrite, node: ir.Node) -> bool:
        """Match, build, judge, prove and apply; False if any of it says no."""
        try:
            found = rewrite.match(node, self.context)
        except RefusedError as refusal:
            found = Refusal(str(refusal))
        except Exception as error:
            self._fail(rewrite, (node,), error)
            return False
        if found is None:
            return False
        if isinstance(found, Refusal):
            self._refuse(rewrite, node, found.reason)
            return False
        if rewrite.safety not in self.context.consent:
            kind = rewrite.safety.value
            self._refuse(rewrite, node, f"changes results ({kind}), and nobody consented to that: --allow {kind} does")
            return False
        off = () if self._off is None else tuple(label(each) in self._off for each in found.nodes)
        key = (rewrite.name, found.nodes, found.outputs, off)
        if key in self._settled and not (self._takes_second_best and key in self._second_best):
            if self._settled[key]:
                self._refuse(rewrite, node, self._settled[key])
            return False
        self._declined = ""
        builder = Builder(self.context, found, rewrite, self._names, self._shared)
        try:
            results = tuple(rewrite.apply(found, builder))
            applied = self._consider(rewrite, node, found, builder, results, key)
        except RefusedError as refusal:
            self._refuse(rewrite, node, str(refusal))
            applied = False
        except NotProvableError as refusal:
            self._refuse(rewrite, node, f"cannot be proved: {refusal}")
            applied = False
        except Exception as error:
            self._fail(rewrite, found.nodes, error)
            applied = False
        if not applied:
            builder.discard()
            if node.graph is not None and (rewrite.name, label(node)) not in self._refusals:
                self._settled[key] = self._declined
                if self._declined:
                    self._refuse(rewrite, node, self._declined)
        return applied

    def _consider(
        self,
        rewrite: Rewrite,
        node: ir.Node,
        match: Match,
        builder: Builder,
        results: tuple[ir.Value, ...],
        key: tuple[Any, ...],
    ) -> bool:
        old_nodes = in_order(match.nodes)
        self._require_fit(rewrite, match, results, builder)
        new_nodes = _needed(builder.nodes, results)
        removed = self._removed(old_nodes, match.outputs)
        self._require_affordable(old_nodes, new_nodes)
        entering = [run_time_inputs(nodes, self.context) for nodes in (old_nodes, new_nodes)]
        inputs = list(dict.fromkeys([*entering[0], *entering[1], *self._passed_on(results, new_nodes)]))
        before = cut(old_nodes, match.outputs, inputs, self.context, self._digests)
        after = cut(new_nodes, results, inputs, self.context, self._digests)
        if not self._better(rewrite, old_nodes, removed, before, new_nodes, after, key):
            return False
        proof = self._prove(rewrite, before, after)
        replaced = tuple(label(old) for old in match.nodes)
        if not proof.equal:
            self.log.rolled_back.append(RolledBack(rewrite.name, replaced, proof.detail))
            return False
        self._commit(node, match, removed, new_nodes, results)
        self.log.applied.append(
            Applied(rewrite.name, rewrite.safety, replaced, tuple(label(made) for made in new_nodes), proof)
        )
        if self._progress is not None:
            self._progress(f"{rewrite.name}: {replaced[0]}")
        return True

    def _passed_on(self, results: Sequence[ir.Value], new_nodes: Sequence[ir.Node]) -> list[ir.Value]:
        """Results that the replacement does not make but only hands on."""
        made = {value for node in new_nodes for value in node.outputs}
        return [value for value in results if value not in made and not self.context.is_constant(value)]

    def _require_fit(self, rewrite: Rewrite, match: Match, results: tuple[ir.Value, ...], builder: Builder) -> None:
        """The replacement gives what was matched: as many values, of the same shapes and types."""
        assert len(results) == len(match.outputs), f"{rewrite.name} returned {len(results)} values"
        made = {value for node in builder.nodes for value in node.outputs}
        for old, new in zip(match.outputs, results, strict=True):
            want, have = self.context.shape(old), self.context.shape(new)
            if want is None:
                raise RefusedError(f"the shape of {old.name!r} is not known")
            assert want == have, f"{rewrite.name} makes shape {have} of {want}"
            assert self.context.dtype(old) == self.context.dtype(new), f"{rewrite.name} changes the type"
            if new in made or not old.is_graph_output():
                continue
            producer = new.producer()
            if producer is None or producer.graph is not self.graph or new.is_graph_output():
                raise RefusedError("it would join an output of the network to an input or to another output")
        outputs = [new for old, new in zip(match.outputs, results, strict=True) if old.is_graph_output()]
        if len(set(outputs)) != len(outputs):
            raise RefusedError("it would join two outputs of the network")
        if len(match.outputs) > 1 and self._reaches(match, builder):
            raise RefusedError("what it reads depends on what it replaces")

    def _reaches(self, match: Match, builder: Builder) -> bool:
        """Whether an input of the replacement is computed from an output that is replaced: each node is walked once."""
        outputs = set(match.outputs)
        stack: list[Sequence[ir.Value | None]] = [run_time_inputs(builder.nodes, self.context)]
        seen: set[ir.Node] = set()
        while stack:
            for value in stack.pop():
                if value is None:
                    continue
                if value in outputs:
                    return True
                producer = value.producer()
                if producer is not None and producer not in seen:
                    seen.add(producer)
                    stack.append(producer.inputs)
        return False

    def _removed(self, nodes: Sequence[ir.Node], outputs: Sequence[ir.Value]) -> list[ir.Node]:
        """Those of `nodes` that nothing else reads once `outputs` come from elsewhere."""
        gone: set[ir.Node] = set()
        for node in reversed(nodes):
            free = all(
                value in outputs or (not value.is_graph_output() and all(use.node in gone for use in value.uses()))
                for value in node.outputs
            )
            if free:
                gone.add(node)
        return [node for node in nodes if node in gone]

    def _require_affordable(self, old: Sequence[ir.Node], new: Sequence[ir.Node]) -> None:
        cost = self.context.cost
        was, becomes = sum(map(macs, old)), sum(map(macs, new))
        if becomes > max(cost.macs, cost.macs_factor * was):
            raise RefusedError(
                f"it would take {becomes} multiply-accumulates in place of {was} operations, past the cost limit"
            )

    def _better(
        self,
        rewrite: Rewrite,
        old: Sequence[ir.Node],
        removed: Sequence[ir.Node],
        before: Piece,
        new: Sequence[ir.Node],
        after: Piece,
        key: tuple[Any, ...],
    ) -> bool:
        if self._judge is None or self._off is None:
            return True
        off = {node for position, node in enumerate(old) if f"n{position}" in self._verdict(before)}
        off |= {node for node in old if label(node) in self._off}
        leaving = [node for node in removed if node in off]
        was = _score(leaving, len(removed))
        later = [node for position, node in enumerate(new) if f"n{position}" in self._verdict(after)]
        becomes = _score(later, len(new))
        if rewrite.for_speed and becomes[:2] == was[:2]:
            gain = self.context.figure("speed", "gain")
            return self._clock is not None and self._time(after) < (1.0 - gain) * self._time(before)
        if becomes < was:
            return True
        if not rewrite.for_speed and takes_sums(leaving, later):
            self._second_best.add(key)
            if self._takes_second_best:
                return True
        if was.off_work and not rewrite.for_speed:
            kinds = ", ".join(sorted({node.op_type for node in later}))
            self._declined = f"{len(later)} of {len(new)} nodes in its place would be off the DLA too: {kinds}"
        return False

    def _time(self, piece: Piece) -> float:
        if piece.digest not in self._times:
            assert self._clock is not None
            self._times[piece.digest] = self._clock(piece.model)
        return self._times[piece.digest]

    def _verdict(self, piece: Piece) -> frozenset[str]:
        if piece.digest not in self._verdicts:
            assert self._judge is not None
            self._verdicts[piece.digest] = frozenset(self._judge(piece.model))
        return self._verdicts[piece.digest]

    def _prove(self, rewrite: Rewrite, before: Piece, after: Piece) -> Proof:
        key = (before.digest, after.digest, rewrite.error, rewrite.finite)
        known = self._proofs.get(key)
        if known is not None:
            return Proof(known.cases, known.max_error, known.tolerance, known.equal, known.engine, True, known.detail)
        proof = prove(before, after, seed=self._seed, bound=rewrite.error, finite=rewrite.finite)
        self._proofs[key] = proof
        return proof

    def _commit(
        self,
        anchor: ir.Node,
        match: Match,
        removed: Sequence[ir.Node],
        new_nodes: Sequence[ir.Node],
        results: tuple[ir.Value, ...],
    ) -> None:
        for value in dict.fromkeys(value for node in new_nodes for value in (*node.inputs, *results)):
            self._register(value)
        self.graph.insert_before(anchor, new_nodes)
        made = {value for node in new_nodes for value in node.outputs}
        for old, new in zip(match.outputs, results, strict=True):
            name = old.name
            shape, kind = old.shape, old.type
            was_output = old.is_graph_output()
            old.replace_all_uses_with(new, replace_graph_outputs=True)
            if new in made or was_output:
                old.name = self._names.unique(f"{name}_replaced")
                new.name = name
            if new in made:
                new.shape, new.type = shape, kind
        self._remove(removed)
        self.context.changes += 1

    def _register(self, value: ir.Value | None) -> None:
        if value is None or value.producer() is not None or value.const_value is None or value.is_graph_input():
            return
        if not value.is_initializer():
            self.graph.register_initializer(value)

    def _remove(self, nodes: Sequence[ir.Node]) -> None:
        """Take nodes out, and with them constants and nodes that nothing reads any more."""
        stack = list(reversed(nodes))
        while stack:
            node = stack.pop(0)
            if node.graph is not self.graph or any(value.uses() or value.is_graph_output() for value in node.outputs):
                continue
            inputs = [value for value in node.inputs if value is not None]
            self.graph.remove(node, safe=True)
            for value in inputs:
                if value.uses() or value.is_graph_output():
                    continue
                if value.is_initializer() and not value.is_graph_input():
                    self.graph.initializers.pop(value.name or "")
                    self._digests.forget(value.const_value)
                producer = value.producer()
                if producer is not None:
                    stack.append(producer)

    def _fail(self, rewrite: Rewrite, nodes: Sequence[ir.Node], error: Exception) -> None:
        """A rewrite that raises is as much a defect of ours as one that computes something else."""
        if os.environ.get("ORINPORT_DEBUG"):
            raise error
        failure = RolledBack(rewrite.name, tuple(label(node) for node in nodes), f"{type(error).__name__}: {error}")
        if failure not in self.log.rolled_back:
            self.log.rolled_back.append(failure)

    def _refuse(self, rewrite: Rewrite, node: ir.Node, reason: str) -> None:
        if self._off is None or label(node) in self._off:
            self._refusals[rewrite.name, label(node)] = reason


def _score(off: Sequence[ir.Node], nodes: int) -> _Score:
    movers = sum(node.op_type in MOVERS for node in off)
    return _Score(len(off) - movers, movers, nodes)


def _needed(nodes: Sequence[ir.Node], results: Sequence[ir.Value]) -> list[ir.Node]:
    """Those of the built nodes that the results come from; what a rewrite built in vain is dropped."""
    wanted = set(results)
    kept: list[ir.Node] = []
    for node in reversed(nodes):
        if any(value in wanted for value in node.outputs):
            kept.append(node)
            wanted.update(value for value in node.inputs if value is not None)
        else:
            node.resize_inputs(0)
    return kept[::-1]
