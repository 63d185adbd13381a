// What a bundle's files are in: tar archives (ustar, with pax names), DEFLATE (RFC 1951), and
// libraries. No library reads them for us: programs and apps need the C library alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace adrenoc_runtime {

// The plain files of an archive by their path without its first folder ("manifest.json" for
// "NAME.adrenoc/manifest.json").  The contents lie in `archive`, which must outlive them.
// Throws Failure (bad bundle) for a damaged archive.
[[nodiscard]] std::map<std::string, std::string_view> read_tar(std::string_view archive);

// The content of the file `name`, which is stored as `deflated` and has to have `bytes`.
// Throws Failure (bad bundle) where that is not so.
[[nodiscard]] std::string inflate(std::string_view deflated, uint64_t bytes,
                                  const std::string& name);

// The dynamic loader maps what the headers of a library promise, and a process that reads beyond
// the end of the file dies.  Throws Failure (bad bundle) that calls the library `name` if `content`
// is no ELF file of this process's word size, or lacks bytes of a header table or of a segment.
void check_extents(std::string_view content, const std::string& name);

}  // namespace adrenoc_runtime
