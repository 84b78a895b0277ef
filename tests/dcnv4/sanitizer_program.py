"""Launches every kernel once on small tensors, for compute-sanitizer; needs a GPU, checks nothing itself.

compute-sanitizer --tool memcheck --report-api-errors no python tests/dcnv4/sanitizer_program.py
compute-sanitizer --tool racecheck python tests/dcnv4/sanitizer_program.py
compute-sanitizer --tool initcheck python tests/dcnv4/sanitizer_program.py
"""

from __future__ import annotations

import torch

from orinport.dcnv4 import cuda
from orinport.dcnv4.arguments import Geometry
from orinport.dcnv4.cuda_plan import CONFIGURATIONS, Kernel


def on_gpu(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Random numbers, drawn on the CPU so that every byte on the GPU is known to be written."""
    return torch.randn(*shape).to(dtype).cuda()


def main() -> None:
    launches = 0
    for geometry, batch, height, width in (
        (Geometry(4, 16), 3, 13, 11),
        (Geometry(5, 16, offset_scale=0.5), 1, 20, 24),
        (Geometry(1, 64), 1, 20, 24),
        (Geometry(3, 5, kernel=(2, 3)), 2, 6, 7),
    ):
        rows, columns = geometry.output_size(height, width)
        for dtype, offsets in (
            (torch.float32, torch.float32),
            (torch.float16, torch.float16),
            (torch.bfloat16, torch.bfloat16),
            (torch.float16, torch.float32),
            (torch.int8, torch.float16),
            (torch.int8, torch.float32),
        ):
            value = on_gpu(batch, height, width, geometry.channels, dtype=torch.float32).to(dtype)
            vectors = on_gpu(batch, rows, columns, geometry.width, dtype=offsets)
            for number in range(1, len(CONFIGURATIONS) + 1):
                for fast in (False, True):
                    try:
                        cuda.dcnv4_cuda(value, vectors, geometry, configuration=number, fast=fast)
                        launches += 1
                    except cuda.CudaUnavailableError:  # noqa: PERF203
                        continue
            if dtype == offsets:
                gradient = on_gpu(batch, rows, columns, geometry.channels, dtype=dtype)
                for deterministic in (False, True):
                    cuda.dcnv4_backward_cuda(gradient, value, vectors, geometry, deterministic=deterministic)
                    launches += 1
    # Enough rows a block for the rings of streams to turn.
    geometry = Geometry(4, 16)
    for dtype in (torch.float16, torch.float32):
        value = on_gpu(132, 80, 11, geometry.channels, dtype=dtype)
        vectors = on_gpu(132, 80, 11, geometry.width, dtype=dtype)
        for number, configuration in enumerate(CONFIGURATIONS, 1):
            if configuration.kernel is Kernel.STREAM:
                cuda.dcnv4_cuda(value, vectors, geometry, configuration=number)
                launches += 1
    levels = torch.tensor([[8, 9], [4, 5]]).cuda()
    starts = torch.tensor([0, 72]).cuda()
    for channels in (16, 3):
        cuda.flash_deform_attn_cuda(on_gpu(2, 92, 2, channels), levels, starts, on_gpu(2, 5, 2, 24), 4)
        launches += 1
    torch.cuda.synchronize()
    print(f"{launches} launches")


if __name__ == "__main__":
    main()
