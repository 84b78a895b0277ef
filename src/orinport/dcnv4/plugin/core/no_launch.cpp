// Stands for kernels.cu in a build without nvcc: the same answers up to the launch, which fails and says why.
#include "core/kernels.h"
#include "core/params.h"
#include "plan.h"

namespace orinport::plugin {
namespace {

constexpr dcnv4::Limits kORIN{166912, 16};  // sm_87

}  // namespace

bool dcnTypesExist(ElementType value, ElementType offsetMask, ElementType output) noexcept {
    int const types[3]{kernelType(value), kernelType(offsetMask), kernelType(output)};
    return types[0] >= 0 && types[1] >= 0 && types[2] >= 0 && dcnv4::types_exist(types[0], types[1], types[2]);
}

std::int32_t dcnTactics(DcnProblem const& problem, std::int32_t* tactics, std::int32_t capacity) noexcept {
    dcnv4::Params params{};
    int const value = kernelType(problem.value.type);
    int const offset = kernelType(problem.offsetMask.type);
    if (!kernelParams(problem, params).ok() || value < 0 || offset < 0) return 0;
    std::int32_t count = 0;
    for (int id = 1; id <= dcnv4::kConfigurationCount; ++id) {
        dcnv4::Launch launch{};
        if (!dcnv4::plan(params, value, offset, dcnv4::kConfigurations[id - 1], kORIN, &launch)) continue;
        if (count < capacity) tactics[count] = id;
        ++count;
    }
    return count;
}

std::int32_t dcnFastest(DcnProblem const&) noexcept { return 0; }

Status dcnLaunch(DcnProblem const& problem, std::int32_t, CUstream_st*) noexcept {
    return failure(Code::Cuda, "%s: this library was built without CUDA kernels.",
                   pluginName(problem.fused ? Kind::FusedDcn : Kind::Dcn));
}

Status attentionLaunch(DeformAttnAttributes const&, TensorInfo const*, void const* const*, void*,
                       CUstream_st*) noexcept {
    return failure(Code::Cuda, "%s: this library was built without CUDA kernels.", pluginName(Kind::DeformAttn));
}

}  // namespace orinport::plugin
