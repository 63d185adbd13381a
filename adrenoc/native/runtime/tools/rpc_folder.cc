#include "rpc_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace adrenoc_rpc {
namespace {

// As adrenoc/device/serve.py has it.
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

// Where the program that runs lies; empty where the system does not tell.
std::string program_folder() {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return "";
  path.resize(static_cast<size_t>(length));
  return path.substr(0, path.rfind('/'));
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

std::string find_session_parent() {
  std::string tried;
  const char* const named = std::getenv("TMPDIR");
  for (const std::string& parent : {program_folder(), std::string(named == nullptr ? "" : named),
                                    std::string("/data/local/tmp"), std::string("/tmp")}) {
    if (parent.empty()) continue;
    // Asked by doing it: a disk that is only read, or is full, says so only then.
    std::string probe = parent + "/" + kPrefix + "XXXXXX";
    if (mkdtemp(probe.data()) != nullptr) {
      rmdir(probe.c_str());
      return parent;
    }
    tried += (tried.empty() ? "" : "; ") + parent + ": " + std::strerror(errno);
  }
  throw std::runtime_error("there is no folder for sessions (" + tried + ")");
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
