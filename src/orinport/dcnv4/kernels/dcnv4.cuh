// DCNv4 on NVIDIA GPUs, sm_80 and newer: the interface.
//
// Everything is pure CUDA C++17 without framework types. Host code compiled by nvcc calls
//
//     Params p = ...;                                // problem.h: pointers, sizes, strides, attributes
//     const char* error = check(p, kF16, kF16);      // null, or what is wrong in one sentence
//     int ids[kConfigurationCount];
//     int n = configurations(p, kF16, kF16, limits, ids, kConfigurationCount);   // tactics: ids >= 1, best guess first
//     cudaError_t e = dcnv4_launch(p, kF16, kF16, fast, id, limits, stream);      // id 0: the launch plan chooses
//
// - value, offset_mask and output may be null while configurations are enumerated; at launch they are 16-byte aligned
//   where vectors are used (a configuration that needs more alignment than there is falls back to one that does not).
// - Fused form: value_stride = offset_stride = C+P, offset_mask = value + C elements. Unfused: C and P.
// - Types: value and output fp32, fp16, bf16 with offset_mask of the same type; value and output fp16 with fp32 offsets;
//   value and output int8 with fp16 or fp32 offsets, output_scale = scale of value / scale of output.
// - fast: fp16 with fp16 offsets only, samples are interpolated in fp16 pairs; else ignored. Sums are always fp32.
// - A launch allocates nothing, writes every element of output, keeps no state and is safe under CUDA graph capture.
//   Functions are reentrant. Limits come from device_limits, once a device.
// - FlashDeformAttn: attention_launch in attention.cuh.
//
// NVRTC compiles forward.cuh, attention.cuh and backward.cuh alone; cuda_plan.py chooses there.
#pragma once

#include "attention.cuh"
#include "forward.cuh"
#include "plan.h"

#if !defined(ORINPORT_EMULATE)
#include <cuda_runtime.h>
#endif

namespace orinport {
namespace dcnv4 {

using ForwardKernel = void (*)(const Params, const Division);

/// Of the kernels that stage value in shared memory. Only tiles of two chunks in 16-bit types share taps among lanes.
template <class V, class O, bool FAST>
ForwardKernel find_tiled(const Configuration& c, int share) {
    constexpr bool kShares = V::kBytes == 2;
    const bool tiled = c.tile_columns > 0;
    if (c.resident != (c.kernel == kWhole ? 640 : 512) || (share != 1 && !kShares)) return nullptr;
    if constexpr (V::kBytes >= 2) {
        constexpr int kTwo = kShares ? 2 : 1, kFour = kShares ? 4 : 1;
        if (c.bytes == 32 && c.kernel == kWhole) return whole_kernel<V, O, 2, FAST, 640>;
        if (c.bytes == 32 && c.kernel == kTile) {
            return share == 4   ? tile_kernel<V, O, 2, FAST, 512, kFour>
                   : share == 2 ? tile_kernel<V, O, 2, FAST, 512, kTwo>
                                : tile_kernel<V, O, 2, FAST, 512, 1>;
        }
        if (c.bytes == 32 && !tiled) return stream_kernel<V, O, 2, FAST, 512, false, 1>;
        if (c.bytes == 32) {
            return share == 4   ? stream_kernel<V, O, 2, FAST, 512, true, kFour>
                   : share == 2 ? stream_kernel<V, O, 2, FAST, 512, true, kTwo>
                                : stream_kernel<V, O, 2, FAST, 512, true, 1>;
        }
    }
    if (c.bytes == 16 && c.kernel == kWhole) return whole_kernel<V, O, 1, FAST, 640>;
    if (c.bytes == 16 && c.kernel == kTile) return tile_kernel<V, O, 1, FAST, 512, 1>;
    if (c.bytes == 16 && !tiled) return stream_kernel<V, O, 1, FAST, 512, false, 1>;
    if constexpr (V::kBytes == 4) {
        if (c.bytes == 64 && c.kernel == kWhole) return whole_kernel<V, O, 4, FAST, 640>;
    }
    return nullptr;
}

template <class V, class O, bool FAST>
ForwardKernel find_typed(const Configuration& c, bool unrolled, bool wide, int share) {
    constexpr int kElement = V::kBytes;
    if (c.kernel == kDirect) {
        if (wide) {
            if (c.bytes == 16) return direct_kernel<V, O, 16, 1, 0, FAST, true>;
            return c.bytes ? nullptr : direct_kernel<V, O, kElement, 1, 0, FAST, true>;
        }
        if (c.split == 3 && unrolled) return c.bytes == 16 ? direct_kernel<V, O, 16, 3, 9, FAST, false> : nullptr;
        if (c.split == 9 && unrolled) return c.bytes == 16 ? direct_kernel<V, O, 16, 9, 9, false, false> : nullptr;
        if (c.split != 1) return nullptr;
        switch (c.bytes) {
            case 0: return direct_kernel<V, O, kElement, 1, 0, FAST, false>;
            case 8: return direct_kernel<V, O, 8, 1, 0, FAST, false>;
            case 16:
                if (unrolled) return direct_kernel<V, O, 16, 1, 9, FAST, false>;
                return direct_kernel<V, O, 16, 1, 0, FAST, false>;
            default: return nullptr;
        }
    }
    if (!unrolled || wide) return nullptr;
    return find_tiled<V, O, FAST>(c, share);
}

/// The kernel of a configuration for a problem, or null if it was not compiled.
inline ForwardKernel find_kernel(const Params& p, int value, int offset, bool fast, const Configuration& c) {
    const bool unrolled = dcnv4::unrolled(p, offset), wide = dcnv4::wide(p, value);
    const int share = shared_lanes(p, value, c);
#if !defined(ORINPORT_EMULATE) || defined(ORINPORT_EMULATE_ALL)
    if (value == kBF16 && offset == kBF16) return find_typed<BF16, BF16, false>(c, unrolled, wide, share);
    if (value == kF16 && offset == kF32) return find_typed<F16, F32, false>(c, unrolled, wide, share);
    if (value == kI8 && offset == kF32) return find_typed<I8, F32, false>(c, unrolled, wide, share);
#endif
    if (value == kF32 && offset == kF32) return find_typed<F32, F32, false>(c, unrolled, wide, share);
    if (value == kF16 && offset == kF16) {
        return fast ? find_typed<F16, F16, true>(c, unrolled, wide, share) : find_typed<F16, F16, false>(c, unrolled, wide, share);
    }
    if (value == kI8 && offset == kF16) return find_typed<I8, F16, false>(c, unrolled, wide, share);
    return nullptr;
}

/// What is wrong with the attributes and sizes, in one sentence; null if nothing is.
inline const char* check(const Params& p, int value, int offset) {
    if (!types_exist(value, offset, value)) return "no kernel for these types of value and offset_mask";
    if (p.batch < 1 || p.height < 1 || p.width < 1 || p.groups < 1 || p.group_channels < 1) return "an extent is below 1";
    if (p.height >= 1 << 21 || p.width >= 1 << 21) return "height or width reaches 2097152 pixels";
    if (p.kernel_h < 1 || p.kernel_w < 1 || taps_of(p) < 1) return "the kernel has no taps";
    if (p.stride_h < 1 || p.stride_w < 1 || p.dilation_h < 1 || p.dilation_w < 1) return "stride or dilation is below 1";
    if (p.pad_h < 0 || p.pad_w < 0) return "padding is negative";
    if (!std::isfinite(p.offset_scale) || !std::isfinite(p.output_scale)) return "a scale is not finite";
    const int64_t rows = (int64_t{p.height} + 2 * p.pad_h - (int64_t{p.dilation_h} * (p.kernel_h - 1) + 1)) / p.stride_h + 1;
    const int64_t columns = (int64_t{p.width} + 2 * p.pad_w - (int64_t{p.dilation_w} * (p.kernel_w - 1) + 1)) / p.stride_w + 1;
    if (rows != p.out_height || columns != p.out_width || rows < 1 || columns < 1) return "the output's size does not fit";
    if (int64_t{p.groups} * p.group_channels > p.value_stride) return "value has fewer channels than the groups need";
    if (int64_t{3} * p.groups * taps_of(p) > p.offset_stride) return "offset_mask has fewer numbers than the taps need";
    if (rows * columns * p.groups * p.group_channels >= int64_t{1} << 31) return "an output image reaches 2^31 numbers";
    if (int64_t{p.height} * p.width >= int64_t{1} << 30) return "an image reaches 2^30 pixels";
    return nullptr;
}

/// Ids (index + 1 into kConfigurations) of what can compute the problem, the plan's choice first. Returns how many
/// there are, also if that is more than `capacity`.
inline int configurations(const Params& p, int value, int offset, const Limits& limits, int* ids, int capacity) {
    int count = 0;
    const int preferred = choose(p, value, offset, limits);
    const auto offer = [&](int id) {
        Launch launch;
        const Configuration& c = kConfigurations[id - 1];
        if (!plan(p, value, offset, c, limits, &launch)) return;
        if (!find_kernel(p, value, offset, false, c)) return;
        if (count < capacity) ids[count] = id;
        ++count;
    };
    if (preferred) offer(preferred);
    for (int id = 1; id <= kConfigurationCount; ++id) {
        if (id != preferred) offer(id);
    }
    return count;
}

#if !defined(ORINPORT_EMULATE)
inline cudaError_t device_limits(Limits* limits) {
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&limits->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&limits->multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    return error;
}

/// Launch on `stream`. An id that these pointers or sizes rule out is replaced by the plan's choice.
inline cudaError_t dcnv4_launch(const Params& p, int value, int offset, bool fast, int id, const Limits& limits,
                                cudaStream_t stream) {
    Launch launch;
    if (id < 1 || id > kConfigurationCount || !plan(p, value, offset, kConfigurations[id - 1], limits, &launch)) {
        id = choose(p, value, offset, limits);
        if (!id || !plan(p, value, offset, kConfigurations[id - 1], limits, &launch)) return cudaErrorInvalidValue;
    }
    const Configuration& c = kConfigurations[id - 1];
    const ForwardKernel kernel = find_kernel(p, value, offset, fast, c);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (launch.shared_bytes > 48 * 1024) {
        const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize, limits.shared_bytes);
        if (error != cudaSuccess) return error;
    }
    kernel<<<dim3(launch.grid_x, launch.grid_y, launch.grid_z), dim3(launch.block_x, launch.block_y), launch.shared_bytes, stream>>>(
        p, launch.division);
    return cudaGetLastError();
}
#endif

}  // namespace dcnv4
}  // namespace orinport
