// Stands for kernels.cu in a build without nvcc: everything works up to the launch, which fails and says why.
#include "core/kernels.h"

namespace orinport::plugin {

bool dcnTypesExist(ElementType value, ElementType offsetMask, ElementType output) noexcept {
    return value == offsetMask && output == value;
}

std::int32_t dcnTactics(DcnProblem const&, std::int32_t*, std::int32_t) noexcept { return 0; }

Status dcnLaunch(DcnProblem const& problem, void const*, void const*, void*, std::int32_t, CUstream_st*) noexcept {
    return failure(Code::Cuda, "%s: this library was built without CUDA kernels.",
                   pluginName(problem.fused ? Kind::FusedDcn : Kind::Dcn));
}

Status attentionLaunch(DeformAttnAttributes const&, TensorInfo const*, void const* const*, void*,
                       CUstream_st*) noexcept {
    return failure(Code::Cuda, "%s: this library was built without CUDA kernels.", pluginName(Kind::DeformAttn));
}

}  // namespace orinport::plugin
