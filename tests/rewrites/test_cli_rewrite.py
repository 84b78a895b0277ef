"""`orinport rewrite`: list, explain, diff, apply, and every way to misuse it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

from builders import network, node, run_onnx
from orinport.cli import main


@pytest.fixture
def product(tmp_path: Path) -> Path:
    weights = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    path = tmp_path / "product.onnx"
    onnx.save(network([node("MatMul", ["x", "w"], "y")], {"x": (4, 16)}, ["y"], {"w": weights}), path)
    return path


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewrite", "--list"]) == 0
    assert "matmul-to-conv" in capsys.readouterr().out
    assert main(["rewrite", "--list", "--format", "json"]) == 0
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)["rewrites"]]
    assert names == sorted(names)
    assert "gemm-to-conv" in names


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewrite", "--explain", "gemm-to-conv"]) == 0
    assert "## Refused" in capsys.readouterr().out
    assert main(["rewrite", "--explain", "no-such"]) == 2
    assert "no rewrite named 'no-such'" in capsys.readouterr().err


def test_diff_shows_and_writes_nothing(product: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = product.read_bytes()
    assert main(["rewrite", str(product), "--diff"]) == 1
    out = capsys.readouterr().out
    assert "- MatMul_y" in out
    assert "+ MatMul_y/Conv  Conv [1, 8, 1, 4]" in out
    assert product.read_bytes() == before
    assert list(product.parent.iterdir()) == [product]


def test_apply(product: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.onnx"
    assert main(["rewrite", str(product), "-o", str(out), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rewrites"]["applied"][0]["rewrite"] == "matmul-to-conv"
    assert document["proof"]["equal"] is True
    first, second = onnx.load_model(str(product)), onnx.load_model(str(out))
    onnx.checker.check_model(second, full_check=True)
    feeds = {"x": np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)}
    np.testing.assert_allclose(run_onnx(second, feeds)[0], run_onnx(first, feeds)[0], rtol=1e-5, atol=1e-6)
    assert main(["rewrite", str(out), "--diff"]) == 0
    assert "no rewrite applies" in capsys.readouterr().out


def test_select_and_ignore(product: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewrite", str(product), "--diff", "--select", "gemm"]) == 0
    assert main(["rewrite", str(product), "--diff", "--ignore", "matmul"]) == 0
    capsys.readouterr()
    assert main(["rewrite", str(product), "--diff", "--select", "nothing"]) == 2
    assert "No rewrite begins with 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["-o", "product.onnx"], ["-o", "."]])
def test_misuse(
    options: list[str], product: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(product.parent)
    assert main(["rewrite", str(product), *options]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_existing_file_needs_force(product: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    out.write_text("something")
    assert main(["rewrite", str(product), "-o", str(out)]) == 2
    assert out.read_text() == "something"
    assert main(["rewrite", str(product), "-o", str(out), "--force"]) == 0
    onnx.checker.check_model(str(out))


def test_no_model_is_usage() -> None:
    assert main(["rewrite"]) == 2


def test_approximations_are_held_against_their_own_errors(tmp_path: Path) -> None:
    """Six of them state six times the error of one."""
    names = ["x", *(f"t{number}" for number in range(5)), "y"]
    calls = [node("Gelu", [a], b) for a, b in pairwise(names)]
    path, output = tmp_path / "gelus.onnx", tmp_path / "out.onnx"
    onnx.save(network(calls, {"x": (1, 8, 4, 4)}, ["y"], {}, opset=20), path)
    command = ["rewrite", str(path), "--allow", "tolerance", "--select", "gelu-to-tanh", "-o", str(output)]
    assert main(command) == 0
    assert output.exists()


@pytest.mark.parametrize("text", ['{"io":[],"rewrites":[]}', '{"io":[],"rewrites":{"applied":[{}]}}', "[]", '{"io":3}'])
def test_a_bundle_with_a_damaged_report_is_one_clear_error(
    text: str, product: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = product.parent / "bundle"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(product.read_bytes())
    (folder / "report.json").write_text(text)
    assert main(["verify", str(product), str(folder)]) == 2
    assert "is not the report of a bundle" in capsys.readouterr().err
