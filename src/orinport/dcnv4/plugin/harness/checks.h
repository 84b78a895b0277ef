// Everything that TensorRT asks of the plugins before a GPU is needed.
#pragma once

#include "harness/session.h"

namespace harness {

/// Run all checks, print a line for each, return how many failed. `gpu` says that launches may succeed here.
int runChecks(Journal& journal, unsigned seed, int fuzzRounds, bool gpu);

}  // namespace harness
