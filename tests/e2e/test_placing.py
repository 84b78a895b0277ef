"""Placement by wish and by prediction, from the network to build.sh."""

from __future__ import annotations

import shlex
from pathlib import Path

import onnx
import pytest

import orinport
from orinport.errors import OrinportError
from orinport.placing import parse_wishes
from orinport.rules.finding import Verdict

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def device_types(folder: Path) -> list[str]:
    words = shlex.split((folder / "build.sh").read_text().replace("\\\n", " "), comments=True)
    return [word.split("=", 1)[1] for word in words if word.startswith("--layerDeviceTypes=")]


def test_a_layer_that_is_kept_on_the_gpu(tmp_path: Path) -> None:
    plain = orinport.prepare(LIGHT / "light_squeezenet.onnx", output=tmp_path / "a")
    name = plain.after.layers[5].layer.nodes[0]
    kept = orinport.prepare(LIGHT / "light_squeezenet.onnx", output=tmp_path / "b", keep={name: "gpu"})
    assert plain.after.placement.loadables == 1
    assert kept.after.placement.loadables == 2
    assert any(region.device == "gpu" for region in kept.after.placement.regions)
    assert device_types(tmp_path / "a") == []
    (given,) = device_types(tmp_path / "b")
    layers = {row.layer.name for row in kept.after.layers if name in row.layer.nodes and not row.layer.folds}
    assert set(given.split(",")) == {f"{layer}:GPU" for layer in layers}
    assert "--allowGPUFallback" in (tmp_path / "b/build.sh").read_text()
    assert kept.prediction is not None
    assert plain.prediction is not None
    assert kept.prediction.transitions == 2


def test_optimizing_never_predicts_slower() -> None:
    for name in ("shufflenet", "squeezenet"):
        plain = orinport.predict(LIGHT / f"light_{name}.onnx")
        better = orinport.predict(LIGHT / f"light_{name}.onnx", optimize=True)
        assert better.total_us <= plain.total_us * 1.001


@pytest.mark.parametrize(
    ("keep", "says"), [({"nothing": "gpu"}, "no layer or node"), ({"n_erf": "dla"}, "does not take")]
)
def test_wishes_that_cannot_be_granted(keep: dict[str, str], says: str, tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 8, 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Erf", ["x"], ["y"], name="n_erf")], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert orinport.check(model).count(Verdict.DLA) == 0
    with pytest.raises(OrinportError, match=says):
        orinport.prepare(model, output=tmp_path / "b", keep=keep)
    assert list(tmp_path.iterdir()) == []


def test_versions_that_cannot_move_layers_say_so(tmp_path: Path) -> None:
    report = orinport.check(LIGHT / "light_squeezenet.onnx", target="orin-agx-64gb/jp5.1")
    name = report.layers[2].layer.nodes[0]
    with pytest.raises(OrinportError, match=r"8\.6"):
        orinport.prepare(
            LIGHT / "light_squeezenet.onnx", target="orin-agx-64gb/jp5.1", output=tmp_path / "b", keep={name: "gpu"}
        )


@pytest.mark.parametrize("word", ["a", "a=", "=gpu", "a=npu", ""])
def test_spelling_of_wishes(word: str) -> None:
    with pytest.raises(OrinportError, match="wish"):
        parse_wishes((word,))
    assert parse_wishes(("a=b=gpu",)) == {"a=b": "gpu"}
