#include "adapter/common.h"

#include <atomic>
#include <cstdio>

namespace orinport::plugin {
namespace {

using nvinfer1::DataType;
using nvinfer1::DimensionOperation;
using nvinfer1::DimsExprs;
using nvinfer1::ErrorCode;
using nvinfer1::ILogger;
using nvinfer1::PluginFieldType;

#if ORINPORT_TENSORRT >= 806
std::atomic<nvinfer1::ILoggerFinder*> loggerFinder{nullptr};
#endif

ILogger* findLogger() noexcept {
#if ORINPORT_TENSORRT >= 806
    if (auto* finder = loggerFinder.load(std::memory_order_acquire)) {
        try {
            if (ILogger* logger = finder->findLogger()) return logger;
        } catch (...) {  // findLogger is the application's code; a lost logger must not end the process
        }
    }
#endif
    return getLogger();
}

ErrorCode errorCode(Code code) noexcept {
    switch (code) {
        case Code::Ok: return ErrorCode::kSUCCESS;
        case Code::InvalidArgument:
        case Code::UnsupportedShape:
        case Code::UnsupportedType: return ErrorCode::kINVALID_ARGUMENT;
        case Code::CorruptData: return ErrorCode::kFAILED_INITIALIZATION;
        case Code::OutOfMemory: return ErrorCode::kFAILED_ALLOCATION;
        case Code::Cuda: return ErrorCode::kFAILED_EXECUTION;
    }
    return ErrorCode::kUNSPECIFIED_ERROR;
}

FieldType fieldType(PluginFieldType type) noexcept {
    switch (type) {
        case PluginFieldType::kINT32: return FieldType::Int32;
        case PluginFieldType::kFLOAT32: return FieldType::Float32;
        case PluginFieldType::kFLOAT64: return FieldType::Float64;
#if ORINPORT_TENSORRT >= 1000
        case PluginFieldType::kINT64: return FieldType::Int64;
#endif
        default: return FieldType::Other;
    }
}

/// What is known of a shape while the network is built.
TensorInfo knownPart(DimsExprs const& exprs) noexcept {
    TensorInfo info;
    info.rank = exprs.nbDims;
    for (std::int32_t i = 0; i < exprs.nbDims && i < kMAX_RANK; ++i) {
        auto const* extent = exprs.d[i];
        info.extents[i] = extent != nullptr && extent->isConstant() ? extent->getConstantValue() : kUNKNOWN_EXTENT;
    }
    return info;
}

TensorInfo unknownTensor(std::int32_t rank) noexcept {
    TensorInfo info;
    info.rank = rank;
    for (std::int64_t& extent : info.extents) extent = kUNKNOWN_EXTENT;
    return info;
}

using Extent = nvinfer1::IDimensionExpr const*;

struct Arithmetic {
    nvinfer1::IExprBuilder& builder;

    Extent constant(std::int64_t value) const noexcept {
#if ORINPORT_TENSORRT >= 1000
        return builder.constant(value);
#else
        return builder.constant(static_cast<std::int32_t>(value));
#endif
    }
    Extent operator()(DimensionOperation operation, Extent left, Extent right) const noexcept {
        return left == nullptr || right == nullptr ? nullptr : builder.operation(operation, *left, *right);
    }
    /// floor((size + slack) / stride) + 1
    Extent slide(Extent size, std::int64_t slack, std::int64_t stride) const noexcept {
        Extent const room = (*this)(DimensionOperation::kSUM, size, constant(slack));
        Extent const steps = (*this)(DimensionOperation::kFLOOR_DIV, room, constant(stride));
        return (*this)(DimensionOperation::kSUM, steps, constant(1));
    }
};

}  // namespace

#if ORINPORT_TENSORRT >= 806
void useLoggerFinder(nvinfer1::ILoggerFinder* finder) noexcept {
    loggerFinder.store(finder, std::memory_order_release);
}
#endif

void report(Status const& status, nvinfer1::IErrorRecorder* recorder) noexcept {
    if (status.ok()) return;
    if (recorder != nullptr) {
        char text[nvinfer1::IErrorRecorder::kMAX_DESC_LENGTH + 1];
        std::snprintf(text, sizeof text, "%.*s", static_cast<int>(sizeof text) - 1, status.text);
        recorder->reportError(errorCode(status.code), text);
    }
    if (ILogger* logger = findLogger()) logger->log(ILogger::Severity::kERROR, status.text);
}

ElementType elementType(DataType type) noexcept {
    switch (type) {
        case DataType::kFLOAT: return ElementType::Float32;
        case DataType::kHALF: return ElementType::Float16;
        case DataType::kINT8: return ElementType::Int8;
        case DataType::kINT32: return ElementType::Int32;
#if ORINPORT_TENSORRT >= 1000
        case DataType::kBF16: return ElementType::BFloat16;
        case DataType::kINT64: return ElementType::Int64;
#endif
        default: return ElementType::Other;
    }
}

DataType dataType(ElementType type) noexcept {
    switch (type) {
        case ElementType::Float16: return DataType::kHALF;
        case ElementType::Int8: return DataType::kINT8;
        case ElementType::Int32: return DataType::kINT32;
#if ORINPORT_TENSORRT >= 1000
        case ElementType::BFloat16: return DataType::kBF16;
        case ElementType::Int64: return DataType::kINT64;
#endif
        default: return DataType::kFLOAT;
    }
}

TensorInfo tensorInfo(nvinfer1::PluginTensorDesc const& desc) noexcept {
    TensorInfo info;
    info.rank = desc.dims.nbDims;
    for (std::int32_t i = 0; i < desc.dims.nbDims && i < kMAX_RANK; ++i) info.extents[i] = desc.dims.d[i];
    info.type = elementType(desc.type);
    info.linear = desc.format == nvinfer1::TensorFormat::kLINEAR;
    info.scale = desc.scale;
    return info;
}

TensorInfo tensorInfo(nvinfer1::DynamicPluginTensorDesc const& tensor) noexcept {
    TensorInfo info = tensorInfo(tensor.desc);
#if ORINPORT_TENSORRT >= 1000
    for (std::int32_t i = 0; i < tensor.opt.nbDims && i < info.rank && i < kMAX_RANK; ++i) {
        if (info.extents[i] < 0 && tensor.opt.d[i] > 0) info.extents[i] = tensor.opt.d[i];
    }
#endif
    return info;
}

Status outputShape(Attributes const& attributes, DimsExprs const* inputs, std::int32_t count, DimsExprs& output,
                   nvinfer1::IExprBuilder& builder) noexcept {
    Kind const kind = attributes.kind;
    if (count != inputCount(kind)) {
        return failure(Code::InvalidArgument, "%s: takes %d inputs, not %d.", pluginName(kind), inputCount(kind), count);
    }
    TensorInfo tensors[kMAX_TENSORS];
    for (std::int32_t i = 0; i < count; ++i) tensors[i] = knownPart(inputs[i]);
    tensors[count] = unknownTensor(kind == Kind::DeformAttn ? 3 : 4);
    Status const status = checkShapes(attributes, tensors);
    if (!status.ok()) return status;

    Arithmetic const arithmetic{builder};
    output.nbDims = tensors[count].rank;
    output.d[0] = inputs[0].d[0];
    if (kind == Kind::DeformAttn) {
        output.d[1] = inputs[3].d[1];
        output.d[2] = arithmetic(DimensionOperation::kPROD, inputs[0].d[2], inputs[0].d[3]);
    } else {
        DcnAttributes const& dcn = attributes.dcn;
        output.d[1] = inputs[0].d[1];
        output.d[2] = inputs[0].d[2];
        if (!dcn.keepsSize()) {
            output.d[1] = arithmetic.slide(inputs[0].d[1], 2 * std::int64_t{dcn.ph} - dcn.extent(dcn.kh, dcn.dh), dcn.sh);
            output.d[2] = arithmetic.slide(inputs[0].d[2], 2 * std::int64_t{dcn.pw} - dcn.extent(dcn.kw, dcn.dw), dcn.sw);
        }
        output.d[3] = arithmetic.constant(dcn.channels());
    }
    for (std::int32_t i = 0; i < output.nbDims; ++i) {
        if (output.d[i] == nullptr) {
            return failure(Code::OutOfMemory, "%s: TensorRT gave no expression for dimension %d of the output.",
                           pluginName(kind), i);
        }
    }
    return {};
}

Status parseFields(Kind kind, nvinfer1::PluginFieldCollection const* collection, Attributes& attributes) noexcept {
    if (collection == nullptr || collection->nbFields < 0 ||
        (collection->nbFields > 0 && collection->fields == nullptr)) {
        return failure(Code::InvalidArgument, "%s: there is no collection of fields.", pluginName(kind));
    }
    if (collection->nbFields > kMAX_FIELDS) {
        return failure(Code::InvalidArgument, "%s: %d fields are given, but %d exist.", pluginName(kind),
                       collection->nbFields, fieldTable(kind).count);
    }
    Field fields[kMAX_FIELDS];
    for (std::int32_t i = 0; i < collection->nbFields; ++i) {
        nvinfer1::PluginField const& field = collection->fields[i];
        fields[i] = {field.name, field.data, fieldType(field.type), field.length};
    }
    return parseAttributes(kind, fields, collection->nbFields, attributes);
}

std::int32_t advertisedFields(Kind kind, nvinfer1::PluginField (&fields)[kMAX_FIELDS]) noexcept {
    FieldTable const table = fieldTable(kind);
    for (std::int32_t row = 0; row < table.count; ++row) {
        auto const type = table.rows[row].real ? PluginFieldType::kFLOAT32 : PluginFieldType::kINT32;
        fields[row] = nvinfer1::PluginField{table.rows[row].name, nullptr, type, 1};
    }
    return table.count;
}

}  // namespace orinport::plugin
