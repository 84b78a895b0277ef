#include "harness/session.h"

#include <dlfcn.h>

#include <mutex>

#include "harness/expressions.h"

// Interfaces that TensorRT has deprecated are what its version 8 works with.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace harness {
namespace {

using nvinfer1::DynamicPluginTensorDesc;

std::mutex journalMutex;

/// An extent of -k is one that is not known, from 1 to k, k in the optimization profile.
std::vector<DynamicPluginTensorDesc> dynamic(Descs const& descs) {
    std::vector<DynamicPluginTensorDesc> result;
    for (auto const& desc : descs) {
        DynamicPluginTensorDesc wide{};
        wide.desc = desc;
        wide.min = wide.max = desc.dims;
        for (std::int32_t i = 0; i < desc.dims.nbDims; ++i) {
            if (desc.dims.d[i] >= 0) continue;
            wide.desc.dims.d[i] = -1;
            wide.min.d[i] = 1;
            wide.max.d[i] = -desc.dims.d[i];
        }
#if HARNESS_TENSORRT >= 1000
        wide.opt = wide.max;
#endif
        result.push_back(wide);
    }
    return result;
}

std::vector<nvinfer1::DimsExprs> expressionsOf(std::vector<Shape> const& shapes, Expressions& expressions) {
    std::vector<nvinfer1::DimsExprs> result;
    for (Shape const& shape : shapes) {
        nvinfer1::DimsExprs dims{};
        dims.nbDims = static_cast<std::int32_t>(shape.size());
        for (std::size_t i = 0; i < shape.size(); ++i) dims.d[i] = expressions.input(shape[i]);
        result.push_back(dims);
    }
    return result;
}

std::optional<Shape> evaluate(nvinfer1::DimsExprs const& dims) {
    if (dims.nbDims < 0) return std::nullopt;
    Shape shape;
    for (std::int32_t i = 0; i < dims.nbDims; ++i) {
        shape.push_back(static_cast<Expression const*>(dims.d[i])->evaluate());
    }
    return shape;
}

#if HARNESS_TENSORRT >= 1000

class Context final : public nvinfer1::IPluginResourceContext {
public:
    explicit Context(nvinfer1::IErrorRecorder* recorder) : recorder_(recorder) {}
    ~Context() noexcept override = default;
    nvinfer1::IGpuAllocator* getGpuAllocator() const noexcept override { return nullptr; }
    nvinfer1::IErrorRecorder* getErrorRecorder() const noexcept override { return recorder_; }

private:
    nvinfer1::IErrorRecorder* recorder_;
};

class PluginV3 final : public Plugin {
public:
    explicit PluginV3(nvinfer1::IPluginV3* plugin)
        : plugin_(plugin),
          core_(capability<nvinfer1::IPluginV3OneCore>(nvinfer1::PluginCapabilityType::kCORE)),
          build_(capability<nvinfer1::IPluginV3OneBuild>(nvinfer1::PluginCapabilityType::kBUILD)),
          runtime_(capability<nvinfer1::IPluginV3OneRuntime>(nvinfer1::PluginCapabilityType::kRUNTIME)) {}

    static std::unique_ptr<Plugin> wrap(nvinfer1::IPluginV3* plugin) {
        return plugin == nullptr ? nullptr : std::make_unique<PluginV3>(plugin);
    }

    std::string name() const override { return core_->getPluginName(); }
    std::string version() const override { return core_->getPluginVersion(); }
    std::string space() const override { return core_->getPluginNamespace(); }
    std::optional<Shape> outputShape(std::vector<Shape> const& inputs) override {
        Expressions expressions;
        auto const dims = expressionsOf(inputs, expressions);
        nvinfer1::DimsExprs output{};
        auto const count = static_cast<std::int32_t>(dims.size());
        if (build_->getOutputShapes(dims.data(), count, nullptr, 0, &output, 1, expressions) != 0) return std::nullopt;
        return evaluate(output);
    }
    std::int32_t outputType(std::vector<nvinfer1::DataType> const& inputs, nvinfer1::DataType& type) override {
        return build_->getOutputDataTypes(&type, 1, inputs.data(), static_cast<std::int32_t>(inputs.size()));
    }
    bool supports(std::int32_t position, Descs const& tensors) override {
        auto const wide = dynamic(tensors);
        return build_->supportsFormatCombination(position, wide.data(), static_cast<std::int32_t>(wide.size()) - 1, 1);
    }
    std::int32_t configure(Descs const& inputs, Descs const& outputs) override {
        auto const in = dynamic(inputs);
        auto const out = dynamic(outputs);
        return build_->configurePlugin(in.data(), static_cast<std::int32_t>(in.size()), out.data(),
                                       static_cast<std::int32_t>(out.size()));
    }
    std::vector<std::int32_t> tactics() override {
        std::vector<std::int32_t> result(static_cast<std::size_t>(build_->getNbTactics()));
        if (build_->getValidTactics(result.data(), static_cast<std::int32_t>(result.size())) != 0) result.assign(1, -1);
        return result;
    }
    std::int32_t setTactic(std::int32_t tactic) override { return runtime_->setTactic(tactic); }
    std::int32_t enqueue(Descs const& inputs, Descs const& outputs, void const* const* memory, void* const* result,
                         cudaStream_t stream) override {
        std::int32_t const changed =
            runtime_->onShapeChange(inputs.data(), static_cast<std::int32_t>(inputs.size()), outputs.data(),
                                    static_cast<std::int32_t>(outputs.size()));
        if (changed != 0) return changed;
        return runtime_->enqueue(inputs.data(), outputs.data(), memory, result, nullptr, stream);
    }
    std::string timingCacheId() override {
        char const* id = build_->getTimingCacheID();
        return id == nullptr ? "" : id;
    }
    Bytes serialize() override {
        nvinfer1::PluginFieldCollection const* fields = runtime_->getFieldsToSerialize();
        if (fields == nullptr || fields->nbFields != 1) return {};
        auto const* data = static_cast<std::uint8_t const*>(fields->fields[0].data);
        return Bytes(data, data + fields->fields[0].length);
    }
    std::unique_ptr<Plugin> clone() override { return wrap(plugin_->clone()); }
    std::unique_ptr<Plugin> attach(nvinfer1::IErrorRecorder* recorder) override {
        Context context(recorder);
        return wrap(runtime_->attachToContext(&context));
    }

private:
    template <typename T>
    T* capability(nvinfer1::PluginCapabilityType type) {
        return static_cast<T*>(plugin_->getCapabilityInterface(type));
    }

    std::unique_ptr<nvinfer1::IPluginV3> plugin_;
    nvinfer1::IPluginV3OneCore* core_;
    nvinfer1::IPluginV3OneBuild* build_;
    nvinfer1::IPluginV3OneRuntime* runtime_;
};

class CreatorV3 final : public Creator {
public:
    explicit CreatorV3(nvinfer1::IPluginCreatorV3One* creator) : creator_(creator) {}

    std::vector<FieldName> fieldNames() override {
        std::vector<FieldName> names;
        nvinfer1::PluginFieldCollection const* fields = creator_->getFieldNames();
        for (std::int32_t i = 0; i < fields->nbFields; ++i) names.push_back({fields->fields[i].name, fields->fields[i].type});
        return names;
    }
    std::unique_ptr<Plugin> create(nvinfer1::PluginFieldCollection const* fields) override {
        return PluginV3::wrap(creator_->createPlugin("layer", fields, nvinfer1::TensorRTPhase::kBUILD));
    }
    using Creator::deserialize;
    std::unique_ptr<Plugin> deserialize(std::uint8_t const* data, std::size_t size) override {
        // TensorRT hands back the fields that getFieldsToSerialize named
        nvinfer1::PluginField const field{"orinport_state", data, nvinfer1::PluginFieldType::kUNKNOWN,
                                          static_cast<std::int32_t>(size)};
        nvinfer1::PluginFieldCollection const fields{1, &field};
        return PluginV3::wrap(creator_->createPlugin("layer", &fields, nvinfer1::TensorRTPhase::kRUNTIME));
    }

private:
    nvinfer1::IPluginCreatorV3One* creator_;
};

#else

struct Destroy {
    void operator()(nvinfer1::IPluginV2DynamicExt* plugin) const noexcept {
        plugin->terminate();
        plugin->destroy();
    }
};

class PluginV2 final : public Plugin {
public:
    explicit PluginV2(nvinfer1::IPluginV2DynamicExt* plugin) : plugin_(plugin) { plugin_->initialize(); }

    static std::unique_ptr<Plugin> wrap(nvinfer1::IPluginV2* plugin) {
        return plugin == nullptr ? nullptr
                                 : std::make_unique<PluginV2>(static_cast<nvinfer1::IPluginV2DynamicExt*>(plugin));
    }

    std::string name() const override { return plugin_->getPluginType(); }
    std::string version() const override { return plugin_->getPluginVersion(); }
    std::string space() const override { return plugin_->getPluginNamespace(); }
    std::optional<Shape> outputShape(std::vector<Shape> const& inputs) override {
        Expressions expressions;
        auto const dims = expressionsOf(inputs, expressions);
        return evaluate(
            plugin_->getOutputDimensions(0, dims.data(), static_cast<std::int32_t>(dims.size()), expressions));
    }
    std::int32_t outputType(std::vector<nvinfer1::DataType> const& inputs, nvinfer1::DataType& type) override {
        type = plugin_->getOutputDataType(0, inputs.data(), static_cast<std::int32_t>(inputs.size()));
        return 0;
    }
    bool supports(std::int32_t position, Descs const& tensors) override {
        return plugin_->supportsFormatCombination(position, tensors.data(),
                                                  static_cast<std::int32_t>(tensors.size()) - 1, 1);
    }
    std::int32_t configure(Descs const& inputs, Descs const& outputs) override {
        auto const in = dynamic(inputs);
        auto const out = dynamic(outputs);
        nvinfer1::IPluginV2DynamicExt& plugin = *plugin_;
        plugin.configurePlugin(in.data(), static_cast<std::int32_t>(in.size()), out.data(),
                               static_cast<std::int32_t>(out.size()));
        return 0;
    }
    std::vector<std::int32_t> tactics() override { return {}; }
    std::int32_t setTactic(std::int32_t) override { return 0; }
    std::int32_t enqueue(Descs const& inputs, Descs const& outputs, void const* const* memory, void* const* result,
                         cudaStream_t stream) override {
        nvinfer1::IPluginV2DynamicExt& plugin = *plugin_;
        return plugin.enqueue(inputs.data(), outputs.data(), memory, result, nullptr, stream);
    }
    std::string timingCacheId() override { return {}; }
    Bytes serialize() override {
        Bytes bytes(plugin_->getSerializationSize());
        plugin_->serialize(bytes.data());
        return bytes;
    }
    std::unique_ptr<Plugin> clone() override { return wrap(plugin_->clone()); }
    std::unique_ptr<Plugin> attach(nvinfer1::IErrorRecorder*) override { return clone(); }

private:
    std::unique_ptr<nvinfer1::IPluginV2DynamicExt, Destroy> plugin_;
};

class CreatorV2 final : public Creator {
public:
    explicit CreatorV2(nvinfer1::IPluginCreator* creator) : creator_(creator) {}

    std::vector<FieldName> fieldNames() override {
        std::vector<FieldName> names;
        nvinfer1::PluginFieldCollection const* fields = creator_->getFieldNames();
        for (std::int32_t i = 0; i < fields->nbFields; ++i) names.push_back({fields->fields[i].name, fields->fields[i].type});
        return names;
    }
    std::unique_ptr<Plugin> create(nvinfer1::PluginFieldCollection const* fields) override {
        return PluginV2::wrap(creator_->createPlugin("layer", fields));
    }
    using Creator::deserialize;
    std::unique_ptr<Plugin> deserialize(std::uint8_t const* data, std::size_t size) override {
        return PluginV2::wrap(creator_->deserializePlugin("layer", data, size));
    }

private:
    nvinfer1::IPluginCreator* creator_;
};

#endif

}  // namespace

void Journal::log(Severity severity, char const* message) noexcept {
    if (severity > Severity::kERROR) return;
    std::lock_guard<std::mutex> const lock(journalMutex);
    errors_.emplace_back(message);
}

std::vector<std::string> Journal::take() {
    std::lock_guard<std::mutex> const lock(journalMutex);
    std::vector<std::string> result;
    result.swap(errors_);
    return result;
}

nvinfer1::PluginTensorDesc describe(Shape const& shape, nvinfer1::DataType type, float scale) {
    nvinfer1::PluginTensorDesc desc{};
    desc.dims.nbDims = static_cast<std::int32_t>(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) desc.dims.d[i] = static_cast<Extent>(shape[i]);
    desc.type = type;
    desc.format = nvinfer1::TensorFormat::kLINEAR;
    desc.scale = scale;
    return desc;
}

bool loadLibrary(std::string const& path, bool throughRegistry) {
    if (!throughRegistry) return dlopen(path.c_str(), RTLD_LAZY) != nullptr;
#if HARNESS_TENSORRT >= 806
    return getPluginRegistry()->loadLibrary(path.c_str()) != nullptr;
#else
    return false;
#endif
}

std::int32_t registeredCreators() {
    std::int32_t count = 0;
#if HARNESS_TENSORRT >= 1000
    getPluginRegistry()->getAllCreators(&count);
#else
    getPluginRegistry()->getPluginCreatorList(&count);
#endif
    return count;
}

std::unique_ptr<Creator> findCreator(std::string const& name) {
#if HARNESS_TENSORRT >= 1000
    nvinfer1::IPluginCreatorInterface* creator = getPluginRegistry()->getCreator(name.c_str(), "1", "");
    if (creator == nullptr || std::string(creator->getInterfaceInfo().kind) != "PLUGIN CREATOR_V3ONE") return nullptr;
    return std::make_unique<CreatorV3>(static_cast<nvinfer1::IPluginCreatorV3One*>(creator));
#else
    nvinfer1::IPluginCreator* creator = getPluginRegistry()->getPluginCreator(name.c_str(), "1", "");
    return creator == nullptr ? nullptr : std::make_unique<CreatorV2>(creator);
#endif
}

char const* interfaceName() { return HARNESS_TENSORRT >= 1000 ? "IPluginV3" : "IPluginV2DynamicExt"; }

}  // namespace harness
