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

/// 0: computed; 1: the configuration does not fit; 2: no kernel.
int forward(const Params* p, int value, int offset, int fast, const Configuration* c, const Limits* limits) {
    Launch launch;
    if (!plan(*p, value, offset, *c, *limits, &launch)) return 1;
    const ForwardKernel kernel = find_kernel(*p, value, offset, fast, *c);
    if (!kernel) return 2;
    gridDim = {launch.grid_x, launch.grid_y, launch.grid_z};
    blockDim = {launch.block_x, launch.block_y, 1};
    const bool barriers = c->kernel != kDirect || c->split > 1;
    for (unsigned y = 0; y < launch.grid_y; ++y) {
        for (unsigned x = 0; x < launch.grid_x; ++x) {
            blockIdx = {x, y, 0};
            if (barriers) {
                std::memset(shared_memory, 0xff, launch.shared_bytes);
                emulation::run_block([&] { kernel(*p, launch.division); });
            } else {
                for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(*p, launch.division);
            }
        }
    }
    return 0;
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
