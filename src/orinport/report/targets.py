"""Text and JSON of `targets`: the boards and releases that orinport knows, or one of them with all its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.report.json import SCHEMA_VERSION
from orinport.report.style import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orinport.targets.target import Figure, Hardware, Stack, Target

__all__ = ["list_document", "list_text", "target_document", "target_text"]


def list_text(targets: Sequence[Target]) -> str:
    """One line a target: name, board, release, TensorRT; then the power modes of each board."""
    width = max(len(target.name) for target in targets)
    boards = {target.hardware.name: target.hardware for target in targets}
    title = max(len(board.title) for board in boards.values())
    release = max(len(target.stack.title) for target in targets)
    lines = [
        f"{target.name:{width}}  {target.hardware.title:{title}}  {target.stack.title:{release}}"
        f"  TensorRT {target.stack.tensorrt}"
        for target in targets
    ]
    lines += ["", "Power modes, the default first:"]
    lines += [
        f"{board.name:{width}}  {', '.join(mode.name for mode in board.power_modes)}" for board in boards.values()
    ]
    lines += ["", "orinport targets NAME shows one with the source of every number."]
    return "\n".join(lines) + "\n"


def list_document(targets: Sequence[Target]) -> dict[str, Any]:
    """The targets as JSON, without their figures."""
    return {
        "schema_version": SCHEMA_VERSION,
        "targets": [
            {
                "name": target.name,
                "board": target.hardware.title,
                "release": target.stack.title,
                "tensorrt": str(target.stack.tensorrt),
                "power_modes": [mode.name for mode in target.hardware.power_modes],
            }
            for target in targets
        ],
    }


def target_text(target: Target) -> str:
    """One target in full: software, board and every power mode, each figure with its source and confidence."""
    stack, hardware = target.stack, target.hardware
    lines = [f"{target.name}: {hardware.title} with {stack.title}", "", "software"]
    facts = _stack_facts(stack)
    width = max(len(name) for name in facts)
    lines += [f"  {name:{width}}  {value}" for name, value in facts.items()]
    lines.append(f"  {'source':{width}}  {stack.source} ({stack.confidence.value})")
    lines += ["", f"board ({hardware.platform.value}, family {hardware.family})", *_figures_text(hardware.figures)]
    if target.profile is not None:
        for model, figures in target.profile.constants.items():
            lines += ["", f"constants of {clean(target.profile.name)} in place of {model}'s", *_figures_text(figures)]
    for mode in hardware.power_modes:
        chosen = ", chosen" if mode.name == target.power_mode.name else ""
        lines += ["", f"power mode {mode.name}{chosen}", *_figures_text(mode.figures)]
    return "\n".join(lines) + "\n"


def target_document(target: Target) -> dict[str, Any]:
    """One target in full as JSON."""
    stack = target.stack
    return {
        "schema_version": SCHEMA_VERSION,
        "name": target.name,
        "stack": {
            "name": stack.name,
            "title": stack.title,
            **_stack_facts(stack),
            "source": stack.source,
            "confidence": stack.confidence.value,
        },
        "hardware": _hardware_document(target.hardware),
        "power_mode": target.power_mode.name,
        "profile": None
        if target.profile is None
        else {
            "name": target.profile.name,
            "constants": {model: _figures_document(figures) for model, figures in target.profile.constants.items()},
        },
    }


def _stack_facts(stack: Stack) -> dict[str, Any]:
    return {
        "tensorrt": str(stack.tensorrt),
        "dla": str(stack.dla) if stack.dla else "not known",
        "cuda": str(stack.cuda) if stack.cuda else "not known",
        "line": stack.line,
        "opset": stack.opset,
        "strongly_typed": stack.strongly_typed,
    }


def _hardware_document(hardware: Hardware) -> dict[str, Any]:
    return {
        "name": hardware.name,
        "title": hardware.title,
        "platform": hardware.platform.value,
        "family": hardware.family,
        "figures": _figures_document(hardware.figures),
        "power_modes": [
            {"name": mode.name, "figures": _figures_document(mode.figures)} for mode in hardware.power_modes
        ],
    }


def _figures_document(figures: Mapping[str, Figure]) -> dict[str, Any]:
    return {
        name: {
            "value": figure.value,
            "unit": figure.unit,
            "source": figure.source,
            "confidence": figure.confidence.value,
        }
        for name, figure in figures.items()
    }


def _figures_text(figures: Mapping[str, Figure]) -> list[str]:
    width = max(len(name) for name in figures)
    return [
        f"  {name:{width}}  {figure.value:g}{'' if figure.unit == '1' else ' ' + figure.unit}"
        f"  [{figure.confidence.value}: {figure.source}]"
        for name, figure in figures.items()
    ]
