"""`run` and `classify` on every backend.

Devices here are stand-ins (see standin_tensorrt.py and device/native/) that test our plumbing: layouts, scales, moved
edges, what is given back. What a real one computes, they cannot say.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import orinport
import standin_tensorrt as standin
from orinport import running
from orinport.cli import main
from orinport.device.tensorrt_builder import build
from orinport.device.tensorrt_request import bundle_arguments, parse_request
from orinport.errors import OrinportError
from orinport.report.run import run_document, run_text
from orinport.running import RunOptions, open_network, run_network

if TYPE_CHECKING:
    from collections.abc import Iterator

NATIVE = Path(__file__).parent / "device" / "native"
JETPACKS = {"8.6.1": "jp6.0", "10.3.0": "jp6.2", "10.16.1": "jp7.2", "11.4.0": "jp7.2.2", standin.BEFORE_NAMES: "jp6.0"}


def save(nodes: list[Any], edges: dict[str, list[int]], weights: list[Any], path: Path) -> Path:
    """A small model; the first edge is its input, the others its outputs."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in edges.items()]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """Pictures of 8 x 8 to four classes; the reshape at its end is an edge that `prepare` moves."""
    rng = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array(rng.standard_normal((4, 3, 8, 8)).astype("f4") * 0.1, "w"),
        numpy_helper.from_array(np.array([1, 4], np.int64), "s"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Reshape", ["r", "s"], ["y"], name="reshape"),
    ]
    return save(nodes, {"x": [1, 3, 8, 8], "y": [1, 4]}, weights, tmp_path / "net.onnx")


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    """What the stand-in for cuDLA computes."""
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="relu")]
    return save(nodes, {"x": [1, 40, 3, 5], "y": [1, 40, 3, 5]}, [], tmp_path / "relu.onnx")


class Devices:
    """The stand-in libraries, and how much of them is in use."""

    def __init__(self, folder: Path) -> None:
        self.paths = {}
        for name in ("cuda", "cudla"):
            path = folder / f"libstandin_{name}.so"
            command = ["gcc", "-shared", "-fPIC", f"-I{NATIVE}", "-o", str(path), str(NATIVE / f"standin_{name}.c")]
            subprocess.run(command, check=True)
            self.paths[name] = path
        self.cuda, self.cudla = (ctypes.CDLL(str(path)) for path in self.paths.values())
        for function in (self.cuda.standin_live, self.cudla.standin_live, self.cudla.standin_violations):
            function.restype = ctypes.c_long

    def check(self) -> None:
        assert self.cuda.standin_live() + self.cudla.standin_live() == 0, "something was not given back"
        assert self.cuda.standin_bad_calls() + self.cudla.standin_violations() == 0


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Devices]:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler on this machine")
    found = Devices(tmp_path)
    for name, path in found.paths.items():
        monkeypatch.setenv(f"ORINPORT_LIB{name.upper()}", str(path))
    yield found
    found.check()


def engine(monkeypatch: pytest.MonkeyPatch, model: Path, version: str, **options: Any) -> Path:
    """A bundle with an engine that the stand-in for this version "built", which is the installed package then."""
    trt = standin.make(version)
    monkeypatch.setitem(sys.modules, "tensorrt", trt)
    monkeypatch.setattr("orinport.device.tensorrt_package.has_package", lambda: True)
    folder = model.with_suffix(".orin")
    orinport.prepare(model, target=f"orin-agx-64gb/{JETPACKS[version]}", output=folder, **options)
    with monkeypatch.context() as inside:
        inside.chdir(folder)
        build(trt, parse_request(bundle_arguments(folder)), lambda *_: None)
    return folder


@pytest.mark.parametrize("version", list(JETPACKS))
def test_an_engine_gives_what_the_network_gives(
    classifier: Path, devices: Devices, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """FP16: dla_hwc4 in, chw16 out, an output that was moved; named tensors from 8.5 on, bindings before."""
    folder = engine(monkeypatch, classifier, version)
    record = json.loads((folder / "report.json").read_text())
    assert [each["format"] for each in (*record["formats"]["inputs"], *record["formats"]["outputs"])] == [
        "dla_hwc4",
        "chw16",
    ]
    report = run_network(folder, RunOptions(cases=2, repeat=4, warm_up=1))
    assert (report.backend, report.samples, len(report.us)) == ("tensorrt", 2, 8)
    assert report.good
    assert [row.snr_db > 50 for row in report.rows] == [True]
    assert report.rows[0].shape == (1, 4, 1, 1)
    against = run_network(folder, RunOptions(cases=2, reference=classifier))
    assert against.good
    assert against.rows[0].shape == (1, 4)


def test_an_int8_engine_uses_the_bundles_scales(
    classifier: Path, devices: Devices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    rng = np.random.default_rng(1)
    for number in range(3):
        np.savez(data / f"{number}.npz", x=rng.standard_normal((1, 3, 8, 8)).astype("f4"))
    folder = engine(monkeypatch, classifier, "10.3.0", precision="int8", data=data)
    formats = json.loads((folder / "report.json").read_text())["formats"]
    assert {each["type"] for each in (*formats["inputs"], *formats["outputs"])} == {"int8"}
    report = run_network(folder, RunOptions(data=str(data), cases=0))
    assert (report.samples, report.source) == (3, str(data))
    assert report.good
    assert 25 < report.rows[0].snr_db < 60, "quantised edges, and nothing else"
    for name in ("scales.json", "calibration.cache"):
        (folder / name).unlink()
    with pytest.raises(OrinportError, match="scale is not known"):
        run_network(folder, RunOptions(data=str(data), cases=0))


def test_an_engine_without_its_bundle(
    classifier: Path, devices: Devices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = engine(monkeypatch, classifier, "10.3.0")
    alone = shutil.copy(folder / "model.engine", tmp_path / "alone.engine")
    blind = run_network(Path(alone), RunOptions(cases=1))
    assert (blind.rows, blind.reference) == ((), "")
    compared = run_network(Path(alone), RunOptions(cases=1, model=folder / "model.onnx"))
    assert compared.good
    assert compared.rows


def test_a_wrong_output_is_found(classifier: Path, devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = engine(monkeypatch, classifier, "10.3.0")
    other = save(
        [helper.make_node("Relu", ["x"], ["c"]), helper.make_node("GlobalAveragePool", ["c"], ["y"])],
        {"x": [1, 3, 8, 8], "y": [1, 3, 1, 1]},
        [],
        classifier.with_name("other.onnx"),
    )
    with pytest.raises(OrinportError, match="shape"):
        run_network(folder, RunOptions(reference=other))
    real = standin.write
    monkeypatch.setattr(standin, "write", lambda tensor, address, array: real(tensor, address, array[:, ::-1]))
    report = run_network(folder, RunOptions())
    assert not report.good
    assert main(["run", str(folder)]) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is empty"), (b"no engine", "does not load.*does not know"), (b'{"version": "1"}', "does not load")],
)
def test_what_is_no_engine(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes, says: str
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", standin.make("10.3.0"))
    monkeypatch.setattr("orinport.device.tensorrt_package.has_package", lambda: True)
    path = tmp_path / "x.engine"
    path.write_bytes(content)
    with pytest.raises(OrinportError, match=says):
        run_network(path)


# ---------------------------------------------------------------------------------------------- cuDLA


def loadable(
    folder: Path, inputs: dict[str, tuple[int, tuple[int, ...]]], outputs: Any, *, statistics: int = 0
) -> None:
    """A "loadable" of the stand-in: names, bytes and shapes of INT8 feature maps."""
    lines = [
        f"{kind} {name} {size} {' '.join(map(str, shape))} 3 4 2"
        for kind, tensors in (("in", inputs), ("out", outputs))
        for name, (size, shape) in tensors.items()
    ]
    lines += ["stat s 64 1 1 1 64 1 4 2"] * statistics
    (folder / "model.loadable").write_text("\n".join(lines) + "\n")


@pytest.fixture
def dla_bundle(relu: Path, tmp_path: Path) -> Path:
    """A bundle in INT8 with equal scales at both ends, and its "loadable"."""
    scales = tmp_path / "scales.json"
    scales.write_text(json.dumps({"tensors": {"x": {"scale": 0.03125}, "y": {"scale": 0.03125}}}))
    folder = tmp_path / "relu.orin"
    orinport.prepare(
        relu, target="orin-agx-64gb/jp6.0", output=folder, precision="int8", scales=scales, standalone=True
    )
    size = 2 * 3 * 5 * 32
    loadable(folder, {"x": (size, (1, 40, 3, 5))}, {"y": (size, (1, 40, 3, 5))}, statistics=2)
    return folder


def test_a_loadable_through_cudla(dla_bundle: Path, devices: Devices, tmp_path: Path) -> None:
    options = RunOptions(
        cases=2, repeat=3, statistics=tmp_path / "layers.csv", dla_mhz=1152, save=tmp_path / "out", dla_core=1
    )
    report = run_network(dla_bundle, options)
    assert report.backend == "cudla"
    assert report.device == "cuDLA 1.5.2, DLA core 1 (hardware 2)"
    assert (report.good, len(report.us)) == (True, 6)
    assert 30 < report.rows[0].snr_db < 60
    assert report.files == (tmp_path / "out", tmp_path / "layers.csv", tmp_path / "layers1.csv")
    text = run_text(report)
    assert "x 1x40x3x5: int8:chw32, 960 bytes, scale 0.03125" in text
    assert "written: " in text
    (first, second) = run_document(report)["tensors"]
    assert (first["name"], first["bytes"], first["scale"]) == ("x", 960, 0.03125)
    assert (second["name"], second["format"]) == ("y", "chw32")
    assert (tmp_path / "layers1.csv").read_text().startswith("layer_name,start_ms,end_ms\n")
    with np.load(tmp_path / "out" / "1.npz") as arrays:
        assert arrays["y"].shape == (1, 40, 3, 5)
        assert (arrays["y"] >= 0).all()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_a_loadable_without_its_bundle(dla_bundle: Path, devices: Devices, tmp_path: Path) -> None:
    alone = Path(shutil.copy(dla_bundle / "model.loadable", tmp_path / "alone.loadable"))
    scales = dla_bundle / "scales.json"
    described = run_network(alone, RunOptions(scales=scales, cases=1))
    assert (described.rows, described.backend) == ((), "cudla")
    given = RunOptions(
        scales=scales, model=dla_bundle / "model.onnx", input_formats=("int8:chw32",), output_formats=("int8:chw32",)
    )
    assert run_network(alone, given).good
    wrong = RunOptions(scales=scales, input_formats=("int8:dla_linear",), output_formats=("int8:chw32",))
    with pytest.raises(OrinportError, match=r"960 bytes for 'x', and int8:dla_linear of 1x40x3x5 takes 7680"):
        run_network(alone, wrong)
    with pytest.raises(OrinportError, match="no element type and format"):
        run_network(alone, RunOptions(input_formats=("int8",)))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("in x 64 1 40 1 1 1 4 3", "leaves its format open"),
        ("in x 64 1 40 1 1 3 4 2\nin z 64 1 40 1 1 3 4 2", "has 2 inputs, and the network 1"),
    ],
)
def test_descriptors_that_do_not_fit(devices: Devices, tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "x.loadable"
    path.write_text(f"{line}\nout y 64 1 40 1 1 3 4 2\n")
    formats = () if "open" in says else ("int8:chw32",)
    with pytest.raises(OrinportError, match=says):
        run_network(path, RunOptions(input_formats=formats))


def test_statistics_need_a_loadable_and_a_clock(
    classifier: Path, dla_bundle: Path, devices: Devices, tmp_path: Path
) -> None:
    target = tmp_path / "s.csv"
    with pytest.raises(OrinportError, match="come from cuDLA"):
        run_network(classifier, RunOptions(statistics=target))
    if not Path("/sys/kernel/debug/bpmp").exists():
        with pytest.raises(OrinportError, match="clock cannot be read"):
            run_network(dla_bundle, RunOptions(statistics=target))
    with pytest.raises(OrinportError, match="0 MHz"):
        run_network(dla_bundle, RunOptions(statistics=target, dla_mhz=0))
    assert not target.exists()


# ---------------------------------------------------------------------------------------------- ONNX Runtime


def test_a_bundle_in_onnx_runtime_against_its_original(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "net.orin"
    orinport.prepare(classifier, output=folder)
    arguments = ["run", str(folder), "-b", "onnxruntime", "--reference", str(classifier), "--repeat", "2"]
    assert main([*arguments, "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["good"] is True
    assert [row["shape"] for row in document["outputs"]] == [[1, 4]]
    assert len(document["times_us"]) == 6
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "fine" in out
    assert "Random inputs show defects" in out


def test_a_reference_with_dynamic_shapes_has_those_of_the_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The moved input has the shape of the original network, the other its own."""
    weights = [numpy_helper.from_array(np.array([1, 3, 8, 8], np.int64), "s")]
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["r"], name="reshape"),
        helper.make_node("Add", ["r", "z"], ["y"], name="add"),
    ]
    edges = {"x": ["n", 192], "z": ["n", 3, "h", "w"], "y": ["n", 3, "h", "w"]}
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in edges.items()]
    graph = helper.make_graph(nodes, "g", infos[:2], infos[2:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    original, folder = tmp_path / "dynamic.onnx", tmp_path / "dynamic.orin"
    original.write_bytes(model.SerializeToString())
    report = orinport.prepare(original, shapes=["x:1x192", "z:1x3x8x8"], output=folder)
    assert [edge.name for edge in report.edges if edge.kind == "input"] == ["x"]
    assert main(["run", str(folder), "-b", "onnxruntime", "--reference", str(original), "--cases", "1"]) == 0
    assert "output y 1x3x8x8: fine" in capsys.readouterr().out
    assert orinport.verify(original, folder, cases=1).equal
    assert main(["verify", str(original), str(folder), "--cases", "1"]) == 0
    with pytest.raises(OrinportError, match="dynamic shape"):
        orinport.verify(original, original)
    assert orinport.verify(folder, emulate="dla-fp16", cases=1).model == report.after.model == "dynamic.onnx"


@pytest.mark.parametrize(
    ("edge", "says"),
    [
        ({"expand": [5]}, "not the report of a bundle"),
        ({"perm": [0, 1]}, "not the report of a bundle"),
        ({"original_shape": [4, 4]}, "not the report of a bundle"),
        ({"original_shape": [8], "expand": [8], "perm": [0], "shape": [1, 8, 1, 1]}, "record of moved edges"),
    ],
)
def test_a_record_that_does_not_fit_is_no_defect_of_ours(
    classifier: Path, tmp_path: Path, edge: dict[str, list[int]], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "net.orin"
    orinport.prepare(classifier, output=folder)
    document = json.loads((folder / "report.json").read_text())
    document["io"][0] |= edge
    (folder / "report.json").write_text(json.dumps(document))
    assert main(["run", str(folder), "-b", "onnxruntime", "--repeat", "1"]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_a_tail_runs_behind_the_board(
    tmp_path: Path, devices: Devices, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """The normalisation is cut off; what comes back is the original's output."""
    weights = [numpy_helper.from_array(np.random.default_rng(0).standard_normal((10, 3, 4, 4)).astype("f4"), "w")]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["logits"], name="conv"),
        helper.make_node("LogSoftmax", ["logits"], ["y"], name="last", axis=1),
    ]
    path = save(nodes, {"x": [1, 3, 4, 4], "y": [1, 10, 1, 1]}, weights, tmp_path / "net.onnx")
    folder = engine(monkeypatch, path, "10.3.0", cut_tail=True)
    assert (folder / "tail.onnx").is_file()
    found = run_network(folder, RunOptions(backend=backend, reference=path))
    assert found.good
    assert [(row.name, row.shape) for row in found.rows] == [("y", (1, 10, 1, 1))]


def test_a_network_in_fp16_against_its_original(classifier: Path, tmp_path: Path) -> None:
    """For TensorRT 11 the board's network takes and gives FP16."""
    folder = tmp_path / "net.orin"
    orinport.prepare(classifier, target="orin-agx-64gb/jp7.2.2", output=folder)
    found = run_network(folder, RunOptions(backend="onnxruntime", reference=classifier))
    assert found.good
    assert 40 < found.rows[0].snr_db < 120


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing"], "no file or bundle"),
        (["BUNDLE"], "neither model.engine nor model.loadable"),
        (["BUNDLE", "-b", "cudla"], "no model.loadable"),
        (["BUNDLE", "-b", "tensorrt"], "no model.engine"),
        (["MODEL", "-b", "tensorrt"], "cannot be run with tensorrt"),
        (["x.bin"], "not known what"),
        (["x.engine"], "TensorRT's Python package is not installed"),
        (["x.loadable"], "no CUDA driver"),
        (["MODEL", "--repeat", "0"], "cannot be negative"),
        (["MODEL", "--save", "."], "exists"),
        (["MODEL", "--data", "nowhere"], "does not exist"),
        (["MODEL", "--statistics", "s.csv"], "come from cuDLA"),
    ],
)
def test_what_is_missing_is_one_line_and_leaves_nothing(
    classifier: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    orinport.prepare(classifier, output=tmp_path / "net.orin")
    for name in ("x.bin", "x.engine", "x.loadable"):
        (tmp_path / name).write_bytes(b"something")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORINPORT_LIBCUDA", "libnothing-of-the-kind.so")
    monkeypatch.setattr("orinport.device.tensorrt_package.has_package", lambda: False)
    before = sorted(tmp_path.rglob("*"))
    names = {"BUNDLE": "net.orin", "MODEL": "net.onnx"}
    capsys.readouterr()
    assert main(["run", *(names.get(each, each) for each in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert says in captured.err
    assert sorted(tmp_path.rglob("*")) == before


def test_interruption_gives_everything_back_and_writes_nothing(
    dla_bundle: Path, devices: Devices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orinport.running.OpenNetwork.finish", interrupted)
    before = sorted(tmp_path.rglob("*"))
    assert main(["run", str(dla_bundle), "--save", str(tmp_path / "out")]) == 130
    assert sorted(tmp_path.rglob("*")) == before


def test_a_process_that_is_interrupted_ends_at_once_and_writes_nothing(classifier: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    command = [sys.executable, "-m", "orinport", "run", str(classifier), "--repeat", "100000000"]
    process = subprocess.Popen(
        [*command, "--save", str(tmp_path / "out")],
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
    )
    deadline = time.monotonic() + 60
    while sorted(tmp_path.rglob("*")) == before and time.monotonic() < deadline:
        time.sleep(0.05)  # until the scratch folder is there: from then on it runs for days
    assert sorted(tmp_path.rglob("*")) != before
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    assert process.wait(20) == 130
    assert time.monotonic() - start < 20
    assert sorted(tmp_path.rglob("*")) == before


def test_ratio_and_difference_by_hand() -> None:
    """Signal 9 + 16 + 0, noise 0.25: 20 dB; then a value that is finite in the reference alone."""
    tally = running._Tally()
    tally.add({"y": np.array([3.0, np.inf])}, {"y": np.array([3.0, 0.0], np.float32)})
    tally.add({"y": np.array([4.0, 0.0])}, {"y": np.array([4.5, 0.0], np.float16)})
    (row,) = tally.rows()
    assert row.snr_db == pytest.approx(20.0)
    assert (row.max_abs, row.broken, row.shape) == (0.5, 0, (2,))
    tally.add({"y": np.array([1.0, 1.0])}, {"y": np.array([np.nan, 1.0])})
    (row,) = tally.rows()
    assert (row.snr_db, row.broken) == (float("-inf"), 1)


# ---------------------------------------------------------------------------------------------- classify


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    path = tmp_path / "photo.png"
    image.fromarray(np.random.default_rng(2).integers(0, 256, (9, 12, 3), np.uint8)).save(path)
    return path


def classes(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[tuple[int, float]]:
    assert main(["classify", *map(str, arguments), "-f", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["pictures"]
    return [(each["index"], each["logit"]) for each in row["classes"]]


def test_classify_gives_the_same_on_every_backend(
    classifier: Path,
    picture: Path,
    devices: Devices,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    folder = engine(monkeypatch, classifier, "10.3.0")
    capsys.readouterr()
    wanted = classes(capsys, classifier, picture)
    assert len(wanted) == 4
    assert wanted[0][1] > wanted[-1][1]
    same = classes(capsys, folder, picture, "-b", "onnxruntime")
    np.testing.assert_allclose(same, wanted, rtol=1e-5)
    alone = Path(shutil.copy(folder / "model.engine", tmp_path / "alone.engine"))
    for found in (
        classes(capsys, folder, picture),
        classes(capsys, alone, picture, "--model", folder / "model.onnx"),
    ):
        assert [index for index, _ in found] == [index for index, _ in wanted]
        np.testing.assert_allclose([v for _, v in found], [v for _, v in wanted], atol=0.02)
    assert main(["classify", str(alone), str(picture)]) == 2
    assert "--model" in capsys.readouterr().err


def test_a_network_with_several_outputs_classifies_nothing(relu: Path, tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["z"])]
    path = save(nodes, {"x": [1, 3, 4, 4], "y": [1, 3, 4, 4], "z": [1, 3, 4, 4]}, [], tmp_path / "two.onnx")
    with open_network(path) as network, pytest.raises(OrinportError, match="2 outputs"):
        network.single(np.zeros((1, 3, 4, 4), np.float32))


# ---------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (RunOptions(min_snr=float("nan")), "is no number"),
        (RunOptions(seed=-1), "seed -1 is negative"),
        (RunOptions(cases=-1), "cannot be negative"),
        (RunOptions(dla_core=9), "has no use for --dla-core"),
        (RunOptions(dla_core=0), "has no use for --dla-core"),
        (RunOptions(scales=Path("s.json")), "has no use for --scales"),
        (RunOptions(model=Path("m.onnx"), plugins=("p.so",)), "has no use for --model and --plugin"),
        (RunOptions(input_formats=("int8:chw32",)), "has no use for --input-formats"),
        (RunOptions(compare=False, reference=Path("r.onnx")), "nothing is to be compared"),
        (RunOptions(preprocess=Path("p.toml")), "not preprocessed"),
        (RunOptions(dla_mhz=1000), "for layer statistics"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(classifier: Path, options: RunOptions, says: str) -> None:
    with pytest.raises(OrinportError, match=says):
        run_network(classifier, options)


@pytest.mark.parametrize("core", [-1, 2, 9])
def test_cores_that_the_board_does_not_have_are_refused(dla_bundle: Path, devices: Devices, core: int) -> None:
    with pytest.raises(OrinportError, match=f"no DLA core {core}.*Use 0 to 1"):
        run_network(dla_bundle, RunOptions(dla_core=core))


def test_the_command_refuses_what_is_no_number(classifier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(classifier), "-b", "onnxruntime", "--min-snr", "nan"]) == 2
    assert "--min-snr is no number" in capsys.readouterr().err
    assert main(["run", str(classifier), "-b", "onnxruntime", "--dla-core", "9"]) == 2
    assert "has no use for --dla-core" in capsys.readouterr().err


@pytest.mark.parametrize("cut_tail", [False, True])
def test_classify_of_a_bundle_takes_probabilities_for_what_they_are(
    tmp_path: Path, picture: Path, cut_tail: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the Softmax runs: in the network, in the bundle's, or behind it in its tail."""
    weights = [
        numpy_helper.from_array(np.random.default_rng(0).standard_normal((5, 3, 4, 4)).astype("f4"), "w"),
        numpy_helper.from_array(np.array([1, 5], np.int64), "s"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Reshape", ["c", "s"], ["logits"], name="reshape"),
        helper.make_node("Softmax", ["logits"], ["y"], name="last", axis=1),
    ]
    path = save(nodes, {"x": [1, 3, 4, 4], "y": [1, 5]}, weights, tmp_path / "net.onnx")
    folder = tmp_path / "net.orin"
    target = "xavier-agx/jp5.1" if cut_tail else "orin-agx-64gb/jp6.2"
    orinport.prepare(path, output=folder, target=target, cut_tail=cut_tail)
    assert (folder / "tail.onnx").is_file() is cut_tail
    found = []
    for each in ([path], [folder, "-b", "onnxruntime"]):
        assert main(["classify", *map(str, each), str(picture), "-f", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["output"] == "softmax"
        (row,) = document["pictures"]
        assert {each["logit"] for each in row["classes"]} == {None}
        found.append([each["probability"] for each in row["classes"]])
    assert sum(found[0]) == pytest.approx(1)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)
