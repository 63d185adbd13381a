#include "files/old_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace adrenoc_runtime {
namespace {

struct OldFile {
  int64_t seconds;
  int64_t nanoseconds;
  std::string path;
  uint64_t bytes;

  [[nodiscard]] bool is_older(const OldFile& other) const {
    return seconds != other.seconds ? seconds < other.seconds : nanoseconds < other.nanoseconds;
  }
};

}  // namespace

void remove_old_files(const std::string& folder, uint64_t max_bytes) {
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return;
  std::vector<OldFile> files;
  uint64_t bytes = 0;
  while (const dirent* entry = readdir(listing)) {
    const std::string path = folder + "/" + entry->d_name;
    struct stat facts {};
    if (lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
    files.push_back({facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec, path,
                     static_cast<uint64_t>(facts.st_size)});
    bytes += files.back().bytes;
  }
  closedir(listing);
  std::sort(files.begin(), files.end(),
            [](const OldFile& a, const OldFile& b) { return a.is_older(b); });
  for (const OldFile& file : files) {
    if (bytes <= max_bytes) return;
    unlink(file.path.c_str());
    bytes -= file.bytes;
  }
}

void touch_file(const std::string& path) {
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // a folder that cannot be written keeps its times
}

}  // namespace adrenoc_runtime
