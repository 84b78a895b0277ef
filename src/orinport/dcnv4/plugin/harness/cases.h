// Cases written by `orinport dcnv4 plugin test`: fields, input data and the float64 reference, as files in one folder.
//
// cases.txt has one case a line, words separated by blanks:
//   NAME PLUGIN TOLERANCE MAX_ERROR fields=NAME:VALUE,... TENSOR... OUTPUT
// where a tensor is TYPE:SCALE:EXTENTxEXTENT...:FILE, TYPE one of float32, float16, bfloat16, int8, int32, int64, and FILE
// its raw data; the output's file holds float64. TOLERANCE bounds the relative L2 error, MAX_ERROR the largest absolute one.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "harness/session.h"

namespace harness {

/// The case has a type that this TensorRT has not.
struct MissingType : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct CaseTensor {
    nvinfer1::PluginTensorDesc desc{};
    Bytes data;
};

struct Case {
    std::string name, plugin;
    double tolerance{0.0}, maxError{0.0};
    std::vector<std::pair<std::string, std::string>> fields;
    std::vector<CaseTensor> inputs;
    nvinfer1::PluginTensorDesc output{};
    std::vector<double> reference;
};

/// The lines of cases.txt. Throws std::runtime_error if the file cannot be read.
std::vector<std::string> readCaseLines(std::string const& folder);

/// Throws std::runtime_error if the line or a file does not fit.
Case readCase(std::string const& folder, std::string const& line);

std::int64_t elements(nvinfer1::PluginTensorDesc const& desc);
std::size_t elementSize(nvinfer1::DataType type);

/// Raw elements as numbers; INT8 is multiplied by its scale.
std::vector<double> decode(nvinfer1::PluginTensorDesc const& desc, Bytes const& data);

}  // namespace harness
