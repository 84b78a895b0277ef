"""`orinport quantize`, and `prepare --precision int8`: what is written, and what is said instead."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import orinport
from builders import light_path, network, node, run_onnx, small_cnn
from orinport.cli import main
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.model.lower import lower
from orinport.precision.cache import parse_cache, read_scales
from precision.quantised import QuantisedNetwork

JP60 = "orin-agx-64gb/jp6.0"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(small_cnn(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "d.npz"
    np.savez(path, x=np.random.default_rng(0).standard_normal((6, 3, 16, 16)).astype(np.float32))
    return path


def read(path: Path) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(path.read_bytes())


def test_quantize_writes_what_the_ending_says(model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in ("json", "cache", "onnx"):
        output = model.parent / f"out.{ending}"
        assert main(["quantize", str(model), "--data", str(data), "-o", str(output), "--method", "min-max"]) == 0
        text = capsys.readouterr().out
        assert "scales (min-max on 6 samples)" in text
        assert output.exists()
    scales, cache = read_scales(model.parent / "out.json"), read_scales(model.parent / "out.cache")
    assert {n: s.value for n, s in scales.tensors.items()} == {n: s.value for n, s in cache.tensors.items()}
    assert run_onnx(read(model.parent / "out.onnx"), {"x": np.zeros((1, 3, 16, 16), np.float32)})
    assert (model.parent / "out.cache").read_text().startswith("TRT-100300-EntropyCalibration2\nx: ")


def test_quantize_from_a_file_and_as_json(model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = model.parent / "c.cache"
    assert main(["quantize", str(model), "--data", str(data), "-o", str(cache), "--ties", "none"]) == 0
    first = read_scales(cache)
    capsys.readouterr()
    assert main(["quantize", str(model), "--scales", str(cache), "--ties", "none", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {n: each["scale"] for n, each in document["tensors"].items()} == {
        n: s.value for n, s in first.tensors.items()
    }
    cache.write_text("TRT-100300-EntropyCalibration2\nx: 3c010204\nnothing: 3c010204\n")
    assert main(["quantize", str(model), "--scales", str(cache)]) == 1
    text = capsys.readouterr().out
    assert "Q001" in text
    assert "Q006" in text
    assert "will run in FP16" in text


def test_quantize_of_a_network_with_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    q = QuantisedNetwork()
    c = q.conv(q.pair("x", 0.02), "c")
    q.pair(q.op("Relu", [c], "r"), 0.05, output="y")
    onnx.save(q.model({"x": (1, 4, 8, 8)}, ["y"]), tmp_path / "q.onnx")
    assert main(["quantize", str(tmp_path / "q.onnx"), "-o", str(tmp_path / "q.cache")]) == 0
    assert "scales (Q/DQ layers)" in capsys.readouterr().out
    assert {n: f"{s.value:.3g}" for n, s in read_scales(tmp_path / "q.cache").tensors.items()} == {
        "x": "0.02",
        "c": "0.05",
        "y": "0.05",
    }


@pytest.mark.parametrize(
    "arguments",
    [["-o", "x.txt"], ["-o", "no/x.json"], ["--state", "no/x"], ["-t", "orin-agx-64gb/jp7.2.2", "-o", "x.cache"]],
)
def test_what_cannot_be_written_is_refused_before_the_work(
    model: Path, data: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    monkeypatch.setattr("orinport.precision.calibrate.open_data", lambda *_: pytest.fail("the work had begun"))
    assert main(["quantize", str(model), "--data", str(data), *arguments]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "neither data nor scales"),
        (["--data", "a.npz", "--scales", "b"], "not from both"),
        (["--data", "none"], "does not exist"),
        (["--scales", "none"], "cannot be read"),
        (["--data", "d.npz", "-o", "x.txt"], "does not say what to write"),
        (["--data", "d.npz", "--percentile", "0", "--method", "percentile"], "is not a percentile"),
        (["--data", "d.npz", "--percentile", "nan"], "is not a percentile"),
        (["--data", "d.npz", "--percentile", "99", "--method", "mse"], "has no percentile"),
        (["--data", "d.npz", "--jobs", "2", "--scheduler", "tcp://x:1"], "are the processes"),
        (["--scales", "b.json", "--samples", "3"], "scales come from a file"),
        (["--scales", "b.json", "--preprocess", "p.toml"], "scales come from a file"),
        (["--data", "d.npz", "--jobs", "0"], "must be positive"),
        (["--data", "d.npz", "-o", "no/such/folder.json"], "cannot be written"),
        (["--data", "d.npz", "--state", "no/such/state"], "there is no such folder"),
        (["--data", "d.npz", "-t", "orin-agx-64gb/jp7.2.2", "-o", "x.cache"], "reads no calibration cache"),
    ],
)
def test_misuse_is_one_line_and_status_2(
    model: Path,
    data: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(model.parent)
    assert main(["quantize", str(model), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


# ---------------------------------------------------------------------------------------------- prepare


def test_prepare_int8_without_scales_says_so(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", str(model), "--precision", "int8"]) == 2
    assert "neither data nor scales" in capsys.readouterr().err
    assert not (model.parent / "m.orin").exists()
    assert main(["prepare", str(model), "--data", "d.npz"]) == 2
    assert "for INT8 only" in capsys.readouterr().err


@pytest.mark.parametrize("stack", ["jp5.1", "jp6.0", "jp6.2", "jp7.2"])
def test_prepare_int8_writes_cache_and_flags(model: Path, data: Path, stack: str) -> None:
    name = f"orin-agx-64gb/{stack}"
    report = orinport.prepare(model, target=name, precision="int8", data=data, output=model.parent / "b")
    bundle = model.parent / "b"
    assert {"calibration.cache", "scales.json", "model.onnx", "build.sh"} <= set(report.files)
    assert sorted(report.files) == sorted(path.name for path in bundle.iterdir())
    build = (bundle / "build.sh").read_text()
    assert "--int8" in build
    assert "--calib=calibration.cache" in build
    assert "--layerPrecisions" not in build
    scales = parse_cache((bundle / "calibration.cache").read_text())
    written = load(bundle / "model.onnx")
    layers = [layer for layer in lower(written, tensorrt=report.after.target.stack.tensorrt) if not layer.folds]
    on_dla = {
        t.name for r in report.after.placement.regions if r.device == "dla" for each in r.layers for t in each.outputs
    }
    assert on_dla
    assert on_dla <= set(scales.tensors)
    assert {t.name for layer in layers for t in layer.outputs} >= on_dla
    assert not [f for f in report.after.findings if f.code in ("Q001", "DLA204")]
    document = json.loads((bundle / "report.json").read_text())
    assert any("have a scale" in note for note in document["notes"])
    assert set(document["files"]) == set(report.files)


def test_prepare_int8_for_tensorrt_11_writes_pairs(model: Path, data: Path) -> None:
    report = orinport.prepare(
        model, target="orin-agx-64gb/jp7.2.2", precision="int8", data=data, output=model.parent / "b"
    )
    assert "calibration.cache" not in report.files
    written = read(model.parent / "b" / "model.onnx")
    operators = {each.op_type for each in written.graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= operators
    build = (model.parent / "b" / "build.sh").read_text()
    assert "--int8" not in build
    assert "--calib" not in build
    assert "chw32" not in build
    assert any("QuantizeLinear" in note for note in report.notes)


def test_prepare_from_a_cache_with_gaps_names_the_layers(model: Path, data: Path) -> None:
    """What the file does not have runs in FP16: told, and asked for in the build."""
    bundle = model.parent / "b"
    orinport.prepare(model, target=JP60, precision="int8", data=data, output=bundle)
    lines = (bundle / "calibration.cache").read_text().splitlines()
    assert lines.pop(1).startswith("x: ")
    (model.parent / "c.cache").write_text("\n".join(lines) + "\n")
    report = orinport.prepare(
        bundle / "model.onnx",
        target=JP60,
        precision="int8",
        scales=model.parent / "c.cache",
        output=model.parent / "b2",
    )
    missing = [f for f in report.after.findings if f.code == "Q001"]
    assert missing
    assert "x" not in parse_cache((model.parent / "b2" / "calibration.cache").read_text())
    assert [(f.dtype.value, f.format) for f in report.after.placement.inputs] == [("fp16", "chw16")]
    line = (model.parent / "b2" / "layer_precisions.txt").read_text().strip()
    assert line == ",".join(f"{f.layer}:fp16" for f in missing)
    build = (model.parent / "b2" / "build.sh").read_text()
    assert "--precisionConstraints=prefer" in build
    assert '"--layerPrecisions=$(cat layer_precisions.txt)"' in build


def test_layers_wished_in_fp16(model: Path, data: Path) -> None:
    arguments = ["prepare", str(model), "-t", JP60, "-p", "int8", "--data", str(data), "-o", str(model.parent / "b")]
    assert main([*arguments, "--fp16", "Conv_c1", "--fp16", "Add_a1"]) in (0, 1)
    assert (model.parent / "b" / "layer_precisions.txt").read_text() == "Conv_c1:fp16,Add_a1:fp16\n"
    assert "--precisionConstraints=prefer" in (model.parent / "b" / "build.sh").read_text()
    assert main([*arguments, "--force", "--fp16", "nothing"]) == 2
    with pytest.raises(OrinportError, match="own types decide"):
        orinport.prepare(
            model,
            target="orin-agx-64gb/jp7.2.2",
            precision="int8",
            data=data,
            output=model.parent / "c",
            fp16=["Conv_c1"],
        )


def test_build_script_hands_the_precisions_on(model: Path, data: Path, tmp_path: Path) -> None:
    """The script runs under a POSIX shell with a stand-in for trtexec."""
    import subprocess

    cache = model.parent / "c.cache"
    cache.write_text("TRT-8602-EntropyCalibration2\nx: 3c010204\n")
    orinport.prepare(model, target=JP60, precision="int8", scales=cache, output=tmp_path / "b")
    fake = tmp_path / "trtexec"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["sh", str(tmp_path / "b" / "build.sh"), "--verbose"],
        env={"TRTEXEC": str(fake), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    arguments = done.stdout.splitlines()
    precisions = (tmp_path / "b" / "layer_precisions.txt").read_text().strip()
    assert precisions
    assert f"--layerPrecisions={precisions}" in arguments
    assert arguments[-1] == "--verbose"


def test_moved_edges_are_calibrated_with_the_original_inputs(tmp_path: Path) -> None:
    """The board takes a 4-D tensor; the data stays as the given network takes it."""
    rng = np.random.default_rng(0)
    proto = network(
        [
            node("Reshape", ["x", "shape"], "t"),
            node("Conv", ["t", "w"], "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            node("Relu", ["c"], "y"),
        ],
        {"x": (1, 192)},
        ["y"],
        {"shape": np.array([1, 3, 8, 8]), "w": rng.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32)},
    )
    np.save(tmp_path / "d.npy", rng.standard_normal((3, 192)).astype(np.float32) * 4)
    onnx.save(proto, tmp_path / "m.onnx")
    report = orinport.prepare(tmp_path / "m.onnx", precision="int8", data=tmp_path / "d.npy", output=tmp_path / "b")
    scales = parse_cache((tmp_path / "b" / "calibration.cache").read_text())
    assert "y" in scales
    assert scales["x"].range <= float(np.abs(np.load(tmp_path / "d.npy")).max()) * 1.0001
    assert [edge.name for edge in report.edges] == ["x"]


def test_prepare_takes_pairs_out(tmp_path: Path) -> None:
    q = QuantisedNetwork()
    c = q.conv(q.pair("x", 0.02), "c")
    r = q.pair(q.op("Relu", [c], "r"), 0.05)
    q.pair(q.conv(r, "d"), 0.1, output="y")
    onnx.save(q.model({"x": (1, 4, 8, 8)}, ["y"]), tmp_path / "q.onnx")
    report = orinport.prepare(tmp_path / "q.onnx", precision="int8", output=tmp_path / "b")
    written = read(tmp_path / "b" / "model.onnx")
    assert not {each.op_type for each in written.graph.node} & {"QuantizeLinear", "DequantizeLinear"}
    assert report.after.all_dla
    assert not [f for f in report.after.findings if f.code == "Q001"]
    scales = parse_cache((tmp_path / "b" / "calibration.cache").read_text())
    assert {name: f"{scales[name].value:.2g}" for name in ("x", "r", "y")} == {"x": "0.02", "r": "0.05", "y": "0.1"}


def test_an_output_without_scale_leaves_in_fp16(tmp_path: Path) -> None:
    q = QuantisedNetwork()
    c = q.pair(q.conv(q.pair("x", 0.02), "c"), 0.05)
    q.op("MaxPool", [c], "y", kernel_shape=[2, 2], strides=[2, 2])
    onnx.save(q.model({"x": (1, 4, 8, 8)}, ["y"]), tmp_path / "q.onnx")
    report = orinport.prepare(tmp_path / "q.onnx", precision="int8", output=tmp_path / "b")
    assert [(f.dtype.value, f.format) for f in report.after.placement.outputs] == [("fp16", "chw16")]
    assert [f.dtype.value for f in report.after.placement.inputs] == ["int8"]
    assert [f.layer for f in report.after.findings if f.code == "Q001"]


def test_hostile_names_end_in_findings(tmp_path: Path, data: Path) -> None:
    proto = small_cnn()
    names = {"c1": "two\nlines", "r1": "a,b:c=d x", "p1": "$(touch owned)", "c2": "名前: 3f800000"}
    for each in proto.graph.node:
        for field in (each.input, each.output):
            field[:] = [names.get(name, name) for name in field]
        each.name = names.get(each.output[0], each.name)
    onnx.save(proto, tmp_path / "m.onnx")
    report = orinport.prepare(tmp_path / "m.onnx", target=JP60, precision="int8", data=data, output=tmp_path / "b")
    assert [f.value for f in report.after.findings if f.code == "Q012"] == ["two\nlines"]
    assert [f for f in report.after.findings if f.code == "Q001" and "two" in f.message]
    scales = parse_cache((tmp_path / "b" / "calibration.cache").read_text())
    assert {"a,b:c=d x", "$(touch owned)", "名前: 3f800000"} <= set(scales.tensors)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "inception_v1", "shufflenet", "densenet121"])
def test_light_networks(name: str, tmp_path: Path) -> None:
    path = light_path(name)
    shape = load(path).inputs[0].shape
    assert shape is not None
    np.save(tmp_path / "d.npy", np.random.default_rng(0).standard_normal((2, *shape[1:])).astype(np.float32))
    report = orinport.prepare(path, precision="int8", data=tmp_path / "d.npy", output=tmp_path / "b")
    scales = parse_cache((tmp_path / "b" / "calibration.cache").read_text())
    told = " ".join(f.message for f in report.after.findings if f.code == "Q001")
    for region in report.after.placement.regions:
        for layer in region.layers if region.device == "dla" else ():
            for tensor in (*layer.inputs, *layer.outputs):
                assert tensor.name in scales or repr(tensor.name) in told or not tensor.dtype.is_float


def test_the_function_takes_protos_and_says_what_it_cannot_do(data: Path) -> None:
    report = orinport.quantize(small_cnn(), data=data)
    assert report.coverage.complete
    with pytest.raises(OrinportError, match="no choice of ties"):
        orinport.quantize(small_cnn(), data=data, ties="some")


def test_scales_never_replace_what_they_were_made_from(
    model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scales = model.parent / "s.json"
    assert main(["quantize", str(model), "--data", str(data), "-o", str(scales)]) in (0, 1)
    for output in (model, scales):
        content = output.read_bytes()
        assert main(["quantize", str(model), "--scales", str(scales), "-o", str(output)]) == 2
        assert "is the input file, which is never changed" in capsys.readouterr().err
        assert output.read_bytes() == content
