"""Input shapes: three spellings, names with punctuation, and what fits an input."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import HOSTILE_NAMES, network, node, single, small_cnn
from orinport.errors import OrinportError
from orinport.model import load
from orinport.model.shapes import parse_shapes

WANTED = {"x": (1, 3, 224, 224)}


@pytest.mark.parametrize(
    "spelling",
    [
        "x:1x3x224x224",
        "x:1X3X224X224",
        "x:1,3,224,224",
        "x:[1,3,224,224]",
        "x:[1, 3, 224, 224]",
        " x:1x3x224x224 ",
        ["x:1x3x224x224"],
        {"x": (1, 3, 224, 224)},
        {"x": [1, 3, np.int64(224), 224.0]},
    ],
)
def test_spellings(spelling: Any) -> None:
    assert parse_shapes(spelling) == WANTED


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x:1x3,y:2x4", {"x": (1, 3), "y": (2, 4)}),
        ("x:1,3,y:2,4", {"x": (1, 3), "y": (2, 4)}),
        ("x:[1,3],y:[2,4]", {"x": (1, 3), "y": (2, 4)}),
        ("x:[1,3],y:2x4,z:5", {"x": (1, 3), "y": (2, 4), "z": (5,)}),
        (["x:1x3", "y:2,4"], {"x": (1, 3), "y": (2, 4)}),
        ("input:0:1x3", {"input:0": (1, 3)}),
        ("a,b:1x3", {"a,b": (1, 3)}),
        ("a/b.c_1x2:1x3", {"a/b.c_1x2": (1, 3)}),
        ("x:[]", {"x": ()}),
        ("x:7", {"x": (7,)}),
        ((), {}),
        (None, {}),
        (["x:1x3", "x:1x3"], {"x": (1, 3)}),
    ],
)
def test_several_inputs_and_odd_names(text: Any, wanted: dict[str, tuple[int, ...]]) -> None:
    assert parse_shapes(text) == wanted


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("dims", ["1x3", "1,3", "[1,3]"])
def test_hostile_names(name: str, dims: str) -> None:
    assert parse_shapes(f"{name}:{dims}") == {name: (1, 3)}


@pytest.mark.parametrize(
    "text",
    ["", "x", "x:", "1x3", "x:1x", "x:axb", "x:[1,3", "x:1.5", ":1x3x", "x" * 30_000],
)
def test_what_is_no_spelling(text: str) -> None:
    with pytest.raises(OrinportError, match="--shapes") as caught:
        parse_shapes(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", ["x:0x3", "x:-1x3", {"x": (1, -2)}, {"x": (0,)}])
def test_dimensions_are_positive(shape: Any) -> None:
    with pytest.raises(OrinportError, match="not positive"):
        parse_shapes(shape)


@pytest.mark.parametrize("shape", [{"x": 3}, {"x": "1x3"}, {"x": (1, "a")}, {"x": (1.5,)}, {"x": None}])
def test_mappings_hold_integers(shape: Any) -> None:
    with pytest.raises(OrinportError, match="no sequence of integers"):
        parse_shapes(shape)


def test_two_shapes_for_one_input() -> None:
    with pytest.raises(OrinportError, match="Two shapes"):
        parse_shapes(["x:1x3", "x:2x3"])


@given(
    st.dictionaries(
        st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12).filter(
            lambda s: s == s.strip() and not s.startswith(",") and not any(c.isdigit() for c in s)
        ),
        st.lists(st.integers(1, 10_000), min_size=1, max_size=5).map(tuple),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["x", ",", "[]"]),
)
def test_what_is_written_is_read(shapes: dict[str, tuple[int, ...]], style: str) -> None:
    def written(dims: tuple[int, ...]) -> str:
        text = ("x" if style == "x" else ",").join(map(str, dims))
        return f"[{text}]" if style == "[]" else text

    assert parse_shapes([f"{name}:{written(dims)}" for name, dims in shapes.items()]) == shapes


@given(st.text(alphabet="x:,[]-0123 ab", max_size=60))
def test_any_text_gives_shapes_or_one_error(text: str) -> None:
    try:
        shapes = parse_shapes(text)
    except OrinportError:
        return
    assert all(d > 0 for dims in shapes.values() for d in dims)


# --- on a network -------------------------------------------------------------------------------------------------


def refusal(proto: Any, shapes: Any = None) -> str:
    with pytest.raises(OrinportError) as caught:
        load(proto, shapes=shapes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("batch", ["batch", "", None, -1, 0, "N"])
def test_dynamic_dimensions(batch: Any) -> None:
    proto = small_cnn()
    dim = proto.graph.input[0].type.tensor_type.shape.dim[0]
    dim.ClearField("dim_value")
    if isinstance(batch, str):
        dim.dim_param = batch
    elif batch is not None:
        dim.dim_value = batch
    text = refusal(proto)
    assert "'x'" in text
    assert "--shapes x:1x3x16x16." in text
    model = load(proto, shapes="x:4x3x16x16")
    assert model.inputs[0].shape == (4, 3, 16, 16)
    assert model.outputs[0].shape == (4, 10)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_the_example_is_one_shell_word(name: str) -> None:
    text = refusal(single("Relu", {name: ("n", 4)}))
    example = text.rsplit("--shapes ", 1)[1].removesuffix(".")
    assert shlex.split(example) == [f"{name}:1x4" if name.isprintable() else "NAME:1x3x224x224"]


def test_an_input_without_rank() -> None:
    proto = single("Relu", {"x": None})
    assert "(unknown rank)" in refusal(proto)
    assert load(proto, shapes="x:2x3").outputs[0].shape == (2, 3)


def test_a_scalar_needs_no_shape() -> None:
    assert load(single("Relu", {"x": ()})).outputs[0].shape == ()


def test_unknown_names_list_the_real_ones() -> None:
    text = refusal(small_cnn(), "data:1x3x16x16")
    assert "no input 'data'; its inputs are 'x'" in text


def test_ranks_have_to_match() -> None:
    text = refusal(small_cnn(batch="n"), "x:1x3x16")
    assert "4 dimensions (nx3x16x16)" in text
    assert "has 3" in text


def test_fixed_dimensions_stay() -> None:
    text = refusal(small_cnn(), "x:2x3x16x16")
    assert "fixed shape 1x3x16x16" in text
    assert load(small_cnn(), shapes="x:1x3x16x16").inputs[0].shape == (1, 3, 16, 16)


def test_named_dimensions_are_shared() -> None:
    proto = network([node("Add", ["x", "z"], "y")], {"x": ("n", 4), "z": ("n", 4)}, ["y"])
    assert load(proto, shapes="x:3x4").inputs[1].shape == (3, 4)
    assert "'n' is 3 for one input and 2 for 'z'" in refusal(proto, ["x:3x4", "z:2x4"])


def test_named_dimensions_reach_what_only_the_file_knows() -> None:
    proto = single("Strange", {"x": ("n", 4)}, domain="somewhere")
    proto.graph.output[0].type.tensor_type.elem_type = 1
    for dim in ("n", 8):
        made = proto.graph.output[0].type.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            made.dim_value = dim
        else:
            made.dim_param = dim
    assert load(proto, shapes="x:3x4").outputs[0].shape == (3, 8)


def test_dimensions_named_with_a_question_mark_are_not_one_symbol() -> None:
    from onnx import TensorProto, helper

    from orinport.model.load import load

    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["?", 3, "?", "?"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["?", 3, "?", "?"])],
    )
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), shapes="x:1x3x48x192")
    assert model.outputs[0].shape == (1, 3, 48, 192)


def test_a_dimension_of_0_is_called_what_it_is() -> None:
    proto = network([node("Relu", ["x"], "y")], {"x": [0, 16, 8]}, ["y"])
    with pytest.raises(OrinportError) as caught:
        load(proto)
    assert caught.value.message.startswith("The input 'x' has the shape 0x16x8: with a dimension of 0 it holds nothing")
    assert caught.value.hint.endswith("--shapes x:1x16x8.")
    assert load(proto, shapes="x:2x16x8").inputs[0].shape == (2, 16, 8)


def test_the_example_for_pictures() -> None:
    assert "--shapes x:1x3x224x224." in refusal(single("Relu", {"x": ("n", 3, "h", "w")}))
    assert "--shapes x:1x3x64x224." in refusal(single("Relu", {"x": (1, 3, 64, "w")}))


def test_a_dimension_that_says_nothing_is_dynamic() -> None:
    proto = network([node("Relu", ["x"], "y")], {"x": [1, 16, 8]}, ["y"])
    for dim in (-1, None):
        proto.graph.input[0].type.tensor_type.shape.dim[1].Clear()
        if dim is not None:
            proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = dim
        with pytest.raises(OrinportError, match=r"dynamic shape 1x\?x8"):
            load(proto)


@pytest.mark.parametrize("size", [2**31, 2**63, 10**20])
def test_dimensions_that_nothing_has(size: int) -> None:
    """None ends in an error of Python's or of protobuf's, also where Python reads no such number."""
    proto = single("Relu", {"x": ("n", 3, 8, 8)})
    for shapes in (f"x:{size}x3x8x8", f"x:{'9' * 5001}x3x8x8", {"x": (size, 3, 8, 8)}):
        with pytest.raises(OrinportError, match="larger than 2147483647"):
            load(proto, shapes=shapes)
    assert load(proto, shapes=f"x:{2**31 - 1}x3x8x8").inputs[0].shape == (2**31 - 1, 3, 8, 8)
    with pytest.raises(OrinportError, match="no sequence of integers"):
        load(proto, shapes={"x": (float("inf"), 3, 8, 8)})  # type: ignore[dict-item]
