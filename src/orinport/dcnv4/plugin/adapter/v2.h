// IPluginV2DynamicExt (TensorRT 8.x). It knows no tactics, so a plugin that is part of a network being built times them
// itself when it is configured with known extents, and keeps the fastest in the engine.
#pragma once

#include "adapter/common.h"

namespace orinport::plugin {

class PluginV2 final : public nvinfer1::IPluginV2DynamicExt {
public:
    /// `building`: the plugin is part of a network, not of an engine.
    PluginV2(Attributes const& attributes, Namespace const& pluginNamespace, bool building) noexcept;
    PluginV2(PluginV2 const&) = delete;
    PluginV2& operator=(PluginV2 const&) = delete;

    nvinfer1::AsciiChar const* getPluginType() const noexcept override { return pluginName(attributes_.kind); }
    nvinfer1::AsciiChar const* getPluginVersion() const noexcept override { return kPLUGIN_VERSION; }
    std::int32_t getNbOutputs() const noexcept override { return kOUTPUT_COUNT; }
    std::int32_t initialize() noexcept override { return 0; }
    void terminate() noexcept override {}
    std::size_t getSerializationSize() const noexcept override { return serializedSize(attributes_.kind); }
    void serialize(void* buffer) const noexcept override;
    void destroy() noexcept override;
    PluginV2* clone() const noexcept override;
    void setPluginNamespace(nvinfer1::AsciiChar const* pluginNamespace) noexcept override;
    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override { return namespace_.get(); }

    nvinfer1::DataType getOutputDataType(std::int32_t index, nvinfer1::DataType const* inputTypes,
                                         std::int32_t nbInputs) const noexcept override;
    nvinfer1::DimsExprs getOutputDimensions(std::int32_t outputIndex, nvinfer1::DimsExprs const* inputs,
                                            std::int32_t nbInputs, nvinfer1::IExprBuilder& exprBuilder) noexcept override;
    bool supportsFormatCombination(std::int32_t pos, nvinfer1::PluginTensorDesc const* inOut, std::int32_t nbInputs,
                                   std::int32_t nbOutputs) noexcept override;
    void configurePlugin(nvinfer1::DynamicPluginTensorDesc const* in, std::int32_t nbInputs,
                         nvinfer1::DynamicPluginTensorDesc const* out, std::int32_t nbOutputs) noexcept override;
    std::size_t getWorkspaceSize(nvinfer1::PluginTensorDesc const* inputs, std::int32_t nbInputs,
                                 nvinfer1::PluginTensorDesc const* outputs,
                                 std::int32_t nbOutputs) const noexcept override;
    std::int32_t enqueue(nvinfer1::PluginTensorDesc const* inputDesc, nvinfer1::PluginTensorDesc const* outputDesc,
                         void const* const* inputs, void* const* outputs, void* workspace,
                         cudaStream_t stream) noexcept override;

private:
    ~PluginV2() noexcept override = default;  // TensorRT calls destroy

    Attributes attributes_;
    Namespace namespace_;
    bool building_;
};

class CreatorV2 final : public nvinfer1::IPluginCreator {
public:
    explicit CreatorV2(Kind kind) noexcept;

    nvinfer1::AsciiChar const* getPluginName() const noexcept override { return pluginName(kind_); }
    nvinfer1::AsciiChar const* getPluginVersion() const noexcept override { return kPLUGIN_VERSION; }
    nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override { return &collection_; }
    PluginV2* createPlugin(nvinfer1::AsciiChar const* name,
                           nvinfer1::PluginFieldCollection const* collection) noexcept override;
    PluginV2* deserializePlugin(nvinfer1::AsciiChar const* name, void const* serialData,
                                std::size_t serialLength) noexcept override;
    void setPluginNamespace(nvinfer1::AsciiChar const* pluginNamespace) noexcept override;
    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override { return namespace_.get(); }

private:
    PluginV2* make(Status status, Attributes const& attributes, bool building) noexcept;

    Kind kind_;
    Namespace namespace_;
    nvinfer1::PluginField fields_[kMAX_FIELDS];
    nvinfer1::PluginFieldCollection collection_{};
};

}  // namespace orinport::plugin
