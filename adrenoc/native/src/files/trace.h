// What this process is doing, kept where another process finds it after a crash.
#pragma once

#include <string>

namespace adrenoc_runtime {

// From now on `trace` writes into this file, through memory: what was written stays when the
// process is killed.  Does nothing where the file cannot be made.
void open_trace(const std::string& path);

// "launched kernel NAME", cut to what the file holds.  Costs a test of a pointer without a file.
void trace(const char* deed, const std::string& name) noexcept;

}  // namespace adrenoc_runtime
