"""Whether a kind of layer, or its operation, is taken at all: by platform, version and precision."""

from __future__ import annotations

from typing import Any

import pytest

from orinport.model.layer import DType, Layer, LayerKind
from rules.layer_builders import (
    IMAGE,
    activation,
    concatenation,
    convolution,
    elementwise,
    findings,
    layer,
    lrn,
    parametric_relu,
    pooling,
    product,
    reduction,
    resize,
    scale,
    shuffle,
    slicing,
    softmax,
    tensor,
    unary,
    verdict,
)

JP51, JP60, JP62, JP72, JP722 = (("orin", v) for v in ("8.5.2", "8.6.2", "10.3.0", "10.16.2", "11.4.1"))
DRIVE = ("orin", "8.6.12")
X51 = ("xavier", "8.5.2")
ALL = [JP51, JP60, JP62, JP72, JP722, DRIVE, X51]


def plain(kind: LayerKind, **attributes: Any) -> Layer:
    return layer(kind, (tensor("x"),), (tensor("y"),), **attributes)


def gather(mode: str = "DEFAULT") -> Layer:
    return plain(LayerKind.GATHER, mode=mode, axis=1)


def cast(to: DType, source: DType = DType.FP32, kind: LayerKind = LayerKind.CAST) -> Layer:
    return layer(kind, (tensor("x", dtype=source),), (tensor("y", dtype=to),), to=to.value)


def constant(name: str = "c") -> Layer:
    return layer(LayerKind.CONSTANT, (), (tensor(name, (1, 64, 1, 1), constant=True),), values=64, scalar=None)


def select() -> Layer:
    inputs = (tensor("c", dtype=DType.BOOL), tensor("a"), tensor("b"))
    return layer(LayerKind.SELECT, inputs, (tensor("y"),))


RUNTIME = (tensor("a", (128, 1024)), tensor("b", (1024, 128)))
RIGHT = (tensor("a", (128, 1024)), tensor("w", (1024, 128), constant=True))
LEFT = (tensor("w", (128, 1024), constant=True), tensor("b", (1024, 128)))
MASKS = (tensor("a", dtype=DType.BOOL), tensor("b", dtype=DType.BOOL))

CASES: list[tuple[Any, ...]] = [
    # kinds that stand in no list
    *[
        ("DLA001", plain(kind), "unknown", *where)
        for kind in (LayerKind.TOPK, LayerKind.NORMALIZATION)
        for where in ALL
    ],
    *[
        ("DLA001", plain(kind), "unknown", *JP62)
        for kind in (LayerKind.SCATTER, LayerKind.EINSUM, LayerKind.GRID_SAMPLE, LayerKind.NMS, LayerKind.FILL)
    ],
    ("DLA001", convolution(), "kept", *JP62),
    # releases without documents
    ("DLA002", convolution(), "unknown", "orin", "8.3.0"),
    ("DLA002", convolution(), "note", "orin", "9.3.0"),
    ("DLA002", convolution(), "kept", *JP60),
    ("DLA002", convolution(), "kept", "xavier", "8.2.1"),
    # first versions
    ("DLA003", shuffle(IMAGE), "unknown", "xavier", "8.4.1"),
    ("DLA003", shuffle(IMAGE), "kept", *X51),
    ("DLA003", slicing(), "unknown", "orin", "8.4.0"),
    ("DLA003", slicing(), "kept", "orin", "8.4.1"),
    ("DLA003", resize(), "unknown", "xavier", "8.0.1"),
    ("DLA003", resize(), "kept", "xavier", "8.2.1"),
    ("DLA003", parametric_relu(), "unknown", "xavier", "8.2.1"),
    ("DLA003", parametric_relu(), "kept", "xavier", "8.4.0"),
    ("DLA003", softmax(), "unknown", "xavier", "8.2.1"),
    ("DLA003", softmax(), "kept", "orin", "8.4.0"),
    ("DLA003", lrn(), "unknown", "xavier", "6.0.1"),
    ("DLA003", lrn(), "kept", "xavier", "7.1.3"),
    ("DLA003", concatenation(IMAGE, IMAGE), "unknown", "xavier", "6.0.1"),
    ("DLA003", concatenation(IMAGE, IMAGE), "kept", "xavier", "7.1.3"),
    ("DLA003", activation("RELU"), "unknown", "xavier", "7.0.0"),
    ("DLA003", activation("RELU"), "kept", "xavier", "7.1.3"),
    ("DLA003", pooling(), "kept", "xavier", "5.1.6"),
    ("DLA003", convolution(), "kept", "xavier", "5.1.6"),
    ("DLA003", convolution(deconvolution=True), "kept", "xavier", "5.1.6"),
    ("DLA003", scale(), "kept", "xavier", "5.1.6"),
    ("DLA003", plain(LayerKind.FULLY_CONNECTED), "kept", "orin", "9.3.0"),
    ("DLA003", plain(LayerKind.FULLY_CONNECTED), "unknown", *JP62),
    # matrix products
    *[("DLA010", product(*RUNTIME), "gpu", *where) for where in ALL],
    *[("DLA010", product(*LEFT), "gpu", *where) for where in ALL],
    *[("DLA010", product(*RIGHT), "unknown", *where) for where in ALL],
    ("DLA010", product(*RUNTIME), "unknown", "xavier", "8.2.1"),
    ("DLA010", convolution(), "kept", *JP62),
    # gather
    *[("DLA015", gather(mode), "gpu", *where) for mode in ("DEFAULT", "ELEMENT", "ND") for where in (JP60, JP722, X51)],
    ("DLA015", gather(), "gpu", "xavier", "8.2.1"),
    ("DLA015", gather(), "unknown", "xavier", "8.0.1"),
    ("DLA015", convolution(), "kept", *JP62),
    # activations
    *[("DLA020", activation(kind), "kept", *where) for kind in ("RELU", "SIGMOID", "TANH", "CLIP") for where in ALL],
    *[
        ("DLA020", activation(kind), "gpu", *where)
        for kind in ("HARD_SIGMOID", "ELU", "SELU", "SOFTPLUS", "SOFTSIGN", "GELU_ERF", "GELU_TANH", "SCALED_TANH")
        for where in ALL
    ],
    *[("DLA020", activation("LEAKY_RELU", 0.1), "kept", *where) for where in ALL],
    ("DLA020", activation("LEAKY_RELU", 0.1), "unknown", "xavier", "8.2.1"),
    ("DLA020", activation("LEAKY_RELU", 0.1), "kept", "xavier", "8.4.0"),
    ("DLA020", activation("SIGMOID"), "unknown", "xavier", "7.2.1", "int8"),
    ("DLA020", activation("SIGMOID"), "kept", "xavier", "7.2.1", "fp16"),
    ("DLA020", activation("TANH"), "kept", "xavier", "8.0.1", "int8"),
    # element-wise arithmetic
    *[("DLA021", elementwise(op), "kept", *where) for op in ("SUM", "PROD", "MAX", "MIN", "SUB") for where in ALL],
    ("DLA021", elementwise("SUB"), "unknown", "xavier", "8.0.1"),
    ("DLA021", elementwise("SUB"), "kept", "xavier", "8.2.1"),
    ("DLA021", elementwise("SUM"), "kept", "xavier", "5.1.6"),
    *[
        ("DLA021", elementwise("DIV"), e, *w)
        for e, w in [("gpu", JP51), ("gpu", JP60), ("kept", DRIVE), ("kept", JP62)]
    ],
    ("DLA021", elementwise("DIV"), "gpu", "orin", "8.6.11"),
    ("DLA021", elementwise("DIV"), "unknown", "orin", "10.2.0"),
    ("DLA021", elementwise("DIV"), "gpu", *X51),
    *[("DLA021", elementwise("POW"), e, *w) for e, w in [("gpu", JP51), ("gpu", JP60), ("gpu", DRIVE), ("kept", JP62)]],
    ("DLA021", elementwise("POW"), "unknown", "orin", "10.0.1"),
    ("DLA021", elementwise("POW"), "kept", *JP722),
    *[("DLA021", elementwise(op), "unknown", *JP62) for op in ("FLOOR_DIV", "XOR")],
    ("DLA021", elementwise("AND", *MASKS), "kept", *JP62),  # DLA035 speaks
    # comparisons
    *[("DLA022", elementwise(op), "gpu", *where, "fp16") for op in ("EQUAL", "GREATER", "LESS") for where in ALL],
    *[("DLA022", elementwise("EQUAL"), "kept", *where, "int8") for where in ALL if where != X51],
    ("DLA022", elementwise("EQUAL"), "unknown", *X51, "int8"),
    ("DLA022", elementwise("EQUAL"), "unknown", "orin", "8.4.1", "int8"),
    *[
        ("DLA022", elementwise(op), e, *w, "int8")
        for op in ("GREATER", "LESS")
        for e, w in [("gpu", JP51), ("gpu", JP60), ("kept", DRIVE), ("kept", JP62), ("gpu", X51)]
    ],
    ("DLA022", elementwise("GREATER"), "unknown", "orin", "10.2.0", "int8"),
    ("DLA022", elementwise("SUM"), "kept", *JP62),
    # unary
    *[("DLA023", unary("ABS"), "kept", *where) for where in ALL],
    ("DLA023", unary("ABS"), "unknown", "xavier", "8.2.1"),
    *[("DLA023", unary(op), "gpu", *w) for op in ("SQRT", "EXP", "NEG", "SIN", "CEIL") for w in (JP51, JP60, X51)],
    *[("DLA023", unary(op), "unknown", *w) for op in ("SIN", "COS", "ATAN", "ATANH") for w in (DRIVE, JP62, JP722)],
    *[("DLA023", unary(op), "gpu", *DRIVE) for op in ("SQRT", "EXP", "NEG")],
    *[("DLA023", unary(op), "unknown", *w) for op in ("SQRT", "EXP", "ERF") for w in (JP62, JP72, JP722)],
    ("DLA023", unary("SQRT"), "gpu", "orin", "9.3.0"),
    # reductions
    *[("DLA024", reduction("AVG"), "gpu", *where) for where in ALL],
    ("DLA024", reduction("AVG"), "gpu", "xavier", "8.2.1"),
    *[("DLA024", reduction(op), "gpu", *w) for op in ("MAX", "MIN", "SUM", "PROD") for w in (JP51, JP60, X51)],
    *[("DLA024", reduction("MAX"), "kept", *where) for where in (DRIVE, JP62, JP72, JP722)],
    ("DLA024", reduction("MAX"), "unknown", "orin", "10.2.0"),
    ("DLA024", reduction("MAX"), "gpu", "orin", "8.6.11"),
    *[("DLA024", reduction(op), "gpu", *w) for op in ("MIN", "SUM") for w in (DRIVE, JP62)],
    ("DLA024", reduction("PROD"), "unknown", *JP62),
    ("DLA024", reduction("MAX"), "unknown", "xavier", "8.2.1"),
    # SoftMax on Xavier
    *[("DLA026", softmax(), "gpu", *X51, p) for p in ("fp16", "int8")],
    ("DLA026", softmax(), "kept", *JP51),
    # Slice and SoftMax in INT8
    *[("DLA027", slicing(), "kept", *where, "fp16") for where in ALL],
    *[
        ("DLA027", slicing(), e, "orin", v, "int8")
        for v, e in [
            ("8.4.1", "unknown"),
            ("8.5.2", "gpu"),
            ("8.6.2", "unknown"),
            ("8.6.12", "unknown"),
            ("10.0.1", "gpu"),
            ("10.3.0", "gpu"),
            ("10.8.0", "gpu"),
            ("10.9.0", "unknown"),
            ("10.16.2", "unknown"),
            ("11.4.1", "unknown"),
        ]
    ],
    ("DLA027", slicing(), "gpu", *X51, "int8"),
    ("DLA027", slicing(), "unknown", "xavier", "8.4.1", "fp16"),
    ("DLA027", slicing(), "unknown", "xavier", "8.4.1", "int8"),
    ("DLA027", slicing(), "kept", "orin", "8.4.1", "fp16"),
    *[
        ("DLA028", softmax(), e, "orin", v, "int8")
        for v, e in [
            ("8.4.1", "unknown"),
            ("8.5.2", "gpu"),
            ("8.6.2", "unknown"),
            ("10.3.0", "gpu"),
            ("10.8.0", "gpu"),
            ("10.9.0", "unknown"),
            ("11.4.1", "unknown"),
        ]
    ],
    *[("DLA028", softmax(), "kept", *where, "fp16") for where in ALL],
    # Scale
    ("DLA030", scale(), "kept", *JP51),
    ("DLA030", scale(), "kept", "xavier", "8.4.0"),
    *[("DLA030", scale(), "note", *where) for where in (JP60, JP62, JP722)],
    ("DLA030", scale(), "note", "xavier", "8.2.1"),
    # Cast and Identity
    ("DLA034", cast(DType.FP16), "unknown", *JP62),
    ("DLA034", cast(DType.FP32, kind=LayerKind.IDENTITY), "unknown", *JP62),
    ("DLA034", cast(DType.FP16), "unknown", "xavier", "8.2.1"),
    # truth values
    *[("DLA035", select(), "gpu", *where) for where in ALL],
    *[("DLA035", elementwise(op, *MASKS), "gpu", *JP62) for op in ("AND", "OR")],
    ("DLA035", unary("NOT", DType.BOOL), "gpu", *JP60),
    ("DLA035", unary("ABS"), "kept", *JP60),
    ("DLA035", elementwise("SUM"), "kept", *JP60),
]


@pytest.mark.parametrize(("code", "checked", "expected", "where"), [(c, x, e, w) for c, x, e, *w in CASES])
def test_what_is_taken(code: str, checked: Layer, expected: str, where: list[str]) -> None:
    assert verdict(code, checked, *where) == expected


def test_every_kind_is_looked_at_by_some_rule() -> None:
    from orinport.rules.catalogue import rules
    from orinport.rules.rule import LayerRule

    named = {kind for rule in rules() if isinstance(rule, LayerRule) for kind in rule.kinds}
    assert sorted(kind.value for kind in set(LayerKind) - named) == []


class TestMatrixProduct:
    def test_two_runtime_operands(self) -> None:
        (found,) = findings("DLA010", product(*RUNTIME), *JP62)
        assert "MatMul is unsupported on DLA, relax constraints or use Convolution layer instead" in found.message
        assert "both operands are computed at run time" in found.message
        assert "128x1024 x 1024x128" in found.message
        assert "orinport matmul" in found.help
        assert found.fix is not None
        assert found.fix.rewrite == "matmul-to-elementwise"
        assert found.confidence.value == "observed"

    def test_constant_right_operand_says_that_documents_differ(self) -> None:
        (found,) = findings("DLA010", product(*RIGHT), *JP62)
        assert "documents differ" in found.message
        assert found.fix is not None
        assert found.fix.rewrite == "matmul-to-conv"
        assert set(found.rows) == {"CF06", "X02"}

    def test_constant_left_operand_can_be_rewritten(self) -> None:
        (found,) = findings("DLA010", product(*LEFT), *JP62)
        assert found.fix is not None
        assert found.fix.rewrite == "matmul-to-conv"

    def test_transposed_operands_are_those_of_gemm(self) -> None:
        weights = tensor("w", (128, 1024), constant=True)
        (found,) = findings("DLA010", product(RUNTIME[0], weights, op1="TRANSPOSE"), *JP62)
        assert found.fix is not None
        assert found.fix.rewrite == "gemm-to-conv"
        assert "128x1024 x 1024x128" in found.message

    def test_unknown_shapes_do_no_harm(self) -> None:
        (found,) = findings("DLA010", product(tensor("a", None), tensor("b", None)), *JP62)
        assert "? x ?" in found.message


def test_average_over_the_image_can_be_rewritten() -> None:
    (found,) = findings("DLA024", reduction("AVG"), *JP62)
    assert found.fix is not None
    assert found.fix.rewrite == "reduce-to-pool"


def test_identity_can_be_removed_and_a_cast_cannot() -> None:
    (same,) = findings("DLA034", cast(DType.FP32, kind=LayerKind.IDENTITY), *JP62)
    (other,) = findings("DLA034", cast(DType.FP16), *JP62)
    assert same.fix is not None
    assert same.fix.rewrite == "remove-identity"
    assert other.fix is None


def test_cast_behind_a_comparison_is_taken_in_int8_only() -> None:
    compare = elementwise("EQUAL", name="c")
    behind = layer(LayerKind.CAST, (tensor("c", dtype=DType.BOOL),), (tensor("m", dtype=DType.FP16),), to="fp16")
    network = (compare, behind)
    assert verdict("DLA034", behind, *JP62, "int8", layers=network) == "kept"
    assert verdict("DLA034", behind, *JP62, "fp16", layers=network) == "unknown"
    assert verdict("DLA034", behind, "orin", "8.4.1", "int8", layers=network) == "unknown"


class TestConstant:
    def test_it_is_a_note_where_the_gpu_may_help(self) -> None:
        assert verdict("DLA033", constant(), *JP62) == "note"

    def test_it_is_unknown_in_a_standalone_loadable(self) -> None:
        assert verdict("DLA033", constant(), *JP62, standalone=True) == "unknown"

    def test_it_is_refused_as_output(self) -> None:
        assert verdict("DLA033", constant(), *JP62, outputs=("c",)) == "gpu"


def test_precision_that_documents_do_not_state_is_a_note() -> None:
    for checked in (unary("ABS"), shuffle(IMAGE), reduction("MAX")):
        assert verdict("DLA017", checked, *JP62) == "note"
    assert verdict("DLA017", resize(), *JP62, "int8") == "note"
    assert verdict("DLA017", resize(), *JP62, "fp16") == "kept"
    assert verdict("DLA017", parametric_relu(), *JP51) == "note"
    assert verdict("DLA017", parametric_relu(), *JP62) == "kept"
    assert verdict("DLA017", unary("SQRT"), *JP62) == "kept"
    assert verdict("DLA017", shuffle((1, 8, 4, 4), (1, 128)), *JP62) == "kept"


@pytest.mark.parametrize(
    ("checked", "where", "expected"),
    [
        (activation("LEAKY_RELU", 0.1), JP62, "note"),
        (activation("RELU"), JP62, "kept"),
        (elementwise("MIN"), JP60, "note"),
        (elementwise("SUM"), JP60, "kept"),
        (elementwise("DIV"), JP62, "note"),
        (elementwise("DIV"), JP60, "kept"),
        (elementwise("DIV"), DRIVE, "note"),
        (elementwise("POW"), DRIVE, "kept"),
        (elementwise("EQUAL"), (*JP62, "int8"), "note"),
        (elementwise("GREATER"), (*JP60, "int8"), "kept"),
    ],
)
def test_contradicting_documents_are_said_where_the_layer_counts_as_taken(
    checked: Layer, where: tuple[str, ...], expected: str
) -> None:
    assert verdict("DLA018", checked, *where) == expected


@pytest.mark.parametrize(("to", "expected"), [(DType.FP16, "kept"), (DType.INT8, "kept"), (DType.FP32, "unknown")])
def test_cast_behind_a_comparison_has_to_give_what_the_dla_has(to: DType, expected: str) -> None:
    compare = elementwise("EQUAL", name="c")
    behind = layer(LayerKind.CAST, (tensor("c", dtype=DType.BOOL),), (tensor("m", dtype=to),), to=to.value)
    assert verdict("DLA034", behind, *JP62, "int8", layers=(compare, behind)) == expected
