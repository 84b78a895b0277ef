// Cases through enqueue on a GPU.
#pragma once

#include <string>

#include "harness/session.h"

namespace harness {

bool haveGpu();

/// Run every case of `folder` with every tactic, eagerly and as a replayed graph, then in two contexts on two threads;
/// print a line for each case and tactic, return how many failed. Throws std::runtime_error if a file does not fit or
/// CUDA fails outside the plugins.
int runCases(Journal& journal, std::string const& folder);

}  // namespace harness
