"""Networks that PyTorch's current exporter writes: `prepare` leaves a correct network, and says what stays off the DLA.

Each expectation says why a layer stays off, by the codes of its findings.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import orinport
from builders import run_onnx
from orinport.rewrites.rewrite import Safety
from orinport.rules.finding import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from orinport.results import PrepareReport

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TARGET = "orin-agx-64gb/jp6.2"
ALL = (Safety.EXACT, Safety.TOLERANCE)
RANK = {"DLA120", "DLA190", "DLA191"}
"""Layers on tensors that are not (N, C, H, W), and reshapes and transposes on the way to them."""


def prepared(name: str, folder: Path, consent: Any = None) -> PrepareReport:
    """`prepare`, proved against the exported network and held against PyTorch."""
    import torch

    from e2e.exported_networks import exported

    proto, module, image = exported(name)
    report = orinport.prepare(proto, target=TARGET, output=folder / "b", consent=consent)
    assert report.proof is not None
    assert report.proof.equal
    assert not report.log.rolled_back
    with torch.no_grad():
        want = module(image).numpy()
    arrays = {value.name: image.numpy() for value in proto.graph.input}
    moved = {(edge.kind, edge.name): edge for edge in report.edges}
    feeds = {key: moved["input", key].to_board(a) if ("input", key) in moved else a for key, a in arrays.items()}
    board = onnx.load(folder / "b/model.onnx")  # noqa: TID251
    onnx.checker.check_model(board, full_check=True)
    found = run_onnx(board, feeds)[0]
    edge = moved.get(("output", proto.graph.output[0].name))
    found = found if edge is None else edge.from_board(found)
    bound = 2e-3 if consent else 1e-4
    np.testing.assert_allclose(found, want, atol=bound * max(1.0, float(np.abs(want).max())))
    document = json.loads((folder / "b/report.json").read_text())
    assert all(entry["proof"]["equal"] for entry in document["rewrites"]["applied"])
    return report


def off(report: PrepareReport) -> dict[str, set[str]]:
    """Nodes of layers that are not on the DLA, and the codes that say why; none may go without a reason."""
    found: dict[str, set[str]] = {}
    for row in report.after.layers:
        if row.verdict is not Verdict.DLA and not row.layer.folds:  # constants go where their readers go
            assert row.codes, f"{row.layer.name} is off the DLA and nothing says why"
            for name in row.layer.nodes:
                found.setdefault(name, set()).update(row.codes)
    return found


@pytest.mark.parametrize("name", ["GRU", "LSTM", "RNN", "U-Net"])
def test_all_of_it_on_the_dla(name: str, tmp_path: Path) -> None:
    """PyTorch 2.13 writes nn.RNN as MatMul and Add on tensors of rank 2 and 3, the others as GRU and LSTM."""
    report = prepared(name, tmp_path)
    assert report.after.all_dla, off(report)
    assert report.after.placement.loadables == 1
    unrolled = {"GRU": "gru-to-conv", "LSTM": "lstm-to-conv"}.get(name)
    if unrolled:
        assert report.log.counts()[unrolled] == 1


@pytest.mark.parametrize("name", ["transformer, erf", "transformer, tanh"])
def test_a_transformer_with_exact_rewrites_alone(name: str, tmp_path: Path) -> None:
    """The roots of normalisations and GELU stay, for which the DLA has no exact form, and reshapes around GELU."""
    report = prepared(name, tmp_path)
    stays = off(report)
    assert set().union(*stays.values()) <= {"DLA020", "DLA023", *RANK}
    work = {node for node, codes in stays.items() if codes & {"DLA020", "DLA023"}}
    assert {node.split("/")[0] for node in work} == {
        "node_gelu",
        "node_layer_norm",
        "node_layer_norm_1",
        "node_layer_norm_2",
    }
    assert all("/Sqrt" in node for node in work - {"node_gelu"})
    assert report.log.counts()["layer-norm-to-sqrt"] == 3
    assert report.log.counts()["matmul-to-elementwise"] == 2, "both products of attention"
    refused = {entry.rewrite: entry.reason for entry in report.log.refused}
    assert "POW in FP16" in refused["sqrt-to-pow"]
    assert "nobody consented" in refused["gelu-to-tanh"]


@pytest.mark.parametrize("name", ["transformer, erf", "transformer, tanh"])
def test_a_transformer_with_approximations(name: str, tmp_path: Path) -> None:
    report = prepared(name, tmp_path, ALL)
    assert report.log.counts()["layer-norm-to-div"] == 3
    assert report.log.counts()["gelu-to-tanh"] == 1
    assert report.after.all_dla, off(report)
    assert report.after.placement.loadables == 1
