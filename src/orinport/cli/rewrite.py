"""`orinport rewrite`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from orinport.cli.options import ModelOptions, TargetOptions, TextFormat, progress, require_free
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from orinport.model.model import Model
    from orinport.rewrites.log import RewriteLog, VerifyReport

__all__ = ["rewrite"]

_DEFAULT_TARGET = TargetOptions()
_DEFAULT_MODEL = ModelOptions()


def rewrite(
    model: Annotated[Path | None, Parameter(help="ONNX file; left out for --list and --explain.")] = None,
    /,
    *,
    target: TargetOptions = _DEFAULT_TARGET,
    model_options: ModelOptions = _DEFAULT_MODEL,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Write the rewritten network to this file.")
    ] = None,
    diff: Annotated[
        bool, Parameter(name="--diff", negative="", help="Only show what would change; nothing is written.")
    ] = False,
    select: Annotated[
        tuple[str, ...],
        Parameter(name="--select", consume_multiple=False, help="Only rewrites whose name begins like this."),
    ] = (),
    ignore: Annotated[
        tuple[str, ...],
        Parameter(name="--ignore", consume_multiple=False, help="No rewrites whose name begins like this."),
    ] = (),
    allow: Annotated[
        tuple[Literal["tolerance", "semantic"], ...],
        Parameter(
            name="--allow",
            consume_multiple=False,
            help="Also apply approximations with a stated error, or rewrites that change what the network returns.",
        ),
    ] = (),
    everywhere: Annotated[
        bool,
        Parameter(name="--everywhere", negative="", help="Wherever they match, not only where the DLA gains by it."),
    ] = False,
    force: Annotated[bool, Parameter(name="--force", negative="", help="Replace an existing output file.")] = False,
    list_: Annotated[bool, Parameter(name="--list", negative="", help="List all rewrites.")] = False,
    explain: Annotated[str, Parameter(name="--explain", help="Print the documentation of the rewrite NAME.")] = "",
    format: TextFormat = "text",
) -> int:
    """Apply rewrites to a network, each application proved in ONNX Runtime, and the whole network at the end.

    Inputs and outputs stay as they are; `prepare` also moves the edges and writes the folder for the board.
    Exit status: 0 done, or nothing to do; 1 if --diff shows a change, or a proof failed; 2 if the model or the
    options are unusable.
    """
    import sys

    if explain:
        from orinport.rewrites.driver import documentation, find_rewrite

        found = find_rewrite(explain)
        sys.stdout.write(f"{found.name} ({found.safety.value})\n\n{documentation(found)}\n")
        return 0
    if list_:
        sys.stdout.write(_listing(format))
        return 0
    if model is None:
        raise OrinportError("No model is given.", "orinport rewrite MODEL -o FILE, or --list, or --explain NAME.")
    if output is None and not diff:
        raise OrinportError("There is nowhere to write to.", "Give a file with --output, or use --diff.")
    if output is not None and not diff:
        require_free(output, model, force=force)
    before, after, log = _rewrite(
        model, target, model_options, select=select, ignore=ignore, allow=allow, everywhere=everywhere
    )
    proof = None
    if not diff:
        from orinport.rewrites.driver import stated_error
        from orinport.rewrites.proof import compare_models

        stated = stated_error((done.rewrite, done.safety) for done in log.applied)
        proof = compare_models(before, after, allowance=stated, names=(before.name, str(output)))
    sys.stdout.write(_report(before, after, log, proof, format))
    failed = bool(log.rolled_back) or (proof is not None and not proof.equal)
    if diff:
        return 1 if log.applied or failed else 0
    if proof is not None and not proof.refuted and output is not None:
        from orinport.model.save import save

        save(after, output)
    return 1 if failed else 0


def _rewrite(
    path: Path,
    target: TargetOptions,
    model_options: ModelOptions,
    *,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    allow: tuple[str, ...],
    everywhere: bool,
) -> tuple[Model, Model, RewriteLog]:
    from orinport.checking import as_precision, as_target, dla_clock, dla_judge
    from orinport.model.load import load
    from orinport.rewrites.driver import all_rewrites, rewrite_model
    from orinport.rewrites.rewrite import Safety

    for prefix in (*select, *ignore):
        if not any(each.name.startswith(prefix) for each in all_rewrites()):
            raise OrinportError(f"No rewrite begins with {prefix!r}.", "orinport rewrite --list shows them all.")
    board, precision = as_target(target.target), as_precision(target.precision)
    before = load(path, shapes=model_options.shapes or None)
    after, log = rewrite_model(
        before,
        target=board,
        precision=precision,
        judge=None if everywhere else dla_judge(board, precision, standalone=target.standalone),
        clock=None if everywhere else dla_clock(board, precision),
        select=select,
        ignore=ignore,
        consent=[Safety.EXACT, *(Safety(name) for name in allow)],
        progress=progress,
    )
    progress("")
    return before, after, log


def _listing(format: str) -> str:
    from orinport.report.json import SCHEMA_VERSION, dumps
    from orinport.rewrites.driver import all_rewrites, documentation

    rows = [(each.name, each.safety.value, documentation(each).splitlines()[0]) for each in all_rewrites()]
    if format == "json":
        entries = [{"name": name, "safety": safety, "title": title} for name, safety, title in rows]
        return dumps({"schema_version": SCHEMA_VERSION, "rewrites": entries})
    wide = max(len(name) for name, _, _ in rows)
    return "".join(f"{name:<{wide}}  {safety:<9}  {title}\n" for name, safety, title in rows)


def _report(before: Model, after: Model, log: RewriteLog, proof: VerifyReport | None, format: str) -> str:
    from orinport.report.json import SCHEMA_VERSION, dumps, verify_document
    from orinport.report.style import clean
    from orinport.report.text import verify_text

    if format == "json":
        whole = None if proof is None else verify_document(proof)
        return dumps(
            {"schema_version": SCHEMA_VERSION, "model": before.name, "rewrites": log.document(), "proof": whole}
        )
    lines = []
    nodes = {node.name: node for node in after.graph if node.name}
    for entry in log.applied:
        lines.append(f"{entry.rewrite} ({entry.safety.value}), largest error {entry.proof.max_error:.2g}")
        lines += [f"- {clean(name)}" for name in entry.replaced]
        for name in entry.made:
            node = nodes.get(name)
            what = "" if node is None else f"  {node.op_type} {_dims(node.outputs[0].shape)}"
            lines.append(f"+ {clean(name)}{what}")
    lines += [f"refused {entry.rewrite} on {clean(entry.node)}: {clean(entry.reason)}" for entry in log.refused]
    lines += [f"rolled back, a defect of orinport: {clean(str(entry))}" for entry in log.rolled_back]
    if not log.applied:
        lines.append("no rewrite applies")
    text = "\n".join(lines) + "\n"
    return text if proof is None else text + verify_text(proof)


def _dims(shape: object) -> str:
    return "" if shape is None else str(list(shape))  # type: ignore[call-overload]
