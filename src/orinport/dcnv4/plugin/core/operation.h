// What a plugin does, in terms of plain tensors: which types it takes, which shapes belong together, what it launches.
// Everything here is const over an Attributes value, so any number of threads may call it for one plugin.
#pragma once

#include <cstdint>

#include "core/attributes.h"
#include "core/status.h"

struct CUstream_st;

namespace orinport::plugin {

enum class ElementType : std::uint8_t { Float32, Float16, BFloat16, Int8, Int32, Int64, Other };

char const* elementTypeName(ElementType type) noexcept;

inline constexpr std::int32_t kMAX_RANK = 8;
inline constexpr std::int64_t kUNKNOWN_EXTENT = -1;

/// A tensor without its data; an extent may be kUNKNOWN_EXTENT where shapes are not yet known.
struct TensorInfo {
    std::int32_t rank{0};
    std::int64_t extents[kMAX_RANK]{};
    ElementType type{ElementType::Other};
    bool linear{true};  // dense and row-major, innermost dimension last
    float scale{1.0F};  // real value of 1, for Int8
};

inline constexpr std::int32_t kMAX_TENSORS = 5;  // inputs and output of the widest operator

std::int32_t inputCount(Kind kind) noexcept;
inline constexpr std::int32_t kOUTPUT_COUNT = 1;

/// Whether the tensor at `position` (inputs, then output) may have its type and format, given those before it.
bool supportsType(Kind kind, std::int32_t position, TensorInfo const* tensors) noexcept;

/// The output's type where the network's types are fixed.
ElementType outputType(Kind kind, ElementType const* inputs) noexcept;

/// Check all shapes of inputs and output against each other; unknown extents match anything.
Status checkShapes(Attributes const& attributes, TensorInfo const* tensors) noexcept;

/// checkShapes, and types and formats too.
Status checkTensors(Attributes const& attributes, TensorInfo const* tensors) noexcept;

/// The ways in which the kernels can compute this problem, as tactics: unique and above 0. Returns how many there are,
/// also when that is more than `capacity`. `tensors` may have unknown extents.
std::int32_t listTactics(Attributes const& attributes, TensorInfo const* tensors, std::int32_t* tactics,
                         std::int32_t capacity) noexcept;

/// The fastest of these tactics on this device, measured once in a process for each problem; 0 if it is not known.
/// For interfaces under which TensorRT does not time tactics. All extents must be known.
std::int32_t fastestTactic(Attributes const& attributes, TensorInfo const* tensors) noexcept;

/// Launch on `stream` with known shapes. `tactic` 0 lets the launch plan choose; so does one that these shapes rule out.
Status launch(Attributes const& attributes, TensorInfo const* tensors, void const* const* inputs, void* output,
              std::int32_t tactic, CUstream_st* stream) noexcept;

}  // namespace orinport::plugin
