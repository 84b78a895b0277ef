// The kernels as a shared library for the tests: the launch plan and the kernels of dcnv4.cuh on a CPU.
#define ORINPORT_EMULATE
#include "emulate.h"

#include "backward.cuh"
#include "dcnv4.cuh"

using namespace orinport::dcnv4;

extern "C" {

int configuration_count() { return kConfigurationCount; }
void configuration(int id, Configuration* result) { *result = kConfigurations[id - 1]; }
const char* check_problem(const Params* p, int value, int offset) { return check(*p, value, offset); }
int choose_configuration(const Params* p, int value, int offset, const Limits* limits) {
    return choose(*p, value, offset, *limits);
}
int plan_launch(const Params* p, int value, int offset, int id, const Limits* limits, Launch* launch) {
    return plan(*p, value, offset, kConfigurations[id - 1], *limits, launch);
}

/// 0: computed; 1: the configuration does not fit; 2: no kernel; 3: it reads global memory outside of its tensors; 4: it
/// writes shared memory that it did not ask for.
int forward(const Params* p, int value, int offset, int fast, const Configuration* c, const Limits* limits) {
    Launch launch;
    if (!plan(*p, value, offset, *c, *limits, &launch)) return 1;
    const ForwardKernel kernel = find_kernel(*p, value, offset, fast, *c);
    if (!kernel) return 2;
    gridDim = {launch.grid_x, launch.grid_y, launch.grid_z};
    blockDim = {launch.block_x, launch.block_y, 1};
    const bool barriers = c->kernel != kDirect || c->split > 1;
    // The last row of a tensor ends with the last number, of offsets with the piece of 8 or 16 bytes that holds it.
    const auto range = [](const void* start, int64_t rows, int64_t row_bytes, int64_t last_bytes) {
        const char* begin = static_cast<const char*>(start);
        return emulation::Range{begin, begin + (rows - 1) * row_bytes + last_bytes};
    };
    const int64_t piece = !unrolled(*p, offset) ? 1 : offset == kF32 ? 16 : 8;
    emulation::readable = {
        range(p->value, int64_t{p->batch} * p->height * p->width, int64_t{p->value_stride} * bytes_of(value),
              int64_t{channels_of(*p)} * bytes_of(value)),
        range(p->offset_mask, int64_t{p->batch} * p->out_height * p->out_width, int64_t{p->offset_stride} * bytes_of(offset),
              ceil_div(int64_t{3} * p->groups * taps_of(*p) * bytes_of(offset), piece) * piece)};
    emulation::read_outside = false;
    bool wrote_behind = false;
    char* const shared = reinterpret_cast<char*>(shared_memory);
    std::memset(shared, 0xff, sizeof(shared_memory));
    for (unsigned y = 0; y < launch.grid_y; ++y) {
        for (unsigned x = 0; x < launch.grid_x; ++x) {
            blockIdx = {x, y, 0};
            if (barriers) {
                std::memset(shared_memory, 0xff, launch.shared_bytes);
                emulation::run_block([&] { kernel(*p, launch.division); });
                wrote_behind |= std::any_of(shared + launch.shared_bytes, shared + sizeof(shared_memory), [](signed char c) { return c != -1; });
            } else {
                for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(*p, launch.division);
            }
        }
    }
    emulation::readable.clear();
    return emulation::read_outside ? 3 : wrote_behind ? 4 : 0;
}

/// fp32; `lanes` threads a group. The gradient of value is fp32, or 64-bit integers if deterministic.
int backward(const BackwardParams* b, int lanes, int deterministic) {
    using Kernel = void (*)(const BackwardParams);
    const Kernel kernel = lanes == 4   ? (deterministic ? backward_kernel<F32, F32, 4, true> : backward_kernel<F32, F32, 4, false>)
                          : lanes == 0 ? (deterministic ? backward_kernel<F32, F32, 0, true> : backward_kernel<F32, F32, 0, false>)
                                       : nullptr;
    if (!kernel) return 2;
    const Params& p = b->forward;
    const long long threads = static_cast<long long>(p.batch) * p.out_height * p.out_width * p.groups * (lanes ? lanes : 1);
    gridDim = {static_cast<unsigned>((threads + 63) / 64), 1, 1};
    blockDim = {64, 1, 1};
    for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, 0, 0};
        emulation::run_block([&] { kernel(*b); });
    }
    return 0;
}

int attention(const AttentionParams* a, int bytes) {
    using Kernel = void (*)(const AttentionParams);
    const Kernel kernel = bytes == 16 ? static_cast<Kernel>(attention_kernel<F32, 16>) : static_cast<Kernel>(attention_kernel<F32, 4>);
    const unsigned items = a->lanes.value * static_cast<unsigned>(a->queries);
    gridDim = {(items + 127) / 128, static_cast<unsigned>(a->batch), 1};
    blockDim = {128, 1, 1};
    for (unsigned y = 0; y < gridDim.y; ++y) {
        for (unsigned x = 0; x < gridDim.x; ++x) {
            blockIdx = {x, y, 0};
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(*a);
        }
    }
    return 0;
}
}
