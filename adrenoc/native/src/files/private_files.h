// Folders and files of caches: what lies there is run, so nobody else may have put it there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "files/mapped_file.h"

namespace adrenoc_runtime {

// Makes a folder of a cache for this user alone, unless it is there.  Why nothing of it may be used:
// it is missing, somebody else's, or anybody may write there; empty where it may.
std::string make_private_folder(const std::string& folder);

// The same of a folder that is not made where it is missing.
[[nodiscard]] std::string why_not_private(const std::string& folder);

// A plain file of this user or of root that nobody else may write to, opened for reading.  Throws
// Failure (not found) with the reason for another one.
[[nodiscard]] Descriptor open_private_file(const std::string& path);

// Writes a file that only this user may read, aside and then renamed: others see all or nothing.
// Returns why it could not be written, or nothing.
std::string write_private_file(const std::string& path, std::string_view content);

// Removes the plain files of `folder` that were used longest ago, until the rest has `max_bytes`.
// Files that other processes remove meanwhile are no failure.
void remove_old_files(const std::string& folder, uint64_t max_bytes);

// Notes that a file was used now.
void touch_file(const std::string& path);

}  // namespace adrenoc_runtime
