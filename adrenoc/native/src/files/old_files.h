// Keeps a folder within a size.
#pragma once

#include <cstdint>
#include <string>

namespace adrenoc_runtime {

// Removes the plain files of `folder` that were used longest ago, until the rest has `max_bytes`.
// Files that other processes remove meanwhile are no failure.
void remove_old_files(const std::string& folder, uint64_t max_bytes);

// Notes that a file was used now.
void touch_file(const std::string& path);

}  // namespace adrenoc_runtime
