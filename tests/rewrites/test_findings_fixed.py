"""What a finding names as its fix: before the rewrite `check` reports it, afterwards it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_precision, as_target, check_model
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.rewrites.rewrite import Safety

if TYPE_CHECKING:
    import onnx

ONE = (1, 8, 24, 24)


def conv(kernel: tuple[int, int], shape: tuple[int, ...] = ONE, **attributes: Any) -> onnx.ModelProto:
    weights = np.full((4, shape[1], *kernel), 0.1, np.float32)
    return network([node("Conv", ["x", "w"], "y", **attributes)], {"x": shape}, ["y"], {"w": weights})


def deconv(group: int = 1, **attributes: Any) -> onnx.ModelProto:
    weights = np.full((8, 4, 4, 4), 0.1, np.float32)
    call = node("ConvTranspose", ["x", "w"], "y", group=group, **attributes)
    return network([call], {"x": ONE}, ["y"], {"w": weights})


def pool(op_type: str, **attributes: Any) -> onnx.ModelProto:
    return network([node(op_type, ["x"], "y", **attributes)], {"x": ONE}, ["y"])


def two(op_type: str, first: tuple[int, ...], second: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    return network([node(op_type, ["x", "z"], "y", **attributes)], {"x": first, "z": second}, ["y"])


def reduction(op_type: str, *axes: int) -> onnx.ModelProto:
    return network([node(op_type, ["x"], "y", axes=list(axes))], {"x": ONE}, ["y"], opset=11)


def running_sum() -> onnx.ModelProto:
    constants: dict[str, Any] = {"axis": np.asarray(2, np.int64)}
    return network([node("CumSum", ["x", "axis"], "y")], {"x": ONE}, ["y"], constants)


def padded() -> onnx.ModelProto:
    constants: dict[str, Any] = {"pads": np.asarray([0, 0, 1, 1, 0, 0, 1, 1], np.int64)}
    constants["w"] = np.full((4, 8, 3, 3), 0.1, np.float32)
    nodes = [node("Pad", ["x", "pads"], "p"), node("Conv", ["p", "w"], "y")]
    return network(nodes, {"x": ONE}, ["y"], constants)


def between(op_type: str, *names: str, constants: dict[str, Any] | None = None, **attributes: Any) -> onnx.ModelProto:
    """A node that reads "a" and others, from one Relu to the next."""
    nodes = [node("Relu", ["x"], "a"), node(op_type, ["a", *names], "b", **attributes), node("Relu", ["b"], "y")]
    arrays = {name: np.asarray(array) for name, array in (constants or {}).items()}
    inputs: dict[str, Any] = {"x": ONE}
    if "u" in names:
        inputs["u"] = (1, 2, 24, 24)
    return network(nodes, inputs, ["y"], arrays, opset=17)


def two_branches(mask: np.ndarray) -> onnx.ModelProto:
    nodes = [node("Sigmoid", ["x"], "z"), node("Where", ["m", "x", "z"], "y")]
    return network(nodes, {"x": ONE}, ["y"], {"m": mask})


def compared(op_type: str, dtype: Any = np.float32) -> onnx.ModelProto:
    """`x * (x > z)`, in FP16 with two Casts of the comparison."""
    to = 10 if dtype == np.float16 else 1
    nodes = [node("Sigmoid", ["x"], "z"), node(op_type, ["x", "z"], "c"), node("Cast", ["c"], "m", to=to)]
    if dtype == np.float16:
        nodes += [node("Cast", ["c"], "n", to=to), node("Add", ["m", "n"], "o")]
    nodes.append(node("Mul", ["x", "m" if to == 1 else "o"], "y"))
    return network(nodes, {"x": (ONE, dtype)}, ["y"], opset=17)


def reversed_steps() -> onnx.ModelProto:
    """Two columns of a tensor whose columns are reversed."""
    constants = {"s": [-1], "e": [-(2**31)], "t": [-1], "a": [3], "p": [0], "q": [1], "r": [2]}
    nodes = [node("Relu", ["x"], "h"), node("Slice", ["h", "s", "e", "a", "t"], "f")]
    nodes += [node("Slice", ["f", "p", "q", "a"], "b"), node("Slice", ["f", "q", "r", "a"], "c")]
    nodes += [node("Add", ["b", "c"], "y")]
    return network(nodes, {"x": ONE}, ["y"], {name: np.asarray(each) for name, each in constants.items()})


def beside_a_slice() -> onnx.ModelProto:
    constants = {"s": [0], "e": [4], "a": [1], "d": [1, 1, 4, 24]}
    nodes = [node("Relu", ["x"], "h"), node("Slice", ["h", "s", "e", "a"], "b"), node("Reshape", ["b", "d"], "c")]
    nodes += [node("Relu", ["c"], "y")]
    arrays = {name: np.asarray(each) for name, each in constants.items()}
    return network(nodes, {"x": (1, 8, 1, 24)}, ["y"], arrays)


def best(count: int) -> onnx.ModelProto:
    return network([node("TopK", ["x", "k"], ["y", ""], axis=1)], {"x": ONE}, ["y"], {"k": np.asarray([count])})


def new(op_type: str, names: str, shape: tuple[int, ...], constants: dict[str, Any], opset: int) -> onnx.ModelProto:
    """An operator that older parsers do not know, on tensors of one shape."""
    nodes = [node(op_type, [*names, *constants], "y")]
    return network(nodes, dict.fromkeys(names, shape), ["y"], constants, opset=opset)


TABLES = {name: np.ones((1, 8, 8), np.float32) for name in "cs"}
CHANNELS = np.broadcast_to(np.asarray([2, 3]).reshape(1, 2, 1, 1), (1, 2, 24, 24)).copy()
AROUND = np.asarray([0, 0, 1, 1, 0, 0, 1, 1])


CASES = {
    "einsum": ("DLA001", two("Einsum", (1, 2, 8, 16), (1, 2, 16, 8), equation="bhij,bhjk->bhik")),
    "cumsum": ("DLA001", running_sum()),
    "attention": ("DLA091", new("Attention", "qkv", (1, 2, 8, 16), {}, 23)),
    "rotary embedding": ("DLA091", new("RotaryEmbedding", "x", (1, 2, 8, 16), TABLES, 23)),
    "root mean square for jp6.2": (
        "DLA091",
        new("RMSNormalization", "x", (1, 8, 16), {"s": np.ones(16, np.float32)}, 23),
    ),
    "Swish": ("DLA091", new("Swish", "x", ONE, {}, 24)),
    "run-time product": ("DLA010", two("MatMul", (1, 2, 8, 16), (1, 2, 16, 8))),
    "channel sum": ("DLA024", reduction("ReduceSum", 1)),
    "norm": ("DLA024", reduction("ReduceL1", 1, 2, 3)),
    "channel maximum": ("DLA024", reduction("ReduceMax", 1)),
    "minimum": ("DLA024", reduction("ReduceMin", 2, 3)),
    "long kernel": ("DLA121", conv((1, 40), (1, 8, 4, 90))),
    "atrous padding": ("DLA122", conv((3, 3), pads=[6] * 4, dilations=[6, 6])),
    "patches": ("DLA123", conv((12, 12), strides=[12, 12])),
    "wide dilation": ("DLA124", conv((2, 2), (1, 8, 40, 40), dilations=[34, 1])),
    "buffer": ("DLA127", conv((3, 3), (1, 1024, 4, 160))),
    "deconvolution padding": ("DLA135", deconv(strides=[2, 2], pads=[1] * 4)),
    "deconvolution padding in INT8": ("DLA135", deconv(strides=[2, 2], pads=[1] * 4)),
    "deconvolution groups": ("DLA136", deconv(2, strides=[2, 2])),
    "deconvolution dilation": ("DLA137", deconv(dilations=[2, 2], pads=[3, 3, 3, 3])),
    "max window": ("DLA140", pool("MaxPool", kernel_shape=[9, 9], pads=[4] * 4)),
    "average window": ("DLA140", pool("AveragePool", kernel_shape=[9, 9])),
    "pool padding": ("DLA141", pool("MaxPool", kernel_shape=[17, 17], pads=[8] * 4)),
    "squeeze and excite": ("DLA161", two("Mul", ONE, (1, 8, 1, 1))),
    "fill": ("DLA184", padded()),
    "gathered elements": ("DLA015", between("GatherElements", "i", constants={"i": CHANNELS}, axis=1)),
    "gathered places": ("DLA015", between("GatherND", "i", constants={"i": [[[0, 2], [0, 3]]]})),
    "scattered elements": ("DLA001", between("ScatterElements", "i", "u", constants={"i": CHANNELS}, axis=1)),
    "scattered places": ("DLA001", between("ScatterND", "i", "u", constants={"i": [[[0, 2], [0, 3]]]})),
    "copies": ("DLA184", between("Tile", "r", constants={"r": [1, 2, 1, 2]})),
    "mirror": ("DLA184", between("Pad", "p", constants={"p": AROUND}, mode="reflect")),
    "border of ones": ("DLA184", between("Pad", "p", "v", constants={"p": AROUND, "v": np.float32(1)})),
    "normalisation for jp6.2": (
        "DLA001",
        between("InstanceNormalization", "s", "s", constants={"s": np.ones(8, np.float32)}),
    ),
    "root in INT8 for jp6.2": ("DLA023", between("Sqrt")),
    "chosen channels": (
        "DLA035",
        two_branches(np.arange(8).reshape(1, 8, 1, 1) < 3),
    ),
    "mask fill": (
        "DLA035",
        network(
            [node("Where", ["m", "x", "f"], "y")],
            {"x": ONE},
            ["y"],
            {"m": np.arange(8).reshape(1, 8, 1, 1) % 3 == 0, "f": np.asarray(-5, np.float32)},
        ),
    ),
    "mean and variance for jp6.2": ("DLA024", between("MeanVarianceNormalization", axes=[2, 3])),
    "norm of a vector for jp6.2": ("DLA023", between("LpNormalization", axis=1)),
    "logarithms for jp6.2": ("DLA023", between("LogSoftmax", axis=1)),
    "reversed steps": ("DLA183", reversed_steps()),
    "reshape beside a slice for jp6.2": ("DLA300", beside_a_slice()),
    "best score for jp6.2": ("DLA001", best(1)),
    "best scores": ("DLA001", best(3)),
    "soft sign for jp6.2": ("DLA020", between("Softsign")),
    "threshold": ("DLA020", between("ThresholdedRelu", alpha=0.5)),
    "comparison": ("DLA022", compared("Greater")),
    "greater or equal": ("DLA022", compared("GreaterOrEqual")),
    "greater or equal, joined": ("DLA035", compared("GreaterOrEqual")),
    "half of the comparison in INT8 for jp6.2": ("DLA166", compared("Greater", np.float16)),
}


@pytest.mark.parametrize("case", list(CASES))
def test_a_finding_goes_away(case: str) -> None:
    code, proto = CASES[case]
    # Only newer parsers have a layer for running sums; older ones make a loop.
    stack = "jp7.2" if case == "cumsum" else "jp6.2" if case.endswith("jp6.2") else "jp6.0"
    target = as_target(f"orin-agx-64gb/{stack}")
    precision = as_precision("int8" if "INT8" in case else "fp16")
    model = load(proto)
    before = check_model(model, target, precision)
    assert code in {finding.code for finding in before.findings}
    fix = next(finding.fix for finding in before.findings if finding.code == code and finding.fix is not None)
    rewritten, log, _ = rewrite_for(model, target, precision, consent=[Safety.EXACT, Safety(fix.safety)])
    after = check_model(rewritten, target, precision)
    assert fix.rewrite in log.counts()
    assert code not in {finding.code for finding in after.findings}
    assert all(row.verdict.value == "dla" for row in after.layers)
