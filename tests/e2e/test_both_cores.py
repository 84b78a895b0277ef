"""`--cores 2`, from the network to the parts in the bundle."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import orinport
from boards import write_program
from orinport.cli import main
from orinport.device.built import outdated_builds
from orinport.device.measure import built_gpu_layers
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.model.save import to_proto
from orinport.precision.half import to_half
from orinport.report.predict import predict_document, predict_text
from values import HOSTILE

ROUNDS_HALF = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) >= (1, 30)
"""ONNX Runtime up to 1.28 cuts off where QuantizeLinear should round FP16 (measured: 1.23.2 to 1.28.0; not 1.30.0)."""


def branches(*, erf: bool = False, size: int = 64, depth: int = 4) -> onnx.ModelProto:
    """Two branches of convolutions behind a stem, joined by a sum; with `erf` the second holds what the GPU runs."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def conv(source: str, channels: int, result: str) -> str:
        weight = (rng.standard_normal((64, channels, 3, 3)) * 0.05).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"{result}/w"))
        nodes.append(helper.make_node("Conv", [source, f"{result}/w"], [result], name=result, pads=[1, 1, 1, 1]))
        return result

    stem = conv("image", 3, f"stem {HOSTILE}")
    ends = []
    for branch in "ab":
        tensor = stem
        for number in range(depth):
            tensor = conv(tensor, 64, f"{branch}{number}")
            if erf and branch == "b" and number == 1:
                nodes.append(helper.make_node("Erf", [tensor], ["erf"], name="erf"))
                tensor = "erf"
        ends.append(tensor)
    nodes.append(helper.make_node("Add", ends, ["sum"], name="sum"))
    conv("sum", 64, "result")
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, [1, 64, size, size])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    import onnxruntime as ort

    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    given = {each.name: feeds[each.name] for each in session.get_inputs()}
    return dict(zip(names, session.run(names, given), strict=True))


def options(folder: Path) -> list[str]:
    text = (folder / "build.sh").read_text().split("set -- ")[1]
    return shlex.split(text.replace("\\\n", " "), comments=True)


@pytest.mark.parametrize("erf", [False, True])
def test_the_parts_together_are_the_network(tmp_path: Path, erf: bool) -> None:
    report = orinport.prepare(branches(erf=erf), output=tmp_path / "b", cores=2)
    assert not [note for note in report.notes if "not split" in note], report.notes
    document = json.loads((tmp_path / "b/parts.json").read_text())
    assert document == json.loads((tmp_path / "b/report.json").read_text())["parts"]
    devices = [(part["device"], part["core"]) for part in document["parts"]]
    assert {("dla", 0), ("dla", 1)} <= set(devices)
    assert (("gpu", None) in devices) is erf
    image = np.random.default_rng(1).standard_normal((1, 3, 64, 64)).astype(np.float32)
    made: dict[str, np.ndarray] = {"image": image}
    folders: list[str] = []
    for part in document["parts"]:
        for entry in part["inputs"]:
            assert entry["from"] in (None, *folders), "a part reads what is not there yet"
        results = run(tmp_path / "b" / part["folder"] / "model.onnx", made)
        assert list(results) == part["outputs"]
        made |= results
        folders.append(part["folder"])
    whole = run(tmp_path / "b/model.onnx", {"image": image})
    np.testing.assert_allclose(made["result"], whole["result"], rtol=1e-5, atol=1e-5)


def test_every_part_is_a_bundle_for_its_device(tmp_path: Path) -> None:
    orinport.prepare(branches(erf=True), output=tmp_path / "b", cores=2)
    document = json.loads((tmp_path / "b/parts.json").read_text())
    formats: dict[str, str] = {}
    for part in document["parts"]:
        folder = tmp_path / "b" / part["folder"]
        given = options(folder)
        core = [word for word in given if word.startswith("--useDLACore")]
        assert core == ([] if part["device"] == "gpu" else [f"--useDLACore={part['core']}"])
        assert ("--directIO" in given) is (part["device"] == "dla")
        assert "--allowGPUFallback" not in given
        record = json.loads((folder / "report.json").read_text())
        assert set(record["files"]) == {path.name for path in folder.iterdir()}
        for edge in record["formats"]["inputs"]:
            source = next(entry["from"] for entry in part["inputs"] if entry["name"] == edge["name"])
            assert source is None or edge["format"] == formats[edge["name"]], "something would have to convert it"
        formats |= {edge["name"]: edge["format"] for edge in record["formats"]["outputs"]}
    script = (tmp_path / "b/build_parts.sh").read_text()
    assert [line.split()[1] for line in script.splitlines() if line.startswith("sh ")] == [
        f"{part['folder']}/build.sh" for part in document["parts"]
    ]


@pytest.fixture
def trtexec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in for trtexec."""
    for name in ("FAIL", "SLEEP"):
        monkeypatch.delenv(name, raising=False)
    program = write_program(tmp_path / "trtexec")
    monkeypatch.setenv("TRTEXEC", str(program))
    return program


def test_build_builds_every_part(tmp_path: Path, trtexec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "b"
    orinport.prepare(branches(), output=bundle, cores=2)
    parts = json.loads((bundle / "parts.json").read_text())["parts"]
    assert main(["build", str(bundle), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("== ")] == [
        f"== {bundle}", *(f"== {bundle / part['folder']}" for part in parts)
    ]  # fmt: skip
    for part in parts:
        assert (bundle / part["folder"] / "model.engine").is_file()
        assert f"argument --useDLACore={part['core']}" in (bundle / part["folder"] / "build.log").read_text()
    orinport.prepare(branches(size=32), output=bundle, cores=2, force=True)
    assert bundle / "model.engine" in outdated_builds(bundle)
    assert bundle / "parts/0-dla0/model.engine" in outdated_builds(bundle)


def test_one_part_that_fails_does_not_keep_the_others(
    tmp_path: Path, trtexec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "b"
    orinport.prepare(branches(), output=bundle, cores=2)
    script = bundle / "parts/0-dla0/build.sh"
    script.write_text(script.read_text().replace("set -eu", "set -eu; FAIL=1; export FAIL"))
    assert main(["build", str(bundle), "--quiet"]) == 1
    built = {path.parent.name for path in bundle.rglob("model.engine")}
    assert "0-dla0" not in built
    assert {bundle.name, "1-dla1"} <= built
    assert "made no engine" in capsys.readouterr().out


@pytest.mark.parametrize(
    "document", ["{", "[]", '{"parts": [{"folder": "../x"}]}', '{"parts": [{"folder": "parts/nosuch"}]}']
)
def test_a_list_of_parts_that_is_none(
    tmp_path: Path, trtexec: Path, capsys: pytest.CaptureFixture[str], document: str
) -> None:
    bundle = tmp_path / "b"
    orinport.prepare(branches(depth=0), output=bundle)
    (bundle / "parts.json").write_text(document)
    assert main(["build", str(bundle)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_profile_is_laid_beside_what_was_built(
    tmp_path: Path, trtexec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "b"
    orinport.prepare(branches(erf=True), output=bundle, cores=2, keep={"a1": "gpu"})
    layers = [{"name": "a1", "averageMs": 0.1, "timeMs": 1.0}]
    (tmp_path / "p.json").write_text(json.dumps([{"count": 10}, *layers]))

    def transitions(folder: Path) -> int:
        assert main(["profile", str(folder), str(tmp_path / "p.json"), "-f", "json"]) in (0, 1)
        out, err = capsys.readouterr()
        assert ("its parts are bundles of their own" in err) is (folder == bundle)
        return int(json.loads(out)["transitions"])

    whole = transitions(bundle)
    assert whole == json.loads((bundle / "report.json").read_text())["after"]["summary"]["transitions"] > 0
    gpu = [part["folder"] for part in json.loads((bundle / "parts.json").read_text())["parts"] if part["core"] is None]
    assert gpu
    for folder in gpu:
        assert transitions(bundle / folder) == 0
    assert built_gpu_layers(bundle) == ("a1",)


def test_run_takes_the_core_that_a_part_is_built_for(
    tmp_path: Path, trtexec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "b"
    orinport.prepare(branches(), output=bundle, cores=2)
    assert main(["build", str(bundle), "--quiet"]) == 0
    seen: list[int] = []

    def backend(*_: object, dla_core: int, **__: object) -> None:
        seen.append(dla_core)
        raise OrinportError("enough")

    monkeypatch.setattr("orinport.running.TensorRTBackend", backend)
    for folder, options in (("parts/1-dla1", ()), ("parts/1-dla1", ("--dla-core", "0")), (".", ())):
        assert main(["run", str(bundle / folder), *options]) == 2
    assert seen == [1, 0, 0]


def test_int8_parts_have_the_scales(tmp_path: Path) -> None:
    tensors = ["image", f"stem {HOSTILE}", "sum", "result", *(f"{b}{n}" for b in "ab" for n in range(4))]
    scales = {"tensors": {name: {"scale": 0.05} for name in tensors}}
    (tmp_path / "scales.json").write_text(json.dumps(scales))
    orinport.prepare(
        branches(size=512), output=tmp_path / "b", cores=2, precision="int8", scales=tmp_path / "scales.json"
    )
    document = json.loads((tmp_path / "b/parts.json").read_text())
    for part in document["parts"]:
        folder = tmp_path / "b" / part["folder"]
        assert (folder / "calibration.cache").read_text() == (tmp_path / "b/calibration.cache").read_text()
        given = options(folder)
        assert "--calib=calibration.cache" in given
        assert not [word for word in given if word.startswith("--outputIOFormats=fp16")] or "stem" in str(
            part["outputs"]
        )


def stated(path: Path) -> tuple[dict[str, float], dict[str, bytes]]:
    """What the Q/DQ layers of a model say: the step of each activation by its name, and the integers of weights."""
    graph = onnx.ModelProto.FromString(path.read_bytes()).graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    pairs = [each for each in graph.node if each.op_type == "QuantizeLinear"]
    steps = {each.input[0].removesuffix("_before"): float(constants[each.input[1]]) for each in pairs}
    return steps, {name: array.tobytes() for name, array in constants.items() if array.ndim == 4}


def test_int8_parts_for_tensorrt_11_have_their_own_qdq_layers(tmp_path: Path) -> None:
    """Every part has the pairs of its own tensors; what leads from one to the other has its pair in both."""
    tensors = ["image", f"stem {HOSTILE}", "sum", "result", *(f"{b}{n}" for b in "ab" for n in range(8))]
    (tmp_path / "scales.json").write_text(json.dumps({"tensors": dict.fromkeys(tensors, 0.05)}))
    report = orinport.prepare(
        branches(size=128, depth=8),
        output=tmp_path / "b",
        cores=2,
        precision="int8",
        scales=tmp_path / "scales.json",
        target="orin-agx-64gb/jp7.2.2",
    )
    assert not [note for note in report.notes if "not split" in note], report.notes
    assert report.split is not None
    assert report.split.total_us < 0.95 * report.prediction.total_us
    document = json.loads((tmp_path / "b/parts.json").read_text())
    assert {part["core"] for part in document["parts"]} == {0, 1}
    whole, weights = stated(tmp_path / "b/model.onnx")
    assert set(whole) == set(tensors)
    found: dict[str, float] = {}
    together: dict[str, bytes] = {}
    for part in document["parts"]:
        folder = tmp_path / "b" / part["folder"]
        steps, integers = stated(folder / "model.onnx")
        assert {entry["name"] for entry in part["inputs"]} | set(part["outputs"]) <= set(steps)
        found |= steps
        together |= integers
        assert not (folder / "calibration.cache").exists()
        record = json.loads((folder / "report.json").read_text())
        edges = [*record["formats"]["inputs"], *record["formats"]["outputs"]]
        assert {edge["type"] for edge in edges} == {"fp16"}
    assert found == whole
    assert together == weights
    image = np.random.default_rng(1).standard_normal((1, 3, 128, 128)).astype(np.float16)
    made: dict[str, np.ndarray] = {"image": image}
    for part in document["parts"]:
        made |= run(tmp_path / "b" / part["folder"] / "model.onnx", made)
    result = run(tmp_path / "b/model.onnx", {"image": image})["result"]
    assert result.astype(np.float32).std() > 1
    if ROUNDS_HALF:
        np.testing.assert_array_equal(made["result"], result)


def test_tensors_between_engines_are_fp16_with_tensorrt_11() -> None:
    """They cost twice what they cost in INT8, so that fewer networks are worth a split, and its prediction says so."""
    network = branches(size=256)
    before = orinport.predict(network, cores=2, target="orin-agx-64gb/jp7.2")
    half = to_proto(to_half(load(network))[0])
    after = orinport.predict(half, cores=2, target="orin-agx-64gb/jp7.2.2")
    assert before.split
    assert not after.split
    wide = to_proto(to_half(load(branches(size=256, depth=8)))[0])
    split, single = (orinport.predict(wide, cores=cores, target="orin-agx-64gb/jp7.2.2") for cores in (2, 1))
    assert split.split
    assert split.total_us <= 0.95 * single.total_us
    written = {layer.layer.name: layer.bytes.output for region in split.regions for layer in region.layers}
    narrow = {layer.layer.name: layer.bytes.output for region in single.regions for layer in region.layers}
    assert written["a7"] == 2 * narrow["a7"]
    assert written["a6"] == narrow["a6"]


def test_the_prediction_of_a_split_network() -> None:
    single = orinport.predict(branches(size=512))
    split = orinport.predict(branches(size=512), cores=2)
    assert split.split
    assert not single.split
    assert {region.unit for region in split.regions} == {"dla0", "dla1"}
    assert split.total_us < 0.8 * single.total_us
    assert split.work_us > split.total_us
    assert split.band.low < split.total_us < split.band.high
    by_unit: dict[str, float] = {}
    for region in split.regions:
        assert region.start_us >= by_unit.get(region.unit, 0.0), "a device runs two regions at once"
        by_unit[region.unit] = region.start_us + region.us
    assert split.fps_two_dlas <= single.fps_two_dlas, "instances side by side are never slower in the long run"
    document = predict_document(split)
    assert sorted(region["core"] for region in document["regions"]) == sorted(region.core for region in split.regions)
    starts = sorted(region.start_us for region in split.regions)
    for order in (split.regions, split.regions[::-1]):
        shown = predict_document(replace(split, regions=order))["regions"]
        assert [region["start_us"] for region in shown] == starts
    text = predict_text(split)
    assert "dla1 from" in text
    assert "each going over dla0 and dla1; every region is an engine" in text


def test_a_chain_is_not_split_and_says_so(tmp_path: Path) -> None:
    graph = branches(depth=0)
    prediction = orinport.predict(graph, cores=2)
    assert not prediction.split
    assert "not split" in predict_text(prediction)
    report = orinport.prepare(graph, output=tmp_path / "b", cores=2)
    assert any("not split" in note for note in report.notes)
    assert not (tmp_path / "b/parts").exists()


def test_parts_are_never_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    orinport.prepare(branches(), output=tmp_path / "b", cores=2)
    for link in ("parts/0-dla0", "parts"):
        shutil.rmtree(tmp_path / "b" / link)
        (tmp_path / "b" / link).symlink_to(outside, target_is_directory=True)
        orinport.prepare(branches(), output=tmp_path / "b", cores=2, force=True)
        assert (tmp_path / "b" / link).is_dir()
        assert not (tmp_path / "b" / link).is_symlink()
        assert list(outside.iterdir()) == []


def test_wishes_name_cores_and_old_parts_go(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    onnx.save(branches(), model)
    arguments = ["prepare", str(model), "-o", str(tmp_path / "b"), "--force"]
    assert main([*arguments, "--cores", "2", "--keep", "b1=dla0", "--keep", "a1=dla1"]) == 0
    document = json.loads((tmp_path / "b/parts.json").read_text())
    on = {name: part["core"] for part in document["parts"] for name in part["outputs"]}
    assert len(set(on.values())) == 2
    (tmp_path / "b/parts/note.txt").write_text("a user's own")
    assert main(arguments) == 0
    assert not (tmp_path / "b/parts.json").exists()
    assert [path.name for path in (tmp_path / "b/parts").rglob("*")] == ["note.txt"]
    (tmp_path / "b/parts/note.txt").unlink()
    assert main([*arguments, "--cores", "2"]) == 0
    assert main(arguments) == 0
    assert not (tmp_path / "b/parts").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cores": 3}, "2 DLA cores"),
        ({"cores": 0}, "2 DLA cores"),
        ({"keep": {"a1": "dla1"}}, "--cores 2"),
    ],
)
def test_what_cannot_be(given: dict[str, object], says: str) -> None:
    with pytest.raises(OrinportError, match=says):
        orinport.predict(branches(), **given)  # type: ignore[arg-type]


def test_the_split_is_chosen_for_the_batch() -> None:
    graph = branches(size=32)
    assert not orinport.predict(graph, cores=2).split
    assert orinport.predict(graph, cores=2, batch=64).split
