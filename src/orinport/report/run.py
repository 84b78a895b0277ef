"""Text and JSON of `run`."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from orinport.report.json import SCHEMA_VERSION
from orinport.report.predict import time_text
from orinport.report.style import PLAIN, Style, clean
from orinport.words import count

if TYPE_CHECKING:
    from orinport.device.tensor_layout import TensorLayout
    from orinport.running import RunReport

__all__ = ["run_document", "run_text"]


def run_text(report: RunReport, style: Style = PLAIN) -> str:
    """What ran, the times, and every output against the reference."""
    lines = [
        style.bold(f"{clean(report.network)} on {clean(report.device)}"),
        f"{count(report.samples, 'sample')} of {clean(report.source)}",
    ]
    lines += [f"  {_layout(each)}" for each in report.layouts]
    if report.us:
        shown = f"median {time_text(median(report.us))}, {time_text(min(report.us))} to {time_text(max(report.us))}"
        lines.append(f"{count(len(report.us), 'time')}: {shown} ({report.spans})")
    if report.reference:
        lines.append(f"against {clean(report.reference)} in ONNX Runtime:")
    for row in report.rows:
        word = style.bad("WRONG") if report.wrong(row) else style.good("fine")
        shape = "x".join(map(str, row.shape)) or "scalar"
        broken = f", {count(row.broken, 'value')} finite in the reference alone" if row.broken else ""
        lines.append(
            f"  output {clean(row.name)} {shape}: {word}, SNR {row.snr_db:.1f} dB, "
            f"largest difference {row.max_abs:.3g}{broken}"
        )
    if not report.reference:
        lines.append("nothing was compared")
    elif report.source == "random inputs":
        lines.append("Random inputs show defects, not accuracy: give real ones with --data.")
    lines += [f"written: {clean(str(path))}" for path in report.files]
    return "\n".join(lines) + "\n"


def _layout(layout: TensorLayout) -> str:
    scale = "" if layout.scale is None else f", scale {layout.scale:.6g}"
    shape = "x".join(map(str, layout.shape)) or "scalar"
    return f"{clean(layout.name)} {shape}: {layout.dtype.value}:{layout.format}, {count(layout.size, 'byte')}{scale}"


def run_document(report: RunReport) -> dict[str, Any]:
    """The document of `run`, schema version 1."""
    return {
        "schema_version": SCHEMA_VERSION,
        "network": report.network,
        "backend": report.backend,
        "device": report.device,
        "samples": report.samples,
        "source": report.source,
        "reference": report.reference or None,
        "min_snr_db": report.min_snr,
        "good": report.good,
        "outputs": [
            {
                "name": row.name,
                "shape": list(row.shape),
                "snr_db": row.snr_db,
                "max_abs": row.max_abs,
                "broken": row.broken,
                "good": not report.wrong(row),
            }
            for row in report.rows
        ],
        "tensors": [
            {
                "name": each.name,
                "shape": list(each.shape),
                "type": each.dtype.value,
                "format": each.format,
                "bytes": each.size,
                "scale": each.scale,
            }
            for each in report.layouts
        ],
        "times_us": list(report.us),
        "times_of": report.spans,
        "files": [str(path) for path in report.files],
    }
