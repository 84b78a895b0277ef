// DCNv4 problems in the kernels' terms. Host code.
#pragma once

#include <climits>

#include "core/kernels.h"
#include "problem.h"

namespace orinport::plugin {

/// The kernels' number of a type; -1 if they have none.
inline int kernelType(ElementType type) noexcept {
    switch (type) {
        case ElementType::Float32: return dcnv4::kF32;
        case ElementType::Float16: return dcnv4::kF16;
        case ElementType::BFloat16: return dcnv4::kBF16;
        case ElementType::Int8: return dcnv4::kI8;
        default: return -1;
    }
}

inline int elementBytes(ElementType type) noexcept {
    switch (type) {
        case ElementType::Float32: return 4;
        case ElementType::Int8: return 1;
        default: return 2;
    }
}

/// Unknown extents become 1. Refuses what does not fit the kernels' 32-bit numbers.
inline Status kernelParams(DcnProblem const& problem, dcnv4::Params& params) noexcept {
    DcnAttributes const& dcn = *problem.attributes;
    auto const extent = [](std::int64_t number) { return number == kUNKNOWN_EXTENT ? 1 : static_cast<int>(number); };
    int const channels = extent(dcn.channels());
    int const width = extent(problem.offsetMask.extents[3]);
    if (std::int64_t{channels} + width > INT_MAX / 4) {  // rows are counted in bytes, in 32 bits
        return failure(Code::UnsupportedShape, "%s: %d channels and %d numbers in offset_mask are too many.",
                       pluginName(problem.fused ? Kind::FusedDcn : Kind::Dcn), channels, width);
    }
    params = dcnv4::Params{};
    params.value = problem.valueData;
    params.offset_mask = problem.offsetMaskData;
    params.output = problem.outputData;
    params.batch = extent(problem.value.extents[0]);
    params.height = extent(problem.value.extents[1]);
    params.width = extent(problem.value.extents[2]);
    params.out_height = extent(problem.output.extents[1]);
    params.out_width = extent(problem.output.extents[2]);
    params.groups = dcn.group;
    params.group_channels = dcn.group_channels;
    params.value_stride = channels;
    params.offset_stride = width;
    if (problem.fused) {
        params.value_stride = params.offset_stride = channels + width;
        if (problem.valueData != nullptr) {
            params.offset_mask = static_cast<char const*>(problem.valueData) +
                                 static_cast<std::ptrdiff_t>(channels) * elementBytes(problem.value.type);
        }
    }
    params.kernel_h = dcn.kh;
    params.kernel_w = dcn.kw;
    params.stride_h = dcn.sh;
    params.stride_w = dcn.sw;
    params.pad_h = dcn.ph;
    params.pad_w = dcn.pw;
    params.dilation_h = dcn.dh;
    params.dilation_w = dcn.dw;
    params.remove_center = dcn.remove_center;
    params.offset_scale = dcn.offscale;
    params.output_scale = problem.value.type == ElementType::Int8 ? problem.value.scale / problem.output.scale : 1.0F;
    return {};
}

}  // namespace orinport::plugin
