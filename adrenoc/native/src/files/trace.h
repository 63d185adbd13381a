// What this process is doing, kept where another process finds it after a crash.
#ifndef ADRENOC_NATIVE_FILES_TRACE_H_
#define ADRENOC_NATIVE_FILES_TRACE_H_

#include <string>

namespace adrenoc_runtime {

// From now on `trace` writes into this file, through memory: what was written stays when the
// process is killed.  Does nothing where the file cannot be made.
void open_trace(const std::string& path);

// "launched kernel NAME", cut to what the file holds.  Costs a test of a pointer without a file.
void trace(const char* deed, const std::string& name) noexcept;

}  // namespace adrenoc_runtime

#endif  // ADRENOC_NATIVE_FILES_TRACE_H_
