"""What `verify --as` says of scales that do not belong to the network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import onnx

import orinport
from builders import small_cnn
from orinport.report.emulate import emulation_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def said(tmp_path: Path, scales: Mapping[str, float]) -> list[str]:
    network = tmp_path / "network.onnx"
    onnx.save(small_cnn(), network)
    given = tmp_path / "scales.json"
    given.write_text(json.dumps({"tensors": scales}))
    report = orinport.verify(network, emulate="dla-int8", scales=given)
    return [line for line in emulation_text(report).splitlines() if "quantize tells" in line]


def test_scales_of_another_network_are_told(tmp_path: Path) -> None:
    """Without a word such a network would be fine: all of it runs in FP16."""
    layers, others = said(tmp_path, {"elsewhere": 0.1})
    assert layers.endswith("layers run in FP16 for want of a scale (Q001); orinport quantize tells which")
    assert others == "1 finding about scales: Q006; orinport quantize tells which"


def test_nothing_is_told_of_scales_that_fit(tmp_path: Path) -> None:
    names = [value.name for value in onnx.shape_inference.infer_shapes(small_cnn()).graph.value_info]
    edges = [value.name for value in (*small_cnn().graph.input, *small_cnn().graph.output)]
    assert said(tmp_path, dict.fromkeys([*names, *edges], 0.1)) == []


def test_an_absurd_range_of_an_input_is_told(tmp_path: Path) -> None:
    names = [value.name for value in onnx.shape_inference.infer_shapes(small_cnn()).graph.value_info]
    edges = [value.name for value in (*small_cnn().graph.input, *small_cnn().graph.output)]
    scales = {**dict.fromkeys([*names, *edges], 0.1), small_cnn().graph.input[0].name: 1e30}
    assert said(tmp_path, scales) == ["1 finding about scales: Q007; orinport quantize tells which"]
