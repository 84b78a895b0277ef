"""The predicted timeline in Chrome's trace format, and node data for Google's Model Explorer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.errors import OrinportError
from orinport.report.document import reading_report

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["explorer_document", "trace_document"]

_LANES = {"dla": 1, "gpu": 2}
_SPLIT_LANES = {"dla0": 1, "dla1": 2, "gpu": 3}


def _prediction(document: Mapping[str, Any]) -> Mapping[str, Any]:
    prediction: Mapping[str, Any] | None = document.get("prediction")
    if prediction is None:
        raise OrinportError("The report holds no prediction.", "No public measurement covers its target.")
    return prediction


def trace_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Complete events ("X"), times in us, one row for the DLA and one for the GPU. Raises OrinportError.

    Where the bundle holds the network in parts, a second process shows them, with a row for each DLA core.
    """
    with reading_report():
        prediction = _prediction(document)
        events = _process(1, "one engine", prediction, split=False)
        parts = document.get("split")
        if parts is not None:
            events += _process(2, "in parts", parts, split=True)
        return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"caveat": prediction["caveat"]}}


def _process(number: int, title: str, prediction: Mapping[str, Any], *, split: bool) -> list[dict[str, Any]]:
    lanes = _SPLIT_LANES if split else _LANES
    layers = {str(layer["name"]): layer for layer in prediction["layers"]}
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": number, "tid": 0, "args": {"name": title}},
        *(
            {"name": "thread_name", "ph": "M", "pid": number, "tid": lane, "args": {"name": device.upper()}}
            for device, lane in lanes.items()
        ),
    ]
    at = 0.0
    for region in prediction["regions"]:
        device = str(region["device"])
        lane = lanes[f"{device}{int(region['core'])}" if split and device == "dla" else device]
        start = float(region.get("start_us", at))
        at = start + float(region["us"])
        for name, us in (("launch", region["launch_us"]), ("reformat", region["reformat_us"])):
            if us:
                events.append(_event(name, start, float(us), (number, lane), {}))
                start += float(us)
        for name in region["layers"]:
            layer = layers[str(name)]
            if layer["us"]:
                keys = ("kind", "bound", "macs", "mac_utilisation", "bytes_read", "bytes_written", "gbps")
                known = {key: layer[key] for key in keys}
                events.append(_event(str(name), start, float(layer["us"]), (number, lane), known))
                start += float(layer["us"])
    return events


def _event(name: str, start: float, us: float, row: tuple[int, int], arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": start, "dur": us, "pid": row[0], "tid": row[1], "args": arguments}


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
