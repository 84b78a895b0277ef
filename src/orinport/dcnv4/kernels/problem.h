// What a kernel is told: plain structs, the same on the host, on the device and in Python (cuda_plan.py mirrors them).
// No header is included, so that NVRTC compiles this without a toolkit.
#pragma once

#if defined(__CUDACC__) || defined(ORINPORT_EMULATE)
#define ORINPORT_HD __host__ __device__ __forceinline__
#else
#define ORINPORT_HD inline
#endif

namespace orinport {
namespace dcnv4 {

enum Type : int { kF32 = 0, kF16 = 1, kBF16 = 2, kI8 = 3 };

/// Division of a number below 2^31 by a constant, as one wide multiplication and a shift.
struct Divisor {
    unsigned multiplier;
    unsigned shift;
    unsigned value;
};

ORINPORT_HD unsigned divide(unsigned number, const Divisor& by) {
    return static_cast<unsigned>((static_cast<unsigned long long>(number) * by.multiplier) >> by.shift);
}

/// The operator and its tensors. Strides are counted in elements between neighbouring pixels: C and P for separate
/// tensors, C+P for both in the fused form, whose offset_mask starts C elements behind value.
struct Params {
    const void* value;        // (N, H, W, value_stride), channels first in a row
    const void* offset_mask;  // (N, Ho, Wo, offset_stride)
    void* output;             // (N, Ho, Wo, C), dense, of value's type
    int batch, height, width, out_height, out_width;
    int groups, group_channels;
    int value_stride, offset_stride;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int remove_center;
    float offset_scale;
    float output_scale;  // factor of the sum before int8 rounding: value's scale / output's scale; 1 for other types
};

/// How a launch divides the work; see plan.h, which fills it.
struct Division {
    Divisor lanes;    // threads that share one output pixel
    Divisor columns;  // output columns: Wo, or the tile's
    Divisor channels; // channels of a group
    Divisor pitch;    // tile: pixels of a staged row
    Divisor slots;    // whole image: staged pixels of one image
    Divisor queries;  // whole image: output pixels of one image
    Divisor slabs;    // tile: slabs of 128 bytes of channels
    Divisor column_tiles;
    int tile_columns, tile_rows;  // output pixels of a block
    int step_rows;                // stream: staged rows that are given back at once
    int ring_rows;                // tile, stream: staged rows
    int halo;                     // rows and columns staged on each side beyond the undisturbed samples
    int images;                   // whole image: images of a unit
    int buffers;                  // whole image: 2 if the next unit is staged while one is computed
    int offset_start;             // tile: byte of shared memory at which rows of offsets begin
    int offset_row;               // tile: bytes of one of them
    unsigned units;               // whole image: slabs * groups of images
    int zero;                     // 0
    long long value_image, offset_image, output_image;  // direct: bytes of an image
};

}  // namespace dcnv4
}  // namespace orinport
