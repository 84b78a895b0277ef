// FlashDeformAttn, forward: deformable attention over several levels, the softmax of the weights included.
#pragma once

#include "forward.cuh"

namespace orinport {
namespace dcnv4 {

/// value (B, rows, G, D); samples (B, Q, G, 3*L*K): L*K locations (x, y) in [0, 1], then L*K logits; output (B, Q, G*D).
/// shapes (L, 2) and starts (L) lie on the device, as 64-bit or 32-bit integers.
struct AttentionParams {
    const void* value;
    const void* shapes;
    const void* starts;
    const void* samples;
    void* output;
    int batch, rows, groups, group_channels, queries, levels, points;
    int index_bytes;  // 8 or 4
    Divisor lanes;    // threads that share one query
    Divisor channels; // channels of a group
};

__device__ __forceinline__ long long read_index(const void* from, int i, int bytes) {
    return bytes == 8 ? static_cast<const long long*>(from)[i] : static_cast<const int*>(from)[i];
}

/// Grid (ceil(Q*lanes / blockDim.x), min(B, 65535)).
template <class V, int BYTES>
__global__ void __launch_bounds__(256) attention_kernel(const AttentionParams p) {
    using S = Sums<V, BYTES, false>;
    const u32 item = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 query = divide(item, p.lanes);
    if (query >= static_cast<u32>(p.queries)) return;
    const u32 channel = (item - query * p.lanes.value) * S::kChannels;
    const u32 group = divide(channel, p.channels);
    const int stride = p.groups * p.group_channels;
    const int samples = p.levels * p.points;
    for (int b = blockIdx.y; b < p.batch; b += gridDim.y) {
        const char* locations = static_cast<const char*>(p.samples) +
                                ((static_cast<long long>(b) * p.queries + query) * p.groups + group) * 3 * samples * V::kBytes;
        const char* logits = locations + 2 * samples * V::kBytes;
        float largest = load_number<V>(logits);
        for (int k = 1; k < samples; ++k) largest = fmaxf(largest, load_number<V>(logits + k * V::kBytes));
        S sums;
        sums.clear();
        float weights = 0.0f;
        for (int level = 0; level < p.levels; ++level) {
            Image image;
            image.height = static_cast<int>(read_index(p.shapes, 2 * level, p.index_bytes));
            image.width = static_cast<int>(read_index(p.shapes, 2 * level + 1, p.index_bytes));
            image.pixel = stride * V::kBytes;
            image.x = image.y = 0;
            image.offset = channel * V::kBytes;
            const long long start = static_cast<long long>(b) * p.rows + read_index(p.starts, level, p.index_bytes);
            image.start = static_cast<const char*>(p.value) + start * stride * V::kBytes;
            for (int k = level * p.points; k < (level + 1) * p.points; ++k) {
                const float weight = expf(load_number<V>(logits + k * V::kBytes) - largest);
                const float x = fmaf(load_number<V>(locations + 2 * k * V::kBytes), image.width, -0.5f);
                const float y = fmaf(load_number<V>(locations + (2 * k + 1) * V::kBytes), image.height, -0.5f);
                weights += weight;
                add_direct<V, BYTES, false, true>(image, x, y, weight, sums, 0);
            }
        }
        const float factor = 1.0f / weights;
#pragma unroll
        for (int i = 0; i < S::kChannels; ++i) sums.total[i] *= factor;
        char* to = static_cast<char*>(p.output) +
                   ((static_cast<long long>(b) * p.queries + query) * stride + channel) * V::kBytes;
        store_global<V, BYTES>(to, sums.total);
    }
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
template <class V>
const void* find_attention(int bytes) {
    using Kernel = void (*)(const AttentionParams);
    const Kernel kernel = bytes == 16  ? static_cast<Kernel>(attention_kernel<V, 16>)
                          : bytes == 8 ? static_cast<Kernel>(attention_kernel<V, 8>)
                                       : static_cast<Kernel>(attention_kernel<V, V::kBytes>);
    return reinterpret_cast<const void*>(kernel);
}

/// Fill `lanes` and `channels` and launch on `stream`; type is kF32, kF16 or kBF16. value and output are 16-byte aligned.
inline cudaError_t attention_launch(AttentionParams p, int type, cudaStream_t stream) {
    const int size = type == kF32 ? 4 : 2;
    int bytes = 16;
    while (bytes > size && p.group_channels * size % bytes) bytes /= 2;
    if (bytes < 8) bytes = size;
    const auto divisor_of = [](unsigned value) {
        Divisor result{0, 31, value};
        while ((1ULL << (result.shift - 31)) < value) ++result.shift;
        result.multiplier = static_cast<unsigned>(((1ULL << result.shift) + value - 1) / value);
        return result;
    };
    const long long lanes = 1LL * p.groups * p.group_channels * size / bytes;
    if (lanes * p.queries >= (1LL << 31) - 256 || p.batch < 1) return cudaErrorInvalidValue;
    p.lanes = divisor_of(static_cast<unsigned>(lanes));
    p.channels = divisor_of(static_cast<unsigned>(p.group_channels));
    const void* kernel = type == kF32   ? find_attention<F32>(bytes)
                         : type == kF16 ? find_attention<F16>(bytes)
                                        : find_attention<BF16>(bytes);
    const dim3 grid(static_cast<unsigned>((lanes * p.queries + 127) / 128), p.batch < 65535 ? p.batch : 65535);
    void* arguments[] = {&p};
    return cudaLaunchKernel(kernel, grid, dim3(128), arguments, 0, stream);
}
#endif

}  // namespace dcnv4
}  // namespace orinport
