#include "adapter/v2.h"

#include <new>

namespace orinport::plugin {
namespace {

void setNamespace(Namespace& target, char const* name, char const* text) noexcept {
    if (!target.set(text)) report(failure(Code::InvalidArgument, "%s: the namespace is too long.", name));
}

}  // namespace

PluginV2::PluginV2(Attributes const& attributes, Namespace const& pluginNamespace, bool building) noexcept
    : attributes_(attributes), namespace_(pluginNamespace), building_(building) {}

void PluginV2::serialize(void* buffer) const noexcept {
    orinport::plugin::serialize(attributes_, static_cast<std::uint8_t*>(buffer));
}

void PluginV2::destroy() noexcept { delete this; }

PluginV2* PluginV2::clone() const noexcept {
    auto* copy = new (std::nothrow) PluginV2(attributes_, namespace_, building_);
    if (copy == nullptr) report(failure(Code::OutOfMemory, "%s: no memory for a clone.", getPluginType()));
    return copy;
}

void PluginV2::setPluginNamespace(nvinfer1::AsciiChar const* pluginNamespace) noexcept {
    setNamespace(namespace_, getPluginType(), pluginNamespace);
}

nvinfer1::DataType PluginV2::getOutputDataType(std::int32_t /*index*/, nvinfer1::DataType const* inputTypes,
                                               std::int32_t nbInputs) const noexcept {
    if (nbInputs != inputCount(attributes_.kind)) return nvinfer1::DataType::kFLOAT;
    ElementType types[kMAX_TENSORS];
    for (std::int32_t i = 0; i < nbInputs; ++i) types[i] = elementType(inputTypes[i]);
    return dataType(outputType(attributes_.kind, types));
}

nvinfer1::DimsExprs PluginV2::getOutputDimensions(std::int32_t /*outputIndex*/, nvinfer1::DimsExprs const* inputs,
                                                  std::int32_t nbInputs, nvinfer1::IExprBuilder& exprBuilder) noexcept {
    nvinfer1::DimsExprs output{};
    Status const status = outputShape(attributes_, inputs, nbInputs, output, exprBuilder);
    if (status.ok()) return output;
    report(status);
    nvinfer1::DimsExprs invalid{};
    invalid.nbDims = -1;
    return invalid;
}

bool PluginV2::supportsFormatCombination(std::int32_t pos, nvinfer1::PluginTensorDesc const* inOut,
                                         std::int32_t nbInputs, std::int32_t nbOutputs) noexcept {
    if (nbInputs != inputCount(attributes_.kind) || nbOutputs != kOUTPUT_COUNT || pos < 0 ||
        pos >= nbInputs + nbOutputs) {
        return false;
    }
    TensorInfo tensors[kMAX_TENSORS];
    for (std::int32_t i = 0; i <= pos; ++i) tensors[i] = tensorInfo(inOut[i]);
    return supportsType(attributes_.kind, pos, tensors);
}

void PluginV2::configurePlugin(nvinfer1::DynamicPluginTensorDesc const* in, std::int32_t nbInputs,
                               nvinfer1::DynamicPluginTensorDesc const* out, std::int32_t nbOutputs) noexcept {
    if (nbInputs != inputCount(attributes_.kind) || nbOutputs != kOUTPUT_COUNT) {
        return report(failure(Code::InvalidArgument, "%s: takes %d inputs and gives %d output, not %d and %d.",
                              getPluginType(), inputCount(attributes_.kind), kOUTPUT_COUNT, nbInputs, nbOutputs));
    }
    TensorInfo tensors[kMAX_TENSORS];
    for (std::int32_t i = 0; i < nbInputs; ++i) tensors[i] = tensorInfo(in[i]);
    tensors[nbInputs] = tensorInfo(out[0]);
    Status const status = checkTensors(attributes_, tensors);
    report(status);  // nothing can be returned here; enqueue refuses the same
    if (status.ok() && building_) attributes_.tactic = fastestTactic(attributes_, tensors);
}

std::size_t PluginV2::getWorkspaceSize(nvinfer1::PluginTensorDesc const* /*inputs*/, std::int32_t /*nbInputs*/,
                                       nvinfer1::PluginTensorDesc const* /*outputs*/,
                                       std::int32_t /*nbOutputs*/) const noexcept {
    return 0;
}

std::int32_t PluginV2::enqueue(nvinfer1::PluginTensorDesc const* inputDesc,
                               nvinfer1::PluginTensorDesc const* outputDesc, void const* const* inputs,
                               void* const* outputs, void* /*workspace*/, cudaStream_t stream) noexcept {
    TensorInfo tensors[kMAX_TENSORS];
    std::int32_t const count = inputCount(attributes_.kind);
    for (std::int32_t i = 0; i < count; ++i) tensors[i] = tensorInfo(inputDesc[i]);
    tensors[count] = tensorInfo(outputDesc[0]);
    Status status = checkTensors(attributes_, tensors);
    if (status.ok()) status = launch(attributes_, tensors, inputs, outputs[0], attributes_.tactic, stream);
    report(status);
    return static_cast<std::int32_t>(status.code);
}

CreatorV2::CreatorV2(Kind kind) noexcept : kind_(kind) {
    collection_.nbFields = advertisedFields(kind, fields_);
    collection_.fields = fields_;
}

PluginV2* CreatorV2::make(Status status, Attributes const& attributes, bool building) noexcept {
    if (status.ok()) {
        if (auto* plugin = new (std::nothrow) PluginV2(attributes, namespace_, building)) return plugin;
        status = failure(Code::OutOfMemory, "%s: no memory for a plugin.", pluginName(kind_));
    }
    report(status);
    return nullptr;
}

PluginV2* CreatorV2::createPlugin(nvinfer1::AsciiChar const* /*name*/,
                                  nvinfer1::PluginFieldCollection const* collection) noexcept {
    Attributes attributes;
    Status const status = parseFields(kind_, collection, attributes);
    return make(status, attributes, true);
}

PluginV2* CreatorV2::deserializePlugin(nvinfer1::AsciiChar const* /*name*/, void const* serialData,
                                       std::size_t serialLength) noexcept {
    Attributes attributes;
    Status const status = deserialize(kind_, serialData, serialLength, attributes);
    return make(status, attributes, false);
}

void CreatorV2::setPluginNamespace(nvinfer1::AsciiChar const* pluginNamespace) noexcept {
    setNamespace(namespace_, pluginName(kind_), pluginNamespace);
}

}  // namespace orinport::plugin
