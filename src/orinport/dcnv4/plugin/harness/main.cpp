// Loads the plugin library as TensorRT would and puts it through its paces.
//
//   orinport_plugin_harness PLUGIN.so [--registry] [--seed N] [--fuzz N] [--cases FOLDER]
//
// Exit status: 0 if all is well, 1 if a check failed, 2 for wrong usage.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "harness/checks.h"
#include "harness/gpu.h"
#include "harness/say.h"
#include "stub/nvinfer_stub.h"

namespace {

struct Options {
    std::string library, cases;
    bool throughRegistry{false};
    unsigned seed{1};
    int fuzzRounds{2000};
};

bool parse(int count, char** words, Options& options) {
    for (int i = 1; i < count; ++i) {
        std::string const word = words[i];
        if (word == "--registry") {
            options.throughRegistry = true;
        } else if (word.rfind("--", 0) != 0) {
            if (!options.library.empty()) return false;
            options.library = word;
        } else if (i + 1 == count) {
            return false;
        } else if (word == "--seed") {
            options.seed = static_cast<unsigned>(std::strtoul(words[++i], nullptr, 10));
        } else if (word == "--fuzz") {
            options.fuzzRounds = std::atoi(words[++i]);
        } else if (word == "--cases") {
            options.cases = words[++i];
        } else {
            return false;
        }
    }
    return !options.library.empty();
}

int run(Options const& options) {
    if (options.throughRegistry && HARNESS_TENSORRT < 806) {
        harness::say("skip   the registry of TensorRT %d.%d loads no libraries\n", NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR);
        return 0;
    }
    harness::Journal journal;
    orinportStubSetLogger(&journal);
    if (!harness::loadLibrary(options.library, options.throughRegistry)) {
        std::fprintf(stderr, "cannot load %s\n", options.library.c_str());
        return 2;
    }
    bool const gpu = harness::haveGpu();
    harness::say("TensorRT %d.%d headers, %s, loaded %s, %s GPU\n", NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR,
                harness::interfaceName(), options.throughRegistry ? "through the registry" : "by dlopen", gpu ? "with" : "no");
    harness::watchStandardStreams();
    int failures = harness::runChecks(journal, options.seed, options.fuzzRounds, gpu);
    if (!options.cases.empty()) {
        if (!gpu) {
            harness::say("FAILED cases: there is no GPU\n");
            return 1;
        }
        failures += harness::runCases(journal, options.cases);
    }
    if (!harness::standardStreamsQuiet()) ++failures;
    harness::say("%d failed\n", failures);
    return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
    Options options;
    if (!parse(count, words, options)) {
        std::fprintf(stderr, "usage: %s PLUGIN.so [--registry] [--seed N] [--fuzz N] [--cases FOLDER]\n", words[0]);
        return 2;
    }
    try {
        return run(options);
    } catch (std::exception const& error) {
        harness::say("%s\n", error.what());
        return 1;
    }
}
