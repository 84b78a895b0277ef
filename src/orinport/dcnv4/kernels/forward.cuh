// The forward kernels.
//
// direct_kernel gathers from global memory and takes every attribute. A thread owns BYTES of channels of one output
// pixel; with SPLIT above 1 the taps of a pixel are divided over SPLIT threads, which shortens the chain of dependent
// loads when there are few pixels.
//
// whole_kernel and tile_kernel first copy value into shared memory, 128 bytes of channels (a slab) a pixel. Groups that
// lie side by side in a slab then use different banks wherever their samples fall, so a gather of 16 bytes a lane runs
// at the full width of shared memory, which the tags of the L1 cache do not allow. Zeros around the image stand for the
// padding, so corners need no tests. The offsets of a thread's next pixel are on
// their way while it computes one.
#pragma once

#include "numeric.cuh"

namespace orinport {
namespace dcnv4 {

constexpr int kDirectThreads = 512;
constexpr int kSlabBytes = 128;

// Before Hopper the compiler needs more registers for the same kernels; plan.h then keeps blocks to 384 threads.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define ORINPORT_RESIDENT(threads) ((threads) < 384 ? (threads) : 384)
#else
#define ORINPORT_RESIDENT(threads) (threads)
#endif

#ifndef ORINPORT_EMULATE
extern __shared__ uint4 shared_memory[];
#endif

/// The channels of one thread in an image: a base that all threads share, and an offset in bytes.
struct Image {
    const char* start;
    u32 offset;
    int height, width;
    int pixel;  // bytes between neighbours in a row
    int x, y;   // what coordinates count from
};

/// The four corners of a sample, in registers.
template <int BYTES>
struct Corners {
    Vector<BYTES> v00, v01, v10, v11;
};

/// Start to read the corners of a sample; those outside of the image are zeros. WIDE: 64-bit offsets.
template <int BYTES, bool WIDE>
__device__ __forceinline__ Corners<BYTES> fetch(const Image& image, const Place& px, const Place& py) {
    const u32 width = image.width, height = image.height;
    const bool left = px.index < width, right = px.index + 1u < width;
    const bool top = py.index < height, bottom = py.index + 1u < height;
    Corners<BYTES> c;
    if constexpr (WIDE) {
        const long long number = static_cast<long long>(static_cast<int>(py.index)) * image.width + static_cast<int>(px.index);
        const char* corner = image.start + image.offset + number * image.pixel;
        const long long row = static_cast<long long>(image.width) * image.pixel;
        c.v00 = load_if<BYTES>(corner, top && left);
        c.v01 = load_if<BYTES>(corner + image.pixel, top && right);
        c.v10 = load_if<BYTES>(corner + row, bottom && left);
        c.v11 = load_if<BYTES>(corner + row + image.pixel, bottom && right);
    } else {
        // Numbers of pixels that are not read may wrap around. Each address is one multiplication and addition.
        const u32 number = py.index * width + px.index;
        const char* first = image.start + image.offset;
        const auto address = [&](u32 number) { return first + static_cast<long long>(static_cast<int>(number)) * image.pixel; };
        c.v00 = load_if<BYTES>(address(number), top && left);
        c.v01 = load_if<BYTES>(address(number + 1u), top && right);
        c.v10 = load_if<BYTES>(address(number + width), bottom && left);
        c.v11 = load_if<BYTES>(address(number + width + 1u), bottom && right);
    }
    return c;
}

/// Add one sample gathered from global memory.
template <class V, int BYTES, bool FAST, bool WIDE, class S>
__device__ __forceinline__ void add_direct(const Image& image, float x, float y, float modulation, S& sums, int first) {
    const Place px = locate(x, image.x), py = locate(y, image.y);
    const Corners<BYTES> c = fetch<BYTES, WIDE>(image, px, py);
    sums.add(S::weigh(modulation, px.fraction, py.fraction), c.v00.words, c.v01.words, c.v10.words, c.v11.words, first,
             BYTES / V::kBytes);
}

/// Three samples: all corners are on their way before the first one is used.
template <class V, int BYTES, bool FAST, class S>
__device__ __forceinline__ void add_three(const Image& image, const float* x, const float* y, const float* modulation, S& sums,
                                          int zero) {
    Place px[3], py[3];
    Corners<BYTES> c[3];
#pragma unroll
    for (int s = 0; s < 3; ++s) {
        px[s] = locate(x[s], image.x);
        py[s] = locate(y[s], image.y);
        c[s] = fetch<BYTES, false>(image, px[s], py[s]);
    }
    u32 all = 0;
#pragma unroll
    for (int s = 0; s < 3; ++s) all |= c[s].v00.words[0] | c[s].v01.words[0] | c[s].v10.words[0] | c[s].v11.words[0];
#pragma unroll
    for (int s = 0; s < 3; ++s) {
        sums.add(S::weigh(modulation[s], after(px[s].fraction, all, zero), after(py[s].fraction, all, zero)), c[s].v00.words, c[s].v01.words, c[s].v10.words,
                 c[s].v11.words, 0, BYTES / V::kBytes);
    }
}

/// Grid (ceil(Q*lanes / blockDim.x), min(N, 65535), ceil(N / 65535)), block (x, SPLIT); if split with SPLIT*channels*x*4
/// bytes of shared memory.
template <class V, class O, int BYTES, int SPLIT, int TAPS, bool FAST, bool WIDE>
__global__ void __launch_bounds__(kDirectThreads) direct_kernel(const Params p, const Division d) {
    using S = Sums<V, BYTES, FAST>;
    constexpr int kChannels = S::kChannels;
    const int n = blockIdx.z * 65535 + blockIdx.y;
    if (n >= p.batch) return;
    // Threads behind the last item repeat it and store nothing: a warp stays together.
    const u32 queries = d.queries.value;
    const u32 own_item = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 item = min(own_item, queries * d.lanes.value - 1u);
    const u32 query = divide(item, d.lanes);
    const u32 channel = (item - query * d.lanes.value) * kChannels;
    const u32 row = divide(query, d.columns);
    const Grid grid(p);
    const u32 taps = TAPS ? TAPS : p.kernel_h * p.kernel_w - (p.remove_center ? 1 : 0);
    const u32 first_number = 3u * taps * divide(channel, d.channels);
    // Opaque, or the compiler multiplies by n for every address.
    const Image image{opaque(static_cast<const char*>(p.value) + d.value_image * n + channel * V::kBytes), 0u, p.height, p.width,
                      p.value_stride * V::kBytes, centre_x(p, static_cast<int>(query - row * d.columns.value)),
                      centre_y(p, static_cast<int>(row))};
    const char* numbers = static_cast<const char*>(p.offset_mask) + d.offset_image * n;
    if constexpr (WIDE) {
        numbers += (static_cast<long long>(query) * p.offset_stride + first_number) * O::kBytes;
    } else {
        numbers += (query * static_cast<u32>(p.offset_stride) + first_number) * O::kBytes;
    }
    char* output = static_cast<char*>(p.output) + d.output_image * n;

    numbers = opaque(numbers);  // known before the wait, not behind it
    wait_for_previous();
    S sums;
    sums.clear();
    if constexpr (TAPS == 9 && SPLIT == 1) {
        NineTaps<O> nine;
        nine.load(numbers);
        nine.align(numbers);
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            float x[3], y[3], modulation[3];
#pragma unroll
            for (int j = 0; j < 3; ++j) {
                x[j] = grid.x(i, nine.dx(3 * i + j));
                y[j] = grid.y(j, nine.dy(3 * i + j));
                modulation[j] = nine.modulation(3 * i + j);
            }
            add_three<V, BYTES, FAST>(image, x, y, modulation, sums, d.zero);
        }
    } else if constexpr (TAPS == 9) {
        // SPLIT 3: a column of the kernel; 9: one tap.
        constexpr int kShare = 9 / SPLIT;
        const char* offset = numbers + threadIdx.y * (2 * kShare * O::kBytes);
        const char* modulations = numbers + (18 + threadIdx.y * kShare) * O::kBytes;
        const u32 kernel_column = SPLIT == 3 ? threadIdx.y : threadIdx.y / 3u;
        float left = fmaf(static_cast<float>(static_cast<int>(kernel_column)), grid.step_x, grid.left);
        float top = grid.top;
        const float first_row = SPLIT == 3 ? 0.0f : static_cast<float>(static_cast<int>(threadIdx.y - 3u * kernel_column));
        float x[kShare], y[kShare], modulation[kShare];
        if constexpr (SPLIT == 3 && O::kBytes == 2) {
            u32 places[3], factors[2];
            load_column(offset, modulations, places, factors);
#pragma unroll
            for (int s = 0; s < kShare; ++s) {
                x[s] = O::get(places, 2 * s);
                y[s] = O::get(places, 2 * s + 1);
                modulation[s] = O::get(factors, s);
            }
        } else {
#pragma unroll
            for (int s = 0; s < kShare; ++s) {
                x[s] = load_number<O>(offset + 2 * s * O::kBytes);
                y[s] = load_number<O>(offset + (2 * s + 1) * O::kBytes);
                modulation[s] = load_number<O>(modulations + s * O::kBytes);
            }
        }
        u32 all = 0;
#pragma unroll
        for (int s = 0; s < kShare; ++s) {
            all |= __float_as_uint(x[s]) | __float_as_uint(y[s]) | __float_as_uint(modulation[s]);
        }
        left = after(left, all, d.zero);
        top = after(top, all, d.zero);
#pragma unroll
        for (int s = 0; s < kShare; ++s) {
            x[s] = fmaf(grid.scale, x[s], left);
            y[s] = fmaf(grid.scale, y[s], fmaf(first_row + s, grid.step_y, top));
        }
        if constexpr (SPLIT == 3) {
            add_three<V, BYTES, FAST>(image, x, y, modulation, sums, d.zero);
        } else {
            add_direct<V, BYTES, FAST, false>(image, x[0], y[0], modulation[0], sums, 0);
        }
    } else {
        visit_taps<O>(p, grid, numbers, [&](float x, float y, float modulation) {
            add_direct<V, BYTES, FAST, WIDE>(image, x, y, modulation, sums, 0);
        });
    }
    let_next_start();
    if constexpr (SPLIT == 1) {
        if (own_item != item) return;
        if constexpr (V::kBytes == 1) {
#pragma unroll
            for (int i = 0; i < kChannels; ++i) sums.total[i] *= p.output_scale;
        }
        if constexpr (WIDE) {
            store_global<V, BYTES>(output + static_cast<long long>(item) * BYTES, sums.total);
        } else {
            store_global<V, BYTES>(output + item * static_cast<u32>(BYTES), sums.total);
        }
    } else {
        // The output of a block is contiguous: every thread adds up a part of it.
        constexpr int kWords = SPLIT > 4 ? 1 : 2;      // of a part
        constexpr int kPart = kWords * 4 / V::kBytes;  // channels of a part
        constexpr int kParts = BYTES / (4 * kWords);   // of an item
        float* partial = reinterpret_cast<float*>(shared_memory);
#pragma unroll
        for (int i = 0; i < kChannels; i += 4) {
            float4 four;
            four.x = sums.total[i];
            four.y = sums.total[i + 1];
            four.z = sums.total[i + 2];
            four.w = sums.total[i + 3];
            *reinterpret_cast<float4*>(partial + (threadIdx.y * blockDim.x + threadIdx.x) * kChannels + i) = four;
        }
        __syncthreads();
        const u32 parts = blockDim.x * kParts;
        for (u32 u = threadIdx.y * blockDim.x + threadIdx.x; u < parts; u += blockDim.x * SPLIT) {
            const u32 part = blockIdx.x * parts + u;
            if (part >= queries * d.lanes.value * kParts) break;
            float total[kPart];
#pragma unroll
            for (int i = 0; i < kPart; ++i) {
                total[i] = partial[u * kPart + i];
#pragma unroll
                for (int s = 1; s < SPLIT; ++s) total[i] += partial[s * blockDim.x * kChannels + u * kPart + i];
                if constexpr (V::kBytes == 1) total[i] *= p.output_scale;
            }
            store_global<V, 4 * kWords>(output + part * static_cast<u32>(4 * kWords), total);
        }
    }
}

/// The channels of one thread of a tile kernel, and how it reads them from shared memory.
///
/// Neighbouring queries take their chunks of 16 bytes in different order: together they use all banks.
template <class V, int CHUNKS, bool FAST>
struct Gather {
    static constexpr int kLanes = 8 / CHUNKS;
    static constexpr int kPerChunk = 16 / V::kBytes;
    using S = Sums<V, 16 * CHUNKS, FAST>;
    int lane;
    int chunk_byte[CHUNKS];

    __device__ __forceinline__ Gather() {
        lane = threadIdx.x & (kLanes - 1);
        const int turn = CHUNKS == 1 ? 0 : (threadIdx.x / kLanes) & (CHUNKS - 1);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) chunk_byte[c] = (lane * CHUNKS + ((c + turn) & (CHUNKS - 1))) * 16;
    }

    /// Add a sample: the chunks of this thread that come first, of the upper and the lower left corner in shared memory.
    __device__ __forceinline__ void add(S& sums, const typename S::Weights& weights, const char* upper, const char* lower) const {
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const int other = c ? chunk_byte[c] - chunk_byte[0] : 0;
            const uint4 v00 = *reinterpret_cast<const uint4*>(upper + other);
            const uint4 v01 = *reinterpret_cast<const uint4*>(upper + other + kSlabBytes);
            const uint4 v10 = *reinterpret_cast<const uint4*>(lower + other);
            const uint4 v11 = *reinterpret_cast<const uint4*>(lower + other + kSlabBytes);
            const u32 w00[4] = {v00.x, v00.y, v00.z, v00.w}, w01[4] = {v01.x, v01.y, v01.z, v01.w};
            const u32 w10[4] = {v10.x, v10.y, v10.z, v10.w}, w11[4] = {v11.x, v11.y, v11.z, v11.w};
            sums.add(weights, w00, w01, w10, w11, c * kPerChunk, kPerChunk);
        }
    }

    __device__ __forceinline__ void store(S& sums, char* slab, float scale) const {
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            if constexpr (V::kBytes == 1) {
#pragma unroll
                for (int i = 0; i < kPerChunk; ++i) sums.total[c * kPerChunk + i] *= scale;
            }
            store_global<V, 16>(slab + chunk_byte[c], sums.total + c * kPerChunk);
        }
    }
};

/// The offsets and masks of the pixel that a thread computes next, on their way. Queries are counted from `first_query`, and
/// named by their bytes from there. Threads without channels get numbers that exist. `take` gives those that this lane prepares:
/// of SHARE lanes that work on one group, lane `part` has taps part, part + SHARE, ... up to 8.
///
/// Of 2 bytes: in registers, read by each lane for itself.
template <class O, int LANES, int SHARE>
struct NextTaps {
    const char* slice;  // the group's first number
    OwnTaps<O, SHARE> next;

    __device__ __forceinline__ NextTaps(const Params& p, const Division& d, long long first_query, int, int, int channel) {
        const bool has_channels = channel < p.groups * p.group_channels;
        const int group_number = has_channels ? 27 * static_cast<int>(divide(static_cast<u32>(channel), d.channels)) : 0;
        next.begin(static_cast<const char*>(p.offset_mask) + group_number * O::kBytes, threadIdx.x & (SHARE - 1));
        slice = static_cast<const char*>(p.offset_mask) + (first_query * p.offset_stride + group_number) * O::kBytes;
    }
    /// Start to read the numbers of a query.
    __device__ __forceinline__ void fetch(unsigned long long bytes) { next.load(slice + bytes); }
    /// The numbers that were asked for last. The next ones may be asked for then.
    __device__ __forceinline__ OwnTaps<O, SHARE> take() const {
        OwnTaps<O, SHARE> taken = next;
        taken.align();
        return taken;
    }
    /// Called by all lanes before `take`.
    __device__ __forceinline__ void arrive() const {}
    /// Where the group's numbers are in global memory.
    __device__ __forceinline__ const char* numbers(unsigned long long bytes) const { return slice + bytes; }
};

/// Of 4 bytes: in shared memory, in 32 / LANES rows of d.offset_row bytes for each warp, which hold the numbers of all groups
/// of a slab. Lanes that read their own numbers from global memory touch a sector each, a pixel's groups being 27 numbers
/// apart. Here the lanes of a pixel copy its groups together, 16 bytes at a time, and no register holds what is under way.
template <int LANES, int SHARE>
struct NextTaps<F32, LANES, SHARE> {
    char* row;           // of this lane's pixel
    const char* source;  // of this lane's first piece
    int end;             // bytes from there to the end of the slab's numbers
    int slice;           // byte of the row at which the lane's group begins

    __device__ __forceinline__ NextTaps(const Params& p, const Division& d, long long first_query, int first_channel,
                                        int slab_channels, int channel) {
        constexpr int kGroup = 27 * 4;
        const int channels = p.groups * p.group_channels;
        const int last_channel = min(first_channel + slab_channels, channels) - 1;
        const int begin = static_cast<int>(divide(static_cast<u32>(first_channel), d.channels)) * kGroup & ~15;
        const int last = static_cast<int>(divide(static_cast<u32>(last_channel), d.channels) + 1u) * kGroup;
        row = reinterpret_cast<char*>(shared_memory) + d.offset_start + static_cast<int>(threadIdx.x / LANES) * d.offset_row;
        source = static_cast<const char*>(p.offset_mask) + first_query * p.offset_stride * 4 + begin + part();
        end = last - begin - part();
        slice = static_cast<int>(divide(static_cast<u32>(channel < channels ? channel : first_channel), d.channels)) * kGroup - begin;
    }
    __device__ __forceinline__ void fetch(unsigned long long bytes) const {
        constexpr int kStep = 16 * LANES, kUsual = 256 / kStep;
        const char* from = source + bytes;
        char* to = row + part();
#pragma unroll
        for (int j = 0; j < kUsual; ++j) {
            if (j * kStep < end) copy_async(to + j * kStep, from + j * kStep, true);
        }
        for (int at = 256; at < end; at += kStep) copy_async(to + at, from + at, true);
    }
    __device__ __forceinline__ OwnTaps<F32, SHARE> take() const {
        OwnTaps<F32, SHARE> taken;
        taken.read_shared(row + slice);
        __syncwarp();
        return taken;
    }
    __device__ __forceinline__ void arrive() const {
        copy_async_wait();
        __syncwarp();
    }
    __device__ __forceinline__ const char* numbers(unsigned long long bytes) const { return source - part() + slice + bytes; }

  private:
    static __device__ __forceinline__ int part() { return static_cast<int>(threadIdx.x & (LANES - 1)) * 16; }
};

/// Copies the slabs of pixels into shared memory, 8 threads a pixel. Pixels follow each other in rows of `pitch`, the
/// first of them at column `column0`; those outside of the image become zeros.
template <class V>
struct Stager {
    int chunk_byte, column0, first_slot, step_x, step_y, first_x, first_y;

    __device__ __forceinline__ Stager(const Division& d, int column0) : column0(column0) {
        const u32 thread = opaque(threadIdx.x);  // else the compiler keeps all this in registers between calls
        chunk_byte = static_cast<int>(thread & 7u) * 16;
        const u32 step = blockDim.x >> 3, first = thread >> 3;
        first_slot = static_cast<int>(first);
        step_y = static_cast<int>(divide(step, d.pitch));
        step_x = static_cast<int>(step) - step_y * static_cast<int>(d.pitch.value);
        first_y = static_cast<int>(divide(first, d.pitch));
        first_x = static_cast<int>(first) - first_y * static_cast<int>(d.pitch.value);
    }

    /// Rows [row0, row0 + pixels / pitch) to the pixels of shared memory from `slot` on.
    __device__ __forceinline__ void stage(const Params& p, const Division& d, const char* image, int slab_byte, int row0,
                                          int pixels, int slot) const {
        const int pitch = static_cast<int>(d.pitch.value);
        const int pixel_bytes = p.value_stride * V::kBytes;
        const int byte = slab_byte + chunk_byte;
        const bool has_channels = byte < p.groups * p.group_channels * V::kBytes;
        int x = column0 + first_x, y = row0 + first_y;
        const int step = blockDim.x >> 3;
        char* shared = reinterpret_cast<char*>(shared_memory) + chunk_byte + slot * kSlabBytes;
        for (int s = first_slot; s < pixels; s += step) {
            const bool valid = has_channels && static_cast<u32>(y) < static_cast<u32>(p.height) &&
                               static_cast<u32>(x) < static_cast<u32>(p.width);
            const u32 from = valid ? static_cast<u32>((y * p.width + x) * pixel_bytes + byte) : 0u;
            copy_async(shared + s * kSlabBytes, image + from, valid);
            x += step_x;
            y += step_y;
            if (x >= column0 + pitch) {
                x -= pitch;
                ++y;
            }
        }
    }

    /// The same where every pixel lies inside of the image and all of the slab holds channels: a third of the instructions.
    __device__ __forceinline__ void stage_inside(const Params& p, const Division& d, const char* image, int slab_byte, int row0,
                                                 int pixels, int slot) const {
        const int pitch = static_cast<int>(d.pitch.value);
        const int pixel_bytes = p.value_stride * V::kBytes;
        const char* from = image + static_cast<u32>(((row0 + first_y) * p.width + column0 + first_x) * pixel_bytes + slab_byte + chunk_byte);
        const int step = blockDim.x >> 3;
        const int step_bytes = (step_y * p.width + step_x) * pixel_bytes, turn_bytes = step_bytes + (p.width - pitch) * pixel_bytes;
        int x = first_x;
        char* to = reinterpret_cast<char*>(shared_memory) + chunk_byte + (slot + first_slot) * kSlabBytes;
        for (int left = pixels - first_slot; left > 0; left -= step) {
            copy_async(to, from, true);
            to += step * kSlabBytes;
            x += step_x;
            const bool turns = x >= pitch;
            from += turns ? turn_bytes : step_bytes;
            x -= turns ? pitch : 0;
        }
    }
};

/// Whole images in shared memory, with one column of zeros between rows, one row of zeros above and one and two pixels
/// below: a sample outside of the image reads the last zeros. A unit is one slab of d.images images; a block takes every gridDim.x-th unit, and
/// stages the next one while it computes if there are two buffers. 3x3 kernels with offset_scale >= 0.
/// CHUNKS: 16-byte pieces of a thread. RESIDENT: threads of a multiprocessor, which sets the registers of one.
template <class V, class O, int CHUNKS, bool FAST, int RESIDENT>
__global__ void __launch_bounds__(ORINPORT_RESIDENT(RESIDENT), 1) whole_kernel(const Params p, const Division d) {
    using G = Gather<V, CHUNKS, FAST>;
    const G gather;
    const Grid grid(p);
    const u32 queries = d.queries.value;
    const int pitch = static_cast<int>(d.pitch.value), slots = static_cast<int>(d.slots.value);
    const int channels = p.groups * p.group_channels;
    const long long image_bytes = static_cast<long long>(p.height) * p.width * p.value_stride * V::kBytes;
    const int buffer_slots = slots * d.images;
    const int row_bytes = pitch * kSlabBytes, zeros_byte = (p.height + 1) * row_bytes;
    const int warp_start = static_cast<int>(threadIdx.x & ~31u);

    const auto stage_unit = [&](u32 unit, int buffer) {
        const u32 block = divide(unit, d.slabs);
        const int slab_byte = static_cast<int>(unit - block * d.slabs.value) * kSlabBytes;
        const int first_image = static_cast<int>(block) * d.images;
        const Stager<V> stager(d, -1);
        for (int i = 0; i < d.images && first_image + i < p.batch; ++i) {
            stager.stage(p, d, static_cast<const char*>(p.value) + image_bytes * (first_image + i), slab_byte, -1, slots,
                         buffer * buffer_slots + i * slots);
        }
    };

    // What a thread needs of a unit. Without channels, or behind the last task, it works on query 0 and stores nothing.
    struct Unit {
        int slab_byte, tasks;
        bool has_channels;
        long long first_query;
        NextTaps<O, G::kLanes, 1> taps;
    };
    const auto unit_of = [&](u32 number) {
        const u32 block = divide(number, d.slabs);
        const int slab_byte = static_cast<int>(number - block * d.slabs.value) * kSlabBytes;
        const int first_image = static_cast<int>(block) * d.images;
        const int first_channel = slab_byte / V::kBytes;
        const int channel = (slab_byte + gather.lane * CHUNKS * 16) / V::kBytes;
        const bool has_channels = channel < channels;
        const long long first_query = static_cast<long long>(queries) * first_image;
        return Unit{slab_byte, min(d.images, p.batch - first_image) * static_cast<int>(queries) * G::kLanes, has_channels,
                    first_query,
                    NextTaps<O, G::kLanes, 1>(p, d, first_query, first_channel, kSlabBytes / V::kBytes, channel)};
    };
    const auto query_of = [&](const Unit& unit, int start) {
        const int task = start + static_cast<int>(threadIdx.x & 31u);
        return task < unit.tasks ? static_cast<u32>(task) / G::kLanes : 0u;
    };
    const auto fetch_next = [&](Unit& unit, int start) {
        unit.taps.fetch(query_of(unit, start) * static_cast<u32>(p.offset_stride * O::kBytes));
    };
    u32 number = blockIdx.x;
    Unit unit = unit_of(number);
    wait_for_previous();
    fetch_next(unit, warp_start);
    stage_unit(number, 0);
    copy_async_wait();
    __syncthreads();
    for (int buffer = 0;;) {
        const u32 next_number = number + gridDim.x;
        const bool more = next_number < d.units;
        if (more && d.buffers == 2) stage_unit(next_number, buffer ^ 1);
        const int buffer_byte = buffer * buffer_slots * kSlabBytes;
        char* output = static_cast<char*>(p.output) + unit.first_query * channels * V::kBytes + unit.slab_byte;
        // All warps take the same number of turns: so compiled, the loop needs fewer registers.
        for (int turn = 0; turn < unit.tasks; turn += static_cast<int>(blockDim.x)) {
            const int start = turn + warp_start;
            if (start >= unit.tasks) continue;
            const u32 query = query_of(unit, start);
            const bool active = unit.has_channels && start + static_cast<int>(threadIdx.x & 31u) < unit.tasks;
            const bool last = start + static_cast<int>(blockDim.x) >= unit.tasks;
            u32 pixel = query;
            const char* base = reinterpret_cast<const char*>(shared_memory) + buffer_byte + gather.chunk_byte[0];
            if (d.images > 1) {
                const u32 image = divide(query, d.queries);
                pixel -= image * queries;
                base += static_cast<int>(image) * slots * kSlabBytes;
            }
            const u32 row = divide(pixel, d.columns);
            const int x0 = centre_x(p, static_cast<int>(pixel - row * d.columns.value)) + 1;
            const int y0 = centre_y(p, static_cast<int>(row)) + 1;
            const NineTaps<O> nine = unit.taps.take().nine;
            if (!last) fetch_next(unit, start + static_cast<int>(blockDim.x));
            typename G::S sums;
            sums.clear();
#pragma unroll
            for (int k = 0; k < 9; ++k) {
                const Place px = locate(grid.x(k / 3, nine.dx(k)), x0), py = locate(grid.y(k % 3, nine.dy(k)), y0);
                const bool inside = px.index <= static_cast<u32>(p.width) && py.index <= static_cast<u32>(p.height);
                const char* corner = base + static_cast<int>(px.index << 7) + static_cast<int>(py.index * row_bytes);
                const char* upper = inside ? corner : base + zeros_byte;
                gather.add(sums, G::S::weigh(nine.modulation(k), px.fraction, py.fraction), upper, upper + row_bytes);
            }
            if (active) gather.store(sums, output + query * static_cast<u32>(channels * V::kBytes), p.output_scale);
            unit.taps.arrive();
        }
        if (!more) break;
        number = next_number;
        unit = unit_of(number);
        fetch_next(unit, warp_start);
        if (d.buffers == 1) {
            __syncthreads();
            stage_unit(number, 0);
        } else {
            buffer ^= 1;
        }
        copy_async_wait();
        __syncthreads();
    }
}

/// A row or column that lies outside of what is staged counts as staged if everything beyond is outside of the image.
constexpr int kBeyond = 1 << 29;

/// A tile of output pixels of one image. What its taps need undisturbed is staged, and d.halo rows and columns more; samples
/// outside of that are read from global memory. Grid (slabs * tiles, images). 3x3 kernels with offset_scale >= 0.
/// SHARE: neighbouring lanes that work on the same group; each prepares its part of the taps for all of them.
template <class V, class O, int CHUNKS, bool FAST, int RESIDENT, int SHARE>
__global__ void __launch_bounds__(ORINPORT_RESIDENT(RESIDENT), 1) tile_kernel(const Params p, const Division d) {
    using G = Gather<V, CHUNKS, FAST>;
    const G gather;
    const Grid grid(p);
    const u32 tile = divide(blockIdx.x, d.slabs);
    const int slab_byte = static_cast<int>(blockIdx.x - tile * d.slabs.value) * kSlabBytes;
    const int tile_row = static_cast<int>(divide(tile, d.column_tiles));
    const int tile_column = static_cast<int>(tile - tile_row * d.column_tiles.value);
    const int image = blockIdx.y;
    const int channels = p.groups * p.group_channels;
    const int first_channel = slab_byte / V::kBytes, channel = (slab_byte + gather.lane * CHUNKS * 16) / V::kBytes;
    const bool has_channels = channel < channels;
    const int pitch = static_cast<int>(d.pitch.value), row_bytes = pitch * kSlabBytes;
    const int zeros_byte = d.ring_rows * row_bytes;
    const long long first_query = static_cast<long long>(p.out_height) * p.out_width * image;
    const char* value = static_cast<const char*>(p.value) +
                        static_cast<long long>(p.height) * p.width * image * p.value_stride * V::kBytes;
    NextTaps<O, G::kLanes, SHARE> taps(p, d, first_query, first_channel, kSlabBytes / V::kBytes, channel);
    char* output = static_cast<char*>(p.output) + first_query * channels * V::kBytes + slab_byte;

    const int row0 = tile_row * d.tile_rows, row1 = min(row0 + d.tile_rows, p.out_height);
    const int column0 = tile_column * d.tile_columns;
    const int columns = min(d.tile_columns, p.out_width - column0);
    const int staged_column = max(-1, centre_x(p, column0) + static_cast<int>(floorf(grid.left)) - d.halo);
    const int staged_row = max(-1, centre_y(p, row0) + static_cast<int>(floorf(grid.top)) - d.halo);
    // The last row that the taps need undisturbed, the halo, and one row of zeros if the image ends. In a wide padding all
    // of that may lie outside of the image; one row of zeros is staged then, and no sample lies between two staged rows.
    const int last_row = centre_y(p, row1 - 1) + static_cast<int>(floorf(grid.y(2, 0.0f))) + 1 + d.halo;
    const int staged_rows = max(1, min(p.height, last_row) + 1 - staged_row);

    const int tasks = (row1 - row0) * d.tile_columns * G::kLanes;
    const int warp_start = static_cast<int>(threadIdx.x & ~31u), part = gather.lane & (SHARE - 1);
    struct Task {
        int row, column;
        bool active;
    };
    // Threads without work take the first pixel of the tile, and store nothing.
    const auto task_of = [&](int start) {
        const u32 index = (static_cast<u32>(start) + (threadIdx.x & 31u)) / G::kLanes;
        const int r = static_cast<int>(divide(index, d.columns));
        const int c = static_cast<int>(index) - r * d.tile_columns;
        const bool exists = row0 + r < row1 && c < columns;
        return Task{exists ? row0 + r : row0, exists ? column0 + c : column0, exists && has_channels};
    };
    const auto query_of = [&](const Task& task) { return static_cast<u32>(task.row * p.out_width + task.column); };
    const auto fetch = [&](const Task& task) { taps.fetch(query_of(task) * static_cast<u32>(p.offset_stride * O::kBytes)); };

    wait_for_previous();
    Task task = task_of(warp_start);
    fetch(task);
    // Zeros behind the rows stand for everything outside of the image: two pixels, and two a row below.
    for (u32 i = threadIdx.x; i < static_cast<u32>(pitch + 2) * 8u; i += blockDim.x) {
        shared_memory[static_cast<u32>(zeros_byte / 16) + i] = make_uint4(0, 0, 0, 0);
    }
    const Stager<V> stager(d, staged_column);
    if (min(staged_column, staged_row) >= 0 && staged_column + pitch <= p.width && staged_row + staged_rows <= p.height &&
        slab_byte + kSlabBytes <= channels * V::kBytes) {
        stager.stage_inside(p, d, value, slab_byte, staged_row, staged_rows * pitch, 0);
    } else {
        stager.stage(p, d, value, slab_byte, staged_row, staged_rows * pitch, 0);
    }
    const u32 x_shift = staged_column == -1 ? kBeyond : 0, y_shift = staged_row == -1 ? kBeyond : 0;
    const u32 x_limit = x_shift + pitch - 1 + (staged_column + pitch > p.width ? kBeyond : 0);
    const u32 y_limit = y_shift + staged_rows - 1 + (staged_row + staged_rows > p.height ? kBeyond : 0);
    const char* const chunks = reinterpret_cast<const char*>(shared_memory) + gather.chunk_byte[0];
    copy_async_wait();
    __syncthreads();

    for (int start = warp_start; start < tasks; start += static_cast<int>(blockDim.x)) {
        const bool last = start + static_cast<int>(blockDim.x) >= tasks;
        const bool active = task.active;
        const u32 query = query_of(task);
        const int x0 = centre_x(p, task.column), y0 = centre_y(p, task.row);
        const auto own = taps.take();
        if (!last) {
            task = task_of(start + static_cast<int>(blockDim.x));
            fetch(task);
        }
        typename G::S sums;
        sums.clear();
        u32 missed = 0;
#pragma unroll
        for (int k = 0; k < 9; k += SHARE) {
            const Tap tap = own.tap_of(k, part);
            const Place px = locate(grid.x(tap.column, tap.dx), x0 - staged_column);
            const Place py = locate(grid.y(tap.row, tap.dy), y0 - staged_row);
            const bool staged = px.index < static_cast<u32>(pitch - 1) && py.index < static_cast<u32>(staged_rows - 1);
            if (px.index + x_shift >= x_limit || py.index + y_shift >= y_limit) missed |= 1u << min(k + part, 8);
            const auto weights = G::S::weigh(tap.modulation, px.fraction, py.fraction);
            const u32 corner = staged ? (px.index << 7) + py.index * row_bytes : static_cast<u32>(zeros_byte);
#pragma unroll
            for (int s = 0; s < SHARE && k + s < 9; ++s) {
                const char* upper = chunks + static_cast<int>(of_lane<SHARE>(corner, s));
                gather.add(sums, G::S::template of_lane<SHARE>(weights, s), upper, upper + row_bytes);
            }
        }
        if (__any_sync(0xffffffffu, missed != 0u)) {
            missed = any_lane<SHARE>(missed);
            if (!active) missed = 0;
            while (missed) {
                // Outside of what is staged, but perhaps inside of the image.
                const int k = __ffs(static_cast<int>(missed)) - 1;
                missed &= missed - 1u;
                const char* numbers = taps.numbers(query * static_cast<u32>(p.offset_stride * O::kBytes));
                const char* offset = numbers + 2 * k * O::kBytes;
                const float dx = load_number<O>(offset), dy = load_number<O>(offset + O::kBytes);
                const float x = fmaf(grid.scale, dx, fmaf(static_cast<float>(k / 3), grid.step_x, grid.left));
                const float y = fmaf(grid.scale, dy, fmaf(static_cast<float>(k % 3), grid.step_y, grid.top));
                const Place px = locate(x, x0 + 1), py = locate(y, y0 + 1);
                if (px.index > static_cast<u32>(p.width) || py.index > static_cast<u32>(p.height)) continue;
                const float modulation = load_number<O>(numbers + (18 + k) * O::kBytes);
#pragma unroll
                for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                    const Image pixels{value, static_cast<u32>(slab_byte + gather.chunk_byte[chunk]), p.height, p.width,
                                       p.value_stride * V::kBytes, x0, y0};
                    add_direct<V, 16, FAST, false>(pixels, x, y, modulation, sums, chunk * G::kPerChunk);
                }
            }
        }
        if (active) gather.store(sums, output + query * static_cast<u32>(channels * V::kBytes), p.output_scale);
        taps.arrive();
    }
}

/// Rows of value stream through a ring in shared memory: the images of a batch lie below each other, with a row of zeros
/// above each and below the last one. The last warp of a block copies rows, each announced by a barrier of its own
/// (`full`); the other warps compute, 32 / kLanes pixels a turn, and go on without waiting for each other. They give rows
/// back in groups of d.step_rows, each of which has a barrier that the copying warp waits for (`empty`).
///
/// A sample outside of the window of d.halo rows around its taps is read from global memory. Grid: slabs * column tiles *
/// runs of d.tile_rows rows of output. 3x3 kernels with offset_scale >= 0.
/// CHUNKS: 16-byte pieces of a thread. RESIDENT: threads of a multiprocessor, which sets the registers of one. TILED: not
/// all columns are staged. SHARE: as in tile_kernel.
template <class V, class O, int CHUNKS, bool FAST, int RESIDENT, bool TILED, int SHARE>
__global__ void __launch_bounds__(ORINPORT_RESIDENT(RESIDENT), 1) stream_kernel(const Params p, const Division d) {
    using G = Gather<V, CHUNKS, FAST>;
    constexpr int kQueries = 32 / G::kLanes;  // of a warp
    constexpr int kGroups = 16;               // barriers of rows that are given back
    const G gather;
    const Grid grid(p);
    const u32 tile = divide(blockIdx.x, d.slabs);
    const int slab_byte = static_cast<int>(blockIdx.x - tile * d.slabs.value) * kSlabBytes;
    const int run = static_cast<int>(divide(tile, d.column_tiles));
    const int column0 = (static_cast<int>(tile) - run * static_cast<int>(d.column_tiles.value)) * d.tile_columns;
    const int columns = min(d.tile_columns, p.out_width - column0);
    const int row0 = run * d.tile_rows, row1 = min(row0 + d.tile_rows, p.batch * p.out_height);
    const int channels = p.groups * p.group_channels;
    const int pitch = static_cast<int>(d.pitch.value), ring_rows = d.ring_rows;
    const int zeros_byte = (ring_rows + 1) * pitch * kSlabBytes;
    const SharedAddress empty =
        opaque(shared_address(reinterpret_cast<char*>(shared_memory) + zeros_byte + (pitch + 2) * kSlabBytes));
    const SharedAddress full = empty + 8 * kGroups;
    const char* const value = static_cast<const char*>(p.value);
    const int pixel_bytes = p.value_stride * V::kBytes;

    const int staged_column = TILED ? max(-1, centre_x(p, column0) + static_cast<int>(floorf(grid.left)) - d.halo) : -1;
    const int above = static_cast<int>(floorf(grid.top)) - d.halo;
    const int below = static_cast<int>(floorf(grid.y(2, 0.0f))) + 1 + d.halo;

    // What an output row, counted through all images, needs: rows `top` to `bottom` of its image, -1 and H being zeros.
    struct Window {
        int image, centre, top, bottom;
    };
    const auto window_of = [&](int row) {
        Window w;
        w.image = static_cast<int>(divide(static_cast<u32>(row), d.queries));
        w.centre = centre_y(p, row - w.image * p.out_height);
        w.top = min(max(w.centre + above, -1), p.height);
        w.bottom = max(min(w.centre + below, p.height), -1);
        return w;
    };
    // Rows of the stream are counted from the first one that the block needs.
    const auto streamed = [&](const Window& w, int y) { return w.image * (p.height + 1) + y; };
    const Window first_window = window_of(row0), last_window = window_of(row1 - 1);
    const int origin = streamed(first_window, first_window.top);
    const int end = streamed(last_window, last_window.bottom) + 1 - origin;

    const int lane = static_cast<int>(threadIdx.x & 31u), warp = static_cast<int>(threadIdx.x >> 5);
    const int workers = static_cast<int>(blockDim.x >> 5) - 1;
    const auto stage_row = [&](int number) {
        const int chunk_byte = (lane & 7) * 16;
        const int line = origin + number + 1;
        const int image = static_cast<int>(divide(static_cast<u32>(line), d.slots));
        const int y = line - image * (p.height + 1) - 1;
        const bool has_row = y >= 0 && slab_byte + chunk_byte < channels * V::kBytes;
        const int slot = number - static_cast<int>(divide(static_cast<u32>(number), d.lanes)) * ring_rows;
        char* to = reinterpret_cast<char*>(shared_memory) + slot * pitch * kSlabBytes + chunk_byte;
        const char* from = value + (static_cast<long long>(image) * p.height + y) * p.width * pixel_bytes + slab_byte + chunk_byte;
        for (int x = lane >> 3; x < pitch; x += 4) {
            const int column = staged_column + x;
            const bool valid = has_row && static_cast<u32>(column) < static_cast<u32>(p.width);
            const char* source = valid ? from + column * pixel_bytes : value;
            copy_async(to + x * kSlabBytes, source, valid);
            // The first row lies behind the last one as well, so that the row below is always a pitch away.
            if (slot == 0) copy_async(to + (ring_rows * pitch + x) * kSlabBytes, source, valid);
        }
    };

    const int first_channel = slab_byte / V::kBytes, channel = (slab_byte + gather.lane * CHUNKS * 16) / V::kBytes;
    const bool has_channels = channel < channels;
    NextTaps<O, G::kLanes, SHARE> taps(p, d, 0, first_channel, kSlabBytes / V::kBytes, channel);
    struct Task {
        int row, column;
        bool active;
    };
    // Threads without work take the nearest pixel that has some, and store nothing.
    const auto task_of = [&](int index) {
        const int r = static_cast<int>(divide(static_cast<u32>(index), d.columns));
        const int c = index - r * d.tile_columns;
        Task task;
        task.active = has_channels && c < columns && row0 + r < row1;
        task.row = min(row0 + r, row1 - 1);
        task.column = column0 + min(c, columns - 1);
        return task;
    };
    const auto query_of = [&](const Task& task) { return static_cast<u32>(task.row) * p.out_width + task.column; };
    const auto offset_of = [&](u32 query) {
        return static_cast<unsigned long long>(query) * static_cast<u32>(p.offset_stride * O::kBytes);
    };

    const int total = (row1 - row0) * d.tile_columns;  // pixels
    const int turn = workers * kQueries;
    int index = warp * kQueries + lane / G::kLanes;
    Task task = task_of(index);
    wait_for_previous();
    if (O::kBytes == 2 || warp < workers) taps.fetch(offset_of(query_of(task)));

    // All warps copy what the first turn needs.
    const Window turn_window = window_of(min(row0 + (turn - 1) / d.tile_columns, row1 - 1));
    int have = min(streamed(turn_window, turn_window.bottom) - origin, ring_rows - 1);
    for (int number = warp; number <= have; number += workers + 1) stage_row(number);
    for (int i = threadIdx.x; i < (pitch + 2) * 8; i += blockDim.x) {
        reinterpret_cast<uint4*>(reinterpret_cast<char*>(shared_memory) + zeros_byte)[i] = make_uint4(0, 0, 0, 0);
    }
    for (int i = threadIdx.x; i < ring_rows; i += blockDim.x) barrier_init(full + i * 8, 32);
    for (int i = threadIdx.x; i < kGroups; i += blockDim.x) barrier_init(empty + i * 8, workers * 32);
    copy_async_wait();
    __syncthreads();

    if (warp == workers) {
        for (int number = 0; number <= have; ++number) barrier_arrive(full + number * 8);
        int taken = 0, slot = have + 1 == ring_rows ? 0 : have + 1;
        for (int number = have + 1; number < end; ++number) {
            for (; number - ring_rows >= taken * d.step_rows; ++taken) {
                barrier_wait(empty + (taken % kGroups) * 8, taken / kGroups & 1u);
            }
            stage_row(number);
            copy_async_arrive(full + slot * 8);
            slot = slot + 1 == ring_rows ? 0 : slot + 1;
        }
        copy_async_wait();
        return;
    }

    // The next group of rows to give back ends at `returned`; the copying warp asks for those that end before `asked`.
    const int asked = end > ring_rows ? ((end - 1 - ring_rows) / d.step_rows + 1) * d.step_rows : 0;
    int returned = d.step_rows;
    u32 name = 0;
    // Give back the rows before `first` and wait for row `last`, by no more than half a ring at a time.
    const auto reach = [&](int first, int last) {
        for (;;) {
            const int unused = min(min(first, have + 1), asked);
            for (; returned <= unused; returned += d.step_rows) {
                barrier_arrive(empty + name * 8);
                name = (name + 1) % kGroups;
            }
            if (have >= last) break;
            have = min(last, have + (ring_rows >> 1));
            const u32 phase = divide(static_cast<u32>(have), d.lanes);
            barrier_wait(full + (have - static_cast<int>(phase) * ring_rows) * 8, phase & 1u);
        }
    };
    const u32 x_shift = staged_column == -1 ? kBeyond : 0;
    const u32 x_limit = x_shift + pitch - 1 + (staged_column + pitch > p.width ? kBeyond : 0);
    const int row_bytes = pitch * kSlabBytes;
    const char* const chunks = reinterpret_cast<const char*>(shared_memory) + gather.chunk_byte[0];
    const int part = lane & (SHARE - 1);

    for (int start = warp * kQueries; start < total; start += turn) {
        const Window w = window_of(task.row);
        const int first = streamed(w, w.top) - origin;
        reach(__shfl_sync(0xffffffffu, first, 0), __shfl_sync(0xffffffffu, streamed(w, w.bottom) - origin, 31));
        const bool active = task.active;
        const bool more = start + turn < total;
        const u32 query = query_of(task);
        const int x0 = centre_x(p, task.column), y0 = w.centre;
        const auto own = taps.take();
        if (more) task = task_of(index += turn);
        if (more) taps.fetch(offset_of(query_of(task)));
        const u32 window_slot = static_cast<u32>(first) - divide(static_cast<u32>(first), d.lanes) * ring_rows;
        const u32 window_rows = static_cast<u32>(w.bottom - w.top);
        const u32 y_shift = w.top == -1 ? kBeyond : 0;
        const u32 y_limit = y_shift + window_rows + (w.bottom == p.height ? kBeyond : 0);
        typename G::S sums;
        sums.clear();
        bool complete = true;
#pragma unroll
        for (int k = 0; k < 9; k += SHARE) {
            const Tap tap = own.tap_of(k, part);
            const Place px = locate(grid.x(tap.column, tap.dx), x0 - staged_column);
            const Place py = locate(grid.y(tap.row, tap.dy), y0 - w.top);
            const bool staged = px.index < static_cast<u32>(pitch - 1) && py.index < window_rows;
            complete = complete && py.index + y_shift < y_limit;
            if (TILED) complete = complete && px.index + x_shift < x_limit;
            u32 slot = window_slot + py.index;
            slot = min(slot, slot - static_cast<u32>(ring_rows));
            if constexpr (SHARE == 1) {
                const char* corner = chunks + static_cast<int>(px.index << 7) + static_cast<int>(slot * row_bytes);
                const char* upper = staged ? corner : chunks + zeros_byte;
                gather.add(sums, G::S::weigh(tap.modulation, px.fraction, py.fraction), upper, upper + row_bytes);
            } else {
                const auto weights = G::S::weigh(tap.modulation, px.fraction, py.fraction);
                const u32 corner = staged ? (px.index << 7) + slot * row_bytes : static_cast<u32>(zeros_byte);
#pragma unroll
                for (int s = 0; s < SHARE && k + s < 9; ++s) {
                    const char* upper = chunks + static_cast<int>(of_lane<SHARE>(corner, s));
                    gather.add(sums, G::S::template of_lane<SHARE>(weights, s), upper, upper + row_bytes);
                }
            }
        }
        complete = !any_lane<SHARE>(!complete);
        if (!complete && active) {
            // Some samples lie outside of the window, but perhaps inside of the image.
            const char* numbers = taps.numbers(offset_of(query));
            const char* image = value + static_cast<long long>(w.image) * p.height * p.width * pixel_bytes;
            for (int k = 0; k < 9; ++k) {
                const char* offset = numbers + 2 * k * O::kBytes;
                const float dx = load_number<O>(offset), dy = load_number<O>(offset + O::kBytes);
                const float x = fmaf(grid.scale, dx, fmaf(static_cast<float>(k / 3), grid.step_x, grid.left));
                const float y = fmaf(grid.scale, dy, fmaf(static_cast<float>(k % 3), grid.step_y, grid.top));
                const Place px = locate(x, x0 + 1), py = locate(y, y0 + 1);
                if (px.index > static_cast<u32>(p.width) || py.index > static_cast<u32>(p.height)) continue;
                const u32 column = px.index - static_cast<u32>(staged_column + 1), row = py.index - static_cast<u32>(w.top + 1);
                if (column < static_cast<u32>(pitch - 1) && row < window_rows) continue;
                const float modulation = load_number<O>(numbers + (18 + k) * O::kBytes);
#pragma unroll
                for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                    const Image pixels{image, static_cast<u32>(slab_byte + gather.chunk_byte[chunk]), p.height, p.width,
                                       pixel_bytes, x0, y0};
                    add_direct<V, 16, FAST, false>(pixels, x, y, modulation, sums, chunk * G::kPerChunk);
                }
            }
        }
        if (active) {
            char* output = static_cast<char*>(p.output) + slab_byte;
            gather.store(sums, output + static_cast<unsigned long long>(query) * static_cast<u32>(channels * V::kBytes), p.output_scale);
        }
        taps.arrive();
    }
    let_next_start();
    reach(end, end - 1);
}

}  // namespace dcnv4
}  // namespace orinport
