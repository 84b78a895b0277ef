"""`orinport dcnv4 export|fuse|convert`, and where `bench` and `plugin` are mounted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from orinport.cli.options import ModelPath, require_free, require_seed
from orinport.errors import MissingExtraError, OrinportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.log import VerifyReport

__all__ = ["app", "convert", "export", "fuse"]

app = App(
    name="dcnv4",
    help="DCNv4 networks: export them to ONNX, fuse and convert their operators, build and measure the kernels.",
    help_format="markdown",
)
app.command("orinport.cli.dcnv4_cuda:bench", name="bench", help="Measure the CUDA kernels on this machine's GPU.")
app.command(
    "orinport.cli.dcnv4_plugin:app", name="plugin", help="Build and check the TensorRT plugins for the operators."
)

Output = Annotated[Path | None, Parameter(name=["--output", "-o"], help="The ONNX file to write.")]
Form = Literal["plugin", "portable"]
_FORM_HELP = (
    "plugin: nodes custom_op::DCNv4_Plugin, which need a TensorRT plugin; "
    "portable: standard operators, which run everywhere."
)
_TOLERANCE = 1e-4
"""Of logits in float32, relative: 30 layers of sampling, in other orders of summation."""


@app.command
def export(
    model: Annotated[str, Parameter(help="flash-internimage-t, -s, -b or -l; the letter will do.")],
    /,
    *,
    output: Output = None,
    checkpoint: Annotated[
        Path | None, Parameter(name="--checkpoint", help="Published or own weights (.pth); only tensors are loaded.")
    ] = None,
    seed: Annotated[
        int, Parameter(name="--seed", help="Of the random weights that are used without a checkpoint.")
    ] = 0,
    size: Annotated[
        int | None, Parameter(name="--size", help="Height and width of the image; by default the model's.")
    ] = None,
    batch: Annotated[str, Parameter(name="--batch", help="A number, or 'dynamic'.")] = "1",
    form: Annotated[Form, Parameter(name="--form", help=_FORM_HELP)] = "plugin",
    fused: Annotated[
        bool, Parameter(name="--fused", negative="", help="Fuse value and offset projections (model T only).")
    ] = False,
    opset: Annotated[int, Parameter(name="--opset", help="ONNX operator set, 17 or newer.")] = 17,
    force: Annotated[bool, Parameter(name="--force", negative="", help="Replace an existing file.")] = False,
) -> int:
    """Export a FlashInternImage classification network, and compare the file with PyTorch before it is written.

    Exit status: 0 written, 1 if the network in ONNX Runtime differs from PyTorch (nothing is written then), or if
    not all operators could be fused; 2 if the options are unusable.
    """
    import sys

    from orinport.model.save import save_proto

    count = _batch(batch)
    require_seed(seed)
    if size is not None and size < 32:
        raise OrinportError(f"Size {size} is too small.", "The network divides the image by 32.")
    try:
        from orinport.dcnv4.flash_internimage import variant_name
        from orinport.dcnv4.pipeline import ExportOptions, export_network
    except ImportError as error:
        raise MissingExtraError("torch", "torch", "dcnv4 export") from error
    name = variant_name(model)
    target = _target(output, f"{name}.onnx", force)
    options = ExportOptions(name, checkpoint, seed, size, count, form, fused, opset)
    result = export_network(options)
    lines = [f"{name}, {result.facts.weights}", f"{result.operators} DCNv4 operators, {form} form, opset {opset}"]
    if fused:
        lines.append(f"fused {result.fused} of {result.operators}{_reasons(result.refused)}")
    lines.append(f"largest relative difference to PyTorch: {result.error:.2g} (allowed {_TOLERANCE:g})")
    equal = result.error <= _TOLERANCE
    if equal:
        save_proto(result.proto, target)
        lines.append(f"written to {target}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if equal and (not fused or result.fused == result.operators) else 1


@app.command
def fuse(
    model: ModelPath,
    /,
    *,
    output: Output = None,
    reverse: Annotated[
        bool, Parameter(name="--reverse", negative="", help="Take fused operators apart instead.")
    ] = False,
    seed: Annotated[int, Parameter(name="--seed", help="Of the random inputs of the proofs.")] = 0,
    force: Annotated[bool, Parameter(name="--force", negative="", help="Replace an existing file.")] = False,
) -> int:
    """Make the value and offset projections of every DCNv4 operator one layer, wherever that is sound.

    Operators are found by structure, whatever their names. Every fusion is proved by itself and the network as a
    whole, in ONNX Runtime. Exit status: 0 written, or nothing left to do; 1 if there is none, none could be fused, or a
    proof failed (nothing is written then); 2 if the model is unusable.
    """
    import sys

    from orinport.dcnv4.projections import fuse_projections
    from orinport.model.save import save

    require_seed(seed)
    target = _target(output, f"{model.stem}-{'split' if reverse else 'fused'}.onnx", force, beside=model)
    fusion = fuse_projections(model, reverse=reverse, seed=seed)
    done, refused = len(fusion.log.applied), [(entry.node, entry.reason) for entry in fusion.log.refused]
    verb = "taken apart" if reverse else "fused"
    if fusion.operators == 0:
        from orinport.dcnv4.node import custom_nodes

        if any(custom_nodes(fusion.model.ir)):
            sys.stdout.write(f"{model}: there is no DCNv4 operator that is not {verb} already\n")
            return 0
        sys.stdout.write(
            f"{model}: there is no node of DCNv4\n"
            "  help: Operators in portable form become nodes with orinport dcnv4 convert MODEL --to plugin.\n"
        )
        return 1
    lines = [f"{verb} {done} of {fusion.operators} DCNv4 operators{_reasons(refused)}"]
    lines += [f"rolled back, a defect of orinport: {entry}" for entry in fusion.log.rolled_back]
    lines += [_verdict(proof) for proof in fusion.proofs]
    good = done > 0 and fusion.proved
    if good:
        save(fusion.model, target)
        lines.append(f"written to {target}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if good else 1


@app.command
def convert(
    model: ModelPath,
    /,
    *,
    to: Annotated[Form, Parameter(name="--to", help=_FORM_HELP)],
    output: Output = None,
    force: Annotated[bool, Parameter(name="--force", negative="", help="Replace an existing file.")] = False,
) -> int:
    """Write every DCNv4 operator as a plugin node, or as standard operators; both directions are exact.

    Exit status: 0 written, or nothing to convert; 1 if the result differs; 2 if the model is unusable.
    """
    import sys

    from orinport.dcnv4.pipeline import convert_network
    from orinport.model.save import save_proto

    target = _target(output, f"{model.stem}-{to}.onnx", force, beside=model)
    result = convert_network(model, to)
    if result.operators == 0:
        sys.stdout.write(f"{model}: no DCNv4 operator to write in {to} form\n")
        return 0
    lines = [f"{result.operators} DCNv4 operators in {to} form", *map(_verdict, result.proofs)]
    good = all(proof.equal for proof in result.proofs)
    if good:
        save_proto(result.proto, target)
        lines.append(f"written to {target}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if good else 1


def _batch(text: str) -> int | None:
    """None for a dynamic batch."""
    if text == "dynamic":
        return None
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= 4096:
        raise OrinportError(f"{text[:20]!r} is no batch.", "Give a number from 1 to 4096, or 'dynamic'.")
    return int(text)


def _target(output: Path | None, default: str, force: bool, *, beside: Path | None = None) -> Path:
    """Where to write: a file that does not exist yet, or may be replaced."""
    target = output if output is not None else (Path(default) if beside is None else beside.with_name(default))
    require_free(target, beside, force=force)
    return target


def _reasons(refused: Sequence[tuple[str, str]]) -> str:
    """Why others were not: each reason with how often it holds and one operator that it holds for."""
    from orinport.report.style import clean

    reasons: dict[str, list[str]] = {}
    for node, reason in refused:
        reasons.setdefault(reason, []).append(node)
    return "".join(
        f"\n  {len(nodes)} not, e.g. {clean(nodes[0])}: {clean(reason)}" for reason, nodes in reasons.items()
    )


def _verdict(proof: VerifyReport) -> str:
    shape = "x".join(map(str, proof.rows[0].shape)) if proof.rows else ""
    return f"{'equal' if proof.equal else 'DIFFERENT'}: largest relative difference {proof.worst:.2g} at output {shape}"
