"""Write the models that the documentation uses: `python examples/models.py FOLDER`.

- `resnet50.onnx`: the ResNet-50 that the onnx package ships for its own tests (real layers, made-up weights)
- `squeezenet.onnx`: likewise
- `product_runtime.onnx`: Y = A B, 128x1024 times 1024x128, both inputs at run time
- `product_constant.onnx`: the same with a constant right-hand side
- `dynamic.onnx`: one convolution whose input has a symbolic batch size, height and width
- `branches.onnx`: a stem with two heads of six convolutions each, for both DLA cores
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def light_network(name: str, folder: Path) -> Path:
    """Copy one of the onnx package's own networks into `folder`."""
    return Path(shutil.copyfile(LIGHT / f"light_{name}.onnx", folder / f"{name}.onnx"))


def matrix_product(path: Path, m: int = 128, k: int = 1024, n: int = 128, *, constant: bool) -> Path:
    """Write Y = A B with A (m, k) and B (k, n), B constant or a second input."""
    inputs = [helper.make_tensor_value_info("A", TensorProto.FLOAT, [m, k])]
    initializers = []
    if constant:
        values = np.random.default_rng(0).standard_normal((k, n), dtype=np.float32) / np.float32(k**0.5)
        initializers.append(numpy_helper.from_array(values, "B"))
    else:
        inputs.append(helper.make_tensor_value_info("B", TensorProto.FLOAT, [k, n]))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["A", "B"], ["Y"], name="product")],
        "product",
        inputs,
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [m, n])],
        initializers,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def dynamic_network(path: Path) -> Path:
    """Write a 3x3 convolution and ReLU over an image of any size."""
    weights = np.random.default_rng(0).standard_normal((16, 3, 3, 3), dtype=np.float32) / np.float32(5)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "w"], ["c"], name="conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["features"], name="relu"),
        ],
        "dynamic",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", 16, "H", "W"])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def branching_network(path: Path) -> Path:
    """Write a 3x3 convolution over a 256x256 image and two heads of six 3x3 convolutions behind it."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def conv(source: str, channels: int, result: str) -> str:
        values = rng.standard_normal((64, channels, 3, 3), dtype=np.float32) / np.float32((channels * 9) ** 0.5)
        weights.append(numpy_helper.from_array(values, f"{result}_w"))
        nodes.append(helper.make_node("Conv", [source, f"{result}_w"], [f"{result}_c"], name=result, pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"{result}_c"], [result], name=f"{result}_relu"))
        return result

    stem, ends = conv("image", 3, "stem"), []
    for head in ("boxes", "classes"):
        tensor = stem
        for number in range(6):
            tensor = conv(tensor, 64, f"{head}{number}")
        ends.append(tensor)
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 256, 256])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64, 256, 256]) for name in ends],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def write_all(folder: Path) -> dict[str, Path]:
    """Write every example model into `folder`; gives their paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "resnet50": light_network("resnet50", folder),
        "squeezenet": light_network("squeezenet", folder),
        "product_runtime": matrix_product(folder / "product_runtime.onnx", constant=False),
        "product_constant": matrix_product(folder / "product_constant.onnx", constant=True),
        "dynamic": dynamic_network(folder / "dynamic.onnx"),
        "branches": branching_network(folder / "branches.onnx"),
    }


if __name__ == "__main__":
    for path in write_all(Path(sys.argv[1] if len(sys.argv) > 1 else "out")).values():
        print(path)
