"""attention-to-products, rotary-to-slices and swish-to-sigmoid: operators that are new in opsets 23 and 24."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from builders import network, node, run_onnx
from orinport.checking import as_precision, as_target, check_model
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.rewrites.catalogue import attention_to_products, rotary_to_slices, swish_to_sigmoid
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

ATTENTION, ROTARY, SWISH = (
    attention_to_products.REWRITE,
    rotary_to_slices.REWRITE,
    swish_to_sigmoid.REWRITE,
)


def generate_attention(draw: Draw) -> Pattern:
    """Four dimensions or three, with masks of all kinds; the scale given or not."""
    images, heads, features = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 4)
    queries, wide = draw.integer(1, 5), draw.integer(1, 4)
    attributes: dict[str, Any] = {}
    causal = draw.chance(0.3)
    keys = queries if causal else draw.integer(1, 5)
    shapes = [(images, heads, queries, features), (images, heads, keys, features), (images, heads, keys, wide)]
    if draw.chance(0.5):
        attributes |= {"q_num_heads": heads, "kv_num_heads": heads}
        shapes = [(n, count, h * size) for n, h, count, size in shapes]  # type: ignore[misc]
    if causal:
        attributes["is_causal"] = 1
    if draw.chance(0.4):
        attributes["scale"] = draw.choose([1.0, 0.25, 0.7])
    inputs: dict[str, Any] = dict(zip("qkv", shapes, strict=True))
    constants: dict[str, np.ndarray] = {}
    names = ["q", "k", "v"]
    kind = draw.choose(["", "numbers", "choice", "fed"])
    if kind:
        names.append("m")
        shape = draw.choose([(queries, keys), (1, 1, queries, keys), (images, heads, queries, keys)])
        if kind == "choice":
            chosen = draw.rng.random(shape) < 0.7
            chosen[..., 0] = True
            constants["m"] = chosen
        elif kind == "numbers" or causal:
            constants["m"] = draw.array(*shape)
        else:
            inputs["m"] = shape
    nodes = [node("Attention", names, "y", **attributes)]
    pattern = Pattern(nodes, inputs, ["y"], constants, draw.choose([23, 24]))
    pattern.special = False  # see test_infinities_and_nan_spread_as_defined
    pattern.overflow = False  # ONNX Runtime scales and sums scores in FP32
    return pattern


def generate_rotary(draw: Draw) -> Pattern:
    """Whole heads or their first part rotated, tables constant or not."""
    images, heads, count = draw.integer(1, 3), draw.integer(1, 3), draw.integer(1, 4)
    half, rest = draw.integer(1, 3), draw.choose([0, 0, 1, 2])
    attributes: dict[str, Any] = {"rotary_embedding_dim": 2 * half} if rest else {}
    shape: tuple[int, ...] = (images, heads, count, 2 * half + rest)
    if draw.chance(0.5):
        attributes["num_heads"] = heads
        shape = (images, count, heads * (2 * half + rest))
    inputs: dict[str, Any] = {"x": shape}
    constants: dict[str, np.ndarray] = {}
    fed = draw.chance(0.3)
    for name in ("c", "s"):
        table = (images, count, half)
        if fed:
            inputs[name] = table
        else:
            constants[name] = draw.array(*table)
    nodes = [node("RotaryEmbedding", ["x", "c", "s"], "y", **attributes)]
    return Pattern(nodes, inputs, ["y"], constants, draw.choose([23, 24]))


def generate_swish(draw: Draw) -> Pattern:
    attributes = {"alpha": draw.choose([0.5, 1.0, 1.702])} if draw.chance(0.6) else {}
    return Pattern([node("Swish", ["x"], "y", **attributes)], {"x": draw.shape(draw.integer(1, 5))}, ["y"], opset=24)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("rewrite", "generate"),
    [(ATTENTION, generate_attention), (ROTARY, generate_rotary), (SWISH, generate_swish)],
    ids=["attention", "rotary", "swish"],
)
def test_equal(rewrite: Any, generate: Any, seeds: Sequence[int]) -> None:
    check_rewrite(rewrite, generate, seeds)


def defined(feeds: dict[str, np.ndarray], mask: np.ndarray | None) -> np.ndarray:
    """Attention of four dimensions as the operator is defined."""
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    scores = np.einsum("nhif,nhjf->nhij", q, k, optimize=False) / q.shape[3] ** 0.5
    scores = scores if mask is None else scores + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("nhij,nhjf->nhif", weights, v, optimize=False)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", ["q", "k", "v"])
def test_infinities_and_nan_spread_as_defined(place: str, number: float, masked: bool) -> None:
    """ONNX Runtime's own kernel makes 0 of some rows."""
    rng = np.random.default_rng(0)
    shapes: dict[str, Any] = dict.fromkeys("qkv", (2, 2, 3, 4))
    constants = {"m": rng.standard_normal((3, 3)).astype(np.float32)} if masked else {}
    proto = network([node("Attention", [*shapes, *constants], "y")], shapes, ["y"], constants, opset=23)
    model, log = apply_to(proto, ATTENTION)
    assert log.applied
    rewritten = ir.to_proto(model.ir)
    for _ in range(8):
        feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        feeds[place].reshape(-1)[rng.integers(feeds[place].size)] = number
        with np.errstate(all="ignore"):
            want = defined(feeds, constants.get("m"))
        np.testing.assert_allclose(run_onnx(rewritten, feeds)[0], want, rtol=1e-4, atol=1e-5)


def attention(fed: dict[str, Any] | None = None, **attributes: Any) -> Any:
    shapes: dict[str, Any] = dict.fromkeys("qkv", (1, 2, 8, 16))
    more = fed or {}
    return network([node("Attention", [*shapes, *more], "y", **attributes)], shapes | more, ["y"], opset=23)


def rotary(**attributes: Any) -> Any:
    tables = {name: np.ones((1, 8, 8), np.float32) for name in ("c", "s")}
    calls = [node("RotaryEmbedding", ["x", *tables], "y", **attributes)]
    return network(calls, {"x": (1, 2, 8, 16)}, ["y"], tables, opset=23)


@pytest.mark.parametrize(
    "proto",
    [
        attention(),
        attention(is_causal=1),
        rotary(),
        network([node("Swish", ["x"], "y")], {"x": (1, 8, 4, 4)}, ["y"], opset=24),
    ],
    ids=["attention", "causal", "rotary", "swish"],
)
def test_all_goes_to_the_dla(proto: Any) -> None:
    """Of operators that the target's parser does not know."""
    target, precision = as_target("orin-agx-64gb/jp6.2"), as_precision("fp16")
    assert check_model(load(proto), target, precision).layers[0].verdict.value == "blocked"
    result, log, _ = rewrite_for(load(proto), target, precision)
    assert not log.rolled_back
    report = check_model(result, target, precision)
    assert report.all_dla
    assert report.placement.loadables == 1


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (attention(softcap=2.0), "softcap"),
        (attention(softmax_precision=11), "another type"),
        (attention({"m": ((8, 8), np.bool_)}), "Boolean mask"),
        (attention({"m": (8, 8)}, is_causal=1), "is_causal with a mask"),
    ],
    ids=["softcap", "precision", "choice", "both masks"],
)
def test_attention_is_refused(proto: Any, words: str) -> None:
    check_refused(proto, ATTENTION, words)


def test_shared_keys_are_refused() -> None:
    shapes: dict[str, Any] = {"q": (1, 4, 8, 16), "k": (1, 2, 8, 16), "v": (1, 2, 8, 16)}
    proto = network([node("Attention", list(shapes), "y")], shapes, ["y"], opset=23)
    check_refused(proto, ATTENTION, "4 heads of queries share 2")


def test_interleaved_pairs_are_refused() -> None:
    check_refused(rotary(interleaved=1), ROTARY, "interleaved")
