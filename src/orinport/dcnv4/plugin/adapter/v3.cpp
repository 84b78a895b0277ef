#include "adapter/v3.h"

#include <cstdio>
#include <new>

namespace orinport::plugin {
namespace {

using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginTensorDesc;

/// The name of the one field of a serialized plugin; its value is the core's serialized form.
constexpr char kSTATE_FIELD[] = "orinport_state";

template <typename Desc>
Status gather(Kind kind, Desc const* in, std::int32_t nbInputs, Desc const* out, std::int32_t nbOutputs,
              TensorInfo (&tensors)[kMAX_TENSORS]) noexcept {
    if (nbInputs != inputCount(kind) || nbOutputs != kOUTPUT_COUNT) {
        return failure(Code::InvalidArgument, "%s: takes %d inputs and gives %d output, not %d and %d.", pluginName(kind),
                       inputCount(kind), kOUTPUT_COUNT, nbInputs, nbOutputs);
    }
    for (std::int32_t i = 0; i < nbInputs; ++i) tensors[i] = tensorInfo(in[i]);
    tensors[nbInputs] = tensorInfo(out[0]);
    return {};
}

}  // namespace

PluginV3::PluginV3(Attributes const& attributes) noexcept : attributes_(attributes) {
    describe(attributes_, description_);
    // The kernels are part of the identity: with others, cached timings and tactic numbers mean something else.
    std::snprintf(timingCacheId_, sizeof timingCacheId_, "orinport:%s;%s", ORINPORT_KERNELS_ID, description_);
    serialize(attributes_, serialized_);
    serializedField_ = nvinfer1::PluginField{kSTATE_FIELD, serialized_, nvinfer1::PluginFieldType::kUNKNOWN,
                                             static_cast<std::int32_t>(serializedSize(attributes_.kind))};
    serializedFields_.nbFields = 1;
    serializedFields_.fields = &serializedField_;
}

PluginV3::PluginV3(PluginV3 const& other) noexcept : PluginV3(other.attributes_) {
    for (std::int32_t i = 0; i < kMAX_TENSORS; ++i) configured_[i] = other.configured_[i];
    tactic_ = other.tactic_;
    recorder_ = other.recorder_;
}

std::int32_t PluginV3::answer(Status const& status) const noexcept {
    report(status, recorder_);
    return static_cast<std::int32_t>(status.code);
}

nvinfer1::IPluginCapability* PluginV3::getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept {
    switch (type) {
        case nvinfer1::PluginCapabilityType::kCORE: return static_cast<nvinfer1::IPluginV3OneCore*>(this);
        case nvinfer1::PluginCapabilityType::kBUILD: return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
        case nvinfer1::PluginCapabilityType::kRUNTIME: return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
    return nullptr;
}

PluginV3* PluginV3::clone() noexcept {
    auto* copy = new (std::nothrow) PluginV3(*this);
    if (copy == nullptr) answer(failure(Code::OutOfMemory, "%s: no memory for a clone.", getPluginName()));
    return copy;
}

nvinfer1::AsciiChar const* PluginV3::getPluginName() const noexcept { return pluginName(attributes_.kind); }

nvinfer1::AsciiChar const* PluginV3::getPluginVersion() const noexcept { return kPLUGIN_VERSION; }

nvinfer1::AsciiChar const* PluginV3::getPluginNamespace() const noexcept { return kPLUGIN_NAMESPACE; }

std::int32_t PluginV3::getOutputDataTypes(nvinfer1::DataType* outputTypes, std::int32_t nbOutputs,
                                          nvinfer1::DataType const* inputTypes,
                                          std::int32_t nbInputs) const noexcept {
    Kind const kind = attributes_.kind;
    if (nbInputs != inputCount(kind) || nbOutputs != kOUTPUT_COUNT) {
        return answer(failure(Code::InvalidArgument, "%s: takes %d inputs and gives %d output, not %d and %d.",
                              pluginName(kind), inputCount(kind), kOUTPUT_COUNT, nbInputs, nbOutputs));
    }
    ElementType types[kMAX_TENSORS];
    for (std::int32_t i = 0; i < nbInputs; ++i) types[i] = elementType(inputTypes[i]);
    outputTypes[0] = dataType(outputType(kind, types));
    return 0;
}

std::int32_t PluginV3::getOutputShapes(nvinfer1::DimsExprs const* inputs, std::int32_t nbInputs,
                                       nvinfer1::DimsExprs const* /*shapeInputs*/, std::int32_t nbShapeInputs,
                                       nvinfer1::DimsExprs* outputs, std::int32_t nbOutputs,
                                       nvinfer1::IExprBuilder& exprBuilder) noexcept {
    if (nbShapeInputs != 0 || nbOutputs != kOUTPUT_COUNT) {
        return answer(failure(Code::InvalidArgument, "%s: takes no shape inputs and gives 1 output, not %d and %d.",
                              getPluginName(), nbShapeInputs, nbOutputs));
    }
    return answer(outputShape(attributes_, inputs, nbInputs, outputs[0], exprBuilder));
}

bool PluginV3::supportsFormatCombination(std::int32_t pos, DynamicPluginTensorDesc const* inOut, std::int32_t nbInputs,
                                         std::int32_t nbOutputs) noexcept {
    if (nbInputs != inputCount(attributes_.kind) || nbOutputs != kOUTPUT_COUNT || pos < 0 ||
        pos >= nbInputs + nbOutputs) {
        return false;
    }
    TensorInfo tensors[kMAX_TENSORS];
    for (std::int32_t i = 0; i <= pos; ++i) tensors[i] = tensorInfo(inOut[i].desc);
    return supportsType(attributes_.kind, pos, tensors);
}

std::int32_t PluginV3::configurePlugin(DynamicPluginTensorDesc const* in, std::int32_t nbInputs,
                                       DynamicPluginTensorDesc const* out, std::int32_t nbOutputs) noexcept {
    Status status = gather(attributes_.kind, in, nbInputs, out, nbOutputs, configured_);
    if (status.ok()) status = checkTensors(attributes_, configured_);
    return answer(status);
}

std::int32_t PluginV3::getNbTactics() noexcept { return listTactics(attributes_, configured_, nullptr, 0); }

std::int32_t PluginV3::getValidTactics(std::int32_t* tactics, std::int32_t nbTactics) noexcept {
    std::int32_t const available = listTactics(attributes_, configured_, tactics, nbTactics);
    if (available == nbTactics) return 0;
    return answer(failure(Code::InvalidArgument, "%s: has %d tactics, but %d were asked for.", getPluginName(), available,
                          nbTactics));
}

std::int32_t PluginV3::setTactic(std::int32_t tactic) noexcept {
    if (tactic < 0) return answer(failure(Code::InvalidArgument, "%s: there is no tactic %d.", getPluginName(), tactic));
    tactic_ = tactic;
    return 0;
}

std::int32_t PluginV3::onShapeChange(PluginTensorDesc const* in, std::int32_t nbInputs, PluginTensorDesc const* out,
                                     std::int32_t nbOutputs) noexcept {
    TensorInfo tensors[kMAX_TENSORS];
    Status status = gather(attributes_.kind, in, nbInputs, out, nbOutputs, tensors);
    if (status.ok()) status = checkTensors(attributes_, tensors);
    return answer(status);
}

std::int32_t PluginV3::enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
                               void const* const* inputs, void* const* outputs, void* /*workspace*/,
                               cudaStream_t stream) noexcept {
    TensorInfo tensors[kMAX_TENSORS];
    Status status = gather(attributes_.kind, inputDesc, inputCount(attributes_.kind), outputDesc, kOUTPUT_COUNT, tensors);
    if (status.ok()) status = checkTensors(attributes_, tensors);
    if (status.ok()) status = launch(attributes_, tensors, inputs, outputs[0], tactic_, stream);
    return answer(status);
}

nvinfer1::IPluginV3* PluginV3::attachToContext(nvinfer1::IPluginResourceContext* context) noexcept {
    PluginV3* copy = clone();
    if (copy != nullptr) copy->recorder_ = context != nullptr ? context->getErrorRecorder() : nullptr;
    return copy;
}

nvinfer1::PluginFieldCollection const* PluginV3::getFieldsToSerialize() noexcept { return &serializedFields_; }

CreatorV3::CreatorV3(Kind kind) noexcept : kind_(kind) {
    collection_.nbFields = advertisedFields(kind, fields_);
    collection_.fields = fields_;
}

PluginV3* CreatorV3::createPlugin(nvinfer1::AsciiChar const* /*name*/,
                                  nvinfer1::PluginFieldCollection const* collection,
                                  nvinfer1::TensorRTPhase phase) noexcept {
    Attributes attributes;
    Status status;
    if (phase == nvinfer1::TensorRTPhase::kBUILD) {
        status = parseFields(kind_, collection, attributes);
    } else if (collection == nullptr || collection->nbFields != 1 || collection->fields == nullptr ||
               collection->fields[0].name == nullptr || std::strcmp(collection->fields[0].name, kSTATE_FIELD) != 0 ||
               collection->fields[0].length < 0) {
        status = failure(Code::CorruptData, "%s: serialized data was not written by this plugin.", pluginName(kind_));
    } else {
        nvinfer1::PluginField const& field = collection->fields[0];
        status = deserialize(kind_, field.data, static_cast<std::size_t>(field.length), attributes);
    }
    if (status.ok()) {
        if (auto* plugin = new (std::nothrow) PluginV3(attributes)) return plugin;
        status = failure(Code::OutOfMemory, "%s: no memory for a plugin.", pluginName(kind_));
    }
    report(status);
    return nullptr;
}

}  // namespace orinport::plugin
