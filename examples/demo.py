"""What `make demo` runs: prepare ResNet-50 and a matrix product for the DLA of an AGX Orin.

ResNet-50 is the network that the onnx package ships for its own tests (its weights are made up, its
layers are real). The matrix product is 128x1024 times 1024x128, once with two runtime inputs, which no
DLA takes, and once with a constant right-hand side.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import orinport
from orinport.report.text import check_text, prepare_text

TARGET = "orin-agx-64gb/jp6.0"
OUT = Path("out")


def resnet50() -> Path:
    """The light ResNet-50 inside the onnx package."""
    return Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"


def matrix_product(path: Path, *, constant: bool) -> Path:
    """Write Y = A B with A (128, 1024) and B (1024, 128), B constant or a second input."""
    inputs = [helper.make_tensor_value_info("A", TensorProto.FLOAT, [128, 1024])]
    initializers = []
    if constant:
        values = np.random.default_rng(0).standard_normal((1024, 128), dtype=np.float32) / 32
        initializers.append(numpy_helper.from_array(values, "B"))
    else:
        inputs.append(helper.make_tensor_value_info("B", TensorProto.FLOAT, [1024, 128]))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["A", "B"], ["Y"], name="product")],
        "product",
        inputs,
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [128, 128])],
        initializers,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def headline(text: str) -> None:
    """A line between the parts of the demonstration."""
    print(f"\n==== {text}\n")


def main() -> int:
    """Run the three parts; the status is 0 if the two that can run on the DLA do."""
    OUT.mkdir(exist_ok=True)
    ok = True

    headline("ResNet-50")
    start = time.perf_counter()
    report = orinport.prepare(resnet50(), target=TARGET, output=OUT / "resnet50", force=True)
    print(prepare_text(report))
    print(f"{time.perf_counter() - start:.1f} s")
    ok &= report.after.all_dla

    headline("128x1024 times 1024x128, both inputs at run time")
    print(check_text(orinport.check(matrix_product(OUT / "runtime.onnx", constant=False), target=TARGET)))

    headline("128x1024 times 1024x128, right-hand side constant")
    constant = matrix_product(OUT / "constant.onnx", constant=True)
    report = orinport.prepare(constant, target=TARGET, output=OUT / "product", force=True)
    print(prepare_text(report))
    ok &= report.after.all_dla
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
