#include "harness/cases.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace harness {
namespace {

using nvinfer1::DataType;

std::vector<std::string> split(std::string const& text, char separator) {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

DataType typeNamed(std::string const& name) {
    if (name == "float32") return DataType::kFLOAT;
    if (name == "float16") return DataType::kHALF;
    if (name == "int8") return DataType::kINT8;
    if (name == "int32") return DataType::kINT32;
#if HARNESS_TENSORRT >= 1000
    if (name == "bfloat16") return DataType::kBF16;
    if (name == "int64") return DataType::kINT64;
#endif
    throw MissingType("TensorRT " + std::to_string(NV_TENSORRT_MAJOR) + " has no type " + name);
}

Bytes readFile(std::string const& path) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) throw std::runtime_error("cannot read " + path);
    return Bytes(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
}

/// The description and the file of TYPE:SCALE:EXTENTxEXTENT...:FILE.
std::pair<nvinfer1::PluginTensorDesc, Bytes> readTensor(std::string const& folder, std::string const& word) {
    auto const parts = split(word, ':');
    if (parts.size() != 4) throw std::runtime_error("not a tensor: " + word);
    Shape shape;
    for (auto const& extent : split(parts[2], 'x')) shape.push_back(std::stoll(extent));
    return {describe(shape, typeNamed(parts[0]), std::stof(parts[1])), readFile(folder + "/" + parts[3])};
}

double half(std::uint16_t bits) {
    int const exponent = bits >> 10 & 0x1F;
    int const mantissa = bits & 0x3FF;
    double magnitude = 0.0;
    if (exponent == 31) {
        magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
        magnitude = std::ldexp(mantissa, -24);
    } else {
        magnitude = std::ldexp(mantissa + 1024, exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <typename T>
T at(Bytes const& data, std::size_t index) {
    T value;
    std::memcpy(&value, data.data() + index * sizeof value, sizeof value);
    return value;
}

}  // namespace

std::int64_t elements(nvinfer1::PluginTensorDesc const& desc) {
    std::int64_t count = 1;
    for (std::int32_t i = 0; i < desc.dims.nbDims; ++i) count *= desc.dims.d[i];
    return count;
}

std::size_t elementSize(DataType type) {
    switch (type) {
        case DataType::kFLOAT:
        case DataType::kINT32: return 4;
        case DataType::kHALF: return 2;
        case DataType::kINT8: return 1;
#if HARNESS_TENSORRT >= 1000
        case DataType::kBF16: return 2;
        case DataType::kINT64: return 8;
#endif
        default: throw std::runtime_error("a type that no case has");
    }
}

std::vector<double> decode(nvinfer1::PluginTensorDesc const& desc, Bytes const& data) {
    auto const count = static_cast<std::size_t>(elements(desc));
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        switch (desc.type) {
            case DataType::kFLOAT: values[i] = static_cast<double>(at<float>(data, i)); break;
            case DataType::kHALF: values[i] = half(at<std::uint16_t>(data, i)); break;
            case DataType::kINT8: values[i] = static_cast<double>(at<std::int8_t>(data, i)) * static_cast<double>(desc.scale); break;
#if HARNESS_TENSORRT >= 1000
            case DataType::kBF16: {
                std::uint32_t const bits = std::uint32_t{at<std::uint16_t>(data, i)} << 16U;
                float wide;
                std::memcpy(&wide, &bits, sizeof wide);
                values[i] = static_cast<double>(wide);
                break;
            }
#endif
            default: throw std::runtime_error("an output type that no case has");
        }
    }
    return values;
}

std::vector<std::string> readCaseLines(std::string const& folder) {
    std::ifstream stream(folder + "/cases.txt");
    if (!stream) throw std::runtime_error("cannot read " + folder + "/cases.txt");
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) {
        if (!line.empty()) lines.push_back(line);
    }
    return lines;
}

Case readCase(std::string const& folder, std::string const& line) {
    auto const words = split(line, ' ');
    if (words.size() < 7 || words[4].rfind("fields=", 0) != 0) throw std::runtime_error("not a case: " + line);
    Case result;
    result.name = words[0];
    result.plugin = words[1];
    result.tolerance = std::stod(words[2]);
    result.maxError = std::stod(words[3]);
    for (auto const& field : split(words[4].substr(7), ',')) {
        auto const pair = split(field, ':');
        if (pair.size() != 2) throw std::runtime_error("not a field: " + field);
        result.fields.emplace_back(pair[0], pair[1]);
    }
    for (std::size_t i = 5; i + 1 < words.size(); ++i) {
        auto [desc, data] = readTensor(folder, words[i]);
        if (data.size() != static_cast<std::size_t>(elements(desc)) * elementSize(desc.type)) {
            throw std::runtime_error("wrong size: " + words[i]);
        }
        result.inputs.push_back({desc, std::move(data)});
    }
    auto const [desc, data] = readTensor(folder, words.back());
    result.output = desc;
    result.reference.resize(data.size() / sizeof(double));
    std::memcpy(result.reference.data(), data.data(), result.reference.size() * sizeof(double));
    if (static_cast<std::int64_t>(result.reference.size()) != elements(desc)) throw std::runtime_error("wrong size: " + words.back());
    return result;
}

}  // namespace harness
