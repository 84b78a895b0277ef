"""Small ONNX networks for tests, and ONNX Runtime to run them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HOSTILE_NAMES = (
    "quote\"s and 'apostrophes'",
    "two\nlines",
    "$(touch owned) `id` ; rm -rf *",
    "<script>alert(1)</script>",
    "\x1b[31mred\x07",
    "名前 Größe ñ 🚗",
    "../../etc/passwd",
    "a,b:c=d x",
)
"""Names that a report, a shell command or a path must survive."""

LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
"""Networks that come with the onnx package, weights replaced by constants."""


def light_path(name: str) -> Path:
    """File of one of the `LIGHT` networks."""
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str] | str, **attributes: Any) -> onnx.NodeProto:
    """A node named after its first output, unless `name` says otherwise."""
    outputs = [outputs] if isinstance(outputs, str) else list(outputs)
    name = attributes.pop("name", f"{op_type}_{outputs[0]}")
    return helper.make_node(op_type, list(inputs), outputs, name=name, **attributes)


def value(name: str, shape: Sequence[int | str | None] | None, dtype: Any = np.float32) -> onnx.ValueInfoProto:
    """A typed value; `dtype` is a NumPy type or a `TensorProto` number."""
    element = dtype if isinstance(dtype, int) else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, element, shape)


def network(
    nodes: Iterable[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Iterable[str] | Mapping[str, Any],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    name: str = "network",
) -> onnx.ModelProto:
    """A model.

    `inputs` and `outputs` map names to shapes, or to `(shape, dtype)`; outputs may be names alone, which leaves
    their types to inference.
    """
    graph = helper.make_graph(
        list(nodes),
        name,
        [_info(n, spec) for n, spec in inputs.items()],
        [_info(n, outputs[n]) if isinstance(outputs, dict) else onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(np.asarray(array), n) for n, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in (domains or {}).items())]
    proto = helper.make_model(graph, opset_imports=imports, functions=list(functions), producer_name="tests")
    proto.ir_version = 8 if not functions else 10
    return proto


def _info(name: str, spec: Any) -> onnx.ValueInfoProto:
    if isinstance(spec, tuple) and len(spec) == 2 and not isinstance(spec[1], (int, str, type(None))):
        return value(name, spec[0], spec[1])
    return value(name, spec)


def single(
    op_type: str,
    inputs: Mapping[str, Any],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    outputs: int = 1,
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node: `inputs` then `constants` in the order given, outputs `y` or `y0`, `y1`, ..."""
    results = ["y"] if outputs == 1 else [f"y{i}" for i in range(outputs)]
    call = node(op_type, [*inputs, *(constants or {})], results, domain=domain, **attributes)
    return network([call], inputs, results, constants, opset=opset, domains={domain: 1} if domain else None)


def small_cnn(*, batch: int | str = 1, channels: int = 8, size: int = 16, seed: int = 0) -> onnx.ModelProto:
    """Conv, Relu, MaxPool, Conv, Add, GlobalAveragePool, Flatten, Gemm: input `x`, output `y` of ten classes."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    nodes = [
        node("Conv", ["x", "w1", "b1"], "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        node("MaxPool", ["r1"], "p1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2"], "c2", kernel_shape=[1, 1]),
        node("Add", ["c2", "p1"], "a1"),
        node("GlobalAveragePool", ["a1"], "g1"),
        node("Flatten", ["g1"], "f1"),
        node("Gemm", ["f1", "w3", "b3"], "y", transB=1),
    ]
    constants = {
        "w1": weights(channels, 3, 3, 3),
        "b1": weights(channels),
        "w2": weights(channels, channels, 1, 1),
        "w3": weights(10, channels),
        "b3": weights(10),
    }
    return network(nodes, {"x": (batch, 3, size, size)}, ["y"], constants)


def thin_network(count: int, *, width: int = 8) -> onnx.ModelProto:
    """A network of `count` nodes that costs nothing to run: Conv, Relu, Add, MaxPool, again and again."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    before = "x"
    for index in range(count):
        name = f"v{index}"
        if index % 4 == 0:
            constants[f"w{index}"] = rng.normal(0, 0.3, (width, width, 1, 1)).astype(np.float32)
            nodes.append(node("Conv", [before, f"w{index}"], name, kernel_shape=[1, 1]))
        elif index % 4 == 1:
            nodes.append(node("Relu", [before], name))
        elif index % 4 == 2:
            nodes.append(node("Add", [before, f"v{index - 2}"], name))
        else:
            nodes.append(node("MaxPool", [before], name, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        before = name
    return network(nodes, {"x": (1, width, 16, 16)}, [before], constants)


@lru_cache(maxsize=1)
def operator_models() -> dict[str, onnx.ModelProto]:
    """The operator models of the onnx package's own tests, by name."""
    import warnings

    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case.model for case in collect_testcases(None) if case.model is not None}


def random_feeds(proto: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs with static shapes: floats around zero, integers in 0..3, booleans."""
    rng = np.random.default_rng(seed)
    constant = {tensor.name for tensor in proto.graph.initializer}
    feeds = {}
    for info in proto.graph.input:
        if info.name in constant:
            continue
        tensor = info.type.tensor_type
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if tensor.elem_type == TensorProto.BOOL:
            feeds[info.name] = rng.integers(0, 2, shape).astype(bool)
        elif np.issubdtype(dtype, np.integer):
            feeds[info.name] = rng.integers(0, 4, shape).astype(dtype)
        else:
            feeds[info.name] = rng.normal(0, 1, shape).astype(dtype)
    return feeds


def run_onnx(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs of `proto` in ONNX Runtime on one thread, its own optimisations off."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))
