"""Fused names come apart as TensorRT puts them together."""

from __future__ import annotations

import pytest

from orinport.device.names import parts


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("{ForeignNode[a...b]}", ["a", "b"]),
        ("ForeignNode[a...b]", ["a", "b"]),
        ("{ForeignNode[a]}", ["a"]),
        (
            "Conv_226 + BatchNormalization_227+Add_228+Relu_229",
            ["Conv_226", "BatchNormalization_227", "Add_228", "Relu_229"],
        ),
        ("conv1 || conv2", ["conv1", "conv2"]),
        ("/layer1/conv/Conv", ["/layer1/conv/Conv"]),
        ("/a/Conv + /b/Relu", ["/a/Conv", "/b/Relu"]),
        ("/a/Conv+/b/Relu", ["/a/Conv", "/b/Relu"]),
        ("a+b.c", ["a", "b.c"]),
        ("PWN(Sigmoid_1)", ["Sigmoid_1"]),
        ("PWN(PWN(Sigmoid_1), Mul_2)", ["Sigmoid_1", "Mul_2"]),
        ("PWN(PWN(/m.0/act/Sigmoid), PWN(/m.0/act/Mul))", ["/m.0/act/Sigmoid", "/m.0/act/Mul"]),
        ("Conv_5 + PWN(PWN(PWN(Sigmoid_6), PWN(Mul_7)), PWN(Add_8))", ["Conv_5", "Sigmoid_6", "Mul_7", "Add_8"]),
        (
            "PWN(Clip_9 + (Unnamed Layer* 16) [Shuffle], Div_4)",
            ["Clip_9", "(Unnamed Layer* 16) [Shuffle]", "Div_4"],
        ),
        (
            "(Unnamed Layer* 2) [Constant] + (Unnamed Layer* 3) [Shuffle]",
            ["(Unnamed Layer* 2) [Constant]", "(Unnamed Layer* 3) [Shuffle]"],
        ),
        ("{Tanh_3,Mul_4,Conv_5}", ["Tanh_3", "Mul_4", "Conv_5"]),
        ("", []),
        ("PWN(", ["PWN("]),
        ("a( + b", ["a(", "b"]),
    ],
)
def test_forms_on_record(name: str, expected: list[str]) -> None:
    assert parts(name) == expected


def test_known_names_stay_whole_whatever_they_hold() -> None:
    known = {"conv+bn", "a + b", "x, y", "PWN(z)"}
    assert parts("conv+bn + relu", known) == ["conv+bn", "relu"]
    assert parts("a + b + c", known) == ["a + b", "c"]
    assert parts("PWN(PWN(x, y), relu)", known) == ["x, y", "relu"]
    assert parts("{ForeignNode[a + b...conv+bn]}", known) == ["a + b", "conv+bn"]
    assert parts("conv+bn || PWN(z)", known) == ["conv+bn", "PWN(z)"]
    assert parts("PWN(z)", known) == ["PWN(z)"]


def test_long_names_take_no_time() -> None:
    assert len(parts(" + ".join(f"layer{i}" for i in range(2000)), {"layer1 + layer2"})) == 1999
    assert parts("PWN(" * 200 + "a" + ")" * 200) == ["a"]
    assert len(parts("PWN(" * 50_000 + "a" + ")" * 50_000)) == 1
    assert parts("(" * 20000 + " + " + ")" * 20000) == ["(" * 20000 + " + " + ")" * 20000]
