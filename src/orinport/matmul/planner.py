"""`plan_matmul`: every plan for a matrix product, judged, predicted, ranked, and the best one proved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.errors import OrinportError
from orinport.matmul.plan import Candidate, Limits
from orinport.matmul.plans import all_plans
from orinport.matmul.product import Constant, Product
from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.model.load import load
from orinport.model.lower import lower
from orinport.model.runtime import open_session
from orinport.placement.place import place
from orinport.placement.placement import Placement, Region
from orinport.precision.constants import constant_findings
from orinport.predict.network import predict_network
from orinport.rules.engine import check_layers
from orinport.rules.finding import Verdict
from orinport.targets.catalogue import rows_for
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding
    from orinport.targets.target import Target

__all__ = ["MatmulReport", "Plan", "Proof", "break_even", "plan_matmul", "prove"]

_MOST_TRIED = 1 << 20
_MOST_ELEMENTS = 1 << 22
_FAR = 120
"""FP32's exponents go from -126 to 127."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One inference of the plan's network in ONNX Runtime, in FP32, against NumPy in float64."""

    max_error: float
    tolerance: float

    @property
    def equal(self) -> bool:
        """The error, relative to the largest magnitude of the result, stays within the tolerance."""
        return self.max_error <= self.tolerance


@dataclass(frozen=True, slots=True)
class Plan:
    """A candidate with its verdict and its time for all products."""

    candidate: Candidate
    all_dla: bool
    findings: tuple[Finding, ...]
    """What keeps it off the DLA; empty if nothing does."""
    prediction: Prediction | None
    inferences: int
    """Inferences that compute all products."""
    notes: tuple[Finding, ...] = ()
    """Constants that FP16 cannot hold, of a plan that the DLA takes."""

    @property
    def total_us(self) -> float:
        """All products, one inference after the other, each submitted on its own."""
        return float("inf") if self.prediction is None else self.prediction.total_us * self.inferences


@dataclass(frozen=True, slots=True)
class MatmulReport:
    """Plans for one problem, the fastest that the DLA takes first."""

    product: Product
    target: Target
    precision: Precision
    plans: tuple[Plan, ...]
    gpu_us: float
    """One batched product on the GPU, an order of magnitude."""
    proof: Proof | None
    break_even: int | None
    """Products in one submission from which on the DLA is predicted to be no slower than the GPU."""

    @property
    def best(self) -> Plan | None:
        """The fastest plan that runs on the DLA alone."""
        return next((plan for plan in self.plans if plan.all_dla), None)


def plan_matmul(
    product: Product,
    *,
    target: Target,
    precision: Precision,
    values: NDArray[Any] | None = None,
    with_break_even: bool = True,
    progress: Callable[[str], None] | None = None,
) -> MatmulReport:
    """Rank the ways to put `product` on the DLA; the best one is proved against NumPy.

    `values` is the constant operand, random if left out: (m, k) or (k, n), with `distinct` one for each
    product. Raises OrinportError if it does not fit, or no measurement covers the target.
    """
    constant = constant_operand(product, values)
    limits = limits_of(target, precision)
    plans = []
    for kind in all_plans():
        for candidate in kind.candidates(product, limits, constant):
            if progress is not None:
                progress(candidate.name)
            plans.append(judge(candidate, product, target, precision))
    ranked = tuple(sorted(plans, key=lambda plan: (not plan.all_dla, plan.total_us)))
    best = next((plan for plan in ranked if plan.all_dla), None)
    proof = None if best is None else prove(best.candidate, product, constant)
    if proof is not None and not proof.equal:
        raise RuntimeError(f"plan {best and best.candidate.name!r} differs from NumPy by {proof.max_error:.3g}")
    even = break_even(product, target, precision) if with_break_even and best is not None else None
    return MatmulReport(product, target, precision, ranked, gpu_us(product, target, precision), proof, even)


def constant_operand(product: Product, values: NDArray[Any] | None) -> NDArray[Any] | None:
    """The constant operand in FP32, checked or drawn at random."""
    if product.constant is Constant.NONE:
        if values is not None:
            raise OrinportError("Values are given, and no operand is constant.", "Choose --constant rhs or lhs.")
        return None
    shape: tuple[int, ...] = (product.k, product.n) if product.constant is Constant.RHS else (product.m, product.k)
    if product.distinct:
        shape = (product.count, *shape)
    if values is None:
        rng = np.random.default_rng(0)
        drawn: NDArray[np.float32] = rng.standard_normal(shape, dtype=np.float32) / np.float32(product.k**0.5)
        return drawn
    if values.shape != shape:
        raise OrinportError(f"The constant has shape {values.shape}, and the product needs {shape}.")
    if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise OrinportError("The constant holds values that are no finite numbers.")
    return _single(values)


def _single(values: NDArray[Any]) -> NDArray[Any]:
    """`values` in FP32. Raises OrinportError if that makes infinities of some, or zeros of all."""
    with np.errstate(over="ignore", under="ignore"):
        single: NDArray[np.float32] = values.astype(np.float32)
    if not np.isfinite(single).all():
        raise OrinportError(
            f"The constant holds values beyond FP32, which ends at {np.finfo(np.float32).max:.6g}.",
            "Divide it, and multiply the result.",
        )
    if values.any() and not single.any():
        raise OrinportError("In FP32 all values of the constant become 0.", "Multiply it, and divide the result.")
    return single


def limits_of(target: Target, precision: Precision) -> Limits:
    """What plans are built for, from the catalogue of the target."""
    rows = rows_for(target, precision)

    def most(*names: str) -> int:
        return min(int(str(rows[name].values["max"])) for name in names if name in rows)

    return Limits(dimension=most("G05"), stride=most("C04"), kernel=most("C02a", "C02b"), resize=most("Z02a"))


def judge(candidate: Candidate, product: Product, target: Target, precision: Precision) -> Plan:
    """Verdict and time of one candidate."""
    model = load(candidate.model)
    layers = lower(model, tensorrt=target.stack.tensorrt)
    report = check_layers(layers, inputs=model.inputs, outputs=model.outputs, target=target, precision=precision)
    inferences = -(-product.count // candidate.products)
    against = tuple(finding for finding in report.findings if finding.verdict not in (None, Verdict.DLA))
    if any(verdict is not Verdict.DLA for verdict in report.verdicts.values()):
        return Plan(candidate, False, against, None, inferences)
    placement = place(
        layers, report.verdicts, inputs=model.inputs, outputs=model.outputs, target=target, precision=precision
    )
    prediction = predict_network(candidate.name, placement, target, precision)
    running = [layer for layer in layers if not layer.folds]
    notes = constant_findings(model, running, half=precision is Precision.FP16)
    return Plan(candidate, True, (), prediction, inferences, tuple(notes))


def prove(candidate: Candidate, product: Product, constant: NDArray[Any] | None) -> Proof:
    """Run the network once on random operands and compare with NumPy in float64.

    The tolerance is that of a sum of K products in FP32 in any order: 4 sqrt(K) roundings. Beside a constant the
    other operand gets the power of two by which the products are about 1, so that they are normal numbers.
    """
    rng = np.random.default_rng(1)
    many = candidate.products
    used = constant[:many] if product.distinct and constant is not None else constant
    unit = np.float32(_reciprocal_power(used))
    a = rng.standard_normal((many, product.m, product.k), dtype=np.float32) * unit
    b = rng.standard_normal((many, product.k, product.n), dtype=np.float32) * unit
    if product.constant is Constant.RHS and used is not None:
        b = np.broadcast_to(used, b.shape)
    if product.constant is Constant.LHS and used is not None:
        a = np.broadcast_to(used, a.shape)
    session = open_session(candidate.model.SerializeToString())
    results = session.run(None, {name: feed.of(a, b) for name, feed in candidate.inputs.items()})
    wanted = np.matmul(a.astype(np.float64), b.astype(np.float64))
    errors = []
    turned = product.constant is Constant.LHS
    for value, output in zip(results, session.get_outputs(), strict=True):
        layout, part = candidate.outputs[output.name]
        want = wanted[:, part, :] if turned else wanted[:, :, part]
        errors.append(np.abs(layout.from_board(value, want.shape) - want).max())
    largest = float(np.abs(wanted).max()) or 1.0
    worst = float(np.max(errors))  # NaN if any is
    return Proof(worst / largest, 4 * product.k**0.5 * float(np.finfo(np.float32).eps))


def _reciprocal_power(constant: NDArray[Any] | None) -> float:
    """The power of two closest to 1 / max |constant|, of those that are far from FP32's ends; 1 without a constant."""
    largest = 0.0 if constant is None else float(np.abs(constant).max(initial=0))
    return 2.0 ** min(max(-math.frexp(largest)[1], -_FAR), _FAR)


def gpu_us(product: Product, target: Target, precision: Precision) -> float:
    """All products as one batched matrix product on the GPU."""
    shared = product.constant if not product.distinct else Constant.NONE
    a_count = 1 if shared is Constant.LHS else product.count
    b_count = 1 if shared is Constant.RHS else product.count
    a = Tensor("a", (a_count, product.m, product.k), DType.FP16, product.constant is Constant.LHS)
    b = Tensor("b", (b_count, product.k, product.n), DType.FP16, product.constant is Constant.RHS)
    y = Tensor("y", (product.count, product.m, product.n), DType.FP16)
    layer = Layer(0, "product", LayerKind.MATRIX_MULTIPLY, (a, b), (y,), ("product",), {"op0": "NONE", "op1": "NONE"})
    runtime = tuple(t for t in (a, b) if not t.constant)
    region = Region("gpu", (layer,), runtime, (y,))
    return predict_network("product", Placement((region,), (), (), 0), target, precision).total_us


def break_even(product: Product, target: Target, precision: Precision) -> int | None:
    """The smallest power of four of products in one submission for which the DLA is no slower than the GPU."""
    if product.distinct or product.k * max(product.m, product.n) > _MOST_ELEMENTS:
        return None
    number = 1
    while number <= _MOST_TRIED:
        trial = Product(product.m, product.k, product.n, number, product.constant)
        constant = constant_operand(trial, None)
        limits = limits_of(target, precision)
        best = float("inf")
        for kind in all_plans():
            for candidate in kind.candidates(trial, limits, constant):
                if candidate.products == number:
                    plan = judge(candidate, trial, target, precision)
                    if plan.all_dla:
                        best = min(best, plan.total_us)
                    break
        if best <= gpu_us(trial, target, precision):
            return number
        number *= 4
    return None
