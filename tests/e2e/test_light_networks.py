"""The networks that the onnx package ships: each becomes one DLA loadable and still computes the same.

Their weights are made up (many are constant), so that differences could hide; every network is therefore
also run with random weights of a trained network's magnitude.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import orinport
from orinport.rules.finding import Verdict

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
NAMES = ["resnet50", "squeezenet", "inception_v1", "inception_v2", "densenet121", "bvlc_alexnet", "zfnet512"]
TARGET = "orin-agx-64gb/jp6.2"


def with_random_weights(path: Path) -> onnx.ModelProto:
    """The network with weights drawn anew: He et al. for kernels, positive numbers for what looks like a variance."""
    model = onnx.load(path)  # noqa: TID251 the package's own file
    rng = np.random.default_rng(0)
    variances = {node.input[4] for node in model.graph.node if node.op_type == "BatchNormalization"}
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        shape = tuple(tensor.dims)
        if tensor.name in variances:
            values = rng.uniform(0.5, 2, shape)
        elif len(shape) >= 2:
            values = rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5
        else:
            values = rng.standard_normal(shape) * 0.1 + (1 if len(shape) == 1 else 0)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    return model


@pytest.mark.parametrize("name", [*NAMES, pytest.param("vgg19", marks=pytest.mark.slow)])
def test_one_loadable_and_the_same_function(name: str, tmp_path: Path) -> None:
    report = orinport.prepare(LIGHT / f"light_{name}.onnx", target=TARGET, output=tmp_path / "b")
    assert report.after.count(Verdict.DLA) == len(report.after.layers)
    assert report.after.placement.loadables == 1
    assert report.proof is not None
    assert report.proof.equal
    assert not report.log.rolled_back
    document = json.loads((tmp_path / "b/report.json").read_text())
    assert document["after"]["summary"]["loadables"] == 1
    assert all(entry["proof"]["equal"] for entry in document["rewrites"]["applied"])
    assert orinport.check(tmp_path / "b/model.onnx", target=TARGET).all_dla
    assert "--allowGPUFallback" not in (tmp_path / "b/build.sh").read_text()
    onnx.checker.check_model(str(tmp_path / "b/model.onnx"), full_check=True)


@pytest.mark.slow
def test_memory_stays_below_that_of_four_networks(tmp_path: Path) -> None:
    """The peak of `prepare`, interpreter and imports included; measured: 2.9 times what is written."""
    code = """
import sys, orinport
orinport.prepare(sys.argv[1], target="orin-agx-64gb/jp6.0", output=sys.argv[2])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""
    arguments = [sys.executable, "-c", code, str(LIGHT / "light_resnet50.onnx"), str(tmp_path / "b")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "b/model.onnx").stat().st_size
    assert 100e6 < written < 110e6
    assert 1024 * int(done.stdout) < 3.5 * written


@pytest.mark.parametrize(
    "name", ["squeezenet", "resnet50", *(pytest.param(n, marks=pytest.mark.slow) for n in NAMES[2:])]
)
def test_the_same_function_with_random_weights(name: str, tmp_path: Path) -> None:
    model = with_random_weights(LIGHT / f"light_{name}.onnx")
    report = orinport.prepare(model, target=TARGET, output=tmp_path / "b")
    assert report.after.all_dla
    assert report.proof is not None
    assert report.proof.equal
    assert not report.log.rolled_back
    assert orinport.verify(model, tmp_path / "b", cases=2, seed=7).equal


@pytest.mark.parametrize(
    "target",
    [
        "orin-agx-64gb/jp5.1",
        "orin-agx-64gb/jp6.0",
        "xavier-agx/jp5.1",
        "orin-agx-64gb/jp7.2",
        "orin-agx-64gb/jp7.2.2",
        "drive-orin/drive-6.0.9",
    ],
)
def test_every_target_gives_a_bundle_or_reasons(target: str, tmp_path: Path) -> None:
    report = orinport.prepare(LIGHT / "light_squeezenet.onnx", target=target, output=tmp_path / "b")
    for row in report.after.layers:
        if row.verdict is not Verdict.DLA:
            assert row.codes
    for finding in report.after.findings:
        assert finding.source
        assert finding.help
