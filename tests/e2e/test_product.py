"""The matrix product that started it: 128x1024 times 1024x128."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import onnx
import pytest

import orinport
from orinport.rules.finding import Verdict

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    spec = importlib.util.spec_from_file_location("example_models", ROOT / "examples/models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.write_all(tmp_path_factory.mktemp("models"))  # type: ignore[no-any-return]


def test_two_runtime_inputs_say_what_tensorrt_says_why_and_what_can_be_done(models: dict[str, Path]) -> None:
    report = orinport.check(models["product_runtime"])
    assert [row.verdict for row in report.layers] == [Verdict.GPU]
    (finding,) = [each for each in report.findings if each.verdict is Verdict.GPU]
    assert "128x1024 x 1024x128" in finding.message
    assert "MatMul is unsupported on DLA, relax constraints or use Convolution layer instead" in finding.message
    assert "run time" in finding.message
    assert "orinport matmul" in finding.help
    assert finding.source


def test_a_constant_side_becomes_one_1x1_convolution(models: dict[str, Path], tmp_path: Path) -> None:
    report = orinport.prepare(models["product_constant"], output=tmp_path / "b")
    assert report.after.all_dla
    assert report.log.counts() == {"matmul-to-conv": 1}
    assert report.proof is not None
    assert report.proof.equal
    model = onnx.load(tmp_path / "b/model.onnx")  # noqa: TID251 written above
    (node,) = model.graph.node
    assert node.op_type == "Conv"
    assert next(list(a.ints) for a in node.attribute if a.name == "kernel_shape") == [1, 1]
    assert orinport.verify(models["product_constant"], tmp_path / "b").equal


def test_paths_of_any_kind_name_networks_and_bundles(models: dict[str, Path], tmp_path: Path) -> None:
    class Named:
        def __init__(self, path: Path) -> None:
            self.path = path

        def __fspath__(self) -> str:
            return str(self.path)

    network = tmp_path / "product.onnx"
    network.write_bytes(models["product_constant"].read_bytes())
    report = orinport.prepare(Named(network))
    assert report.folder == tmp_path / "product.orin"
    compared = orinport.verify(Named(network), Named(report.folder))
    assert (compared.reference, compared.candidate, compared.equal) == ("product.onnx", "product.orin", True)
