// Reads tar archives (ustar, with pax names) in memory.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace adrenoc_runtime {

// The plain files of an archive by their path without its first folder ("manifest.json" for
// "NAME.adrenoc/manifest.json").  The contents lie in `archive`, which must outlive them.
// Throws Failure (bad bundle) for a damaged archive.
[[nodiscard]] std::map<std::string, std::string_view> read_tar(std::string_view archive);

}  // namespace adrenoc_runtime
