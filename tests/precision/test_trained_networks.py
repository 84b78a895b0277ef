"""PP-OCR and nudenet on rendered pictures: coverage, answers in INT8, and what FP16 is worth.

Where the networks come from says `trained.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest

import orinport
from orinport.model.load import load
from orinport.precision.cache import parse_cache
from orinport.precision.calibrate import CalibrationOptions
from orinport.precision.emulate import Arithmetic
from orinport.precision.sensitivity import candidates, output_snr, rank
from orinport.quantization import write_scales
from precision.trained import NETWORKS, TARGET, MissingNetworkError, Trained, find, setting

if TYPE_CHECKING:
    from pathlib import Path


def trained(name: str) -> Trained:
    """A trained network; skips where it, or Pillow to render pictures for it, is not to be had."""
    pytest.importorskip("PIL.Image", reason="rendering needs Pillow")
    try:
        return find(name)
    except MissingNetworkError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_coverage(name: str, tmp_path: Path) -> None:
    network = trained(name)
    np.save(tmp_path / "d.npy", network.rendered(8, seed=0))
    report = orinport.quantize(network.path, data=tmp_path / "d.npy", shapes=network.shapes, target=TARGET)
    gaps = {row.tensor.name for row in report.coverage.tensors if row.scale is None}
    told = " ".join(f.message for f in report.coverage.findings)
    assert report.coverage.tensors
    assert all(repr(gap) in told for gap in gaps)
    assert len(gaps) <= 0.02 * len(report.coverage.tensors)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_prepared_bundles(name: str, tmp_path: Path) -> None:
    network = trained(name)
    np.save(tmp_path / "d.npy", network.rendered(4, seed=0))
    report = orinport.prepare(
        network.path, precision="int8", data=tmp_path / "d.npy", shapes=network.shapes, output=tmp_path / "b"
    )
    scales = parse_cache((tmp_path / "b" / "calibration.cache").read_text())
    told = " ".join(f.message for f in report.after.findings if f.code == "Q001")
    regions = [region for region in report.after.placement.regions if region.device == "dla"]
    tensors = {t.name for r in regions for each in r.layers for t in (*each.inputs, *each.outputs) if t.dtype.is_float}
    assert tensors
    assert {t for t in tensors if t not in scales and repr(t) not in told} == set()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "least"), [("min-max", 6.0), ("entropy", 3.0), ("percentile", 9.0), ("mse", 9.0)])
def test_int8_keeps_the_answer(method: str, least: float, tmp_path: Path) -> None:
    """Text detection with explicit Q/DQ in ONNX Runtime against FP32, on other pictures than those calibrated on.

    `least` is a signal-to-noise ratio in dB.
    """
    network = trained("pp-ocr detection")
    np.save(tmp_path / "d.npy", network.rendered(8, seed=0))
    options = CalibrationOptions(method=method)
    report = orinport.quantize(
        network.path, data=tmp_path / "d.npy", shapes=network.shapes, calibration=options, ties="except-products"
    )
    write_scales(report, tmp_path / "q.onnx")
    exact = onnxruntime.InferenceSession(network.path, providers=["CPUExecutionProvider"])
    ours = onnxruntime.InferenceSession(tmp_path / "q.onnx", providers=["CPUExecutionProvider"])
    noise = signal = 0.0
    for each in network.rendered(4, seed=99):
        want, have = (session.run(None, {network.given: each[None]})[0] for session in (exact, ours))
        signal += float((want**2).sum())
        noise += float(((want - have) ** 2).sum())
    ratio = 10 * np.log10(signal / noise)
    assert ratio > least, f"{ratio:.1f} dB"
    assert load(tmp_path / "q.onnx").outputs[0].shape == (1, 1, *network.shape[2:])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("pp-ocr detection", 11.0), ("pp-ocr recognition", 7.0)])
def test_emulated_as_the_dla_computes_it(name: str, least: float, tmp_path: Path) -> None:
    """Every output against FP32 on pictures that calibration has not seen; `least` is an SNR in dB.

    Of single pictures it varies by more than ten dB, so eight are taken.
    """
    network = trained(name)
    np.save(tmp_path / "d.npy", network.rendered(16, seed=0))
    np.save(tmp_path / "o.npy", network.rendered(8, seed=99))
    orinport.prepare(
        network.path,
        precision="int8",
        data=tmp_path / "d.npy",
        shapes=network.shapes,
        target=TARGET,
        ties="except-products",
        output=tmp_path / "b",
    )
    given = {"data": tmp_path / "o.npy", "target": TARGET, "ties": "except-products"}
    report = orinport.verify(tmp_path / "b", emulate="dla-int8", cases=0, **given)
    assert {row.name for row in report.output_rows} == {
        tensor.name for tensor in load(tmp_path / "b/model.onnx").outputs
    }
    for row in report.output_rows:
        assert row.snr_db > least, f"{row.name}: {row.snr_db:.1f} dB"
        assert not row.broken
    assert report.int8 > 100
    improves(tmp_path, network.rendered(1, seed=99))


def improves(folder: Path, pictures: np.ndarray) -> None:
    """The first of a ranking, set to FP16 in a run of its own, gains what the ranking says, and nobody more.

    Ranked are the layers of a dozen that lie evenly over the network: all of them take minutes.
    """
    model, kinds, scales = setting(folder / "b")
    (value,) = model.graph.inputs
    samples = [{value.name or "": each[None]} for each in pictures]
    report = orinport.check(folder / "b" / "model.onnx", target=TARGET, precision="int8")
    layers = [row.layer for row in report.layers]
    groups = candidates(layers, kinds)
    few = {layer.index for group in groups[:: max(1, len(groups) // 12)] for layer in group}
    found = rank(model, [layer for layer in layers if layer.index in few], kinds, scales, samples)
    best = found[0]
    before = output_snr(model, kinds, scales, samples)
    after = output_snr(model, {**kinds, **dict.fromkeys(best.nodes, Arithmetic.FP16)}, scales, samples)
    assert after > before
    assert after - before == pytest.approx(best.gain_db, abs=0.02)
    assert all(each.gain_db <= best.gain_db for each in found)
