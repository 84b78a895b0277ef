// Success or an error with one sentence. Plain data: no allocation, no exceptions.
#pragma once

#include <cstdarg>
#include <cstdio>

namespace orinport::plugin {

enum class Code : int { Ok = 0, InvalidArgument, UnsupportedShape, UnsupportedType, CorruptData, OutOfMemory, Cuda };

struct [[nodiscard]] Status {
    Code code{Code::Ok};
    char text[240]{};

    bool ok() const noexcept { return code == Code::Ok; }
};

/// An error whose text is formatted like printf and cut at 239 characters.
[[gnu::format(printf, 2, 3)]] inline Status failure(Code code, char const* format, ...) noexcept {
    Status status;
    status.code = code;
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(status.text, sizeof status.text, format, arguments);
    va_end(arguments);
    return status;
}

}  // namespace orinport::plugin
