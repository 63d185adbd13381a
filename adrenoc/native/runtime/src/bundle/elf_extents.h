// Whether the file of a library is as long as its headers say.
#pragma once

#include <string>
#include <string_view>

namespace adrenoc_runtime {

// The dynamic loader maps what the headers of a library promise, and a process that reads beyond the
// end of the file dies.  Throws Failure (bad bundle) that calls the library `name` if `content` is no
// ELF file of this process's word size, or lacks bytes of a header table or of a segment.
void check_extents(std::string_view content, const std::string& name);

}  // namespace adrenoc_runtime
