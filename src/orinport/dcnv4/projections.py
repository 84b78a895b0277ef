"""Fuse the projections of every DCNv4 operator of a network, or take the fused operators apart, with proof.

A network with a dynamic batch is rewritten at two batches, where every application is proved by itself. What differs
between the results depends on the batch and is made dynamic again; then networks before and after are compared as a
whole at other batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from orinport.dcnv4.dynamic import BATCHES, dynamic_again, dynamic_inputs, with_batch
from orinport.dcnv4.node import FUSED, PLAIN, nodes_of
from orinport.model.load import load
from orinport.rewrites.catalogue.fuse_dcnv4_projections import FuseDCNv4Projections
from orinport.rewrites.catalogue.split_dcnv4_projections import SplitDCNv4Projections
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.proof import compare_models
from orinport.rewrites.rewrite import Rewrite

if TYPE_CHECKING:
    from orinport.model.model import Model
    from orinport.rewrites.log import RewriteLog, VerifyReport

__all__ = ["Fusion", "fuse_projections"]

_PROVED_BATCHES = (1, 5)


@dataclass(frozen=True, slots=True)
class Fusion:
    """The rewritten network, the log of its applications, and the comparisons of the whole."""

    model: Model
    log: RewriteLog
    proofs: tuple[VerifyReport, ...]
    operators: int
    """DCNv4 operators of the kind that is rewritten, before."""

    @property
    def proved(self) -> bool:
        """Nothing was rolled back, and the networks agree."""
        return not self.log.rolled_back and all(proof.equal for proof in self.proofs)


def fuse_projections(source: Any, *, reverse: bool = False, seed: int = 0) -> Fusion:
    """Fuse value and offset projections wherever that is sound; `reverse` takes fused operators apart.

    `source` is anything that `orinport.model.load` reads; it is not changed. Raises OrinportError if it cannot be
    read, or if something in it depends on the batch in a way that cannot be kept.
    """
    rewrite: Rewrite = SplitDCNv4Projections() if reverse else FuseDCNv4Projections()
    kind = FUSED if reverse else PLAIN
    dims = dynamic_inputs(source)
    models = [load(source, shapes=with_batch(dims, batch) or None) for batch in (BATCHES if dims else BATCHES[:1])]
    operators = sum(node.op_type == kind for node in nodes_of(models[0].ir))
    done = [rewrite_model(model, rewrites=[rewrite], seed=seed) for model in models]
    log = done[0][1]
    if not dims:
        result = done[0][0]
        proofs = (compare_models(models[0], result, cases=2, seed=seed),) if log.applied else ()
        return Fusion(result, log, proofs, operators)
    result = dynamic_again(done[0][0], done[1][0], dims)
    if not log.applied:
        return Fusion(result, log, (), operators)
    proto = ir.to_proto(result.ir)
    shapes = [with_batch(dims, batch) for batch in _PROVED_BATCHES]
    proved = (compare_models(load(source, shapes=s), load(proto, shapes=s), cases=1, seed=seed) for s in shapes)
    return Fusion(result, log, tuple(proved), operators)
