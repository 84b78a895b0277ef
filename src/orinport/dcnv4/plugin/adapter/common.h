// What both adapters share: descriptions in TensorRT's terms to core terms, output shapes, errors, namespaces.
#pragma once

#include <NvInferRuntime.h>

#include <cstring>

#include "core/attributes.h"
#include "core/operation.h"
#include "core/status.h"

/// Major and minor version of the headers. IPluginV3 is there from 10.0 on, loading through the registry from 8.6 on.
#define ORINPORT_TENSORRT (NV_TENSORRT_MAJOR * 100 + NV_TENSORRT_MINOR)

namespace orinport::plugin {

/// Tell TensorRT about an error: to `recorder` if there is one, to the logger in any case.
void report(Status const& status, nvinfer1::IErrorRecorder* recorder = nullptr) noexcept;

#if ORINPORT_TENSORRT >= 806
/// TensorRT's way to the logger of whoever calls a plugin, for libraries loaded through the registry.
void useLoggerFinder(nvinfer1::ILoggerFinder* finder) noexcept;
#endif

TensorInfo tensorInfo(nvinfer1::PluginTensorDesc const& desc) noexcept;
/// With the optimization profile's extents in place of those that are not known.
TensorInfo tensorInfo(nvinfer1::DynamicPluginTensorDesc const& tensor) noexcept;

nvinfer1::DataType dataType(ElementType type) noexcept;
ElementType elementType(nvinfer1::DataType type) noexcept;

/// Output shape as expressions of the input shapes; what is already known of them is checked.
Status outputShape(Attributes const& attributes, nvinfer1::DimsExprs const* inputs, std::int32_t inputCount,
                   nvinfer1::DimsExprs& output, nvinfer1::IExprBuilder& builder) noexcept;

/// The creator's fields, parsed. At most 16 are read; more cannot all be known ones.
Status parseFields(Kind kind, nvinfer1::PluginFieldCollection const* collection, Attributes& attributes) noexcept;

/// The fields of `kind` as a creator advertises them: names and types, without data.
inline constexpr std::int32_t kMAX_FIELDS = 16;
std::int32_t advertisedFields(Kind kind, nvinfer1::PluginField (&fields)[kMAX_FIELDS]) noexcept;

/// A namespace, copied. TensorRT limits it to 1024 bytes.
class Namespace {
public:
    bool set(char const* text) noexcept {
        if (text == nullptr || std::strlen(text) >= sizeof text_) return false;
        std::strcpy(text_, text);
        return true;
    }
    char const* get() const noexcept { return text_; }

private:
    char text_[1024]{};
};

}  // namespace orinport::plugin
