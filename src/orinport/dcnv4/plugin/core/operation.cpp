#include "core/operation.h"

#include <cmath>
#include <cstring>
#include <mutex>

#include "core/kernels.h"

namespace orinport::plugin {
namespace {

constexpr std::int64_t kALIGNMENT = 8;  // of P, so that rows can be read by vector loads
constexpr std::int64_t kLARGEST = INT32_MAX;  // extent; keeps products of two inside 64 bits

bool known(std::int64_t extent) noexcept { return extent != kUNKNOWN_EXTENT; }

bool isFloat(ElementType type) noexcept {
    return type == ElementType::Float32 || type == ElementType::Float16 || type == ElementType::BFloat16;
}

Status wantRank4(Kind kind, char const* tensor, TensorInfo const& info) noexcept {
    if (info.rank != 4) {
        return failure(Code::UnsupportedShape, "%s: %s must have 4 dimensions, not %d.", pluginName(kind), tensor,
                       info.rank);
    }
    for (std::int32_t i = 0; i < 4; ++i) {
        if (known(info.extents[i]) && (info.extents[i] < 1 || info.extents[i] > kLARGEST)) {
            return failure(Code::UnsupportedShape, "%s: dimension %d of %s is %lld.", pluginName(kind), i, tensor,
                           static_cast<long long>(info.extents[i]));
        }
    }
    return {};
}

Status wantExtent(Kind kind, char const* tensor, TensorInfo const& info, std::int32_t dimension,
                  std::int64_t wanted) noexcept {
    std::int64_t const extent = info.extents[dimension];
    if (known(extent) && known(wanted) && extent != wanted) {
        return failure(Code::UnsupportedShape, "%s: dimension %d of %s is %lld, but must be %lld.", pluginName(kind),
                       dimension, tensor, static_cast<long long>(extent), static_cast<long long>(wanted));
    }
    return {};
}

Status wantWidth(Kind kind, DcnAttributes const& dcn, std::int64_t width) noexcept {
    if (width < dcn.usedWidth()) {
        return failure(Code::UnsupportedShape,
                       "%s: offset_mask has %lld numbers a pixel, but %d groups with %lld taps need %lld.",
                       pluginName(kind), static_cast<long long>(width), dcn.group, static_cast<long long>(dcn.taps()),
                       static_cast<long long>(dcn.usedWidth()));
    }
    if (width % kALIGNMENT != 0) {
        return failure(Code::UnsupportedShape, "%s: offset_mask has %lld numbers a pixel, which is no multiple of %lld.",
                       pluginName(kind), static_cast<long long>(width), static_cast<long long>(kALIGNMENT));
    }
    return {};
}

std::int64_t outputExtent(std::int64_t input, std::int64_t output) noexcept {
    return known(input) ? output : kUNKNOWN_EXTENT;
}

Status checkDcn(Attributes const& attributes, TensorInfo const& value, TensorInfo const& offsetMask,
                TensorInfo const& output) noexcept {
    DcnAttributes const& dcn = attributes.dcn;
    Kind const kind = attributes.kind;
    Status status = wantRank4(kind, "value", value);
    if (status.ok()) status = wantRank4(kind, "offset_mask", offsetMask);
    if (status.ok()) status = wantRank4(kind, "output", output);
    if (status.ok()) status = wantExtent(kind, "value", value, 3, dcn.channels());
    if (!status.ok()) return status;
    std::int64_t const rows = outputExtent(value.extents[1], dcn.outputHeight(value.extents[1]));
    std::int64_t const columns = outputExtent(value.extents[2], dcn.outputWidth(value.extents[2]));
    if ((known(rows) && rows < 1) || (known(columns) && columns < 1)) {
        return failure(Code::UnsupportedShape,
                       "%s: a %dx%d kernel with dilation %dx%d and pad %dx%d does not fit into %lldx%lld pixels.",
                       pluginName(kind), dcn.kh, dcn.kw, dcn.dh, dcn.dw, dcn.ph, dcn.pw,
                       static_cast<long long>(value.extents[1]), static_cast<long long>(value.extents[2]));
    }
    std::int64_t const wanted[3]{value.extents[0], rows, columns};
    for (std::int32_t i = 0; i < 3 && status.ok(); ++i) {
        status = wantExtent(kind, "offset_mask", offsetMask, i, wanted[i]);
        if (status.ok()) status = wantExtent(kind, "output", output, i, wanted[i]);
    }
    if (status.ok()) status = wantExtent(kind, "output", output, 3, dcn.channels());
    if (status.ok() && known(offsetMask.extents[3])) status = wantWidth(kind, dcn, offsetMask.extents[3]);
    return status;
}

Status checkFused(Attributes const& attributes, TensorInfo const& input, TensorInfo const& output) noexcept {
    DcnAttributes const& dcn = attributes.dcn;
    Kind const kind = attributes.kind;
    Status status = wantRank4(kind, "value_offset_mask", input);
    if (status.ok()) status = wantRank4(kind, "output", output);
    for (std::int32_t i = 0; i < 3 && status.ok(); ++i) status = wantExtent(kind, "output", output, i, input.extents[i]);
    if (status.ok()) status = wantExtent(kind, "output", output, 3, dcn.channels());
    if (status.ok() && known(input.extents[3])) status = wantWidth(kind, dcn, input.extents[3] - dcn.channels());
    return status;
}

Status checkAttention(Attributes const& attributes, TensorInfo const* tensors) noexcept {
    Kind const kind = attributes.kind;
    TensorInfo const& value = tensors[0];
    TensorInfo const& shapes = tensors[1];
    TensorInfo const& starts = tensors[2];
    TensorInfo const& locations = tensors[3];
    TensorInfo const& output = tensors[4];
    Status status = wantRank4(kind, "value", value);
    if (status.ok()) status = wantRank4(kind, "sampling_loc_attn", locations);
    if (!status.ok()) return status;
    if (shapes.rank != 2 || starts.rank != 1 || output.rank != 3) {
        return failure(Code::UnsupportedShape,
                       "%s: value_spatial_shapes, value_level_start_index and output must have 2, 1 and 3 dimensions, "
                       "not %d, %d and %d.",
                       pluginName(kind), shapes.rank, starts.rank, output.rank);
    }
    std::int64_t const levels = known(shapes.extents[0]) ? shapes.extents[0] : starts.extents[0];
    std::int64_t const group = known(value.extents[2]) ? value.extents[2] : locations.extents[2];
    if (known(levels) && (levels < 1 || levels > kLARGEST)) {
        return failure(Code::UnsupportedShape, "%s: there are %lld levels.", pluginName(kind),
                       static_cast<long long>(levels));
    }
    std::int64_t const width = known(levels) ? 3 * levels * attributes.attention.points : kUNKNOWN_EXTENT;
    status = wantExtent(kind, "value_spatial_shapes", shapes, 1, 2);
    if (status.ok()) status = wantExtent(kind, "value_level_start_index", starts, 0, levels);
    if (status.ok()) status = wantExtent(kind, "sampling_loc_attn", locations, 0, value.extents[0]);
    if (status.ok()) status = wantExtent(kind, "sampling_loc_attn", locations, 2, group);
    if (status.ok()) status = wantExtent(kind, "sampling_loc_attn", locations, 3, width);
    if (status.ok()) status = wantExtent(kind, "output", output, 0, value.extents[0]);
    if (status.ok()) status = wantExtent(kind, "output", output, 1, locations.extents[1]);
    if (status.ok() && known(group) && known(value.extents[3])) {
        status = wantExtent(kind, "output", output, 2, group * value.extents[3]);
    }
    return status;
}

Status checkTypes(Kind kind, TensorInfo const* tensors) noexcept {
    std::int32_t const count = inputCount(kind) + kOUTPUT_COUNT;
    for (std::int32_t position = 0; position < count; ++position) {
        if (!supportsType(kind, position, tensors)) {
            return failure(Code::UnsupportedType, "%s: tensor %d cannot be %s%s beside the tensors before it.",
                           pluginName(kind), position, elementTypeName(tensors[position].type),
                           tensors[position].linear ? "" : " in a vectorized format");
        }
    }
    return {};
}

/// The fused input seen as two tensors that share rows.
void splitFused(DcnAttributes const& dcn, TensorInfo const& input, TensorInfo& value, TensorInfo& offsetMask) noexcept {
    value = input;
    value.extents[3] = dcn.channels();
    offsetMask = input;
    if (known(input.extents[3])) offsetMask.extents[3] = input.extents[3] - dcn.channels();
}

DcnProblem dcnProblem(Attributes const& attributes, TensorInfo const* tensors) noexcept {
    DcnProblem problem;
    problem.attributes = &attributes.dcn;
    problem.fused = attributes.kind == Kind::FusedDcn;
    if (problem.fused) {
        splitFused(attributes.dcn, tensors[0], problem.value, problem.offsetMask);
    } else {
        problem.value = tensors[0];
        problem.offsetMask = tensors[1];
    }
    problem.output = tensors[inputCount(attributes.kind)];
    return problem;
}

/// What was measured in this process. Equal layers of a network and the formats that a builder tries share it.
struct Measured {
    std::uint8_t state[kMAX_SERIALIZED];  // the attributes, serialized
    TensorInfo tensors[kMAX_TENSORS];
    std::int32_t tactic;
};

bool sameTensor(TensorInfo const& a, TensorInfo const& b) noexcept {
    if (a.rank != b.rank || a.type != b.type) return false;
    for (std::int32_t i = 0; i < a.rank; ++i) {
        if (a.extents[i] != b.extents[i]) return false;
    }
    return true;
}

std::int32_t remembered(Attributes attributes, TensorInfo const* tensors, std::int32_t count) noexcept {
    constexpr std::size_t kENTRIES = 64;
    static Measured entries[kENTRIES];
    static std::size_t filled = 0;
    static std::mutex mutex;
    attributes.tactic = 0;
    std::uint8_t state[kMAX_SERIALIZED]{};
    serialize(attributes, state);
    std::lock_guard<std::mutex> const lock(mutex);
    for (std::size_t i = 0; i < filled && i < kENTRIES; ++i) {
        Measured const& entry = entries[i];
        bool same = std::memcmp(entry.state, state, sizeof state) == 0;
        for (std::int32_t t = 0; t < count; ++t) same = same && sameTensor(entry.tensors[t], tensors[t]);
        if (same) return entry.tactic;
    }
    Measured& entry = entries[filled++ % kENTRIES];
    std::memcpy(entry.state, state, sizeof state);
    for (std::int32_t t = 0; t < count; ++t) entry.tensors[t] = tensors[t];
    entry.tactic = dcnFastest(dcnProblem(attributes, tensors));
    return entry.tactic;
}

}  // namespace

char const* elementTypeName(ElementType type) noexcept {
    switch (type) {
        case ElementType::Float32: return "FP32";
        case ElementType::Float16: return "FP16";
        case ElementType::BFloat16: return "BF16";
        case ElementType::Int8: return "INT8";
        case ElementType::Int32: return "INT32";
        case ElementType::Int64: return "INT64";
        case ElementType::Other: break;
    }
    return "of another type";
}

std::int32_t inputCount(Kind kind) noexcept {
    switch (kind) {
        case Kind::Dcn: return 2;
        case Kind::FusedDcn: return 1;
        case Kind::DeformAttn: return 4;
    }
    return 0;
}

bool supportsType(Kind kind, std::int32_t position, TensorInfo const* tensors) noexcept {
    TensorInfo const& tensor = tensors[position];
    if (!tensor.linear) return false;
    ElementType const first = tensors[0].type;
    switch (kind) {
        case Kind::Dcn:
            if (position == 0) return isFloat(tensor.type) || tensor.type == ElementType::Int8;
            if (position == 1) return dcnTypesExist(first, tensor.type, first);
            return dcnTypesExist(first, tensors[1].type, tensor.type);
        case Kind::FusedDcn:
            if (position == 0) return isFloat(tensor.type);
            return dcnTypesExist(first, first, tensor.type);
        case Kind::DeformAttn:
            if (position == 0) return isFloat(tensor.type);
            if (position == 1) return tensor.type == ElementType::Int32 || tensor.type == ElementType::Int64;
            if (position == 2) return tensor.type == tensors[1].type;
            return tensor.type == first;
    }
    return false;
}

ElementType outputType(Kind kind, ElementType const* inputs) noexcept {
    static_cast<void>(kind);
    return inputs[0];
}

Status checkTensors(Attributes const& attributes, TensorInfo const* tensors) noexcept {
    Status const status = checkTypes(attributes.kind, tensors);
    return status.ok() ? checkShapes(attributes, tensors) : status;
}

Status checkShapes(Attributes const& attributes, TensorInfo const* tensors) noexcept {
    switch (attributes.kind) {
        case Kind::Dcn: return checkDcn(attributes, tensors[0], tensors[1], tensors[2]);
        case Kind::FusedDcn: return checkFused(attributes, tensors[0], tensors[1]);
        case Kind::DeformAttn: return checkAttention(attributes, tensors);
    }
    return {};
}

std::int32_t listTactics(Attributes const& attributes, TensorInfo const* tensors, std::int32_t* tactics,
                         std::int32_t capacity) noexcept {
    if (attributes.kind == Kind::DeformAttn) return 0;
    return dcnTactics(dcnProblem(attributes, tensors), tactics, capacity);
}

std::int32_t fastestTactic(Attributes const& attributes, TensorInfo const* tensors) noexcept {
    std::int32_t const count = inputCount(attributes.kind) + kOUTPUT_COUNT;
    if (attributes.kind == Kind::DeformAttn) return 0;
    for (std::int32_t i = 0; i < count; ++i) {
        for (std::int32_t d = 0; d < tensors[i].rank; ++d) {
            if (!known(tensors[i].extents[d])) return 0;
        }
    }
    return remembered(attributes, tensors, count);
}

Status launch(Attributes const& attributes, TensorInfo const* tensors, void const* const* inputs, void* output,
              std::int32_t tactic, CUstream_st* stream) noexcept {
    Kind const kind = attributes.kind;
    std::int32_t const count = inputCount(kind) + kOUTPUT_COUNT;
    for (std::int32_t i = 0; i < count; ++i) {
        TensorInfo const& tensor = tensors[i];
        if (tensor.type == ElementType::Int8 && !(std::isfinite(tensor.scale) && tensor.scale > 0.0F)) {
            return failure(Code::UnsupportedType, "%s: INT8 tensor %d has no usable scale (%g).", pluginName(kind), i,
                           static_cast<double>(tensor.scale));
        }
        if ((i < count - 1 ? inputs[i] : output) == nullptr) {
            return failure(Code::InvalidArgument, "%s: tensor %d has no memory.", pluginName(kind), i);
        }
    }
    if (kind == Kind::DeformAttn) {
        return attentionLaunch(attributes.attention, tensors, inputs, output, stream);
    }
    DcnProblem problem = dcnProblem(attributes, tensors);
    problem.valueData = inputs[0];
    problem.offsetMaskData = kind == Kind::Dcn ? inputs[1] : nullptr;
    problem.outputData = output;
    return dcnLaunch(problem, tactic, stream);
}

}  // namespace orinport::plugin
