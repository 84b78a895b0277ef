// Gradients of DCNv4 with respect to value and offset_mask.
//
// The gradient of value is summed by atomics: in fp32, or, for results that do not depend on the order of the sums, in
// 64-bit fixed point. The gradient of offset_mask is written once.
#pragma once

#include "numeric.cuh"

namespace orinport {
namespace dcnv4 {

struct BackwardParams {
    Params forward;           // value, offset_mask, sizes; output unused
    const void* gradient;     // (N, Ho, Wo, C), of value's type
    void* value_gradient;     // (N, H, W, C), dense: fp32, or 64-bit integers if deterministic; zeros at first
    void* offset_gradient;    // (N, Ho, Wo, P), dense, of offset_mask's type; every element is written
    const float* fixed_point; // deterministic: factor from real numbers to integers, on the device
    Divisor groups, columns, queries;
};

template <bool DETERMINISTIC>
__device__ __forceinline__ void add_to_value(const BackwardParams& p, long long element, const float* numbers, int count,
                                             float factor) {
    if constexpr (DETERMINISTIC) {
        unsigned long long* to = static_cast<unsigned long long*>(p.value_gradient) + element;
        for (int i = 0; i < count; ++i) {
            atomicAdd(to + i, static_cast<unsigned long long>(__double2ll_rn(static_cast<double>(numbers[i]) * factor)));
        }
    } else {
        float* to = static_cast<float*>(p.value_gradient) + element;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (count == 4) {
            asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(numbers[0]), "f"(numbers[1]),
                         "f"(numbers[2]), "f"(numbers[3])
                         : "memory");
            return;
        }
#endif
        for (int i = 0; i < count; ++i) atomicAdd(to + i, numbers[i]);
    }
}

/// LANES threads share one group of one output pixel, 4 channels each; LANES 0: one thread takes all channels in turn.
/// Grid ceil(N*Q*G*max(LANES, 1) / blockDim.x), with blocks of a multiple of 32 threads.
template <class V, class O, int LANES, bool DETERMINISTIC>
__global__ void __launch_bounds__(256) backward_kernel(const BackwardParams b) {
    constexpr int kChannels = LANES ? 4 : 1;
    constexpr int kShare = LANES ? LANES : 1;
    const Params& p = b.forward;
    const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long items = static_cast<long long>(p.batch) * b.queries.value * p.groups;
    const bool active = thread / kShare < items;
    const long long item = active ? thread / kShare : 0;
    const int lane = static_cast<int>(thread % kShare);
    const long long pixel = item / p.groups;  // output pixel of the whole batch
    const int group = static_cast<int>(item - pixel * p.groups);
    const long long image = pixel / b.queries.value;
    const u32 query = static_cast<u32>(pixel - image * b.queries.value);
    const u32 row = divide(query, b.columns);
    const Grid grid(p);
    const int x0 = centre_x(p, static_cast<int>(query - row * b.columns.value)), y0 = centre_y(p, static_cast<int>(row));

    const int channels = p.groups * p.group_channels;
    const int taps = p.kernel_h * p.kernel_w - (p.remove_center ? 1 : 0);
    const long long image_pixels = static_cast<long long>(p.height) * p.width;
    const char* value = static_cast<const char*>(p.value) + image_pixels * image * p.value_stride * V::kBytes;
    const char* gradient = static_cast<const char*>(b.gradient) + (pixel * channels + group * p.group_channels) * V::kBytes;
    const char* numbers = static_cast<const char*>(p.offset_mask) + (pixel * p.offset_stride + 3 * taps * group) * O::kBytes;
    char* offset_gradient = static_cast<char*>(b.offset_gradient) + pixel * p.offset_stride * O::kBytes;
    const float factor = DETERMINISTIC ? *b.fixed_point : 1.0f;
    const int turns = LANES ? 1 : p.group_channels;

    const auto write = [&](int at, float number) {
        float padded[2] = {number, 0.0f};
        const u32 word = O::pack(padded, 0);
        if constexpr (O::kBytes == 2) {
            reinterpret_cast<unsigned short*>(offset_gradient)[at] = static_cast<unsigned short>(word);
        } else {
            reinterpret_cast<u32*>(offset_gradient)[at] = word;
        }
    };

    int tap = 0;
    visit_taps<O>(p, grid, numbers, [&](float x, float y, float modulation) {
        const Place px = locate(x, x0), py = locate(y, y0);
        const u32 width = p.width, height = p.height;
        // A sample counts only between -1 and the size, both excluded.
        const bool counts = active && (px.index < width || (px.index == ~0u && px.fraction > 0.0f)) &&
                            (py.index < height || (py.index == ~0u && py.fraction > 0.0f));
        const bool left = counts && px.index < width, right = counts && px.index + 1u < width;
        const bool top = py.index < height, bottom = py.index + 1u < height;
        const float fx = px.fraction, fy = py.fraction;
        const float w[4] = {(1.0f - fy) * (1.0f - fx), (1.0f - fy) * fx, fy * (1.0f - fx), fy * fx};
        const bool inside[4] = {top && left, top && right, bottom && left, bottom && right};
        const long long corner = static_cast<long long>(static_cast<int>(py.index)) * p.width + static_cast<int>(px.index);
        const long long pixels[4] = {corner, corner + 1, corner + p.width, corner + p.width + 1};
        float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};  // gradient times corner, over the channels
        for (int turn = 0; turn < turns; ++turn) {
            const int channel = group * p.group_channels + (LANES ? lane * 4 : turn);
            Vector<kChannels * V::kBytes> upstream = load_if<kChannels * V::kBytes>(
                gradient + (channel - group * p.group_channels) * V::kBytes, counts);
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const Vector<kChannels * V::kBytes> v =
                    load_if<kChannels * V::kBytes>(value + (pixels[c] * p.value_stride + channel) * V::kBytes, inside[c]);
                float parts[kChannels];
#pragma unroll
                for (int i = 0; i < kChannels; ++i) {
                    const float g = V::get(upstream.words, i);
                    products[c] = fmaf(g, V::get(v.words, i), products[c]);
                    parts[i] = g * modulation * w[c];
                }
                if (inside[c]) {
                    add_to_value<DETERMINISTIC>(b, (image_pixels * image + pixels[c]) * channels + channel, parts, kChannels,
                                                factor);
                }
            }
        }
        float for_mask = w[0] * products[0] + w[1] * products[1] + w[2] * products[2] + w[3] * products[3];
        float for_x = (1.0f - fy) * (products[1] - products[0]) + fy * (products[3] - products[2]);
        float for_y = (1.0f - fx) * (products[2] - products[0]) + fx * (products[3] - products[1]);
#pragma unroll
        for (int mask = kShare / 2; mask; mask /= 2) {
            for_mask += __shfl_xor_sync(0xffffffffu, for_mask, mask);
            for_x += __shfl_xor_sync(0xffffffffu, for_x, mask);
            for_y += __shfl_xor_sync(0xffffffffu, for_y, mask);
        }
        if (active && lane == 0) {
            const float scale = counts ? modulation * grid.scale : 0.0f;
            write(3 * taps * group + 2 * tap, counts ? for_x * scale : 0.0f);
            write(3 * taps * group + 2 * tap + 1, counts ? for_y * scale : 0.0f);
            write(3 * taps * group + 2 * taps + tap, counts ? for_mask : 0.0f);
        }
        ++tap;
    });
    if (active && lane == 0 && group == p.groups - 1) {
        for (int at = 3 * taps * p.groups; at < p.offset_stride; ++at) write(at, 0.0f);
    }
}

}  // namespace dcnv4
}  // namespace orinport
