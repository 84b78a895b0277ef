"""A prediction as text, JSON, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from orinport.predict.prediction import Bound
from orinport.report.json import SCHEMA_VERSION, finding_document
from orinport.report.style import PLAIN, Style, clean
from orinport.words import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orinport.predict.prediction import LayerPrediction, Prediction, RegionPrediction

__all__ = ["compare_text", "predict_csv", "predict_document", "predict_text", "queued_text", "time_text"]

_ROWS_SHOWN = 40
_COLUMNS = (
    *("name", "kind", "nodes", "device", "engine", "us", "band_low_us", "band_high_us", "bound", "macs"),
    *("mac_utilisation", "bytes_read", "bytes_written", "bytes_input", "bytes_weights", "bytes_operand"),
    *("bytes_output", "bytes_resident", "bytes_padding", "gbps", "macs_per_byte", "fused_into", "reason"),
)
_CAVEAT = (
    "Fitted to published measurements; no Orin was measured by us. GPU times are orders of magnitude, and the band is"
    " what the sources leave open."
)


def predict_document(prediction: Prediction) -> dict[str, Any]:
    """The `predict` document of schema version 1."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": prediction.model,
        "target": prediction.target.name,
        "power_mode": prediction.target.power_mode.name,
        "precision": prediction.precision.value,
        "batch": prediction.batch,
        "total_us": prediction.total_us,
        "band_us": [prediction.band.low, prediction.band.high],
        "fps": {"dla1": prediction.fps_one_dla, "dla2": prediction.fps_two_dlas},
        "fps_bound": {"dla1": prediction.pace(1)[0], "dla2": prediction.pace(2)[0]},
        "dram_us": prediction.dram_us,
        "shared_gbps": prediction.shared_gbps,
        "clocks": dict(prediction.clocks),
        "roof": {"peak": prediction.roof[0], "gbps": prediction.roof[1]},
        "transitions": prediction.transitions,
        "split": prediction.split,
        "notes": list(prediction.notes),
        "gpu_us": prediction.gpu_us,
        "regions": [
            {
                "device": region.device,
                "core": region.core,
                "start_us": region.start_us,
                "us": region.us,
                "band_us": [region.band.low, region.band.high],
                "launch_us": region.launch_us,
                "reformat_us": region.reformat_us,
                "reformat_bytes": region.reformat_bytes,
                "layers": [each.layer.name for each in region.layers],
            }
            for region in _by_start(prediction)
        ],
        "layers": [_layer(each) for each in prediction.layers],
        "findings": [finding_document(finding) for finding in prediction.findings],
        "caveat": _CAVEAT,
        "profile": None if prediction.target.profile is None else prediction.target.profile.name,
    }


def _layer(each: LayerPrediction) -> dict[str, Any]:
    return {
        "name": each.layer.name,
        "kind": each.layer.kind.value,
        "nodes": list(each.layer.nodes),
        "outputs": [tensor.name for tensor in each.layer.outputs],
        "device": each.device,
        "engine": each.engine.value,
        "us": each.us,
        "band_us": [each.band.low, each.band.high],
        "bound": each.bound.value,
        "macs": each.macs,
        "mac_utilisation": each.mac_utilisation,
        "bytes_read": each.bytes.read,
        "bytes_written": each.bytes.written,
        "bytes": {
            "input": each.bytes.input,
            "weights": each.bytes.weights,
            "operand": each.bytes.operand,
            "output": each.bytes.output,
            "resident": each.bytes.resident,
            "padding": each.bytes.padding,
        },
        "gbps": each.gbps,
        "macs_per_byte": each.intensity,
        "fused_into": each.fused_into,
        "reason": each.reason,
    }


def predict_text(prediction: Prediction, style: Style = PLAIN, *, rows: int = _ROWS_SHOWN) -> str:
    """Totals, regions, the layers that take longest, and what to do about it."""
    clocks = ", ".join(
        f"{name.removesuffix('_mhz').upper()} {value:g} MHz" for name, value in prediction.clocks.items()
    )
    lines = [
        style.bold(
            f"{clean(prediction.model)} on {prediction.target.name}, {prediction.target.power_mode.name},"
            f" {prediction.precision.value}, batch {prediction.batch}"
        ),
        clocks,
        *_own_constants(prediction),
        "",
        f"one inference: {time_text(prediction.total_us)}"
        f" (between {time_text(prediction.band.low)} and {time_text(prediction.band.high)})",
        queued_text(prediction),
        *(clean(note) for note in prediction.notes),
        *_regions(prediction),
        "",
        *_table(prediction, rows),
    ]
    for finding in prediction.findings:
        lines += ["", f"{style.bold(finding.code)} {clean(finding.message)}", f"  help: {clean(finding.help)}"]
    lines += ["", _CAVEAT]
    return "\n".join(lines) + "\n"


def queued_text(prediction: Prediction) -> str:
    """Images a second when the next one always waits."""
    if prediction.split:
        *first, last = sorted({region.unit for region in prediction.regions})
        units = " and ".join([", ".join(first), last] if first else [last])
        return f"queued: {_rate(prediction, 2)}, each going over {units}; every region is an engine of its own"
    return f"queued: {_rate(prediction, 1)} on one DLA, {_rate(prediction, 2)} on two with an instance each"


def _rate(prediction: Prediction, cores: int) -> str:
    """Images a second, and what limits them if it is not the DLA."""
    fps = prediction.fps_one_dla if cores == 1 else prediction.fps_two_dlas
    limit = {"gpu": " (the GPU limits)", "dram": " (the DRAM limits)"}.get(prediction.pace(cores)[0], "")
    return f"{fps:.0f} images/s{limit}"


def _own_constants(prediction: Prediction) -> list[str]:
    profile = prediction.target.profile
    return [] if profile is None else [f"with the constants of {clean(profile.name)}"]


def _regions(prediction: Prediction) -> list[str]:
    shown = _by_start(prediction)[:16]
    lines = [f"  {_where(region, split=prediction.split)}: {_costs(region)}" for region in shown]
    if len(prediction.regions) > len(shown):
        lines.append(f"  and {len(prediction.regions) - len(shown)} more regions")
    return lines


def _by_start(prediction: Prediction) -> list[RegionPrediction]:
    """The regions as they start; of a split network that is not the order of its layers."""
    return sorted(prediction.regions, key=lambda region: region.start_us)


def _where(region: RegionPrediction, *, split: bool) -> str:
    return f"{region.unit} from {time_text(region.start_us)} on" if split else region.device


def _costs(region: RegionPrediction) -> str:
    return (
        f"{time_text(region.us)}, of it launch {time_text(region.launch_us)}, reformat {time_text(region.reformat_us)};"
        f" {count(len(region.layers), 'layer')}"
    )


def _table(prediction: Prediction, rows: int) -> list[str]:
    timed = [each for each in prediction.layers if not each.fused_into]
    longest = sorted(timed, key=lambda each: -each.us)[:rows]
    chosen = [each for each in timed if each in longest] if len(timed) <= rows else longest
    title = "layers" if len(timed) <= rows else f"the {rows} layers of {len(timed)} that take longest"
    lines = [
        f"{title} (what rides along with another layer is not listed):",
        f"  {'us':>9} {'bound':8} {'MMAC':>9} {'util':>6} {'MB read':>8} {'written':>8} {'GB/s':>6} {'dev':4} layer",
    ]
    for each in chosen:
        util = "-" if not each.macs or each.bound is Bound.UNKNOWN else f"{100 * each.mac_utilisation:.1f}%"
        lines.append(
            f"  {each.us:9.1f} {each.bound.value:8} {each.macs / 1e6:9.1f} {util:>6} {each.bytes.read / 1e6:8.2f}"
            f" {each.bytes.written / 1e6:8.2f} {each.gbps:6.1f} {each.device:4} {clean(each.layer.name)}"
        )
    return lines


def time_text(us: float) -> str:
    """Microseconds, milliseconds or seconds, whichever reads best."""
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    return f"{us / 1e3:.2f} ms" if us >= 1000 else f"{us:.1f} us"


def compare_text(prediction: Prediction) -> str:
    """One line on the whole network on the GPU, if that was predicted."""
    if prediction.gpu_us is None:
        return ""
    ratio = prediction.total_us / prediction.gpu_us if prediction.gpu_us else 0.0
    return (
        f"the whole network on the GPU: about {time_text(prediction.gpu_us)}, give or take a factor of 3;"
        f" one inference as placed takes {ratio:.1f} times that\n"
    )


def predict_csv(document: Mapping[str, Any]) -> str:
    """One row a layer of a `predict` document; text that a spreadsheet would take for a formula is quoted."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for layer in document["layers"]:
        row = {
            **layer,
            **{f"bytes_{key}": value for key, value in layer["bytes"].items()},
            "band_low_us": layer["band_us"][0],
            "band_high_us": layer["band_us"][1],
            "nodes": " ".join(map(str, layer["nodes"])),
        }
        writer.writerow([_cell(row[name]) for name in _COLUMNS])
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        value = clean(value)
        return f"'{value}" if value[:1] in "=+-@" and value else value
    return value
