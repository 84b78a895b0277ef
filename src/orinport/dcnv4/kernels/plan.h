// How a launch divides the work: which configurations exist, which of them can compute a problem, and the numbers that
// the kernels need. Host code only; cuda_plan.py says the same in Python, and a test compares both.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "problem.h"

namespace orinport {
namespace dcnv4 {

constexpr int kHopperSharedBytes = 232448;  // of a block on sm_90; earlier architectures have less

enum Kernel : int { kDirect = 0, kWhole = 1, kTile = 2, kStream = 3 };

/// One way to compute: a kernel with its compile-time and launch parameters. An extent of 0 means all of it.
struct Configuration {
    int kernel;
    int bytes;         // of channels a thread; 0: one channel
    int split;         // threads that share the taps of a pixel
    int threads;       // of a block
    int images;        // whole: images of a unit
    int buffers;       // whole: 2 stages the next unit while one is computed
    int tile_columns;  // tile, stream: output pixels of a block
    int tile_rows;
    int halo;          // tile, stream: rows and columns staged beyond the undisturbed samples
    int resident;      // tile: threads of a multiprocessor for which registers are allotted
};

/// The device, as far as launches depend on it.
struct Limits {
    int shared_bytes;     // that a block may ask for (232448 on sm_90, 166912 on sm_87)
    int multiprocessors;
};

struct Launch {
    Division division;
    unsigned grid_x, grid_y, grid_z, block_x, block_y;
    int shared_bytes;
};

inline int bytes_of(int type) { return type == kF32 ? 4 : type == kI8 ? 1 : 2; }
inline int taps_of(const Params& p) { return p.kernel_h * p.kernel_w - (p.remove_center ? 1 : 0); }
inline bool nine_taps(const Params& p) { return p.kernel_h == 3 && p.kernel_w == 3 && !p.remove_center; }
inline int channels_of(const Params& p) { return p.groups * p.group_channels; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Whether kernels exist for these types: one type for all, or fp32 or fp16 offsets with int8 or fp16 values.
inline bool types_exist(int value, int offset, int output) {
    if (output != value) return false;
    if (value == offset) return value != kI8;
    return (value == kI8 && (offset == kF16 || offset == kF32)) || (value == kF16 && offset == kF32);
}

inline Divisor divisor(unsigned value) {
    Divisor result{0, 31, value};
    while ((uint64_t{1} << (result.shift - 31)) < value) ++result.shift;
    result.multiplier = static_cast<unsigned>(((uint64_t{1} << result.shift) + value - 1) / value);
    return result;
}

constexpr Configuration kConfigurations[] = {
    // kernel, bytes, split, threads, images, buffers, tile columns, tile rows, halo, resident
    {kDirect, 0, 1, 128, 1, 1, 0, 0, 0, 0},  // any alignment
    {kDirect, 8, 1, 128, 1, 1, 0, 0, 0, 0},  //
    {kDirect, 16, 1, 64, 1, 1, 0, 0, 0, 0},  //
    {kDirect, 16, 1, 128, 1, 1, 0, 0, 0, 0},  //
    {kDirect, 16, 3, 96, 1, 1, 0, 0, 0, 0},  // few pixels: taps over threads
    {kDirect, 16, 3, 192, 1, 1, 0, 0, 0, 0},  //
    {kDirect, 16, 9, 288, 1, 1, 0, 0, 0, 0},  //
    {kWhole, 32, 1, 320, 1, 1, 0, 0, 0, 640},  // 28x28: two blocks on an sm_90 multiprocessor
    {kWhole, 32, 1, 160, 1, 1, 0, 0, 0, 640},  // 14x14: four
    {kWhole, 32, 1, 160, 2, 1, 0, 0, 0, 640},  // 7x7
    {kWhole, 32, 1, 128, 1, 1, 0, 0, 0, 640},  //
    {kWhole, 32, 1, 320, 2, 1, 0, 0, 0, 640},  //
    {kTile, 32, 1, 256, 1, 1, 16, 16, 3, 512},  // large images: tiles
    {kTile, 32, 1, 256, 1, 1, 16, 8, 3, 512},  //
    {kTile, 32, 1, 192, 1, 1, 16, 12, 3, 512},  //
    {kTile, 32, 1, 128, 1, 1, 8, 8, 3, 512},  //
    {kWhole, 16, 1, 320, 1, 1, 0, 0, 0, 640},  // groups of 8, 24, ... channels, and int8
    {kWhole, 16, 1, 160, 2, 1, 0, 0, 0, 640},  //
    {kTile, 16, 1, 256, 1, 1, 16, 16, 3, 512},  //
    {kWhole, 64, 1, 160, 1, 1, 0, 0, 0, 640},  // fp32
    {kWhole, 64, 1, 160, 2, 1, 0, 0, 0, 640},  //
    {kStream, 32, 1, 512, 1, 1, 0, 0, 4, 512},  // many images
    {kStream, 32, 1, 512, 1, 1, 40, 0, 4, 512},  // large images
    {kStream, 32, 1, 512, 1, 1, 20, 0, 4, 512},  //
    {kStream, 16, 1, 512, 1, 1, 0, 0, 4, 512},  // groups of 8, 24, ... channels, and int8
    {kStream, 32, 1, 384, 1, 1, 0, 0, 4, 512},  // before sm_90
    {kWhole, 32, 1, 160, 4, 1, 0, 0, 0, 640},  // 7x7 in fp32: all of a batch at once
    {kWhole, 64, 1, 160, 4, 1, 0, 0, 0, 640},  //
};
// What choose() falls back to, as ids.
constexpr int kScalarId = 1, kNarrowId = 2, kPlainId = 4, kSplitId = 6;
constexpr double kDirectScore = 0.4;          // a tile has to promise more than this
constexpr int64_t kTileThreshold = 1024;      // 16-byte lanes of a multiprocessor from which tiles pay
constexpr int kRingRows = 40;                 // of a stream, at most
constexpr int kStreamBytes = 256 + 8 * (kRingRows + 16);  // two pixels and barriers
constexpr int64_t kSplitThreshold = 512;      // below which taps are divided over threads
constexpr double kFarthest = 1 << 22;         // pixels between taps; images have fewer
constexpr int kConfigurationCount = sizeof(kConfigurations) / sizeof(kConfigurations[0]);

/// Fastest of all configurations on an H200, by `dcnv4 bench --tune`: for batches from `batch` on, or exactly 1.
struct Measured {
    int element_bytes, height, width, channels, batch, id;
};
constexpr Measured kMeasured[] = {
    {2, 56, 56, 64, 64, 22},
    {2, 28, 28, 128, 64, 22},
    {2, 14, 14, 256, 64, 12},
    {2, 7, 7, 512, 64, 10},
    {2, 56, 56, 64, 1, 5},
    {2, 28, 28, 128, 1, 7},
    {2, 14, 14, 256, 1, 7},
    {2, 7, 7, 512, 1, 7},
    {2, 200, 320, 128, 1, 13},
    {2, 200, 320, 256, 1, 13},
    {2, 100, 160, 128, 1, 14},
    {2, 100, 160, 256, 1, 14},
    {2, 50, 80, 128, 1, 4},
    {2, 50, 80, 256, 1, 4},
    {2, 25, 40, 128, 1, 6},
    {2, 25, 40, 256, 1, 4},
    {4, 56, 56, 64, 64, 22},
    {4, 28, 28, 128, 64, 26},
    {4, 14, 14, 256, 64, 9},
    {4, 7, 7, 512, 128, 27},
    {4, 7, 7, 512, 64, 10},
};

/// Whether vectors of `bytes` channels start at multiples of their size and lie within one group.
inline bool vector_fits(const Params& p, int type, int bytes) {
    const int size = bytes_of(type);
    const int access = bytes > 16 ? 16 : bytes;
    const auto aligned = [access](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % access == 0; };
    return p.group_channels * size % bytes == 0 && p.value_stride * size % access == 0 && aligned(p.value) &&
           aligned(p.output);
}

/// Whether the rows of offset_mask can be read in pieces of 8 bytes.
inline bool pieces_fit(const Params& p, int offset) {
    return p.offset_stride * bytes_of(offset) % 8 == 0 && reinterpret_cast<uintptr_t>(p.offset_mask) % 8 == 0;
}

/// Bytes of a row in shared memory that holds the numbers of all groups of a slab, wherever in 16 bytes they begin; an odd
/// multiple of 16, so that the rows of neighbouring pixels lie in different banks. None for numbers of 2 bytes.
inline int offset_row(const Params& p, int value, int offset) {
    if (offset != kF32) return 0;
    const int slab = 128 / bytes_of(value), group = p.group_channels;
    const int most = slab % group == 0 ? slab / group : group % slab == 0 ? 1 : (slab + group - 2) / group + 1;
    const int pieces = (std::min(most, p.groups) * 27 * 4 + 27) / 16;
    return (pieces | 1) * 16;
}

/// Whether such rows can be copied 16 bytes at a time.
inline bool rows_fit(const Params& p, int offset) {
    return offset != kF32 || (p.offset_stride % 4 == 0 && reinterpret_cast<uintptr_t>(p.offset_mask) % 16 == 0);
}

/// The kernel's unrolled form for 3x3 kernels can be used.
inline bool unrolled(const Params& p, int offset) { return nine_taps(p) && pieces_fit(p, offset); }

/// Whether offsets within an image need 64 bits.
inline bool wide(const Params& p, int type) {
    const int64_t queries = int64_t{p.out_height} * p.out_width;
    const int64_t size = bytes_of(type), limit = int64_t{1} << 31;
    return int64_t{p.height} * p.width * p.value_stride * size >= limit || queries * p.offset_stride * 4 >= limit ||
           queries * p.groups * p.group_channels * size >= limit;
}

/// Neighbouring lanes that work on one group and share the preparation of its taps: 1, 2 or 4. It costs shuffles, which
/// pays where arithmetic binds, not shared memory: in 16-bit types.
inline int shared_lanes(const Params& p, int type, const Configuration& c) {
    const bool tiles = c.kernel == kTile || (c.kernel == kStream && c.tile_columns > 0);
    if (!tiles || c.bytes != 32 || bytes_of(type) != 2) return 1;
    const int lanes = p.group_channels / 16;
    return lanes % 4 == 0 ? 4 : lanes % 2 == 0 ? 2 : 1;
}

/// Blocks of a tiled configuration that a multiprocessor holds; it reserves 1024 bytes for each.
inline int resident_blocks(const Configuration& c, int shared_bytes, const Limits& limits) {
    return std::max(1, std::min((limits.shared_bytes + 1024) / (shared_bytes + 1024), c.resident / c.threads));
}

/// Fill `launch` for a configuration. Returns false if the configuration cannot compute the problem on this device.
/// Needs 16-byte aligned pointers (null counts as aligned), N >= 1 and checked attributes.
inline bool plan(const Params& p, int value, int offset, const Configuration& c, const Limits& limits, Launch* launch) {
    const int size = bytes_of(value);
    const int bytes = c.bytes ? c.bytes : size;
    const int64_t queries = int64_t{p.out_height} * p.out_width;
    const int64_t limit = int64_t{1} << 31;
    if (bytes < size || !vector_fits(p, value, bytes)) return false;
    Launch l{};
    l.grid_z = 1;
    Division& d = l.division;
    d.channels = divisor(p.group_channels);
    d.lanes = d.columns = d.pitch = d.slots = d.queries = d.slabs = d.column_tiles = divisor(1);
    d.images = d.buffers = 1;
    d.units = 0;
    d.tile_columns = p.out_width;
    d.tile_rows = p.out_height;
    d.step_rows = p.out_height;
    d.ring_rows = 1;
    if (c.kernel == kDirect) {
        const int lanes = channels_of(p) * size / bytes;
        if (c.split > 1 && (!unrolled(p, offset) || bytes % 4)) return false;
        if (wide(p, value) && (c.split > 1 || (c.bytes != 0 && c.bytes != 16))) return false;
        if (queries * lanes >= limit - 1024) return false;
        const int x = c.threads / c.split;
        d.lanes = divisor(lanes);
        d.columns = divisor(p.out_width);
        d.queries = divisor(static_cast<unsigned>(queries));
        d.value_image = int64_t{p.height} * p.width * p.value_stride * size;
        d.offset_image = queries * p.offset_stride * bytes_of(offset);
        d.output_image = queries * channels_of(p) * size;
        l.block_x = x;
        l.block_y = c.split;
        l.grid_x = static_cast<unsigned>(ceil_div(queries * lanes, x));
        l.grid_y = p.batch < 65535 ? p.batch : 65535;
        l.grid_z = static_cast<unsigned>(ceil_div(p.batch, 65535));
        l.shared_bytes = c.split > 1 ? c.split * (bytes / size) * x * 4 : 0;
        *launch = l;
        return true;
    }
    // Slabs of 128 bytes; taps must lie in rising order, and sizes fit 32 bits.
    const int row_bytes = channels_of(p) * size;
    if (c.threads > 384 && limits.shared_bytes < kHopperSharedBytes) return false;
    if (!unrolled(p, offset) || !rows_fit(p, offset) || c.split > 1 || bytes < 16 || p.offset_scale < 0.0F || wide(p, value)) return false;
    if (queries * std::max(8, p.offset_stride * bytes_of(offset)) * c.images >= limit) return false;
    // Of taps further apart than images are large, the numbers of staged pixels would overflow; direct_kernel has none.
    if (double{p.offset_scale} * std::max(p.dilation_h, p.dilation_w) >= kFarthest) return false;
    if (value != kF32 && bytes > 32) return false;
    if (value == kI8 && bytes > 16) return false;
    const int slabs = static_cast<int>(ceil_div(row_bytes, 128));
    d.slabs = divisor(slabs);
    l.block_x = c.threads;
    l.block_y = 1;
    d.offset_row = offset_row(p, value, offset);
    const int offset_bytes = (c.kernel == kStream ? c.threads - 32 : c.threads) * bytes / 128 * d.offset_row;
    if (c.kernel == kWhole) {
        const int64_t slots = int64_t{p.height + 2} * (p.width + 1) + 2;
        const int images = c.images < p.batch ? c.images : p.batch;
        const int64_t units = slabs * ceil_div(p.batch, images);
        const int64_t offset_start = slots * images * c.buffers * 128, shared = offset_start + offset_bytes;
        if (shared > limits.shared_bytes || units >= limit) return false;
        d.slots = divisor(static_cast<unsigned>(slots));
        d.queries = divisor(static_cast<unsigned>(queries));
        d.pitch = divisor(p.width + 1);
        d.columns = divisor(p.out_width);
        d.offset_start = static_cast<int>(offset_start);
        d.images = images;
        d.buffers = c.buffers;
        d.units = static_cast<unsigned>(units);
        const int64_t resident = int64_t{limits.multiprocessors} * resident_blocks(c, static_cast<int>(shared), limits);
        l.grid_x = static_cast<unsigned>(c.buffers == 2 && resident < units ? resident : units);
        l.grid_y = 1;
        l.shared_bytes = static_cast<int>(shared);
        *launch = l;
        return true;
    }
    const int columns = c.tile_columns && c.tile_columns < p.out_width ? c.tile_columns : p.out_width;
    const int rows = c.tile_rows && c.tile_rows < p.out_height ? c.tile_rows : p.out_height;
    const auto span = [&](int64_t pixels, int stride, int kernel, int dilation) {
        return static_cast<int64_t>(std::ceil((pixels - 1.0) * stride + double{p.offset_scale} * dilation * (kernel - 1))) +
               3 + 2 * c.halo;
    };
    int64_t pitch = span(columns, p.stride_w, p.kernel_w, p.dilation_w);
    if (pitch > p.width + 2 || (c.kernel == kStream && !c.tile_columns)) pitch = p.width + 2;
    if (c.kernel == kStream) {
        // Output rows are counted through all images, and so are staged ones, with a row of zeros between two images.
        const int64_t all_rows = int64_t{p.batch} * p.out_height;
        const int64_t tiles = ceil_div(p.out_width, columns) * slabs;
        if (all_rows * p.out_width >= limit || int64_t{p.batch} * (p.height + 1) >= limit - 2) return false;
        // Runs of rows, so that blocks fill the multiprocessors once or a few times.
        const int64_t window = span(1, p.stride_h, p.kernel_h, p.dilation_h);
        int64_t run = 0, least = 0;
        for (int64_t waves = 1; waves <= 8; ++waves) {
            const int64_t runs = std::min(all_rows, std::max(int64_t{1}, waves * limits.multiprocessors / tiles));
            const int64_t rows = ceil_div(all_rows, runs);
            const int64_t cost = ceil_div(tiles * ceil_div(all_rows, rows), limits.multiprocessors) * (8 * rows + window);
            if (!least || cost < least) {
                least = cost;
                run = rows;
            }
        }
        // How far the staged rows move on with an output row, at most; what a warp needs at once; what a block needs.
        const int64_t advance = std::max(int64_t{p.stride_h}, p.height + 1 - (p.out_height - int64_t{1}) * p.stride_h);
        const int64_t rows_at_once = ceil_div(32 * bytes / 128 - 1, columns) + 1;
        const int64_t at_once = (rows_at_once - 1) * advance + window;
        const int64_t needed = (run - 1) * advance + window;
        const int64_t fits = (limits.shared_bytes - kStreamBytes - offset_bytes) / (pitch * 128) - 2;
        const int64_t ring = std::min(std::min(fits, needed), int64_t{kRingRows});
        const int64_t group = ceil_div(std::max(ring, int64_t{1}), 13);  // of rows that are given back; there are 16 barriers
        if (ring < std::min(needed, at_once + group)) return false;
        if (ceil_div(all_rows, run) * tiles >= limit || run * columns >= limit - 65536) return false;
        d.lanes = divisor(static_cast<unsigned>(ring));
        d.pitch = divisor(static_cast<unsigned>(pitch));
        d.columns = divisor(columns);
        d.column_tiles = divisor(static_cast<unsigned>(ceil_div(p.out_width, columns)));
        d.queries = divisor(p.out_height);
        d.slots = divisor(p.height + 1);
        d.tile_columns = columns;
        d.tile_rows = static_cast<int>(run);
        d.step_rows = static_cast<int>(group);
        d.ring_rows = static_cast<int>(ring);
        d.halo = c.halo;
        l.grid_x = static_cast<unsigned>(ceil_div(all_rows, run) * tiles);
        l.grid_y = 1;
        d.offset_start = static_cast<int>((ring + 2) * pitch * 128) + kStreamBytes;
        l.shared_bytes = d.offset_start + offset_bytes;
        *launch = l;
        return true;
    }
    int64_t staged = span(rows, p.stride_h, p.kernel_h, p.dilation_h);
    if (staged > p.height + 2) staged = p.height + 2;
    const int64_t offset_start = (staged * pitch + pitch + 2) * 128, shared = offset_start + offset_bytes;
    if (p.batch > 65535 || shared > limits.shared_bytes) return false;
    const int64_t column_tiles = ceil_div(p.out_width, columns), row_tiles = ceil_div(p.out_height, rows);
    if (column_tiles * row_tiles * slabs >= limit) return false;
    d.pitch = divisor(static_cast<unsigned>(pitch));
    d.columns = divisor(columns);
    d.column_tiles = divisor(static_cast<unsigned>(column_tiles));
    d.tile_columns = columns;
    d.tile_rows = rows;
    d.ring_rows = static_cast<int>(staged);
    d.halo = c.halo;
    d.offset_start = static_cast<int>(offset_start);
    l.grid_x = static_cast<unsigned>(column_tiles * row_tiles * slabs);
    l.grid_y = p.batch;
    l.shared_bytes = static_cast<int>(shared);
    *launch = l;
    return true;
}

/// Estimate of how well a tiled configuration uses the device, 0 to 1: full warps and waves, no idle channels, and
/// few pixels staged for nothing.
inline double tile_score(const Params& p, int value, const Configuration& c, const Limits& limits, const Launch& l) {
    const Division& d = l.division;
    const int lanes = 128 / c.bytes;
    if (c.kernel == kStream) {
        const double tasks = double(d.tile_rows) * d.tile_columns * lanes;
        const int workers = c.threads - 32;
        const double waves = double(l.grid_x) / limits.multiprocessors;
        const double staged = double(d.pitch.value) * (d.tile_rows + 2.0 + 2.0 * d.halo) / (double(d.tile_columns) * d.tile_rows);
        return tasks / (std::ceil(tasks / workers) * workers) * waves / std::ceil(waves) * channels_of(p) * bytes_of(value) /
               (d.slabs.value * 128.0) / (1.0 + 0.06 * (staged - 1.0)) * std::min(1.0, 0.4 + workers / 850.0);
    }
    const double tasks = double(d.tile_rows) * d.tile_columns * d.images * lanes;
    const double rounds = std::ceil(tasks / c.threads);
    const int blocks = resident_blocks(c, l.shared_bytes, limits);
    const double waves = (c.kernel == kWhole ? double(d.units) : double(l.grid_x) * l.grid_y) /
                         (double(limits.multiprocessors) * blocks);
    const double staged = c.kernel == kWhole ? 1.0
                                             : double(d.pitch.value) *
                                                   (d.tile_rows + 2.0 + 2.0 * c.halo) / (double(d.tile_columns) * d.tile_rows);
    double score = tasks / (rounds * c.threads) * waves / std::ceil(waves) * channels_of(p) * bytes_of(value) /
                   (d.slabs.value * 128.0) / (1.0 + 0.06 * (staged - 1.0));
    score *= std::min(1.0, 0.4 + blocks * c.threads / 850.0);
    if (c.kernel == kTile) score *= 0.95;
    return score;
}

/// The launch plan: an id for the problem, from measurements on sm_90 and the estimate; 0 if nothing can compute it.
inline int choose(const Params& p, int value, int offset, const Limits& limits) {
    const int64_t threads = int64_t{p.batch} * p.out_height * p.out_width * channels_of(p) * bytes_of(value) / 16;
    Launch l;
    const bool hopper = limits.shared_bytes == kHopperSharedBytes && limits.multiprocessors == 132;
    for (const Measured& m : kMeasured) {
        if (hopper && bytes_of(value) == m.element_bytes && value == offset && p.height == m.height && p.width == m.width &&
            channels_of(p) == m.channels && (m.batch == 1 ? p.batch == 1 : p.batch >= m.batch) &&
            plan(p, value, offset, kConfigurations[m.id - 1], limits, &l)) {
            return m.id;
        }
    }
    int best = 0;
    double best_score = kDirectScore;
    if (threads >= int64_t{limits.multiprocessors} * kTileThreshold) {
        for (int id = 1; id <= kConfigurationCount; ++id) {
            const Configuration& c = kConfigurations[id - 1];
            if (c.kernel == kDirect || !plan(p, value, offset, c, limits, &l)) continue;
            const double score = tile_score(p, value, c, limits, l);
            if (score > best_score) {
                best_score = score;
                best = id;
            }
        }
        if (best) return best;
    }
    const bool few = threads < int64_t{limits.multiprocessors} * kSplitThreshold;
    for (const int id : {few ? kSplitId : kPlainId, kPlainId, kNarrowId, kScalarId}) {
        if (plan(p, value, offset, kConfigurations[id - 1], limits, &l)) return id;
    }
    return 0;
}

}  // namespace dcnv4
}  // namespace orinport
