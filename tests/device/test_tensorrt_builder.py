"""Building through TensorRT's Python package: what is asked of it, version by version, and a build with NVIDIA's own.

The package here is a stand-in with the names of the real one (see standin_tensorrt.py); the tests marked `tensorrt`
build with NVIDIA's builder for RTX cards, whose interface is the same where it has the same classes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import orinport
import standin_tensorrt as standin
import tensorrt_surface
from orinport.cli import main
from orinport.device import tensorrt_builder as builder
from orinport.device.backends import OnnxBackend, TensorRTBackend
from orinport.device.log import read_log
from orinport.device.tensorrt_builder import BuildError, build
from orinport.device.tensorrt_engine import Engine
from orinport.device.tensorrt_request import BuildRequest, EdgeRequest, bundle_arguments, parse_request
from orinport.errors import OrinportError
from orinport.targets.target import Platform

if TYPE_CHECKING:
    from collections.abc import Iterator

NATIVE = Path(__file__).parent / "native"
WHEELS = {
    "8.6.1": "tensorrt-bindings==8.6.1",
    "10.3.0": "tensorrt-cu12-bindings==10.3.0",
    "10.16.1": "tensorrt-cu12-bindings==10.16.1.11",
    "11.4.0": "tensorrt-cu12-bindings==11.4.0.106",
}


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A convolution and a Relu, 3 channels in and 32 out."""
    rng = np.random.default_rng(3)
    weights = numpy_helper.from_array(rng.standard_normal((32, 3, 3, 3)).astype("f4") * 0.2, "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    edges = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 5, 7]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 5, 7]),
    ]
    graph = helper.make_graph(nodes, "g", edges[:1], edges[1:], [weights])
    path = tmp_path / "net.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return path


def asked(trt: Any, *start: Any) -> list[tuple[Any, ...]]:
    """What was asked of the stand-in, that begins with `start`."""
    return [entry[len(start) :] for entry in trt.asked if entry[: len(start)] == start]


def flags(trt: Any) -> set[str]:
    return {name for (name,) in asked(trt, "IBuilderConfig", "set_flag")}


def silent(*_: str) -> None:
    """Whoever does not want the log."""


# ---------------------------------------------------------------------------------------------- requests


@pytest.mark.parametrize("target", ["jp5.1", "jp6.0", "jp6.2", "jp7.2", "jp7.2.2", "drive-6.0.9"])
@pytest.mark.parametrize("standalone", [False, True])
def test_what_prepare_writes_is_read_back(network: Path, tmp_path: Path, target: str, standalone: bool) -> None:
    hardware = "drive-orin" if target.startswith("drive") else "orin-agx-64gb"
    folder = tmp_path / "net.orin"
    orinport.prepare(network, target=f"{hardware}/{target}", output=folder, standalone=standalone)
    request = parse_request(bundle_arguments(folder))
    assert (request.onnx, request.engine) == ("model.onnx", "model.loadable" if standalone else "model.engine")
    assert (request.dla_core, request.standalone, request.gpu_fallback) == (0, standalone, False)
    assert request.timing_cache == "timing.cache"
    assert request.inputs[0].formats == (("chw16",) if standalone and target == "jp5.1" else request.inputs[0].formats)
    assert (request.inputs[0].dtype == "") is (target == "jp7.2.2")


def test_layer_precisions_come_from_their_file(network: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.orin"
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).standard_normal((1, 3, 5, 7)).astype("f4"))
    orinport.prepare(
        network,
        target="orin-agx-64gb/jp6.0",
        output=folder,
        precision="int8",
        data=tmp_path / "data.npz",
        fp16=["relu"],
    )
    request = parse_request(bundle_arguments(folder))
    assert request.constraints == "prefer"
    assert ("relu", "fp16") in request.layer_precisions
    assert request.calibration == "calibration.cache"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--fp16", '"$(date)"'),
        ("--fp16", "--fp16 # note"),
        ('exec "$trtexec"', 'exec nice "$trtexec"'),
        ("--fp16", "'"),
    ],
)
def test_a_changed_script_is_left_to_a_shell(network: Path, tmp_path: Path, old: str, new: str) -> None:
    folder = tmp_path / "net.orin"
    orinport.prepare(network, target="orin-agx-64gb/jp6.2", output=folder)
    script = folder / "build.sh"
    text = script.read_text()
    assert old in text
    script.write_text(text.replace(old, new))
    with pytest.raises(OrinportError, match="not as prepare wrote it"):
        bundle_arguments(folder)


def test_the_last_of_two_options_counts_and_names_may_hold_colons() -> None:
    request = parse_request(
        [
            *("--onnx=a.onnx", "--saveEngine=a", "--useDLACore=0", "--useDLACore=1", "--skipInference"),
            *(
                "--layerPrecisions=a:0/Conv:fp16,b:int8",
                "--layerDeviceTypes=a:0:GPU",
                "--memPoolSize=workspace:64,dlaSRAM:1.5",
            ),
            *(
                "--inputIOFormats=int8:dla_hwc4+chw32,fp16:chw16",
                "--outputIOFormats=chw32",
                "--profilingVerbosity=detailed",
            ),
            *("--noTF32", "--sparsity=enable", "--builderOptimizationLevel=5", "--avgTiming=8", "--staticPlugins=p.so"),
        ]
    )
    assert request.dla_core == 1
    assert request.layer_precisions == (("a:0/Conv", "fp16"), ("b", "int8"))
    assert request.layer_devices == (("a:0", "GPU"),)
    assert request.pools == {"WORKSPACE": 64 << 20, "DLA_MANAGED_SRAM": 1 << 20}
    assert request.inputs == (EdgeRequest("int8", ("dla_hwc4", "chw32")), EdgeRequest("fp16", ("chw16",)))
    assert request.outputs == (EdgeRequest("", ("chw32",)),)
    assert (request.tf32, request.sparse, request.optimization_level, request.average_timing) == (False, True, 5, 8)
    assert (request.verbosity, request.plugins) == ("DETAILED", ("p.so",))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--useCudaGraph", "no counterpart"),
        ("--duration=3", "no counterpart"),
        ("-v", "no option"),
        ("--useDLACore=x", "no whole number"),
        ("--useDLACore=", "no whole number"),
        ("--layerPrecisions=conv", "not LAYER:VALUE"),
        ("--layerPrecisions=conv:fp24", "unknown"),
        ("--inputIOFormats=fp16:chw17", "unknown"),
        ("--inputIOFormats=half:chw16", "unknown"),
        ("--memPoolSize=sram:1", "no memory pool"),
        ("--memPoolSize=dlaSRAM:much", "no memory pool"),
        ("--calib=", "needs a value"),
        ("--sparsity=force", "unknown"),
        ("--buildDLAStandalone", "for the DLA"),
    ],
)
def test_what_has_no_counterpart_is_refused(option: str, says: str) -> None:
    with pytest.raises(OrinportError, match=says):
        parse_request(["--onnx=a", "--saveEngine=b", option])


def test_a_build_without_network_or_engine() -> None:
    with pytest.raises(OrinportError, match="no network or no engine"):
        parse_request(["--onnx=a"])


# ---------------------------------------------------------------------------------------------- what is asked


@pytest.mark.parametrize("version", standin.VERSIONS)
def test_a_dla_build_asks_what_trtexec_asks(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Expected values: sampleEngines.cpp of TensorRT 8.6, 10.3 and 11.1, read by hand."""
    monkeypatch.chdir(tmp_path)
    trt = standin.make(version)
    request = BuildRequest(
        onnx=str(network), engine="net.engine", dla_core=1, timing_cache="t.cache", layer_info="l.json"
    )
    build(trt, request, silent)
    typed = {"PREFER_PRECISION_CONSTRAINTS", "FP16"} if not version.startswith("11") else set()
    assert flags(trt) == {"DIRECT_IO", *typed}
    assert asked(trt, "IBuilderConfig", "default_device_type") == [(trt.DeviceType.DLA,)]
    assert asked(trt, "IBuilderConfig", "DLA_core") == [(1,)]
    assert asked(trt, "IBuilderConfig", "engine_capability") == []
    bits = {"8.6.1": "EXPLICIT_BATCH", "11.4.0": "STRONGLY_TYPED"}
    name = bits.get(version, "EXPLICIT_BATCH")
    assert asked(trt, "Builder", "create_network") == [(1 << trt.NetworkDefinitionCreationFlag[name],)]
    assert json.loads((tmp_path / "net.engine").read_text())["tensors"][0]["name"] == "x"
    assert (tmp_path / "t.cache").read_bytes() == b"+timed"
    assert "Layers" in json.loads((tmp_path / "l.json").read_text())
    assert not list(tmp_path.glob(".*.partial"))


@pytest.mark.parametrize("version", standin.VERSIONS)
def test_a_standalone_loadable(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.chdir(tmp_path)
    trt = standin.make(version)
    request = BuildRequest(
        onnx=str(network),
        engine="net.loadable",
        dla_core=0,
        standalone=True,
        inputs=(EdgeRequest("fp16", ("dla_hwc4",)),),
        outputs=(EdgeRequest("fp16", ("chw16",)),),
        layer_info="l.json",
        pools={"DLA_MANAGED_SRAM": 1 << 20},
    )
    build(trt, request, silent)
    assert asked(trt, "IBuilderConfig", "engine_capability") == [(trt.EngineCapability.DLA_STANDALONE,)]
    formats = [value for (value,) in asked(trt, "ITensor", "allowed_formats")]
    assert formats == [1 << trt.TensorFormat.DLA_HWC4, 1 << trt.TensorFormat.CHW16]
    types = asked(trt, "ITensor", "dtype")
    assert types == ([] if version.startswith("11") else [(trt.DataType.HALF,)] * 2)
    assert asked(trt, "IBuilderConfig", "set_memory_pool_limit") == [("DLA_MANAGED_SRAM", 1 << 20)]
    assert not (tmp_path / "l.json").exists(), "no runtime reads a loadable back"


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "10.16.1"])
def test_int8_with_a_cache(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Ranges of INT8 edges are 127 times the scale in the cache: 0x3d000000 is 2**-5."""
    monkeypatch.chdir(tmp_path)
    cache = b"TRT-8600-EntropyCalibration2\nx: 3d000000\nc: 3c000000\ny: 3d800000\n"
    Path("calibration.cache").write_bytes(cache)
    trt = standin.make(version)
    request = BuildRequest(
        onnx=str(network),
        engine="net.engine",
        dla_core=0,
        gpu_fallback=True,
        int8=True,
        fp16=True,
        calibration="calibration.cache",
        constraints="prefer",
        layer_precisions=(("relu", "fp16"), ("gone", "fp16")),
        layer_devices=(("co*", "GPU"),),
        inputs=(EdgeRequest("int8", ("dla_hwc4",)),),
        outputs=(EdgeRequest("fp32", ("chw",)),),
    )
    lines: list[str] = []
    build(trt, request, lambda letter, text: lines.append(f"{letter} {text}"))
    assert flags(trt) == {"FP16", "INT8", "PREFER_PRECISION_CONSTRAINTS", "GPU_FALLBACK"}
    assert asked(trt, "ITensor", "set_dynamic_range") == [("x", -127 * 2**-5, 127 * 2**-5)]
    assert asked(trt, "calibrator", 1) == [(None,)]
    assert asked(trt, "calibrator", "cache") == [(cache,)]
    assert asked(trt, "ILayer", "precision") == [(trt.DataType.HALF,)]
    assert asked(trt, "IBuilderConfig", "set_device_type") == [("conv", "GPU")]
    assert "W There is no layer gone to set to fp16" in lines


def test_int8_needs_scales_from_somewhere(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = BuildRequest(onnx=str(network), engine="e", dla_core=0, int8=True)
    with pytest.raises(BuildError, match="INT8 needs scales"):
        build(standin.make("10.3.0"), request, silent)
    Path("c").write_text("TRT-8600-EntropyCalibration2\n")
    broken = BuildRequest(**{**fields(request), "calibration": "c", "inputs": (EdgeRequest("int8", ("chw32",)),)})
    with pytest.raises(BuildError, match="no scale for the INT8 edge x"):
        build(standin.make("10.3.0"), broken, silent)
    Path("c").write_text("something else")
    with pytest.raises(BuildError, match="no cache of scales"):
        build(standin.make("10.3.0"), broken, silent)


def fields(request: BuildRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__slots__}


@pytest.mark.parametrize(
    ("version", "options", "says"),
    [
        ("11.4.0", {"fp16": True}, "TensorRT 11.4.0.106 has no BuilderFlag FP16"),
        ("11.4.0", {"int8": True, "calibration": "c"}, "has no BuilderFlag INT8"),
        ("8.6.1", {"adjust_for_dla": True}, "has no OnnxParserFlag ADJUST_FOR_DLA"),
        ("8.6.1", {"inputs": (EdgeRequest("int64", ("chw",)),)}, "has no DataType INT64"),
    ],
)
def test_what_a_version_does_not_have_is_said(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, options: dict[str, Any], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c").write_text("TRT-8600-EntropyCalibration2\n")
    with pytest.raises(BuildError, match=says):
        build(standin.make(version), BuildRequest(onnx=str(network), engine="e", **options), silent)
    assert not Path("e").exists()


def test_a_network_that_a_version_can_adjust(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trt = standin.make("10.16.1")
    request = BuildRequest(onnx=str(network), engine="e", dla_core=0, adjust_for_dla=True, report_capability_dla=True)
    build(trt, request, silent)
    assert asked(trt, "OnnxParser", "set_flag") == [("ADJUST_FOR_DLA",), ("REPORT_CAPABILITY_DLA",)]
    assert asked(trt, "OnnxParser", "set_builder_config") == [()]


@pytest.mark.parametrize(
    ("options", "standins", "says"),
    [
        ({}, {"gpu": False}, "NVIDIA GPU"),
        ({"dla_core": 0}, {"cores": 0}, "Cannot create DLA engine, 0 not available"),
        ({}, {"fail": "no tactic"}, "Engine could not be created"),
        ({"onnx": "missing.onnx"}, {}, "Failed to parse"),
        ({"inputs": (EdgeRequest("fp16", ("chw",)),) * 2}, {}, "2 entries for 1 tensors"),
        ({"plugins": ("missing.so",)}, {}, "missing.so cannot be loaded"),
        ({"engine": "nowhere/e"}, {}, "cannot be written"),
    ],
)
def test_failures_leave_nothing_behind(
    network: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    standins: dict[str, Any],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    request = BuildRequest(**{"onnx": str(network), "engine": "e", **options})
    with pytest.raises(BuildError, match=says):
        build(standin.make("10.3.0", **standins), request, silent)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("version", "standins", "options", "reason"),
    [
        ("10.3.0", {"gpu": False}, {}, "LOG14"),
        ("10.3.0", {"cores": 0}, {"dla_core": 0}, "MSG38"),
        ("11.4.0", {}, {"fp16": True}, "LOG16"),
        ("10.3.0", {}, {"int8": True}, "LOG17"),
        ("10.3.0", {}, {"int8": True, "calibration": "c", "inputs": (EdgeRequest("int8", ("chw",)),)}, "LOG17"),
        ("10.3.0", {}, {"int8": True, "calibration": "d", "inputs": (EdgeRequest("int8", ("chw",)),)}, "LOG17"),
    ],
)
def test_our_own_failures_are_explained_like_trtexecs(
    network: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    standins: dict[str, Any],
    options: dict[str, Any],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c").write_text("TRT-8600-EntropyCalibration2\n")
    Path("d").write_text("something else\n")
    trt = standin.make(version, **standins)
    monkeypatch.setattr(builder, "import_package", lambda: trt)
    monkeypatch.setattr(builder, "parse_request", lambda _: BuildRequest(onnx=str(network), engine="e", **options))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert builder.main([str(tmp_path)]) == 1
    report = read_log(io.StringIO(out.getvalue()))
    assert report.outcome == "FAILED"
    assert report.version.startswith(version[:4])
    assert report.reason is not None
    assert report.reason.kind.id == reason


# ---------------------------------------------------------------------------------------------- the process


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose module `tensorrt` is the stand-in for 10.3, in this process's path and its children's."""
    folder = tmp_path / "package"
    folder.mkdir()
    text = f"""import os, sys, time
sys.path.insert(0, {str(Path(standin.__file__).parent)!r})
import standin_tensorrt
made = standin_tensorrt.make("10.3.0", fail=os.environ.get("STANDIN_FAIL", ""))
if os.environ.get("STANDIN_SLEEP"):
    real = made.Builder.build_serialized_network
    def slow(self, network, config):
        print("[I] asleep", flush=True)
        time.sleep(float(os.environ["STANDIN_SLEEP"]))
        return real(self, network, config)
    made.Builder.build_serialized_network = slow
globals().update(vars(made))
"""
    (folder / "tensorrt.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delenv("TRTEXEC", raising=False)
    monkeypatch.delenv("STANDIN_FAIL", raising=False)
    if shutil.which("trtexec"):
        pytest.skip("this machine has a trtexec of its own")
    yield folder
    sys.modules.pop("tensorrt", None)


@pytest.fixture
def bundle(network: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "net.orin"
    orinport.prepare(network, target="orin-agx-64gb/jp6.2", output=folder)
    return folder


def test_the_command_builds_where_there_is_no_trtexec(
    package: Path, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", str(bundle), "--", "--memPoolSize=dlaSRAM:1"]) == 0
    captured = capsys.readouterr()
    assert "model.engine" in captured.out
    assert "beside it: timing.cache, layers.json" in captured.out
    log = (bundle / "build.log").read_text()
    assert "[I] TensorRT version: 10.3.0" in log
    assert "--memPoolSize=dlaSRAM:1" in log
    assert log.splitlines()[-1] == "&&&& PASSED TensorRT.orinport [TensorRT 10.3.0]"


def test_the_command_explains_a_failure(
    package: Path, bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in bundle.iterdir())
    monkeypatch.setenv(
        "STANDIN_FAIL", "MatMul is unsupported on DLA, relax constraints or use Convolution layer instead."
    )
    assert main(["build", str(bundle), "--quiet", "--with", "python"]) == 1
    assert "reason: A matrix multiplication is not taken." in capsys.readouterr().out
    assert sorted(path.name for path in bundle.iterdir()) == sorted([*before, "build.log"])


def test_a_bad_option_is_one_line_before_anything_runs(
    package: Path, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", str(bundle), "--", "--useCudaGraph"]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert not (bundle / "build.log").exists()


def test_without_the_package_one_line_says_so(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if builder.import_package.__globals__["has_package"]():
        pytest.skip("TensorRT's package is installed here")
    assert main(["build", str(bundle), "--with", "python"]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "python3-libnvinfer" in err


def test_interruption_ends_the_builder_and_leaves_no_engine(package: Path, bundle: Path) -> None:
    environment = {**os.environ, "STANDIN_SLEEP": "60", "PYTHONPATH": str(package)}
    process = subprocess.Popen(
        [sys.executable, "-m", "orinport", "build", str(bundle)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "asleep" in line:
            break
    start = time.monotonic()
    os.kill(process.pid, signal.SIGINT)  # to orinport alone: it has to end the builder itself
    assert process.wait(20) == 130
    assert time.monotonic() - start < 20
    assert {path.name for path in bundle.iterdir() if "engine" in path.name or "partial" in path.name} == set()
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
    assert not [line for line in left.splitlines() if "tensorrt_builder" in line and str(bundle) in line]


# ---------------------------------------------------------------------------------------------- the real thing


def download(package: str, folder: Path) -> Path:
    """A wheel; skips where it cannot be had or examined."""
    for program in ("gcc", "nm", "readelf"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on this machine")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--retries", "0"]
    done = subprocess.run([*command, "--timeout", "20", "--dest", folder, package], capture_output=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        pytest.skip(f"{package} cannot be downloaded for this Python")
    return wheels[0]


@pytest.mark.slow
@pytest.mark.parametrize("version", standin.VERSIONS)
def test_the_recorded_names_are_those_of_nvidias_bindings(version: str, tmp_path: Path) -> None:
    assert tensorrt_surface.surface(download(WHEELS[version], tmp_path)) == standin.surface(version)


_SUBCLASSES = """
import sys
from orinport.device import tensorrt_builder as builder, tensorrt_engine
from orinport.device.tensorrt_engine import Engine
from orinport.device.tensorrt_request import BuildRequest
trt = sys.modules["tensorrt"]
trt.__version__ = "of the test"
lines = []
log = builder._logger(trt, lambda letter, text: lines.append(letter + " " + text), verbose=True)
for name in ("INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"):
    log.log(getattr(trt.ILogger.Severity, name), name)
assert [line[0] for line in lines] == ["E", "E", "W", "I", "V"], lines
if hasattr(trt, "IInt8EntropyCalibrator2"):
    calibrator = builder._calibrator(trt, b"cache")
    assert calibrator.read_calibration_cache() == b"cache" and calibrator.get_batch(["x"]) is None
    assert calibrator.get_algorithm() == trt.CalibrationAlgoType.ENTROPY_CALIBRATION_2
if hasattr(trt, "IProgressMonitor"):
    monitor = builder._monitor(trt, lambda *_: None)
    monitor.phase_start("a", None, 3)
    assert monitor.step_complete("a", 0) is True
    monitor.phase_finish("a")
for enum, names in {"BuilderFlag": ["GPU_FALLBACK", "DIRECT_IO"], "TensorFormat": ["DLA_HWC4"]}.items():
    for name in names:
        assert 1 << int(builder._member(trt, enum, name))
try:
    builder.build(trt, BuildRequest(onnx="a", engine="b"), lambda *_: None)
except builder.BuildError as error:
    assert "NVIDIA GPU" in str(error)
else:
    raise AssertionError("a builder without TensorRT")
engine = tensorrt_engine.Engine(b"x", "x", module=trt)
try:
    engine.prepare()
except Exception as error:
    assert "gives no runtime" in str(error), error
else:
    raise AssertionError("a runtime without TensorRT")
print("fine")
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", standin.VERSIONS)
def test_our_subclasses_are_ones_of_nvidias_classes(version: str, tmp_path: Path) -> None:
    """Logger, calibrator and progress monitor; and what is said where TensorRT gives no builder and no runtime."""
    with tensorrt_surface.bindings(download(WHEELS[version], tmp_path)) as run:
        assert run(_SUBCLASSES) == "fine\n"


_WITH_A_LIBRARY = """
import ctypes, os
from pathlib import Path
import numpy as np
from orinport.device import tensorrt_builder as builder
from orinport.device.backends import TensorRTBackend
from orinport.device.tensorrt_request import BuildRequest, EdgeRequest
from orinport.targets.target import Platform
trt = sys.modules["tensorrt"]
trt.__version__ = "10.14.1"
os.chdir(sys.argv[2])
Path("c").write_bytes(b"TRT-1014-EntropyCalibration2\\nx: 3d000000\\ny: 3d000000\\n")
builder.parse_network = lambda trt, made, config, logger, request, say: made.create_network(1)
request = BuildRequest(
    onnx="n", engine="e", dla_core=1, int8=True, fp16=True, gpu_fallback=True, calibration="c", constraints="prefer",
    layer_precisions=(("relu", "fp16"),), layer_devices=(("relu", "GPU"),), tf32=False, timing_cache="t",
    inputs=(EdgeRequest("int8", ("chw32", "dla_hwc4")),), outputs=(EdgeRequest("int8", ("chw32",)),),
    pools={"DLA_MANAGED_SRAM": 1 << 20}, verbosity="DETAILED", optimization_level=4, average_timing=8)
said = []
builder.build(trt, request, lambda letter, text: said.append(letter + " " + text))
assert said[0] == "W [TRT] built by the stand-in", said
assert Path("t").read_bytes() == b"+timed"
values = np.random.default_rng(0).standard_normal((1, 32, 1, 2)).astype("f4") * 9
scales = {"x": 0.5, "y": 0.5}
with TensorRTBackend(Path("e"), scales=scales, platform=Platform.ORIN, dla_core=1, module=trt) as backend:
    found = backend.run({"x": values}, repeat=3)["y"]
assert (found == np.maximum(np.clip(np.trunc(values / 0.5 + np.copysign(0.5, values)), -128, 127) * 0.5, 0)).all()
try:
    TensorRTBackend(Path("t"), scales=scales, platform=Platform.ORIN, module=trt)
except Exception as error:
    assert "this is no engine of the stand-in" in str(error), error
else:
    raise AssertionError("no engine")
noted = ctypes.CDLL("libnvinfer.so.10").standin_noted
noted.restype = ctypes.c_char_p
print(noted().decode())
"""
_NOTED = """flag FP16
flag INT8
flag PREFER_PRECISION_CONSTRAINTS
no flag TF32
pool 1 1048576
verbosity 2
level 4
timing 8
device 1
core 1
flag GPU_FALLBACK
flag PREFER_PRECISION_CONSTRAINTS
network 1
x type 2
x formats 1056
y type 2
y formats 32
x range -3.96875 3.96875
y range -3.96875 3.96875
relu precision 1
relu device 0
goes on 1
cache TRT-1014-EntropyCalibration2
x: 3d000000
y: 3d000000
runtime core 1
runtime core 0"""


@pytest.mark.slow
def test_our_calls_pass_nvidias_bindings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build and run through the real bindings of 10.14, with a library of ours behind them that notes what arrives.

    Numbers are those of the enumerations in NvInfer.h: INT8 2, HALF 1, CHW32 2**5, DLA_HWC4 2**10, DLA 1, GPU 0.
    """
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler on this machine")
    found = download("tensorrt-cu12-bindings==10.14.1.48.post1", tmp_path / "bindings")
    with zipfile.ZipFile(download("kernel-lens==2.0.1", tmp_path / "headers")) as archive:
        for name in archive.namelist():
            if name.startswith("kernel_lens/include/tensorrt/"):
                (tmp_path / Path(name).name).write_bytes(archive.read(name))
    handles = "typedef struct CUstream_st* cudaStream_t;\ntypedef struct CUevent_st* cudaEvent_t;\n"
    (tmp_path / "cuda_runtime_api.h").write_text(handles)
    (tmp_path / "defaults.h").write_text(tensorrt_surface.defaults((tmp_path / "NvInferImpl.h").read_text()))
    library, cuda = tmp_path / "libnvinfer.so.10", tmp_path / "libstandin_cuda.so"
    options = ["-shared", "-fPIC", "-w", f"-I{tmp_path}", "-Wl,-soname,libnvinfer.so.10"]
    subprocess.run(["g++", "-std=c++17", *options, "-o", library, NATIVE / "standin_nvinfer.cpp"], check=True)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", cuda, NATIVE / "standin_cuda.c"], check=True)
    monkeypatch.setenv("ORINPORT_LIBCUDA", str(cuda))
    with tensorrt_surface.bindings(found, library) as run:
        noted = [line.strip() for line in run(_WITH_A_LIBRARY, str(tmp_path)).splitlines() if line.strip()]
    flags = standin.surface("10.16.1")["enums"]["BuilderFlag"]
    wanted = [
        f"{head}flag {flags[name]}" if found else line
        for line in _NOTED.splitlines()
        for head, found, name in [line.partition("flag ")]
    ]
    assert noted == wanted


def build_for_a_card(trt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let TensorRT for RTX build for a card that this machine does not have."""
    real = builder.configure

    def configure(*arguments: Any) -> Any:
        config = real(*arguments)
        config.num_compute_capabilities = 1
        config.set_compute_capability(trt.ComputeCapability.SM86, 0)
        return config

    monkeypatch.setattr(builder, "configure", configure)


@pytest.mark.tensorrt
@pytest.mark.filterwarnings("ignore:Use Deprecated in TensorRT-RTX:DeprecationWarning")
def test_nvidias_own_builder_builds(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT for RTX: the same calls on real classes, parser, builder, timing cache and progress; no GPU, no DLA."""
    trt = pytest.importorskip("tensorrt_rtx", reason="the extra tensorrt is not installed")
    monkeypatch.chdir(tmp_path)
    build_for_a_card(trt, monkeypatch)
    request = parse_request(
        [
            *(
                f"--onnx={network}",
                "--saveEngine=net.engine",
                "--timingCacheFile=t.cache",
                "--profilingVerbosity=detailed",
            ),
            *("--adjustForDLA", "--memPoolSize=workspace:64", "--outputIOFormats=chw", "--noTF32", "--verbose"),
            *("--avgTiming=2", "--builderOptimizationLevel=2", "--exportLayerInfo=l.json"),
        ]
    )
    lines: list[str] = []
    build(trt, request, lambda letter, text: lines.append(f"{letter} {text}"))
    assert (tmp_path / "net.engine").stat().st_size > 1000
    assert (tmp_path / "t.cache").stat().st_size > 0
    assert any(line.startswith("I Engine built in") for line in lines)
    assert any(line.startswith("V [TRT]") for line in lines)
    assert not list(tmp_path.glob(".*.partial"))


@pytest.mark.tensorrt
def test_nvidias_own_configuration_takes_what_is_asked_of_a_dla(network: Path) -> None:
    """Set on real objects and read back from them: device, core, capability, flags, pools, layers, formats."""
    trt = pytest.importorskip("tensorrt_rtx", reason="the extra tensorrt is not installed")
    made = trt.Builder(trt.Logger(trt.Logger.ERROR))
    request = BuildRequest(
        onnx=str(network),
        engine="e",
        dla_core=1,
        standalone=True,
        gpu_fallback=True,
        verbosity="DETAILED",
        pools={"WORKSPACE": 1 << 26},  # this build of TensorRT refuses the DLA's own pools
        layer_devices=(("relu", "DLA"),),
        inputs=(EdgeRequest("", ("dla_hwc4", "chw32")),),
        outputs=(EdgeRequest("", ("chw16",)),),
    )
    config = builder.configure(trt, made, request)
    assert config.default_device_type == trt.DeviceType.DLA
    assert config.engine_capability == trt.EngineCapability.DLA_STANDALONE
    assert config.profiling_verbosity == trt.ProfilingVerbosity.DETAILED
    flags = {name: config.get_flag(getattr(trt.BuilderFlag, name)) for name in ("GPU_FALLBACK", "DIRECT_IO")}
    assert flags == {"GPU_FALLBACK": True, "DIRECT_IO": False}
    assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 26
    parsed = builder.parse_network(trt, made, config, trt.Logger(trt.Logger.ERROR), request, silent)
    builder.constrain(trt, parsed, config, request, silent)
    layers = {parsed.get_layer(index).name: parsed.get_layer(index) for index in range(parsed.num_layers)}
    assert config.is_device_type_set(layers["relu"])
    assert not config.is_device_type_set(layers["conv"])
    wanted = 1 << int(trt.TensorFormat.DLA_HWC4) | 1 << int(trt.TensorFormat.CHW32)
    assert parsed.get_input(0).allowed_formats == wanted
    assert parsed.get_output(0).allowed_formats == 1 << int(trt.TensorFormat.CHW16)


@pytest.mark.tensorrt
def test_nvidias_own_runtime(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a card that it supports, the engine runs and gives what ONNX Runtime gives; else it is refused."""
    trt = pytest.importorskip("tensorrt_rtx", reason="the extra tensorrt is not installed")
    monkeypatch.chdir(tmp_path)
    build_for_a_card(trt, monkeypatch)
    build(trt, BuildRequest(onnx=str(network), engine="net.engine"), silent)
    broken = Engine(b"no engine", "broken", module=trt)
    with pytest.raises(OrinportError, match=r"TensorRT.*(does not load 'broken'|gives no runtime)"):
        broken.prepare()
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, 5, 7)).astype("f4")}
    try:
        with TensorRTBackend(tmp_path / "net.engine", scales={}, platform=Platform.ORIN, module=trt) as backend:
            found = backend.run(feeds, repeat=3)
    except OrinportError as error:
        pytest.skip(f"no card that runs it: {error.message}")
    with OnnxBackend(network.read_bytes()) as reference:
        np.testing.assert_allclose(found["y"], reference.run(feeds)["y"], rtol=1e-2, atol=1e-2)
    assert len(backend.us) == 3


@pytest.mark.tensorrt
def test_nvidias_own_parser_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trt = pytest.importorskip("tensorrt_rtx", reason="the extra tensorrt is not installed")
    monkeypatch.chdir(tmp_path)
    Path("bad.onnx").write_bytes(b"no network")
    lines: list[str] = []
    request = BuildRequest(onnx="bad.onnx", engine="e")
    with pytest.raises(BuildError, match="Failed to parse"):
        build(trt, request, lambda letter, text: lines.append(f"{letter} {text}"))
    assert any(line.startswith("E [TRT]") for line in lines)
    assert not Path("e").exists()
