"""The Triton kernel of `cuda_linear`; importing it needs Triton, which PyTorch for NVIDIA GPUs brings."""

# mypy: ignore-errors

import triton
import triton.language as tl

__all__ = ["fused_linear"]


@triton.jit
def _erf(z):
    """The error function within 4e-5, far below the rounding of 16-bit types: an odd polynomial up to 3.2, then 1."""
    t = z * z
    p = 2.64975166e-08 * t - 1.40646317e-06
    p = p * t + 3.27197808e-05
    p = p * t - 4.42843597e-04
    p = p * t + 3.92002587e-03
    p = p * t - 2.42822777e-02
    p = p * t + 1.09959184e-01
    p = p * t - 3.74637728e-01
    p = p * t + 1.12815118e00
    return tl.where(z > 3.2, 1.0, tl.where(z < -3.2, -1.0, z * p))


@triton.jit
def fused_linear(
    x,
    weight,
    bias,
    sums,
    residual,
    output,
    rows,
    columns,
    depth,
    epsilon,
    has_bias: tl.constexpr,
    has_norm: tl.constexpr,
    has_residual: tl.constexpr,
    gelu: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    step: tl.constexpr,
):
    # Neighbouring blocks share their rows of x.
    across = tl.cdiv(columns, width)
    block = tl.program_id(0)
    r = (block // across) * height + tl.arange(0, height)
    c = (block % across) * width + tl.arange(0, width)
    k = tl.arange(0, step)
    from_x = x + r.to(tl.int64)[:, None] * depth + k[None, :]
    from_weight = weight + c[None, :] * depth + k[:, None]
    total = tl.zeros((height, width), tl.float32)
    first = tl.zeros((height,), tl.float32)
    second = tl.zeros((height,), tl.float32)
    for start in range(0, depth, step):
        inside = k < depth - start
        left = tl.load(from_x + start, mask=(r < rows)[:, None] & inside[None, :], other=0.0)
        right = tl.load(from_weight + start, mask=(c < columns)[None, :] & inside[:, None], other=0.0)
        total = tl.dot(left, right, total)
        if has_norm:
            wide = left.to(tl.float32)
            first += tl.sum(wide, 1)
            second += tl.sum(wide * wide, 1)
    if has_norm:
        mean = first / depth
        scale = tl.rsqrt(tl.maximum(second / depth - mean * mean, 0.0) + epsilon)
        s = tl.load(sums + c, mask=c < columns, other=0.0)
        total = (total - mean[:, None] * s[None, :]) * scale[:, None]
    if has_bias:
        total += tl.load(bias + c, mask=c < columns, other=0.0)[None, :]
    if gelu:
        total = 0.5 * total * (1.0 + _erf(total * 0.7071067811865476))
    to = r.to(tl.int64)[:, None] * columns + c[None, :]
    inside = (r < rows)[:, None] & (c < columns)[None, :]
    if has_residual:
        total += tl.load(residual + to, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + to, total.to(output.dtype.element_ty), mask=inside)
