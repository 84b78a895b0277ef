"""Matrix products: every plan equals NumPy, runs on the DLA or says why not, and the best is the fastest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orinport
from orinport.cli import main
from orinport.errors import OrinportError
from orinport.matmul.plan import Limits, grid
from orinport.matmul.planner import (
    constant_operand,
    judge,
    limits_of,
    plan_matmul,
    prove,
)
from orinport.matmul.plans import all_plans
from orinport.matmul.plans.runtime import repetitions
from orinport.matmul.product import Constant, Product, parse_product
from orinport.report.matmul import matmul_document, matmul_text
from orinport.rules.finding import Verdict
from orinport.targets.load import load_target
from orinport.targets.target import Precision

TARGET = load_target("orin-agx-64gb/jp6.2")


def random_product(rng: np.random.Generator) -> tuple[Product, Precision]:
    """A product of moderate size: forms with a constant, without, and with a constant each."""
    constant = Constant(rng.choice(["rhs", "lhs", "none"]))
    if rng.random() < 0.4:
        m, k, n = (int(v) for v in rng.integers(1, 12, 3))
        count = int(rng.integers(1, 400))
    else:
        m, k, n = (int(2 ** rng.uniform(0, 9)) for _ in range(3))
        count = int(rng.integers(1, 6))
    distinct = constant is not Constant.NONE and bool(rng.random() < 0.3)
    return Product(m, k, n, count, constant, distinct), Precision(rng.choice(["int8", "fp16"]))


def check_case(seed: int) -> None:
    product, precision = random_product(np.random.default_rng(seed))
    constant = constant_operand(product, None)
    plans = []
    for kind in all_plans():
        for candidate in kind.candidates(product, limits_of(TARGET, precision), constant):
            onnx.checker.check_model(candidate.model, full_check=True)
            proof = prove(candidate, product, constant)
            assert proof.equal, (seed, product, candidate.name, proof)
            plan = judge(candidate, product, TARGET, precision)
            assert plan.all_dla or plan.findings, (seed, product, candidate.name)
            assert plan.inferences * candidate.products >= product.count
            plans.append(plan)
    report = plan_matmul(product, target=TARGET, precision=precision, with_break_even=False)
    assert len(report.plans) == len(plans)
    if report.best is not None:
        assert report.best.total_us == min(plan.total_us for plan in plans if plan.all_dla)
        one = [plan for plan in plans if plan.candidate.products == 1 and plan.all_dla]
        assert all(report.best.total_us <= plan.total_us for plan in one)


@pytest.mark.parametrize("seed", range(40))
def test_random_products(seed: int) -> None:
    check_case(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(40, 340, 20))
def test_many_random_products(start: int) -> None:
    for seed in range(start, start + 20):
        check_case(seed)


def test_the_forums_product() -> None:
    report = orinport.plan_matmul(128, 1024, 128)
    assert report.best is not None
    assert report.proof is not None
    assert report.proof.equal
    assert report.best.candidate.products == 1
    prediction = report.best.prediction
    assert prediction is not None
    assert prediction.macs == 128 * 1024 * 128
    assert report.best.total_us > 5 * report.gpu_us


def test_one_submission_beats_many() -> None:
    report = orinport.plan_matmul(3, 3, 1, count=100_000, constant="none")
    assert report.best is not None
    assert report.best.inferences == 1
    slowest = max(plan.total_us for plan in report.plans)
    assert slowest > 1000 * report.best.total_us


def test_a_large_k_is_folded_into_the_kernel() -> None:
    report = orinport.plan_matmul(2, 10_000, 3)
    assert report.best is not None
    assert report.proof is not None
    assert report.proof.equal
    (node,) = [n for n in report.best.candidate.model.graph.node if n.op_type == "Conv"]
    kernel = next(a.ints for a in node.attribute if a.name == "kernel_shape")
    assert list(kernel) == [2, 1]


def test_the_written_network_goes_the_same_way_as_any_other(tmp_path: Path) -> None:
    report = orinport.plan_matmul(64, 128, 32, count=10)
    assert report.best is not None
    model = report.best.candidate.model
    prepared = orinport.prepare(model, output=tmp_path / "b")
    assert prepared.after.all_dla
    assert prepared.edges == ()
    assert all(row.verdict is Verdict.DLA for row in prepared.before.layers)


def test_a_constant_of_zeros_is_proved() -> None:
    report = orinport.plan_matmul(32, 32, 32, values=np.zeros((32, 32), np.float32))
    assert report.best is not None
    assert report.proof is not None
    assert (report.proof.max_error, report.proof.equal) == (0.0, True)


@pytest.mark.parametrize("value", [1e-45, 1e-42, -1e-39, 1e-30, 1e30, -3.4e38])
@pytest.mark.parametrize("constant", ["rhs", "lhs"])
@pytest.mark.parametrize("distinct", [False, True])
def test_constants_at_the_ends_of_fp32_are_proved(value: float, constant: str, distinct: bool) -> None:
    values = np.full((3, 4, 4) if distinct else (4, 4), value, np.float32)
    report = orinport.plan_matmul(4, 4, 4, count=3, constant=constant, distinct=distinct, values=values)
    assert report.proof is not None
    assert report.proof.equal


@pytest.mark.parametrize(
    ("value", "told"),
    [(65504.0, None), (65505.0, "'y_weights' holds 65505"), (-3e38, "holds -3e+38"), (2.0**-25, "become 0"), (0, None)],
)
@pytest.mark.parametrize("constant", ["rhs", "lhs"])
def test_constants_that_fp16_cannot_hold_are_told(value: float, told: str | None, constant: str) -> None:
    values = np.full((4, 4), value)
    report = orinport.plan_matmul(4, 4, 4, constant=constant, precision="fp16", values=values)
    text, best = matmul_text(report), matmul_document(report)["plans"][0]
    assert best["dla"]
    assert "in FP32" in text
    assert ("Q014 note" in text) is (told is not None)
    assert [(each["code"], each["verdict"]) for each in best["findings"]] == ([("Q014", None)] if told else [])
    assert told is None or told in best["findings"][0]["message"]
    in_int8 = orinport.plan_matmul(4, 4, 4, constant=constant, precision="int8", values=values)
    assert "Q014" not in matmul_text(in_int8)


def test_a_nan_is_not_equal() -> None:
    product = Product(4, 4, 4)
    constant = np.ones((4, 4), np.float32)
    (candidate, *_) = next(
        found
        for kind in all_plans()
        if (found := list(kind.candidates(product, limits_of(TARGET, Precision.FP16), constant)))
    )
    broken = onnx.numpy_helper.to_array(candidate.model.graph.initializer[0]).copy()
    broken.flat[0] = np.nan
    candidate.model.graph.initializer[0].raw_data = broken.tobytes()
    assert not prove(candidate, product, constant).equal


def test_given_values_are_used() -> None:
    values = np.arange(12, dtype=np.float64).reshape(4, 3)
    report = orinport.plan_matmul(5, 4, 3, values=values)
    assert report.best is not None
    (weights,) = report.best.candidate.model.graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(weights)[:, :, 0, 0], values.T)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"values": np.zeros((3, 3))}, "shape"),
        ({"values": np.full((4, 3), np.nan)}, "finite"),
        ({"values": np.full((4, 3), "a")}, "finite"),
        ({"values": np.full((4, 3), -1e39)}, "beyond FP32"),
        ({"values": np.full((4, 3), 1e-46)}, "become 0"),
        ({"constant": "none", "values": np.zeros((4, 3))}, "no operand is constant"),
        ({"constant": "both"}, "no operand"),
        ({"constant": "none", "distinct": True}, "Distinct constants"),
        ({"count": 0}, "count is 0"),
        ({"target": "xavier-agx/jp5.1"}, "no public measurement"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(OrinportError, match=says):
        orinport.plan_matmul(5, 4, 3, **options)  # type: ignore[arg-type]


def test_sizes_past_every_limit_have_no_plan() -> None:
    report = orinport.plan_matmul(2, 70_000, 3)
    assert report.plans == ()
    assert report.best is None
    assert "no plan" in matmul_text(report)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 200_000), st.integers(64, 8192), st.integers(64, 8192))
def test_grids_hold_all_positions(positions: int, highest: int, widest: int) -> None:
    if positions > highest * widest // 2:
        return
    height, width, unused = grid(positions, highest, widest)
    assert height * width == positions + unused
    assert 1 <= height <= highest
    assert 1 <= width <= widest
    assert unused < max(width, 32)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 8192))
def test_repetitions_are_few_and_close(size: int) -> None:
    factors = repetitions(size, Limits(8192, 8, 32, 32))
    product = int(np.prod(factors))
    assert all(1 <= factor <= 32 for factor in factors)
    assert size <= product <= size * 1.35
    assert len(factors) <= 3


@pytest.mark.parametrize(
    ("text", "sizes"), [("128x1024@1024x128", (128, 1024, 128)), (" 3x4 @ 4x5 ", (3, 4, 5)), ("3x4*4x5", (3, 4, 5))]
)
def test_spellings(text: str, sizes: tuple[int, int, int]) -> None:
    assert parse_product(text) == sizes


@pytest.mark.parametrize("text", ["3x4@5x6", "3x4", "a", "", "0x4@4x4x4"])
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(OrinportError):
        parse_product(text)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = tmp_path / "p.onnx"
    assert main(["matmul", "8", "16", "4", "--count", "3", "--write", str(network)]) == 0
    out = capsys.readouterr().out
    assert "plan 1 against NumPy in ONNX Runtime: equal" in out
    onnx.checker.check_model(str(network))
    document = json.loads((tmp_path / "p.json").read_text())
    assert document == json.loads(json.dumps(document))
    assert document["plans"][0]["dla"]
    assert main(["matmul", "8", "16", "4", "--write", str(network)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["matmul", "8x16@16x4", "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["product"]["k"] == 16
    assert main(["matmul", "8x16@17x4"]) == 2
    assert main(["matmul", "8", "16"]) == 2
    assert main(["matmul", "2", "70000", "3"]) == 1


def test_values_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "b.npy", np.ones((16, 4), np.float32))
    assert main(["matmul", "8", "16", "4", "--values", str(tmp_path / "b.npy")]) == 0
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert main(["matmul", "8", "16", "4", "--values", str(tmp_path / "o.npy")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    np.savez(tmp_path / "one.npz", np.ones((16, 4), np.float32))
    assert main(["matmul", "8", "16", "4", "--values", str(tmp_path / "one.npz")]) == 0
    np.savez(tmp_path / "two.npz", a=np.ones((16, 4)), b=np.ones((16, 4)))
    assert main(["matmul", "8", "16", "4", "--values", str(tmp_path / "two.npz")]) == 2
    assert "holds 2 arrays, and the product takes one constant" in capsys.readouterr().err
    (tmp_path / "junk.npy").write_bytes(b"PK\x03\x04garbage")
    assert main(["matmul", "8", "16", "4", "--values", str(tmp_path / "junk.npy")]) == 2
    assert "holds no plain arrays" in capsys.readouterr().err


def test_the_document_tells_how_to_feed_the_network() -> None:
    report = orinport.plan_matmul(6, 5, 4, count=7)
    document = json.loads(json.dumps(matmul_document(report)))
    layout = document["plans"][0]["inputs"]["a"]["layout"]
    a = np.random.default_rng(0).standard_normal((7, 6, 5), dtype=np.float32)
    spread = a.transpose(layout["perm"]).reshape(layout["expand"])
    padded = np.pad(spread, [(0, pad) for pad in layout["pads"]])
    board = padded.reshape(layout["middle"]).transpose(layout["order"]).reshape(layout["shape"])
    assert report.best is not None
    np.testing.assert_array_equal(board, report.best.candidate.inputs["a"].of(a, None))
