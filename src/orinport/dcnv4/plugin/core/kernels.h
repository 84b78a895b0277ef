// The only door between the plugins and the CUDA kernels: problems in their terms, the tactics that they know, launches.
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
    void const* valueData{nullptr};
    void const* offsetMaskData{nullptr};  // of the fused form: follows from valueData
    void* outputData{nullptr};
};

/// Whether a kernel exists for these types of value, offset_mask and output.
bool dcnTypesExist(ElementType value, ElementType offsetMask, ElementType output) noexcept;

/// One tactic for each launch configuration that can compute the problem on this device (an Orin if there is none).
std::int32_t dcnTactics(DcnProblem const& problem, std::int32_t* tactics, std::int32_t capacity) noexcept;

/// The tactic that is fastest on this device, measured on memory of its own; 0 if that cannot be found out. All extents
/// must be known. Takes milliseconds, seconds for large problems on small devices.
std::int32_t dcnFastest(DcnProblem const& problem) noexcept;

Status dcnLaunch(DcnProblem const& problem, std::int32_t tactic, CUstream_st* stream) noexcept;

/// `tensors` and `inputs`: value, value_spatial_shapes, value_level_start_index, sampling_loc_attn.
Status attentionLaunch(DeformAttnAttributes const& attributes, TensorInfo const* tensors, void const* const* inputs,
                       void* output, CUstream_st* stream) noexcept;

}  // namespace orinport::plugin
