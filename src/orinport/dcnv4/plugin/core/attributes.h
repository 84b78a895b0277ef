// What an operator is apart from its tensors: attributes, their fields, defaults and limits, and their serialized form.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace orinport::plugin {

enum class Kind : std::uint16_t { Dcn = 1, FusedDcn = 2, DeformAttn = 3 };

inline constexpr Kind kKINDS[]{Kind::Dcn, Kind::FusedDcn, Kind::DeformAttn};

char const* pluginName(Kind kind) noexcept;
inline constexpr char const* kPLUGIN_VERSION = "1";
/// The creators live in the default namespace: nodes of the domain custom_op carry no plugin_namespace.
inline constexpr char const* kPLUGIN_NAMESPACE = "";

enum class FieldType : std::uint8_t { Int32, Int64, Float32, Float64, Other };

/// One attribute as the caller hands it over. Nothing of it is kept.
struct Field {
    char const* name{nullptr};
    void const* data{nullptr};
    FieldType type{FieldType::Other};
    std::int64_t length{0};
};

/// Attributes of DCNv4_Plugin and DCNv4FuseOffset_Plugin. The names are those of the ONNX attributes.
struct DcnAttributes {
    std::int32_t kh{3}, kw{3}, sh{1}, sw{1}, ph{1}, pw{1}, dh{1}, dw{1};
    std::int32_t group{0}, group_channels{0};
    float offscale{1.0F};
    std::int32_t step{256};  // im2col_step: kept for the format's sake, results do not depend on it
    std::int32_t remove_center{0};

    std::int64_t channels() const noexcept { return std::int64_t{group} * group_channels; }
    std::int64_t taps() const noexcept { return std::int64_t{kh} * kw - remove_center; }
    /// Numbers of one offset_mask vector that are read.
    std::int64_t usedWidth() const noexcept { return 3 * group * taps(); }
    bool keepsSize() const noexcept {
        return sh == 1 && sw == 1 && 2 * std::int64_t{ph} == std::int64_t{dh} * (kh - 1) &&
               2 * std::int64_t{pw} == std::int64_t{dw} * (kw - 1);
    }
    std::int64_t outputHeight(std::int64_t height) const noexcept {
        return floorDivide(height + 2 * std::int64_t{ph} - extent(kh, dh), sh) + 1;
    }
    std::int64_t outputWidth(std::int64_t width) const noexcept {
        return floorDivide(width + 2 * std::int64_t{pw} - extent(kw, dw), sw) + 1;
    }
    static std::int64_t extent(std::int32_t kernel, std::int32_t dilation) noexcept {
        return std::int64_t{dilation} * (kernel - 1) + 1;
    }
    static std::int64_t floorDivide(std::int64_t dividend, std::int64_t divisor) noexcept {
        return dividend >= 0 ? dividend / divisor : -((divisor - 1 - dividend) / divisor);
    }
};

/// Attributes of FlashDeformAttn.
struct DeformAttnAttributes {
    std::int32_t im2col_step{64};  // results do not depend on it
    std::int32_t points{8};        // K, per level
};

struct Attributes {
    Kind kind{Kind::Dcn};
    DcnAttributes dcn{};
    DeformAttnAttributes attention{};
    std::int32_t tactic{0};  // no field: chosen while an engine is built, where TensorRT does not choose; 0: by the plan
};

/// One row of a kind's table of fields.
struct FieldSpec {
    char const* name;
    bool real;      // FLOAT32, else INT32
    bool required;  // has no default
    std::int64_t low, high;
    std::size_t offset;  // in Attributes
};

struct FieldTable {
    FieldSpec const* rows;
    std::int32_t count;
};

/// The fields of `kind` in the order in which they are advertised and serialized.
FieldTable fieldTable(Kind kind) noexcept;

/// Read and check `count` fields. Unknown, repeated, mistyped, out-of-range and missing fields are refused by name.
Status parseAttributes(Kind kind, Field const* fields, std::int32_t count, Attributes& attributes) noexcept;

/// Serialized form, little-endian: "ORPL", format (u16), kind (u16), payload bytes (u32), payload, CRC-32 of all that
/// precedes it (u32). The payload has 4 bytes for each field in the order of the table, the tactic (u32), and the
/// kernels to which the tactic belongs (u32): with other kernels, the tactic is forgotten.
inline constexpr std::uint16_t kFORMAT = 1;
inline constexpr std::size_t kMAX_SERIALIZED = 128;
std::size_t serializedSize(Kind kind) noexcept;
void serialize(Attributes const& attributes, std::uint8_t* buffer) noexcept;
/// Refuses data that is truncated, too long, damaged, of another kind or of a later format, or that holds values which
/// parseAttributes would refuse. `data` needs no alignment.
Status deserialize(Kind kind, void const* data, std::size_t size, Attributes& attributes) noexcept;

/// The attributes as text, "kh=3;kw=3;...": the state that tells one plugin from another.
inline constexpr std::size_t kMAX_TEXT = 320;
void describe(Attributes const& attributes, char (&text)[kMAX_TEXT]) noexcept;

}  // namespace orinport::plugin
