#include "rpc_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace adrenoc_rpc {
namespace {

// As adrenoc/device/session_folder.py has it.
constexpr const char* kPrefix = "adrenoc-rpc-";

int open_folder(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return names;
  while (const dirent* entry = readdir(listing)) names.emplace_back(entry->d_name);
  closedir(listing);
  return names;
}

// Sessions make no folders in theirs.
bool remove_folder(const std::string& path) {
  for (const std::string& name : names_in(path)) unlink((path + "/" + name).c_str());
  return rmdir(path.c_str()) == 0;
}

}  // namespace

SessionFolder::SessionFolder(const std::string& parent) {
  while (true) {
    path_ = parent + "/" + kPrefix + "XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) {
      throw std::runtime_error("cannot make a folder in " + parent + ": " + std::strerror(errno));
    }
    lock_ = open_folder(path_);
    struct stat facts {};
    // A server that starts may have taken it for a left one before it was locked.
    if (lock_ >= 0 && flock(lock_, LOCK_EX) == 0 && stat(path_.c_str(), &facts) == 0) return;
    if (lock_ >= 0) close(lock_);
  }
}

SessionFolder::~SessionFolder() {
  remove_folder(path_);
  close(lock_);
}

int remove_left_folders(const std::string& parent) {
  int removed = 0;
  for (const std::string& name : names_in(parent)) {
    if (name.rfind(kPrefix, 0) != 0) continue;
    const std::string path = parent + "/" + name;
    const int lock = open_folder(path);
    if (lock < 0) continue;
    if (flock(lock, LOCK_EX | LOCK_NB) == 0 && remove_folder(path)) ++removed;
    close(lock);
  }
  return removed;
}

}  // namespace adrenoc_rpc
