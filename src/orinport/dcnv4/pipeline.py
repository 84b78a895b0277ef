"""What `dcnv4 export` and `dcnv4 convert` do, as functions that return values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx_ir as ir

from orinport.dcnv4.dynamic import dynamic_inputs, load_any, with_batch
from orinport.dcnv4.facts import Facts
from orinport.dcnv4.node import custom_nodes, nodes_of
from orinport.dcnv4.portable import portable_proto, to_plugin
from orinport.errors import OrinportError, first_line
from orinport.model.runtime import open_session

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    from orinport.rewrites.log import VerifyReport

__all__ = ["Conversion", "ExportOptions", "Exported", "convert_network", "export_network"]

Form = Literal["plugin", "portable"]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to export. `batch` None is dynamic, `size` None the model's own."""

    name: str
    checkpoint: Path | None = None
    seed: int = 0
    size: int | None = None
    batch: int | None = 1
    form: Form = "plugin"
    fused: bool = False
    opset: int = 17


@dataclass(frozen=True, slots=True)
class Exported:
    """The file to write, how many operators it has, and how far ONNX Runtime is from PyTorch on one input."""

    proto: onnx.ModelProto
    facts: Facts
    operators: int
    fused: int
    refused: tuple[tuple[str, str], ...]
    error: float
    """Relative L2 difference of the logits, of the file as it will be written."""


def export_network(options: ExportOptions) -> Exported:
    """Build the PyTorch network, export it in the form asked for, and run both. Raises OrinportError."""
    import torch

    from orinport.dcnv4.export import export_module
    from orinport.dcnv4.flash_internimage import flash_internimage

    network = flash_internimage(options.name, checkpoint=options.checkpoint, seed=options.seed)
    size = options.size or network.variant.size
    images = np.random.default_rng(options.seed).standard_normal((options.batch or 2, 3, size, size), np.float32)
    inputs = (torch.from_numpy(images),)
    model = export_module(network, inputs, opset=options.opset, dynamic_batch=options.batch is None)
    operators, fused = len(nodes_of(model)), 0
    refused: tuple[tuple[str, str], ...] = ()
    if options.fused:
        model, fused, refused = _fuse(model)
    checkpoint = options.checkpoint
    facts = (
        Facts(options.name, size, seed=options.seed)
        if checkpoint is None
        else Facts(options.name, size, checkpoint=checkpoint.name)
    )
    model.metadata_props.update(facts.metadata())
    model.producer_name, model.producer_version = "orinport", None
    plain: onnx.ModelProto = ir.to_proto(model)
    portable = portable_proto(plain)
    with torch.no_grad():
        expected = network(*inputs).numpy()
    error = _distance(_run(portable, images), expected)
    return Exported(portable if options.form == "portable" else plain, facts, operators, fused, refused, error)


def _fuse(model: ir.Model) -> tuple[ir.Model, int, tuple[tuple[str, str], ...]]:
    from orinport.dcnv4.projections import fuse_projections

    fusion = fuse_projections(ir.to_proto(model))
    if not fusion.proved:
        raise OrinportError("A fusion changed what the network computes; that is a defect of orinport.")
    refused = tuple((entry.node, entry.reason) for entry in fusion.log.refused)
    return fusion.model.ir, len(fusion.log.applied), refused


def _run(proto: onnx.ModelProto, images: NDArray[np.float32]) -> NDArray[Any]:
    try:
        session = open_session(proto.SerializeToString())
        output: NDArray[Any] = session.run(None, {session.get_inputs()[0].name: images})[0]
    except Exception as error:  # onnxruntime has no class of its own for these
        raise OrinportError(
            f"ONNX Runtime does not run the network: {first_line(error)}", "A lower --opset may do."
        ) from error
    return output


def _distance(found: NDArray[Any], expected: NDArray[Any]) -> float:
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    wanted = expected.astype(np.float64)
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@dataclass(frozen=True, slots=True)
class Conversion:
    """A network in the other form, how many operators changed, and the comparison with the original."""

    proto: onnx.ModelProto
    operators: int
    proofs: tuple[VerifyReport, ...]


def convert_network(source: Any, to: Form) -> Conversion:
    """Every DCNv4 operator of a network as plugin node or in portable form. Raises OrinportError.

    FlashDeformAttn nodes become portable too, but are not found again.
    """
    from orinport.model.load import load
    from orinport.rewrites.proof import compare_models

    dims = dynamic_inputs(source)
    model = load_any(source)
    if to == "portable":
        count = len(custom_nodes(model.ir))
        proto = portable_proto(ir.to_proto(model.ir)) if count else ir.to_proto(model.ir)
    else:
        count = to_plugin(model.ir)
        proto = ir.to_proto(model.ir)
    shapes = [with_batch(dims, batch) or None for batch in ((1, 5) if dims else (1,))] if count else []
    proofs = (compare_models(load(source, shapes=each), load(proto, shapes=each), cases=1) for each in shapes)
    return Conversion(proto, count, tuple(proofs))
