"""Time on the GPU: replays of a CUDA graph."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["time_us"]

_REPLAYS = 9


def time_us(functions: Sequence[Callable[[], object]], launches: int) -> tuple[float, tuple[float, float]]:
    """Median time of one call, and the least and greatest, over replays of a CUDA graph of `launches` calls in turn."""
    for function in functions:
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in range(launches):
            functions[launch % len(functions)]()
    times = []
    for replay in range(_REPLAYS + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        if replay >= 2:
            times.append(start.elapsed_time(end) * 1000 / launches)
    return statistics.median(times), (min(times), max(times))
