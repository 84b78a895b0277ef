"""Constants fitted to a measurement: as text, as JSON, and as the user's own profile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orinport.report.style import PLAIN, Style, clean
from orinport.words import count

if TYPE_CHECKING:
    from orinport.measuring import FittedConstant, Refit

__all__ = ["refit_document", "refit_text", "refit_toml"]

_ROWS_SHOWN = 20


def refit_document(refit: Refit) -> dict[str, Any]:
    """The part `refit` of a `profile` document."""
    (mean_before, worst_before), (mean_after, worst_after) = refit.errors(after=False), refit.errors(after=True)
    return {
        "constants": [
            {
                "model": each.model,
                "name": each.key,
                "unit": each.unit,
                "before": each.before,
                "after": each.after,
                "relative_error": each.relative_error,
                "measurements": each.measurements,
            }
            for each in refit.constants
        ],
        "refused": [{"name": each.name, "reason": each.reason} for each in refit.refused],
        "error": {
            "before": {"mean": mean_before, "worst": worst_before},
            "after": {"mean": mean_after, "worst": worst_after},
        },
        "met": refit.met,
        "holds": refit.holds,
        "rows": [
            {
                "name": row.name,
                "measured_us": row.measured_us,
                "before_us": row.before_us,
                "after_us": row.after_us,
            }
            for row in refit.rows
        ],
        "left_out": [{"name": each.name, "reason": each.reason} for each in refit.left_out],
    }


def refit_text(refit: Refit, style: Style = PLAIN) -> str:
    """Constants before and after, what is not determined and why, and the rows that are met worst."""
    (mean_before, worst_before), (mean_after, worst_after) = refit.errors(after=False), refit.errors(after=True)
    lines = ["", style.bold(f"constants fitted to {count(len(refit.rows), 'measured time')}")]
    lines += [_constant(each) for each in refit.constants]
    lines += [f"  {_short(*each.name.split('.', 1)):24} kept: {clean(each.reason)}" for each in refit.refused]
    if refit.rows:
        lines += [
            f"predicted times off by {100 * mean_before:.1f} % on average, {100 * worst_before:.1f} % at most before,"
            f" by {100 * mean_after:.1f} %, {100 * worst_after:.1f} % after; {100 * refit.met:.0f} % of the measured"
            " time lie in the bands of the predictions then; worst met:",
        ]
    worst = sorted(refit.rows, key=lambda row: -abs(row.after_us / row.measured_us - 1))
    lines += [
        f"  {row.measured_us:9.1f} us measured, {row.before_us:9.1f} before, {row.after_us:9.1f} after:"
        f" {clean(row.name)[:80]}"
        for row in worst[:5]
    ]
    if refit.left_out:
        lines.append(f"{count(len(refit.left_out), 'row')} left out:")
        lines += [f"  {clean(each.name)[:80]}: {each.reason}" for each in refit.left_out[:_ROWS_SHOWN]]
        if len(refit.left_out) > _ROWS_SHOWN:
            lines.append(f"  and {len(refit.left_out) - _ROWS_SHOWN} more")
    return "\n".join(lines) + "\n"


def _constant(each: FittedConstant) -> str:
    unit = "" if each.unit == "1" else f" {each.unit}"
    uncertain = f"give or take {100 * each.relative_error:.1f} %, from {count(each.measurements, 'time')}"
    return f"  {_short(each.model, each.key):24} {each.before:9.4g} -> {each.after:9.4g}{unit}, {uncertain}"


def _short(model: str, key: str) -> str:
    """`DLA gap_us` for a constant of the model orin-dla."""
    return f"{model.removeprefix('orin-').upper()} {key}"


def refit_toml(refit: Refit, measurement: str) -> str:
    """The user's own profile. `measurement` is the name of the file that it was fitted to."""
    mean, worst = refit.errors(after=True)
    warning = (
        "# NOT TO BE RELIED ON: most of the measured time lies outside the bands of predictions with these constants."
    )
    lines = [
        "# A profile of orinport: constants of the prediction, fitted to one board's measurement. Every command takes",
        "# this file's path where it takes a target.",
        *([] if refit.holds else [warning]),
        f"target = {_quoted(refit.target.name)}",
        f"power_mode = {_quoted(refit.target.power_mode.name)}",
        "",
        "[fit]",
        f"model = {_quoted(refit.model)}",
        f"measurement = {_quoted(measurement)}",
        f"rows = {len(refit.rows)}",
        f"mean_error = {mean:.4g}",
        f"worst_error = {worst:.4g}",
        f"met = {refit.met:.4g}",
        f"left_out = {len(refit.left_out)}",
    ]
    own = refit.target.profile.constants if refit.target.profile is not None else {}
    fitted = {(each.model, each.key) for each in refit.constants}
    for each in refit.constants:
        lines += ["", f"[{each.model}.{each.key}]", *_figure(each, refit, measurement)]
    for model, figures in own.items():
        for key, figure in figures.items():
            if (model, key) not in fitted:
                lines += ["", f"[{model}.{key}]", f"value = {figure.value!r}", f"source = {_quoted(figure.source)}"]
    if refit.refused:
        lines += ["", "[not_determined]"]
        lines += [f"{_quoted(each.name)} = {_quoted(each.reason)}" for each in refit.refused]
    return "\n".join(lines) + "\n"


def _figure(each: FittedConstant, refit: Refit, measurement: str) -> list[str]:
    source = f"Fitted by orinport profile to {measurement} ({refit.source}) of {refit.model}"
    return [
        f"value = {each.after:.6g}",
        f"unit = {_quoted(each.unit)}",
        f"relative_error = {each.relative_error:.3g}",
        f"measurements = {each.measurements}",
        f"source = {_quoted(source)}",
    ]


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's escapes are a part of its own."""
    return json.dumps(clean(text))
