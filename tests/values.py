"""Reports made by hand, hostile names included, for the tests of rendering."""

from __future__ import annotations

from pathlib import Path

from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.placement.place import place
from orinport.results import CheckReport, LayerVerdict
from orinport.rewrites.log import VerifyReport, VerifyRow
from orinport.rules.finding import Finding, Fix, Verdict
from orinport.targets.target import Confidence, Hardware, Platform, PowerMode, Precision, Stack, Target
from orinport.targets.version import Version

HOSTILE = "a\"b'c\n$(touch /tmp/x)`id`<script>alert(1)</script>\x1b[31m"


def target(tensorrt: str = "10.3.0", stack: str = "jp6.2") -> Target:
    """An AGX Orin with a stack of the given TensorRT version."""
    return Target(
        Hardware("orin-agx-64gb", "Jetson AGX Orin 64GB", Platform.ORIN, "agx", {}, ()),
        Stack(
            stack,
            "JetPack 6.2",
            Version.parse(tensorrt),
            None,
            "jetson",
            None,
            18,
            (Platform.ORIN,),
            ("agx",),
            "made up for a test",
            Confidence.DOCUMENTED,
        ),
        PowerMode("maxn", {}),
    )


def layer(index: int, kind: LayerKind, source: str, result: str, name: str = "", **attributes: object) -> Layer:
    """A layer with one input and one output of shape (1, 16, 8, 8)."""
    shape = (1, 16, 8, 8)
    name = name or f"node{index}"
    return Layer(
        index,
        name,
        kind,
        (Tensor(source, shape, DType.FP32),),
        (Tensor(result, shape, DType.FP32),),
        (name,),
        attributes,
    )


def finding(code: str, at: Layer, verdict: Verdict | None, message: str, fix: Fix | None = None) -> Finding:
    """A finding with a value, a limit and a source."""
    return Finding(
        code,
        at.name,
        at.nodes,
        message,
        33,
        32,
        "Use a smaller one.",
        fix,
        "a document, 1.2",
        Confidence.DOCUMENTED,
        verdict,
        ("X01",),
    )


def check_report(*, hostile: bool = False) -> CheckReport:
    """Three layers: one taken, one refused with a fix, one unknown; and a note."""
    name = HOSTILE if hostile else "conv"
    layers = [
        layer(0, LayerKind.CONVOLUTION, "x", "a", name, groups=1),
        layer(1, LayerKind.MATRIX_MULTIPLY, "a", "b"),
        layer(2, LayerKind.GRID_SAMPLE, "b", "y"),
    ]
    verdicts = {0: Verdict.DLA, 1: Verdict.GPU, 2: Verdict.UNKNOWN}
    findings = (
        finding(
            "DLA001", layers[1], Verdict.GPU, "MatMul is not supported on the DLA.", Fix("matmul-to-conv", "exact")
        ),
        finding("DLA099", layers[2], Verdict.UNKNOWN, "No document says whether the DLA takes GRID_SAMPLE."),
        finding("DLA190", layers[0], None, f"The kernel of {name} is 33 wide, the limit is 32."),
    )
    edge = Tensor("x", (1, 16, 8, 8), DType.FP32), Tensor("y", (1, 16, 8, 8), DType.FP32)
    placement = place(layers, verdicts, inputs=edge[:1], outputs=edge[1:], target=target(), precision=Precision.FP16)
    codes = {0: ("DLA190",), 1: ("DLA001",), 2: ("DLA099",)}
    return CheckReport(
        f"{name}.onnx" if hostile else "net.onnx",
        target(),
        Precision.FP16,
        tuple(LayerVerdict(row, verdicts[row.index], codes[row.index]) for row in layers),
        findings,
        placement,
    )


def verify_report(*, equal: bool = True) -> VerifyReport:
    """One output."""
    row = (
        VerifyRow("y", (1, 16, 8, 8), 1e-6, 2e-6, 1e-5, True)
        if equal
        else VerifyRow("y", (1, 16, 8, 8), 0.5, 0.25, 1e-5, False)
    )
    return VerifyReport("a.onnx", str(Path("b") / "model.onnx"), (row,), 3, 0, "" if equal else "mid")
