"""The predicted timeline in Chrome's trace format, and node data for Google's Model Explorer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.errors import OrinportError
from orinport.report.document import reading_report

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["explorer_document", "trace_document"]

_LANES = {"dla": 1, "gpu": 2}


def _prediction(document: Mapping[str, Any]) -> Mapping[str, Any]:
    prediction: Mapping[str, Any] | None = document.get("prediction")
    if prediction is None:
        raise OrinportError("The report holds no prediction.", "No public measurement covers its target.")
    return prediction


def trace_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Complete events ("X"), times in us, one row for the DLA and one for the GPU. Raises OrinportError."""
    with reading_report():
        prediction = _prediction(document)
        layers = {str(layer["name"]): layer for layer in prediction["layers"]}
        events: list[dict[str, Any]] = [
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": lane, "args": {"name": device.upper()}}
            for device, lane in _LANES.items()
        ]
        at = 0.0
        for region in prediction["regions"]:
            lane = _LANES[str(region["device"])]
            start = at
            for name, us in (("launch", region["launch_us"]), ("reformat", region["reformat_us"])):
                if us:
                    events.append(_event(name, start, float(us), lane, {}))
                    start += float(us)
            for name in region["layers"]:
                layer = layers[str(name)]
                if layer["us"]:
                    keys = ("kind", "bound", "macs", "mac_utilisation", "bytes_read", "bytes_written", "gbps")
                    events.append(_event(str(name), start, float(layer["us"]), lane, {key: layer[key] for key in keys}))
                    start += float(layer["us"])
            at += float(region["us"])
        return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"caveat": prediction["caveat"]}}


def _event(name: str, start: float, us: float, lane: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": start, "dur": us, "pid": 1, "tid": lane, "args": arguments}


def explorer_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Predicted us by output tensor, with a colour scale: what Model Explorer loads as custom node data.

    Tensors match nodes by their `tensor_name`, so the ONNX file in the bundle is the one to open.
    """
    with reading_report():
        results = {
            str(tensor): {"value": float(layer["us"])}
            for layer in _prediction(document)["layers"]
            for tensor in layer["outputs"]
        }
        gradient = [
            {"stop": 0, "bgColor": "#e3f1d4"},
            {"stop": 0.5, "bgColor": "#f6d58a"},
            {"stop": 1, "bgColor": "#d9534f"},
        ]
        return {"name": "predicted us", "results": results, "gradient": gradient}
