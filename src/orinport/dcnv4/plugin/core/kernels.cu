// The plugins' launches. The kernels themselves are those of PyTorch, in ../kernels.
#include <cuda_runtime_api.h>

#include "core/bench.h"
#include "core/kernels.h"
#include "core/params.h"
#include "dcnv4.cuh"

namespace orinport::plugin {
namespace {

constexpr dcnv4::Limits kORIN{166912, 16};  // where no device is at hand: sm_87, 16 multiprocessors
// A single launch beyond so many times the best, and its own latency in microseconds, rules a tactic out.
constexpr float kHOPELESS = 4.0F;
constexpr float kLATENCY = 30.0F;

struct Device {
    int number{-1};
    dcnv4::Limits limits{};
};

cudaError_t currentLimits(dcnv4::Limits& limits) noexcept {
    static thread_local Device known;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) return error;
    if (device != known.number) {
        error = dcnv4::device_limits(&known.limits);
        if (error != cudaSuccess) return error;
        known.number = device;
    }
    limits = known.limits;
    return cudaSuccess;
}

/// An error of CUDA as a status. It is taken off CUDA's record, so that nobody else stumbles over it.
Status cudaStatus(Kind kind, cudaError_t error) noexcept {
    if (error == cudaSuccess) return {};
    static_cast<void>(cudaGetLastError());
    return failure(Code::Cuda, "%s: the launch failed: %s.", pluginName(kind), cudaGetErrorString(error));
}

std::int64_t numberOf(TensorInfo const& tensor) noexcept {
    std::int64_t count = 1;
    for (std::int32_t i = 0; i < tensor.rank; ++i) count *= tensor.extents[i];
    return count;
}

}  // namespace

bool dcnTypesExist(ElementType value, ElementType offsetMask, ElementType output) noexcept {
    int const types[3]{kernelType(value), kernelType(offsetMask), kernelType(output)};
    return types[0] >= 0 && types[1] >= 0 && types[2] >= 0 && dcnv4::types_exist(types[0], types[1], types[2]);
}

std::int32_t dcnTactics(DcnProblem const& problem, std::int32_t* tactics, std::int32_t capacity) noexcept {
    dcnv4::Params params{};
    if (!kernelParams(problem, params).ok()) return 0;
    dcnv4::Limits limits = kORIN;
    if (currentLimits(limits) != cudaSuccess) static_cast<void>(cudaGetLastError());
    int const value = kernelType(problem.value.type);
    int const offset = kernelType(problem.offsetMask.type);
    if (value < 0 || offset < 0) return 0;
    return dcnv4::configurations(params, value, offset, limits, tactics, capacity);
}

std::int32_t dcnFastest(DcnProblem const& problem) noexcept {
    std::int32_t tactics[dcnv4::kConfigurationCount];
    std::int32_t const count = dcnTactics(problem, tactics, dcnv4::kConfigurationCount);
    Bench bench;
    DcnProblem own = problem;
    own.value.scale = own.output.scale = 1.0F;
    std::int64_t const rows = numberOf(problem.value) / problem.value.extents[3];
    std::int64_t const shared = problem.fused ? rows * problem.offsetMask.extents[3] : 0;
    own.valueData = bench.numbers(problem.value.type, numberOf(problem.value) + shared);
    if (!problem.fused) own.offsetMaskData = bench.numbers(problem.offsetMask.type, numberOf(problem.offsetMask));
    own.outputData = bench.numbers(problem.output.type, numberOf(problem.output));
    std::int32_t fastest = 0;
    float best = 0.0F;
    for (std::int32_t i = 0; i < count && bench.ok(); ++i) {
        auto const work = [&] {
            return dcnLaunch(own, tactics[i], bench.stream()).ok() ? cudaSuccess : cudaErrorLaunchFailure;
        };
        bench.once(work);  // loads the kernel
        if (fastest != 0 && bench.once(work) > kHOPELESS * best + kLATENCY) continue;
        float const time = bench.replayed(work);
        if (bench.ok() && (fastest == 0 || time < best)) {
            fastest = tactics[i];
            best = time;
        }
    }
    return bench.ok() ? fastest : 0;
}

Status dcnLaunch(DcnProblem const& problem, std::int32_t tactic, CUstream_st* stream) noexcept {
    Kind const kind = problem.fused ? Kind::FusedDcn : Kind::Dcn;
    dcnv4::Params params{};
    Status const status = kernelParams(problem, params);
    if (!status.ok()) return status;
    int const value = kernelType(problem.value.type);
    int const offset = kernelType(problem.offsetMask.type);
    if (char const* wrong = dcnv4::check(params, value, offset)) {
        return failure(Code::UnsupportedShape, "%s: %s.", pluginName(kind), wrong);
    }
    dcnv4::Limits limits{};
    cudaError_t error = currentLimits(limits);
    if (error == cudaSuccess) error = dcnv4::dcnv4_launch(params, value, offset, false, tactic, limits, stream);
    return cudaStatus(kind, error);
}

Status attentionLaunch(DeformAttnAttributes const& attributes, TensorInfo const* tensors, void const* const* inputs,
                       void* output, CUstream_st* stream) noexcept {
    std::int64_t const* value = tensors[0].extents;
    if (value[2] * value[3] > INT_MAX / 2) {
        return failure(Code::UnsupportedShape, "%s: %lld channels are too many.", pluginName(Kind::DeformAttn),
                       static_cast<long long>(value[2] * value[3]));
    }
    dcnv4::AttentionParams params{};
    params.value = inputs[0];
    params.shapes = inputs[1];
    params.starts = inputs[2];
    params.samples = inputs[3];
    params.output = output;
    params.batch = static_cast<int>(value[0]);
    params.rows = static_cast<int>(value[1]);
    params.groups = static_cast<int>(value[2]);
    params.group_channels = static_cast<int>(value[3]);
    params.queries = static_cast<int>(tensors[3].extents[1]);
    params.levels = static_cast<int>(tensors[1].extents[0]);
    params.points = attributes.points;
    params.index_bytes = tensors[1].type == ElementType::Int64 ? 8 : 4;
    return cudaStatus(Kind::DeformAttn, dcnv4::attention_launch(params, kernelType(tensors[0].type), stream));
}

}  // namespace orinport::plugin
