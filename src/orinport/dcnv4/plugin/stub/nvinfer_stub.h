// What the harness needs of the stub beyond TensorRT's own interface.
#pragma once

#include <NvInferRuntime.h>

/// The logger that getLogger returns from now on.
extern "C" void orinportStubSetLogger(nvinfer1::ILogger* logger) noexcept;
