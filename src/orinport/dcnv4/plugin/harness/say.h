// The harness' own voice. Standard output and error are watched: whoever else prints there is reported.
#pragma once

namespace harness {

[[gnu::format(printf, 1, 2)]] void say(char const* format, ...);

/// From now on everything printed past say() is collected.
void watchStandardStreams();

/// Whether nothing was printed past say() since watchStandardStreams(); says what was, otherwise.
bool standardStreamsQuiet();

}  // namespace harness
