#include "files/private_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/failure.h"

namespace adrenoc_runtime {
namespace {

// Root may put anything anywhere as it is.
bool is_trusted_owner(const struct stat& facts) {
  return facts.st_uid == 0 || facts.st_uid == geteuid();
}

std::string of_another_user(const std::string& path, const struct stat& facts) {
  return path + " belongs to another user (number " + std::to_string(facts.st_uid) + ")";
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(file) == 0;
}

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

std::string make_private_folder(const std::string& folder) {
  mkdir(folder.c_str(), 0700);  // what it says does not matter: looking tells
  return why_not_private(folder);
}

std::string why_not_private(const std::string& folder) {
  struct stat facts {};
  int code = stat(folder.c_str(), &facts) == 0 ? 0 : errno;
  if (code == 0 && !S_ISDIR(facts.st_mode)) code = ENOTDIR;
  if (code != 0) return "cannot write to " + folder + ": " + std::strerror(code);
  if (!is_trusted_owner(facts)) return of_another_user(folder, facts);
  if ((facts.st_mode & S_IWOTH) == 0) return "";
  // A folder that Android gives an app is its group's too, which is the system's: that stays.
  const mode_t closed = facts.st_mode & 07777 & ~mode_t{S_IWOTH};
  if (facts.st_uid == geteuid() && chmod(folder.c_str(), closed) == 0) return "";
  return "anybody may write to " + folder;
}

Descriptor open_private_file(const std::string& path) {
  Descriptor file = open_file(path);
  struct stat facts {};
  std::string wrong;
  if (fstat(file.get(), &facts) != 0) {
    wrong = std::strerror(errno);
  } else if (!S_ISREG(facts.st_mode)) {
    wrong = "it is not a plain file";
  } else if (!is_trusted_owner(facts)) {
    wrong = of_another_user("it", facts);
  } else if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    wrong = "others may write to it";
  }
  if (!wrong.empty()) throw Failure(ADRENOC_NOT_FOUND, "cannot use " + path + ": " + wrong);
  return file;
}

std::string write_private_file(const std::string& path, std::string_view content) {
  std::string aside = path + ".XXXXXX";
  const Descriptor file(mkstemp(aside.data()));  // of mode 0600
  bool done = file.get() >= 0;
  if (done && !(write_all(file.get(), content) && std::rename(aside.c_str(), path.c_str()) == 0)) {
    done = false;
    const int code = errno;
    unlink(aside.c_str());
    errno = code;
  }
  return done ? "" : "cannot write " + path + ": " + std::strerror(errno);
}

void remove_old_files(const std::string& folder, uint64_t max_bytes) {
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return;
  std::vector<OldFile> files;
  uint64_t bytes = 0;
  while (const dirent* entry = readdir(listing)) {
    const std::string path = folder + "/" + entry->d_name;
    struct stat facts {};
    if (lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
    files.push_back(
        {facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec, path, static_cast<uint64_t>(facts.st_size)});
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
