"""Sessions of ONNX Runtime on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from onnxruntime import InferenceSession

__all__ = ["open_session"]

_FATAL = 4
"""What goes wrong is raised; ONNX Runtime need not print it too."""
_APART_BYTES = 1 << 12
"""Weights of an optimised network from this size on lie in a file beside it, from which a session maps them.

It is that of `save`: before 1.23, ONNX Runtime leaves smaller ones in the file where they were, wherever that is.
"""


def open_session(
    source: bytes | str,
    *,
    threads: int = 0,
    optimise: bool = True,
    arena: bool = True,
    optimised_to: Path | None = None,
    operators: Path | None = None,
    weights: Mapping[str, NDArray[Any]] | None = None,
    without: tuple[str, ...] = (),
) -> InferenceSession:
    """A session for a serialised model or a path; it prints nothing.

    `threads` is the number of threads inside an operator, 0 for ONNX Runtime's choice. Without `optimise` the
    network runs as it is written, without `arena` freed memory goes back at once. The optimised network is written to
    `optimised_to`, its larger weights to `<name>.data` beside it; `operators` is a library with more of them. `weights`
    are initializers that the model's file names as external data: the session reads them where they lie, and keeps
    them. `without` names ONNX Runtime's optimisers that are left out. Raises what ONNX Runtime raises.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    options.enable_cpu_mem_arena = arena
    if optimised_to is not None:
        options.optimized_model_filepath = str(optimised_to)
        apart = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{apart}_file_name", f"{optimised_to.name}.data")
        options.add_session_config_entry(f"{apart}_min_size_in_bytes", str(_APART_BYTES))
    if operators is not None:
        options.register_custom_ops_library(str(operators))
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    lent = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in (weights or {}).items()}
    for name, value in lent.items():
        options.add_initializer(name, value)
    session = onnxruntime.InferenceSession(
        source, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(without)
    )
    session.lent = lent  # to live as long: ONNX Runtime does not own them
    return session
