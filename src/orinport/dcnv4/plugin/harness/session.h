// A plugin library as TensorRT sees it, with one face for IPluginV2DynamicExt and IPluginV3.
#pragma once

#include <NvInferRuntime.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#define HARNESS_TENSORRT (NV_TENSORRT_MAJOR * 100 + NV_TENSORRT_MINOR)

namespace harness {

using Shape = std::vector<std::int64_t>;
using Bytes = std::vector<std::uint8_t>;
using Descs = std::vector<nvinfer1::PluginTensorDesc>;

/// Collects what plugins report instead of printing it.
class Journal final : public nvinfer1::ILogger {
public:
    void log(Severity severity, char const* message) noexcept override;
    /// The errors since the last call.
    std::vector<std::string> take();

private:
    std::vector<std::string> errors_;
};

nvinfer1::PluginTensorDesc describe(Shape const& shape, nvinfer1::DataType type, float scale = 1.0F);

/// One plugin object. Statuses are 0 for success, as TensorRT has them.
class Plugin {
public:
    virtual ~Plugin() = default;
    virtual std::string name() const = 0;
    virtual std::string version() const = 0;
    virtual std::string space() const = 0;
    /// The output's shape, or nothing if the plugin refuses. An extent given as e.g. -56 is 56 but unknown to the plugin
    /// while it builds expressions; the extents returned are evaluated.
    virtual std::optional<Shape> outputShape(std::vector<Shape> const& inputs) = 0;
    virtual std::int32_t outputType(std::vector<nvinfer1::DataType> const& inputs, nvinfer1::DataType& type) = 0;
    virtual bool supports(std::int32_t position, Descs const& tensors) = 0;
    virtual std::int32_t configure(Descs const& inputs, Descs const& outputs) = 0;
    virtual std::vector<std::int32_t> tactics() = 0;
    virtual std::int32_t setTactic(std::int32_t tactic) = 0;
    virtual std::int32_t enqueue(Descs const& inputs, Descs const& outputs, void const* const* memory, void* const* result,
                                 cudaStream_t stream) = 0;
    virtual std::string timingCacheId() = 0;
    virtual Bytes serialize() = 0;
    virtual std::unique_ptr<Plugin> clone() = 0;
    /// The object for one execution context.
    virtual std::unique_ptr<Plugin> attach(nvinfer1::IErrorRecorder* recorder) = 0;
};

struct FieldName {
    std::string name;
    nvinfer1::PluginFieldType type;
};

/// A creator found in the registry.
class Creator {
public:
    virtual ~Creator() = default;
    virtual std::vector<FieldName> fieldNames() = 0;
    virtual std::unique_ptr<Plugin> create(nvinfer1::PluginFieldCollection const* fields) = 0;
    virtual std::unique_ptr<Plugin> deserialize(std::uint8_t const* data, std::size_t size) = 0;
    std::unique_ptr<Plugin> deserialize(Bytes const& bytes) { return deserialize(bytes.data(), bytes.size()); }
};

/// Load the library by dlopen (as trtexec --staticPlugins does) or through the registry (as --dynamicPlugins does).
bool loadLibrary(std::string const& path, bool throughRegistry);

std::int32_t registeredCreators();

/// Nothing if the registry does not hold this creator, of the interface that this TensorRT wants.
std::unique_ptr<Creator> findCreator(std::string const& name);

/// IPluginV3 or IPluginV2DynamicExt.
char const* interfaceName();

}  // namespace harness
