// The only door between the plugins and the CUDA kernels. Implemented by kernels.cu, or by no_kernels.cpp in a build
// without nvcc, whose launches fail.
#pragma once

#include <cstdint>

#include "core/attributes.h"
#include "core/operation.h"
#include "core/status.h"

namespace orinport::plugin {

/// DCNv4 over tensors that checkTensors has passed. In the fused form value and offset_mask are two views of one
/// tensor whose rows are as long as both together.
struct DcnProblem {
    DcnAttributes const* attributes{nullptr};
    bool fused{false};
    TensorInfo value{}, offsetMask{}, output{};
};

/// Whether a kernel exists for these types of value, offset_mask and output.
bool dcnTypesExist(ElementType value, ElementType offsetMask, ElementType output) noexcept;

std::int32_t dcnTactics(DcnProblem const& problem, std::int32_t* tactics, std::int32_t capacity) noexcept;

Status dcnLaunch(DcnProblem const& problem, void const* value, void const* offsetMask, void* output,
                 std::int32_t tactic, CUstream_st* stream) noexcept;

/// `tensors` and `inputs`: value, value_spatial_shapes, value_level_start_index, sampling_loc_attn.
Status attentionLaunch(DeformAttnAttributes const& attributes, TensorInfo const* tensors, void const* const* inputs,
                       void* output, CUstream_st* stream) noexcept;

}  // namespace orinport::plugin
