"""All layer rules together: unknown shapes, folded constants, odd layers, and that each rule has its cases."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orinport.model.layer import DType, Layer, LayerKind
from orinport.rules.catalogue import rules
from orinport.rules.engine import check_layers
from orinport.rules.rule import LayerRule
from orinport.targets import load_target
from orinport.targets.target import Precision
from rules.layer_builders import (
    activation,
    concatenation,
    context,
    convolution,
    elementwise,
    layer,
    pooling,
    reduction,
    resize,
    scale,
    shuffle,
    slicing,
    softmax,
    tensor,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

BY_FUNCTION = {"DLA017", "DLA018", "DLA033", "DLA034", "DLA166"}
"""Rules whose cases are test functions, because they need neighbours or say notes only."""

OWN = [rule.code for rule in rules() if rule.code < "DLA090" or "DLA120" <= rule.code < "DLA200"]


@cache
def cases() -> list[tuple[Any, ...]]:
    """The tables of all test modules beside this one."""
    found: list[tuple[Any, ...]] = []
    for path in sorted(Path(__file__).parent.glob("test_dla*.py")):
        spec = importlib.util.spec_from_file_location(f"cases_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += getattr(module, "CASES", [])
    return found


@pytest.mark.parametrize("code", [code for code in OWN if code not in BY_FUNCTION])
def test_each_rule_is_seen_to_speak_and_to_keep_silent(code: str) -> None:
    expected = {case[2] for case in cases() if case[0] == code}
    assert "kept" in expected
    assert expected - {"kept"}


def verdict_of(layers: Sequence[Layer], name: str = "orin-agx-64gb/jp6.2") -> tuple[str, list[str]]:
    """Verdict of the last layer, and all messages."""
    report = check_layers(
        layers,
        inputs=[tensor("x")],
        outputs=layers[-1].outputs,
        target=load_target(name),
        precision=Precision.FP16,
    )
    return report.verdicts[layers[-1].index].value, [finding.message for finding in report.findings]


SHAPELESS = [
    convolution(None),
    convolution(None, deconvolution=True),
    pooling(None),
    activation("RELU", shape=None),
    scale(shape=None),
    concatenation(None, None),
    resize(shape=None),
    slicing(None, None, shape=None),
    softmax(None),
    shuffle(None, (1, 8, 4, 4)),
    reduction("MAX", shape=None),
    elementwise("SUM", tensor("x", None), tensor("z", None)),
]


@pytest.mark.parametrize("checked", SHAPELESS, ids=lambda checked: checked.kind.value)
@pytest.mark.parametrize("name", ["orin-agx-64gb/jp6.0", "orin-agx-64gb/jp6.2", "xavier-agx/jp5.1"])
def test_an_unknown_shape_is_unknown_and_names_the_tensor(checked: Layer, name: str) -> None:
    verdict, messages = verdict_of([checked], name)
    assert verdict != "dla"
    assert any(f"'{checked.inputs[0].name}'" in message and "not known" in message for message in messages)


def test_what_folds_at_build_time_is_judged_by_its_reader() -> None:
    weights = layer(LayerKind.CONSTANT, (), (tensor("w", (64, 1, 1), constant=True),), index=0, values=64, scalar=None)
    moved = layer(
        LayerKind.SHUFFLE,
        (tensor("w", (64, 1, 1), constant=True),),
        (tensor("v", (1, 64, 1, 1), constant=True),),
        index=1,
        first_transpose=None,
        reshape=(1, 64, 1, 1),
        second_transpose=None,
    )
    taken = elementwise("PROD", tensor("x"), tensor("v", (1, 64, 1, 1), constant=True), index=2)
    refused = elementwise("FLOOR_DIV", tensor("x"), tensor("v", (1, 64, 1, 1), constant=True), index=2)
    for reader, expected in ((taken, "dla"), (refused, "unknown")):
        report = check_layers(
            [weights, moved, reader],
            inputs=[tensor("x")],
            outputs=reader.outputs,
            target=load_target("orin-agx-64gb/jp6.2"),
            precision=Precision.FP16,
        )
        assert {verdict.value for verdict in report.verdicts.values()} == {expected}


ATTRIBUTES: dict[LayerKind, dict[str, Any]] = {
    LayerKind.CONVOLUTION: dict(convolution().attributes),
    LayerKind.DECONVOLUTION: dict(convolution().attributes),
    LayerKind.FULLY_CONNECTED: {"output_maps": 1, "has_bias": True, "weight_values": 1},
    LayerKind.POOLING: dict(pooling(type="AVERAGE", exclusive=True, round_up=True).attributes),
    LayerKind.ACTIVATION: {"type": "CLIP", "alpha": -1.0, "beta": 0.5},
    LayerKind.SCALE: dict(scale("ELEMENTWISE", power=True).attributes),
    LayerKind.LRN: {"window": 4, "alpha": 1.0, "beta": 1.0, "k": 1.0, "across_channels": False},
    LayerKind.CONCATENATION: {"axis": 1},
    LayerKind.RESIZE: dict(resize("LINEAR", None, to=(1, 2)).attributes),
    LayerKind.SLICE: {
        "start": (0,),
        "size": (1,),
        "stride": (1,),
        "mode": "FILL",
        "fill_value": None,
        "axes": (0,),
    },
    LayerKind.SOFTMAX: {"axis": 1},
    LayerKind.SHUFFLE: {"first_transpose": None, "reshape": (1, 2, 3), "second_transpose": (0, 2, 1)},
    LayerKind.REDUCE: {"op": "MAX", "axes": (0,), "keep_dims": False},
    LayerKind.PARAMETRIC_RELU: {"constant_slope": False},
    LayerKind.MATRIX_MULTIPLY: {"op0": "NONE", "op1": "TRANSPOSE"},
    LayerKind.GATHER: {"mode": "ND", "axis": 0},
    LayerKind.SCATTER: {"mode": "ND", "axis": 0},
    LayerKind.CONSTANT: {"values": 1, "scalar": 1.0},
    LayerKind.PLUGIN: {"op_type": "A", "domain": "b"},
    LayerKind.UNSUPPORTED: {"op_type": "A", "domain": "b", "reason": "none"},
    LayerKind.QUANTIZE: {"axis": None, "zero_point": True, "to": "int8"},
    LayerKind.DEQUANTIZE: {"axis": None, "zero_point": True, "to": "int8"},
}
OPERATIONS = ["SUM", "PROD", "DIV", "POW", "EQUAL", "GREATER", "AND", "OR", "XOR", "FLOOR_DIV"]
SHAPES = st.one_of(st.none(), st.lists(st.integers(0, 5), max_size=6).map(tuple))
WHERE = [
    ("xavier", "5.1.6"),
    ("xavier", "8.2.1"),
    ("orin", "8.4.0"),
    ("orin", "8.5.2"),
    ("orin", "8.6.12"),
    ("orin", "10.16.2"),
    ("orin", "11.4.1"),
]


@given(
    kind=st.sampled_from(sorted(LayerKind, key=lambda kind: kind.value)),
    shapes=st.tuples(SHAPES, SHAPES, SHAPES),
    constants=st.tuples(st.booleans(), st.booleans()),
    dtype=st.sampled_from([DType.FP32, DType.BOOL, DType.INT64, DType.UNKNOWN]),
    op=st.sampled_from(OPERATIONS),
    where=st.sampled_from(WHERE),
    precision=st.sampled_from(["fp16", "int8"]),
)
@settings(max_examples=400)
def test_no_rule_breaks_on_an_odd_layer(
    kind: LayerKind,
    shapes: tuple[tuple[int, ...] | None, ...],
    constants: tuple[bool, bool],
    dtype: DType,
    op: str,
    where: tuple[str, str],
    precision: str,
) -> None:
    attributes = ATTRIBUTES.get(kind, {})
    if kind is LayerKind.ELEMENTWISE:
        attributes = {"op": op}
    elif kind is LayerKind.UNARY:
        attributes = {"op": "NOT" if dtype is DType.BOOL else "SQRT"}
    inputs = tuple(
        tensor(name, shape, dtype, constant=constant)
        for name, shape, constant in zip("ab", shapes, constants, strict=False)
    )
    outputs = (tensor("y", shapes[2], dtype),)
    checked = Layer(0, "odd", kind, () if kind is LayerKind.CONSTANT else inputs, outputs, ("node",), attributes)
    seen = context(*where, precision, layers=(checked,))
    for rule in rules():
        if rule.code in OWN and isinstance(rule, LayerRule) and (not rule.kinds or kind in rule.kinds):
            for finding in rule.check(checked, seen):
                assert finding.message
                assert finding.help
                assert finding.source
                assert finding.layer == "odd"


def test_layer_rules_are_fast() -> None:
    """20,000 layers in 0.35 s on a quiet machine; the bound leaves room for a loaded one."""
    checked = [
        convolution(),
        activation("RELU"),
        elementwise("SUM"),
        pooling(),
        concatenation((1, 8, 4, 4), (1, 8, 4, 4)),
    ]
    seen = context(layers=checked)
    by_kind = {
        one.kind: [rule for rule in rules() if isinstance(rule, LayerRule) and one.kind in rule.kinds]
        for one in checked
    }
    start = process_time()
    for _ in range(4000):
        for one in checked:
            for rule in by_kind[one.kind]:
                for _ in rule.check(one, seen):
                    pass
    assert process_time() - start < 1.5
