// The forward kernels.
//
// direct_kernel gathers from global memory and takes every attribute. A thread owns BYTES of channels of one output
// pixel; with SPLIT above 1 the taps of a pixel are divided over SPLIT threads, which shortens the chain of dependent
// loads when there are few pixels.
//
// tile_kernel first copies the value of a region into shared memory, 128 bytes of channels (a slab) a pixel. Groups that
// lie side by side in a slab then use different banks wherever their samples fall, so a gather of 16 bytes a lane runs
// at the full width of shared memory, which the tags of the L1 cache do not allow. Zeros around the image stand for the
// padding, so corners need no tests.
#pragma once

#include "numeric.cuh"

namespace orinport {
namespace dcnv4 {

constexpr int kDirectThreads = 512;
constexpr int kSlabBytes = 128;

#ifndef ORINPORT_EMULATE
extern __shared__ uint4 shared_memory[];
#endif

/// Address of a pixel or query row; 64-bit only where a tensor of one image needs it.
template <bool WIDE>
__device__ __forceinline__ long long row_bytes(long long row, int stride, int bytes) {
    if constexpr (WIDE) {
        return row * stride * bytes;
    } else {
        return static_cast<int>(row) * stride * bytes;
    }
}

/// An image in memory: pixels of `stride` elements.
struct Image {
    const char* start;
    int height, width, stride;
};

/// Add one sample gathered from global memory; corners outside of the image are not read.
template <class V, int BYTES, bool FAST, bool WIDE, class S>
__device__ __forceinline__ void add_direct(const Image& image, float x, float y, float modulation,
                                           S& sums, int first) {
    const Place px = locate(x, 0), py = locate(y, 0);
    const int ix = static_cast<int>(px.index), iy = static_cast<int>(py.index);
    const u32 width = image.width, height = image.height;
    const bool left = px.index < width, right = px.index + 1u < width;
    const bool top = py.index < height, bottom = py.index + 1u < height;
    const int pixel = image.stride * V::kBytes;
    Vector<BYTES> v00 = zeros<BYTES>(), v01 = v00, v10 = v00, v11 = v00;
    if constexpr (WIDE) {
        const char* corner = image.start + (static_cast<long long>(iy) * image.width + ix) * pixel;
        const long long row = static_cast<long long>(image.width) * pixel;
        if (top && left) v00 = load_global<BYTES>(corner);
        if (top && right) v01 = load_global<BYTES>(corner + pixel);
        if (bottom && left) v10 = load_global<BYTES>(corner + row);
        if (bottom && right) v11 = load_global<BYTES>(corner + row + pixel);
    } else {
        // Unsigned, since coordinates far outside may wrap around before they are refused.
        const int corner = static_cast<int>((py.index * width + px.index) * static_cast<u32>(pixel));
        const int row = image.width * pixel;
        if (top && left) v00 = load_global<BYTES>(image.start + corner);
        if (top && right) v01 = load_global<BYTES>(image.start + corner + pixel);
        if (bottom && left) v10 = load_global<BYTES>(image.start + corner + row);
        if (bottom && right) v11 = load_global<BYTES>(image.start + corner + row + pixel);
    }
    sums.add(S::weigh(modulation, px.fraction, py.fraction), v00.words, v01.words, v10.words, v11.words, first,
             BYTES / V::kBytes);
}

/// Grid (ceil(Q*lanes / blockDim.x), min(N, 65535)), block (x, SPLIT), if split with SPLIT*channels*(x+8)*4 bytes of shared memory.
template <class V, class O, int BYTES, int SPLIT, int TAPS, bool FAST, bool WIDE>
__global__ void __launch_bounds__(kDirectThreads) direct_kernel(const Params p, const Division d) {
    using S = Sums<V, BYTES, FAST>;
    constexpr int kChannels = S::kChannels;
    const u32 item = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 query = divide(item, d.lanes);
    const u32 channel = (item - query * d.lanes.value) * kChannels;
    const u32 queries = static_cast<u32>(p.out_height) * p.out_width;
    const bool active = query < queries;
    const u32 row = divide(query, d.columns);
    const Grid grid = grid_of(p, static_cast<int>(row), static_cast<int>(query - row * d.columns.value));
    const int taps = TAPS ? TAPS : p.kernel_h * p.kernel_w - (p.remove_center ? 1 : 0);
    const int group = static_cast<int>(divide(channel, d.channels));
    const long long pixels = static_cast<long long>(p.height) * p.width;

    for (int n = blockIdx.y; n < p.batch; n += gridDim.y) {
        S sums;
        sums.clear();
        if (active) {
            const Image image{static_cast<const char*>(p.value) +
                                  (pixels * n * p.value_stride + static_cast<int>(channel)) * V::kBytes,
                              p.height, p.width, p.value_stride};
            const char* numbers = static_cast<const char*>(p.offset_mask) +
                                  ((static_cast<long long>(queries) * n + query) * p.offset_stride + 3 * taps * group) *
                                      O::kBytes;
            if constexpr (TAPS == 9 && SPLIT == 1) {
                NineTaps<O> nine;
                nine.load(numbers);
                nine.align(numbers);
#pragma unroll
                for (int k = 0; k < 9; ++k) {
                    const float x = fmaf(grid.scale, nine.dx(k), fmaf(static_cast<float>(k / 3), grid.step_x, grid.left));
                    const float y = fmaf(grid.scale, nine.dy(k), fmaf(static_cast<float>(k % 3), grid.step_y, grid.top));
                    add_direct<V, BYTES, FAST, WIDE>(image, x, y, nine.modulation(k), sums, 0);
                }
            } else if constexpr (TAPS == 9) {
                constexpr int kShare = 9 / SPLIT;
                float dx[kShare], dy[kShare], modulation[kShare];
#pragma unroll
                for (int s = 0; s < kShare; ++s) {
                    const int k = threadIdx.y * kShare + s;
                    dx[s] = load_number<O>(numbers + 2 * k * O::kBytes);
                    dy[s] = load_number<O>(numbers + (2 * k + 1) * O::kBytes);
                    modulation[s] = load_number<O>(numbers + (18 + k) * O::kBytes);
                }
#pragma unroll
                for (int s = 0; s < kShare; ++s) {
                    const int k = threadIdx.y * kShare + s;
                    const float x = fmaf(grid.scale, dx[s], fmaf(static_cast<float>(k / 3), grid.step_x, grid.left));
                    const float y = fmaf(grid.scale, dy[s], fmaf(static_cast<float>(k % 3), grid.step_y, grid.top));
                    add_direct<V, BYTES, FAST, WIDE>(image, x, y, modulation[s], sums, 0);
                }
            } else {
                visit_taps<O>(p, grid, numbers, [&](float x, float y, float modulation) {
                    add_direct<V, BYTES, FAST, WIDE>(image, x, y, modulation, sums, 0);
                });
            }
        }
        if constexpr (SPLIT == 1) {
            if (active) {
#pragma unroll
                for (int i = 0; i < kChannels; ++i) sums.total[i] *= V::kBytes == 1 ? p.output_scale : 1.0f;
                char* to = static_cast<char*>(p.output) +
                           ((static_cast<long long>(queries) * n + query) * p.groups * p.group_channels +
                            static_cast<int>(channel)) * V::kBytes;
                store_global<V, BYTES>(to, sums.total);
            }
        } else {
            // Every thread adds up some words of the block's output; the output of a block is contiguous.
            constexpr int kWords = BYTES / 4, kPerWord = 4 / V::kBytes;
            float* partial = reinterpret_cast<float*>(shared_memory);
            const u32 pitch = blockDim.x + 8;
            if (n != static_cast<int>(blockIdx.y)) __syncthreads();
#pragma unroll
            for (int i = 0; i < kChannels; ++i) partial[(threadIdx.y * kChannels + i) * pitch + threadIdx.x] = sums.total[i];
            __syncthreads();
            const u32 first = blockIdx.x * blockDim.x;
            u32* to = reinterpret_cast<u32*>(static_cast<char*>(p.output) +
                                             static_cast<long long>(queries) * n * p.groups * p.group_channels * V::kBytes);
            for (u32 u = threadIdx.y * blockDim.x + threadIdx.x; u < blockDim.x * kWords; u += blockDim.x * SPLIT) {
                const u32 owner = u / kWords, word = u % kWords;
                if (first + owner >= queries * d.lanes.value) continue;
                float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
                for (int s = 0; s < SPLIT; ++s) {
#pragma unroll
                    for (int i = 0; i < kPerWord; ++i) {
                        total[i] += partial[(s * kChannels + word * kPerWord + i) * pitch + owner];
                    }
                }
#pragma unroll
                for (int i = 0; i < kPerWord; ++i) total[i] *= V::kBytes == 1 ? p.output_scale : 1.0f;
                to[static_cast<long long>(first) * kWords + u] = V::pack(total, 0);
            }
        }
    }
}

/// The region of a block in tile_kernel: output pixels, and the columns of value that it stages.
struct Region {
    int row0, row1, column0, column1;
    int staged_column0;
};

__device__ __forceinline__ int first_sample(float base, int halo) { return static_cast<int>(floorf(base)) - halo; }
__device__ __forceinline__ int last_sample(float base, int halo) { return static_cast<int>(floorf(base)) + 1 + halo; }

/// Copy the channels [first, first+128) bytes of the staged pixels of rows [row0, row1) into the ring.
template <class V>
__device__ __forceinline__ void stage_rows(const Params& p, const Division& d, const char* image, int first_byte,
                                           int row0, int row1, int ring_origin, int column0) {
    const int chunk = threadIdx.x & 7;
    const int row_size = p.groups * p.group_channels * V::kBytes;
    const bool inside_row = first_byte + chunk * 16 < row_size;
    const int pitch = static_cast<int>(d.pitch.value);
    const int pixels = (row1 - row0) * pitch;
    const int start = (row0 - ring_origin) % d.ring_rows;
    for (int s = threadIdx.x >> 3; s < pixels; s += blockDim.x >> 3) {
        const int r = static_cast<int>(divide(s, d.pitch));
        const int y = row0 + r, x = column0 + s - r * pitch;
        const bool valid = inside_row && y >= 0 && y < p.height && x >= 0 && x < p.width;
        const long long pixel = valid ? static_cast<long long>(y) * p.width + x : 0;
        const char* from = image + pixel * p.value_stride * V::kBytes + (valid ? first_byte + chunk * 16 : 0);
        const int ring_row = start + r < d.ring_rows ? start + r : start + r - d.ring_rows;
        copy_async(shared_memory + ((ring_row * pitch + s - r * pitch) * 8 + chunk), from, valid);
    }
}

/// Grid (slabs * tiles, images); dynamic shared memory for the staged pixels. CHUNKS: 16-byte pieces of a thread.
/// RING: false stages whole images; true stages a window of rows that moves down the image, and reads samples outside
/// of it from global memory.
/// RESIDENT: threads of a multiprocessor, which sets the registers of one.
template <class V, class O, int CHUNKS, int TAPS, bool FAST, bool RING, int RESIDENT>
__global__ void __launch_bounds__(RESIDENT, 1) tile_kernel(const Params p, const Division d) {
    constexpr int kPerChunk = 16 / V::kBytes;
    constexpr int kLanes = 8 / CHUNKS;
    using S = Sums<V, 16 * CHUNKS, FAST>;

    const u32 tile = divide(blockIdx.x, d.slabs);
    const int slab_byte = static_cast<int>(blockIdx.x - tile * d.slabs.value) * kSlabBytes;
    const int tile_row = static_cast<int>(divide(tile, d.column_tiles));
    const int tile_column = static_cast<int>(tile - tile_row * d.column_tiles.value);
    const int first_image = blockIdx.y * d.images;
    const int images = min(d.images, p.batch - first_image);
    const int channels = p.groups * p.group_channels;
    const long long value_size = static_cast<long long>(p.height) * p.width * p.value_stride * V::kBytes;
    const u32 queries = static_cast<u32>(p.out_height) * p.out_width;
    const int taps = TAPS ? TAPS : p.kernel_h * p.kernel_w - (p.remove_center ? 1 : 0);
    const int pitch = static_cast<int>(d.pitch.value);

    // This thread's channels never change. Neighbouring queries take their chunks in different order: together they
    // use all banks.
    const int lane = threadIdx.x & (kLanes - 1);
    const int turn = CHUNKS == 1 ? 0 : (threadIdx.x / kLanes) & (CHUNKS - 1);
    const int channel = (slab_byte + lane * CHUNKS * 16) / V::kBytes;
    const bool has_channels = channel < channels;
    const int group = has_channels ? static_cast<int>(divide(channel, d.channels)) : 0;
    int chunk_byte[CHUNKS];
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) chunk_byte[c] = ((c + turn) & (CHUNKS - 1)) * 16;

    Region region;
    region.row0 = tile_row * d.tile_rows;
    region.row1 = min(region.row0 + d.tile_rows, p.out_height);
    region.column0 = tile_column * d.tile_columns;
    region.column1 = min(region.column0 + d.tile_columns, p.out_width);

    const char* value = static_cast<const char*>(p.value) + value_size * first_image;
    const char* const shared = reinterpret_cast<const char*>(shared_memory);
    const Grid first_pixel = grid_of(p, region.row0, region.column0);
    int staged_column = -1, ring_origin = -1, have = 0;
    if constexpr (RING) {
        staged_column = max(-1, first_sample(first_pixel.left, d.halo));
        ring_origin = max(-1, first_sample(first_pixel.top, d.halo));
        have = ring_origin;
        // Two pixels of zeros behind the ring stand for everything outside of the image.
        if (threadIdx.x < 16) shared_memory[d.ring_rows * pitch * 8 + threadIdx.x] = make_uint4(0, 0, 0, 0);
    } else {
        // One column of zeros between rows, one row above, one below and two pixels more.
        const int chunk = threadIdx.x & 7;
        const bool inside_row = slab_byte + chunk * 16 < channels * V::kBytes;
        const int slots = static_cast<int>(d.slots.value);
        for (int s = threadIdx.x >> 3; s < slots * images; s += blockDim.x >> 3) {
            const int image = static_cast<int>(divide(s, d.slots));
            const int slot = s - image * slots;
            const int r = static_cast<int>(divide(slot, d.pitch));
            const int y = r - 1, x = slot - r * pitch - 1;
            const bool valid = inside_row && y >= 0 && y < p.height && x >= 0;
            const long long pixel = valid ? static_cast<long long>(y) * p.width + x : 0;
            const char* from = value + value_size * image + pixel * p.value_stride * V::kBytes +
                               (valid ? slab_byte + chunk * 16 : 0);
            copy_async(shared_memory + (s * 8 + chunk), from, valid);
        }
    }

    const int columns = region.column1 - region.column0;
    const int step_rows = RING ? d.step_rows : region.row1 - region.row0;
    // One past the last row that the output rows before `row_end` need undisturbed, with the row of zeros below.
    auto rows_end = [&](int row_end) {
        const float base = grid_of(p, row_end - 1, 0).top + static_cast<float>(p.kernel_h - 1) * first_pixel.step_y;
        return min(p.height, last_sample(base, d.halo)) + 1;
    };
    if constexpr (RING) {
        have = max(have, rows_end(min(region.row0 + step_rows, region.row1)));
        stage_rows<V>(p, d, value, slab_byte, ring_origin, have, ring_origin, staged_column);
    }
    copy_async_wait();
    __syncthreads();
    for (int row = region.row0; row < region.row1; row += step_rows) {
        const int row_end = min(row + step_rows, region.row1);
        int window_row = -1, window_rows = 0, window_slot = 0;
        if constexpr (RING) {
            // The rows that the next step needs arrive while this one computes.
            window_rows = have;
            if (row_end < region.row1) {
                const int end = max(have, rows_end(min(row_end + step_rows, region.row1)));
                stage_rows<V>(p, d, value, slab_byte, have, end, ring_origin, staged_column);
                have = end;
            }
            window_row = max(ring_origin, have - d.ring_rows);
            window_rows -= window_row;
            window_slot = (window_row - ring_origin) % d.ring_rows;
        }

        const int image_tasks = (row_end - row) * d.tile_columns;
        const int tasks = image_tasks * images * kLanes;
        for (int start = static_cast<int>(threadIdx.x & ~31u); start < tasks; start += blockDim.x) {
            const int task = start + (threadIdx.x & 31);
            u32 index = static_cast<u32>(task) / kLanes;
            u32 image = 0;
            if constexpr (!RING) {
                image = divide(index, d.queries);
                index -= image * d.queries.value;
            }
            const u32 r = divide(index, d.columns);
            const int column = static_cast<int>(index - r * d.columns.value);
            const bool active = has_channels && task < tasks && column < columns;
            const int oy = active ? row + static_cast<int>(r) : row;
            const int ox = active ? region.column0 + column : region.column0;
            image = active ? image : 0;
            const long long query = static_cast<long long>(queries) * (first_image + static_cast<int>(image)) +
                                    static_cast<long long>(oy) * p.out_width + ox;
            const char* numbers = static_cast<const char*>(p.offset_mask) +
                                  (query * p.offset_stride + 3 * taps * group) * O::kBytes;
            const Grid grid = grid_of(p, oy, ox);
            const int base = lane * CHUNKS * 16 + (RING ? 0 : static_cast<int>(image * d.slots.value) * kSlabBytes);

            S sums;
            sums.clear();
            bool missed = false;
            auto sample = [&](float x, float y, float modulation) {
                int upper, lower;
                Place px, py;
                if constexpr (RING) {
                    px = locate(x, staged_column);
                    py = locate(y, window_row);
                    const bool staged = px.index < static_cast<u32>(pitch - 1) && py.index < static_cast<u32>(window_rows - 1);
                    u32 slot0 = window_slot + py.index;
                    slot0 = min(slot0, slot0 - d.ring_rows);
                    u32 slot1 = slot0 + 1;
                    slot1 = slot1 == static_cast<u32>(d.ring_rows) ? 0u : slot1;
                    const int zero = d.ring_rows * pitch * kSlabBytes;
                    upper = staged ? static_cast<int>((slot0 * pitch + px.index) * kSlabBytes) : zero;
                    lower = staged ? static_cast<int>((slot1 * pitch + px.index) * kSlabBytes) : zero;
                    missed = !staged;
                    upper += base;
                    lower += base;
                } else {
                    px = locate(x, -1);
                    py = locate(y, -1);
                    const bool inside = px.index <= static_cast<u32>(p.width) && py.index <= static_cast<u32>(p.height);
                    const u32 slot = inside ? py.index * pitch + px.index : static_cast<u32>((p.height + 1) * pitch);
                    upper = base + static_cast<int>(slot) * kSlabBytes;
                    lower = upper + pitch * kSlabBytes;
                }
                const auto weights = S::weigh(modulation, px.fraction, py.fraction);
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) {
                    const uint4 v00 = *reinterpret_cast<const uint4*>(shared + upper + chunk_byte[c]);
                    const uint4 v01 = *reinterpret_cast<const uint4*>(shared + upper + chunk_byte[c] + kSlabBytes);
                    const uint4 v10 = *reinterpret_cast<const uint4*>(shared + lower + chunk_byte[c]);
                    const uint4 v11 = *reinterpret_cast<const uint4*>(shared + lower + chunk_byte[c] + kSlabBytes);
                    const u32 w00[4] = {v00.x, v00.y, v00.z, v00.w}, w01[4] = {v01.x, v01.y, v01.z, v01.w};
                    const u32 w10[4] = {v10.x, v10.y, v10.z, v10.w}, w11[4] = {v11.x, v11.y, v11.z, v11.w};
                    sums.add(weights, w00, w01, w10, w11, c * kPerChunk, kPerChunk);
                }
            };
            // A sample outside of the window, but perhaps inside of the image.
            auto sample_directly = [&](float x, float y, float modulation) {
                const Place px = locate(x, -1), py = locate(y, -1);
                if (!active || px.index > static_cast<u32>(p.width) || py.index > static_cast<u32>(p.height)) return;
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) {
                    const Image channels_of_chunk{value + slab_byte + lane * CHUNKS * 16 + chunk_byte[c], p.height, p.width,
                                                  p.value_stride};
                    add_direct<V, 16, FAST, false>(channels_of_chunk, x, y, modulation, sums, c * kPerChunk);
                }
            };
            if constexpr (TAPS == 9) {
                u32 all_missed = 0;
                NineTaps<O> nine;
                nine.load(numbers);
                nine.align(numbers);
#pragma unroll
                for (int k = 0; k < 9; ++k) {
                    sample(fmaf(grid.scale, nine.dx(k), fmaf(static_cast<float>(k / 3), grid.step_x, grid.left)),
                           fmaf(grid.scale, nine.dy(k), fmaf(static_cast<float>(k % 3), grid.step_y, grid.top)),
                           nine.modulation(k));
                    if (RING && missed) all_missed |= 1u << k;
                }
                if constexpr (RING) {
                    while (all_missed) {
                        const int k = __ffs(static_cast<int>(all_missed)) - 1;
                        all_missed &= all_missed - 1;
                        const char* offset = numbers + 2 * k * O::kBytes;
                        const float column_step = static_cast<float>(k / 3), row_step = static_cast<float>(k % 3);
                        sample_directly(
                            fmaf(grid.scale, load_number<O>(offset), fmaf(column_step, grid.step_x, grid.left)),
                            fmaf(grid.scale, load_number<O>(offset + O::kBytes), fmaf(row_step, grid.step_y, grid.top)),
                            load_number<O>(numbers + (18 + k) * O::kBytes));
                    }
                }
            } else {
                visit_taps<O>(p, grid, numbers, [&](float x, float y, float modulation) {
                    sample(x, y, modulation);
                    if (RING && missed) sample_directly(x, y, modulation);
                });
            }
            if (active) {
                char* to = static_cast<char*>(p.output) + (query * channels + channel) * V::kBytes;
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) {
                    if constexpr (V::kBytes == 1) {
#pragma unroll
                        for (int i = 0; i < kPerChunk; ++i) sums.total[c * kPerChunk + i] *= p.output_scale;
                    }
                    store_global<V, 16>(to + chunk_byte[c], sums.total + c * kPerChunk);
                }
            }
        }
        if constexpr (RING) {
            copy_async_wait();
            __syncthreads();
        }
    }
}

}  // namespace dcnv4
}  // namespace orinport
