// Whether the file of a library is as long as its headers say.
#ifndef ADRENOC_RUNTIME_BUNDLE_ELF_EXTENTS_H_
#define ADRENOC_RUNTIME_BUNDLE_ELF_EXTENTS_H_

#include <string>
#include <string_view>

namespace adrenoc_runtime {

// The dynamic loader maps what the headers of a library promise, and a process that reads beyond the
// end of the file dies.  Throws Failure (bad bundle) that calls the library `name` if `content` is no
// ELF file of this process's word size, or lacks bytes of a header table or of a segment.
void check_extents(std::string_view content, const std::string& name);

}  // namespace adrenoc_runtime

#endif  // ADRENOC_RUNTIME_BUNDLE_ELF_EXTENTS_H_
