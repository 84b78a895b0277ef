#include "harness/say.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>

namespace harness {
namespace {

std::FILE* own{nullptr};
std::FILE* collected{nullptr};

}  // namespace

void say(char const* format, ...) {
    std::FILE* stream = own == nullptr ? stdout : own;
    std::va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stream, format, arguments);
    va_end(arguments);
    std::fflush(stream);
}

void watchStandardStreams() {
    std::fflush(stdout);
    own = fdopen(dup(STDOUT_FILENO), "w");
    collected = std::tmpfile();
    if (own == nullptr || collected == nullptr) return;
    dup2(fileno(collected), STDOUT_FILENO);
    dup2(fileno(collected), STDERR_FILENO);
}

bool standardStreamsQuiet() {
    std::fflush(stdout);
    std::fflush(stderr);
    if (collected == nullptr) return false;
    std::rewind(collected);
    bool quiet = true;
    char line[512];
    while (std::fgets(line, sizeof line, collected) != nullptr) {
        quiet = false;
        say("       printed: %s\n", line);
    }
    return quiet;
}

}  // namespace harness
