// Stands for gpu.cpp in a build without CUDA kernels: there is nothing to run.
#include "harness/gpu.h"

#include <stdexcept>

namespace harness {

bool haveGpu() { return false; }

int runCases(Journal&, std::string const&) { throw std::runtime_error("this harness was built without CUDA"); }

}  // namespace harness
