// IPluginV3 (TensorRT 10 and newer).
#pragma once

#include "adapter/common.h"

namespace orinport::plugin {

class PluginV3 final : public nvinfer1::IPluginV3,
                       public nvinfer1::IPluginV3OneCore,
                       public nvinfer1::IPluginV3OneBuild,
                       public nvinfer1::IPluginV3OneRuntime {
public:
    explicit PluginV3(Attributes const& attributes) noexcept;
    PluginV3(PluginV3 const& other) noexcept;
    PluginV3& operator=(PluginV3 const&) = delete;
    ~PluginV3() noexcept override = default;

    nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override;
    PluginV3* clone() noexcept override;

    nvinfer1::AsciiChar const* getPluginName() const noexcept override;
    nvinfer1::AsciiChar const* getPluginVersion() const noexcept override;
    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override;

    std::int32_t getNbOutputs() const noexcept override { return kOUTPUT_COUNT; }
    std::int32_t getOutputDataTypes(nvinfer1::DataType* outputTypes, std::int32_t nbOutputs,
                                    nvinfer1::DataType const* inputTypes, std::int32_t nbInputs) const noexcept override;
    std::int32_t getOutputShapes(nvinfer1::DimsExprs const* inputs, std::int32_t nbInputs,
                                 nvinfer1::DimsExprs const* shapeInputs, std::int32_t nbShapeInputs,
                                 nvinfer1::DimsExprs* outputs, std::int32_t nbOutputs,
                                 nvinfer1::IExprBuilder& exprBuilder) noexcept override;
    bool supportsFormatCombination(std::int32_t pos, nvinfer1::DynamicPluginTensorDesc const* inOut,
                                   std::int32_t nbInputs, std::int32_t nbOutputs) noexcept override;
    std::int32_t configurePlugin(nvinfer1::DynamicPluginTensorDesc const* in, std::int32_t nbInputs,
                                 nvinfer1::DynamicPluginTensorDesc const* out,
                                 std::int32_t nbOutputs) noexcept override;
    std::int32_t getNbTactics() noexcept override;
    std::int32_t getValidTactics(std::int32_t* tactics, std::int32_t nbTactics) noexcept override;
    char const* getTimingCacheID() noexcept override { return timingCacheId_; }
    char const* getMetadataString() noexcept override { return description_; }

    std::int32_t setTactic(std::int32_t tactic) noexcept override;
    std::int32_t onShapeChange(nvinfer1::PluginTensorDesc const* in, std::int32_t nbInputs,
                               nvinfer1::PluginTensorDesc const* out, std::int32_t nbOutputs) noexcept override;
    std::int32_t enqueue(nvinfer1::PluginTensorDesc const* inputDesc, nvinfer1::PluginTensorDesc const* outputDesc,
                         void const* const* inputs, void* const* outputs, void* workspace,
                         cudaStream_t stream) noexcept override;
    nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext* context) noexcept override;
    nvinfer1::PluginFieldCollection const* getFieldsToSerialize() noexcept override;

private:
    std::int32_t answer(Status const& status) const noexcept;

    Attributes attributes_;
    TensorInfo configured_[kMAX_TENSORS]{};  // by the last configurePlugin, for the list of tactics
    std::int32_t tactic_{0};
    nvinfer1::IErrorRecorder* recorder_{nullptr};  // of the context to which this object is attached
    char description_[kMAX_TEXT]{};
    char timingCacheId_[kMAX_TEXT + 64]{};
    std::uint8_t serialized_[kMAX_SERIALIZED]{};
    nvinfer1::PluginField serializedField_{};
    nvinfer1::PluginFieldCollection serializedFields_{};
};

class CreatorV3 final : public nvinfer1::IPluginCreatorV3One {
public:
    explicit CreatorV3(Kind kind) noexcept;

    nvinfer1::AsciiChar const* getPluginName() const noexcept override { return pluginName(kind_); }
    nvinfer1::AsciiChar const* getPluginVersion() const noexcept override { return kPLUGIN_VERSION; }
    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override { return kPLUGIN_NAMESPACE; }
    nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override { return &collection_; }
    PluginV3* createPlugin(nvinfer1::AsciiChar const* name, nvinfer1::PluginFieldCollection const* collection,
                           nvinfer1::TensorRTPhase phase) noexcept override;

private:
    Kind kind_;
    nvinfer1::PluginField fields_[kMAX_FIELDS];
    nvinfer1::PluginFieldCollection collection_{};
};

}  // namespace orinport::plugin
