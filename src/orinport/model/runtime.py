"""Sessions of ONNX Runtime on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["open_session"]

_FATAL = 4
"""What goes wrong is raised; ONNX Runtime need not print it too."""


def open_session(
    source: bytes | str, *, threads: int = 0, optimise: bool = True, arena: bool = True
) -> InferenceSession:
    """A session for a serialised model or a path; it prints nothing.

    `threads` is the number of threads inside an operator, 0 for ONNX Runtime's choice. Without `optimise` the
    network runs as it is written, without `arena` freed memory goes back at once. Raises what ONNX Runtime raises.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    options.enable_cpu_mem_arena = arena
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
