"""Operands of element-wise layers: broadcast, constants, and the pattern around comparisons."""

from __future__ import annotations

from typing import Any

import pytest

from orinport.model.layer import DType, Layer, LayerKind, Tensor
from rules.layer_builders import IMAGE, elementwise, findings, layer, tensor, verdict

XAVIER = ("xavier", "8.5.2")
JP51, JP60, JP62, JP722 = (("orin", v) for v in ("8.5.2", "8.6.2", "10.3.0", "11.4.1"))
DRIVE = ("orin", "8.6.12")
CHANNELS = (1, 64, 1, 1)


def constant(shape: tuple[int, ...], dtype: DType = DType.FP32, name: str = "c") -> Tensor:
    return tensor(name, shape, dtype, constant=True)


def with_constant(op: str, shape: tuple[int, ...], dtype: DType = DType.FP32) -> Layer:
    return elementwise(op, tensor("a"), constant(shape, dtype))


CASES: list[tuple[Any, ...]] = [
    # broadcast of arithmetic
    *[("DLA161", elementwise(op), "kept", *w) for op in ("SUM", "PROD", "SUB", "DIV") for w in (JP60, JP62, XAVIER)],
    ("DLA161", with_constant("PROD", CHANNELS), "kept", *JP60),
    ("DLA161", with_constant("PROD", (1, 1, 1, 1)), "kept", *JP60),
    ("DLA161", with_constant("PROD", ()), "kept", *JP60),
    ("DLA161", with_constant("PROD", (64, 1, 1)), "kept", *JP60),
    ("DLA161", elementwise("SUB", constant((1, 1, 1, 1)), tensor("a")), "kept", *JP60),
    ("DLA161", with_constant("PROD", (1, 1, 56, 56)), "unknown", *JP60),
    ("DLA161", with_constant("SUM", (1, 64, 56, 1)), "unknown", *XAVIER),
    ("DLA161", elementwise("PROD", tensor("a"), tensor("se", CHANNELS)), "unknown", *JP60),
    ("DLA161", elementwise("PROD", tensor("a"), tensor("se", CHANNELS)), "unknown", *JP722, "int8"),
    ("DLA161", elementwise("SUM", tensor("a", (2, 8, 4, 4)), constant((2, 8, 1, 1))), "unknown", *JP60),
    ("DLA161", elementwise("EQUAL", tensor("a"), constant((1, 1, 56, 56))), "kept", *JP62),  # DLA168 speaks
    # POW
    ("DLA162", with_constant("POW", ()), "kept", *JP62, "int8"),
    ("DLA162", with_constant("POW", (1, 1, 1, 1)), "kept", *JP62, "int8"),
    ("DLA162", with_constant("POW", ()), "unknown", *JP62, "fp16"),
    ("DLA162", with_constant("POW", CHANNELS), "unknown", *JP62, "int8"),
    ("DLA162", with_constant("POW", (), DType.FP16), "unknown", *JP62, "int8"),
    ("DLA162", elementwise("POW"), "gpu", *JP62),
    ("DLA162", elementwise("POW", constant(IMAGE), constant(IMAGE)), "gpu", *JP62),
    ("DLA162", elementwise("POW"), "kept", *JP60),  # DLA021 refuses
    ("DLA162", elementwise("SUM"), "kept", *JP62),
    # DIV
    ("DLA163", elementwise("DIV"), "kept", *JP62),
    ("DLA163", with_constant("DIV", ()), "kept", *JP62),
    ("DLA163", elementwise("DIV", constant(()), tensor("a")), "kept", *JP62, "int8"),
    ("DLA163", with_constant("DIV", CHANNELS), "unknown", *JP62),
    ("DLA163", with_constant("DIV", (), DType.FP16), "unknown", *JP62),
    ("DLA163", elementwise("DIV", constant(IMAGE), constant(IMAGE, name="d")), "gpu", *JP62),
    ("DLA163", with_constant("DIV", CHANNELS), "unknown", *DRIVE),
    ("DLA163", with_constant("DIV", CHANNELS), "kept", *JP60),  # DLA021 refuses
    # broadcast of comparisons
    ("DLA168", elementwise("EQUAL"), "kept", *JP62, "int8"),
    ("DLA168", elementwise("EQUAL", tensor("a"), tensor("b", CHANNELS)), "kept", *JP62, "int8"),
    ("DLA168", elementwise("LESS", tensor("b", (1, 1, 1, 1)), tensor("a")), "kept", *JP62, "int8"),
    ("DLA168", elementwise("GREATER", tensor("a"), tensor("b", (1, 1, 56, 56))), "gpu", *JP62, "int8"),
    ("DLA168", elementwise("GREATER", tensor("a"), tensor("b", (1, 64, 56, 1))), "gpu", *JP722, "int8"),
    ("DLA168", elementwise("EQUAL", tensor("a"), tensor("b", CHANNELS)), "unknown", *JP51, "int8"),
    ("DLA168", elementwise("EQUAL", tensor("a"), tensor("b", CHANNELS)), "unknown", *JP60, "int8"),
    ("DLA168", elementwise("EQUAL", tensor("a", (4, 8, 2, 2)), tensor("b", (1, 8, 1, 1))), "gpu", *JP62, "int8"),
    ("DLA168", elementwise("EQUAL", tensor("a", (4, 8, 2, 2)), constant((1, 8, 1, 1))), "kept", *JP62, "int8"),
    ("DLA168", elementwise("EQUAL", tensor("a"), tensor("b", CHANNELS)), "kept", *JP62, "fp16"),  # DLA022 refuses
    # constants of comparisons
    ("DLA169", with_constant("GREATER", ()), "kept", *JP62, "int8"),
    ("DLA169", with_constant("GREATER", CHANNELS), "unknown", *JP62, "int8"),
    ("DLA169", with_constant("EQUAL", CHANNELS), "unknown", *JP60, "int8"),
    ("DLA169", with_constant("EQUAL", CHANNELS), "kept", *JP51, "int8"),
    ("DLA169", with_constant("EQUAL", (), DType.INT8), "unknown", *JP62, "int8"),
    ("DLA169", elementwise("EQUAL", constant(IMAGE), constant(IMAGE, name="d")), "gpu", *JP62, "int8"),
    ("DLA169", elementwise("EQUAL"), "kept", *JP62, "int8"),
    # settings of comparisons
    ("DLA167", elementwise("EQUAL"), "note", *JP51, "int8"),
    ("DLA167", elementwise("EQUAL"), "unknown", *JP60, "int8"),
    ("DLA167", elementwise("EQUAL"), "unknown", "orin", "10.2.0", "int8"),
    ("DLA167", elementwise("EQUAL"), "note", *JP62, "int8"),
    ("DLA167", elementwise("GREATER"), "note", *DRIVE, "int8"),
    ("DLA167", elementwise("EQUAL"), "kept", *JP62, "fp16"),
    ("DLA167", elementwise("SUM"), "kept", *JP62, "int8"),
]


@pytest.mark.parametrize(("code", "checked", "expected", "where"), [(c, x, e, w) for c, x, e, *w in CASES])
def test_operands(code: str, checked: Layer, expected: str, where: list[str]) -> None:
    assert verdict(code, checked, *where) == expected


def cast(source: str, to: DType, index: int = 1) -> Layer:
    out = tensor(f"mask{index}", dtype=to)
    return layer(LayerKind.CAST, (tensor(source, dtype=DType.BOOL),), (out,), to=to.value, index=index)


def compare(op: str = "EQUAL") -> Layer:
    return elementwise(op, name="truth")


INT8 = ("orin", "10.3.0", "int8")


class TestCastBehindAComparison:
    @pytest.mark.parametrize("to", [DType.FP16, DType.INT8])
    @pytest.mark.parametrize("where", [INT8, ("orin", "8.5.2", "int8"), ("xavier", "8.5.2", "int8")])
    def test_one_cast_is_taken(self, to: DType, where: tuple[str, ...]) -> None:
        first = compare()
        assert verdict("DLA166", first, *where, layers=(first, cast("truth", to))) == "kept"

    def test_identity_serves_as_cast(self) -> None:
        first, behind = compare(), cast("truth", DType.FP16)
        same = Layer(1, "i", LayerKind.IDENTITY, behind.inputs, behind.outputs, (), {"to": "fp16"})
        assert verdict("DLA166", first, *INT8, layers=(first, same)) == "kept"

    @pytest.mark.parametrize("to", [DType.FP32, DType.INT32])
    def test_another_type_is_refused(self, to: DType) -> None:
        first = compare()
        assert verdict("DLA166", first, *INT8, layers=(first, cast("truth", to))) == "gpu"

    def test_two_readers_are_refused(self) -> None:
        first = compare()
        readers = (cast("truth", DType.FP16), cast("truth", DType.FP16, 2))
        assert verdict("DLA166", first, *INT8, layers=(first, *readers)) == "gpu"

    def test_another_reader_is_refused(self) -> None:
        first = compare()
        inputs = (tensor("truth", dtype=DType.BOOL), tensor("a"), tensor("b"))
        where = layer(LayerKind.SELECT, inputs, (tensor("z"),))
        (found,) = findings("DLA166", first, *INT8, layers=(first, where))
        assert "SELECT" in found.message

    def test_no_reader_is_refused(self) -> None:
        assert verdict("DLA166", compare(), *INT8) == "gpu"

    def test_a_network_output_is_refused(self) -> None:
        first = compare()
        (found,) = findings("DLA166", first, *INT8, layers=(first,), outputs=("truth",))
        assert "output of the network" in found.message
        assert "K05" in found.rows

    def test_where_the_comparison_is_refused_this_says_nothing_more(self) -> None:
        assert verdict("DLA166", compare("GREATER"), "orin", "8.6.2", "int8") == "kept"
        assert verdict("DLA166", compare(), "orin", "10.3.0", "fp16") == "kept"


class TestGreaterOrEqual:
    def network(self, ops: tuple[str, str] = ("GREATER", "EQUAL"), other: str = "b") -> tuple[Layer, ...]:
        first = elementwise(ops[0], tensor("a"), tensor("b"), name="t0", index=0)
        second = elementwise(ops[1], tensor("a"), tensor(other), name="t1", index=1)
        truths = (tensor("t0", dtype=DType.BOOL), tensor("t1", dtype=DType.BOOL))
        both = elementwise("OR", *truths, name="truth", index=2)
        return first, second, both, cast("truth", DType.FP16, 3)

    @pytest.mark.parametrize("ops", [("GREATER", "EQUAL"), ("LESS", "EQUAL"), ("EQUAL", "GREATER")])
    def test_it_is_taken_from_10_3_on(self, ops: tuple[str, str]) -> None:
        network = self.network(ops)
        for code in ("DLA021", "DLA022", "DLA035", "DLA104", "DLA166"):
            for one in network[:3]:
                assert verdict(code, one, *INT8, layers=network) == "kept", (code, one["op"])

    def test_it_is_refused_in_8_6_12(self) -> None:
        network = self.network()
        assert verdict("DLA035", network[2], *DRIVE, "int8", layers=network) == "gpu"

    def test_documents_that_differ_are_said_on_either_side(self) -> None:
        network = self.network()
        (refused,) = findings("DLA035", network[2], *DRIVE, "int8", layers=network)
        (taken,) = findings("DLA018", network[2], *INT8, layers=network)
        assert "CF14" in refused.rows
        assert "Documents differ" in refused.message
        assert taken.verdict is None
        assert taken.rows == ("CF14", "K09")

    def test_both_have_to_read_the_same_inputs(self) -> None:
        network = self.network(other="elsewhere")
        assert verdict("DLA035", network[2], *INT8, layers=network) == "gpu"

    def test_two_strict_comparisons_are_another_thing(self) -> None:
        network = self.network(("GREATER", "LESS"))
        assert verdict("DLA035", network[2], *INT8, layers=network) == "gpu"

    def test_its_result_needs_the_cast_too(self) -> None:
        network = self.network()
        assert verdict("DLA166", network[2], *INT8, layers=network[:3]) == "gpu"
