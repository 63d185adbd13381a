#include "file_store.h"

#include <sys/stat.h>
#include <tvm/ffi/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "mapped_file.h"
#include "old_files.h"
#include "sha256.h"

namespace adrenoc {

FileStore::FileStore(std::string folder, uint64_t max_bytes)
    : folder_(std::move(folder)), max_bytes_(max_bytes) {
  mkdir(folder_.c_str(), 0700);  // what it says does not matter: keeping a file tells
}

std::string FileStore::place(const std::string& sha256) const {
  constexpr size_t letters = 64;
  if (sha256.size() != letters ||
      sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
    TVM_FFI_THROW(ValueError) << "A file of the store is named by its SHA-256, got \"" << sha256
                              << "\"";
  }
  return folder_ + "/" + sha256;
}

bool FileStore::has(const std::string& sha256) const {
  const std::string file = place(sha256);
  if (access(file.c_str(), R_OK) != 0) return false;
  touch_file(file);
  return true;
}

void FileStore::keep(const std::string& path, const std::string& sha256) const {
  const std::string target = place(sha256);
  const std::string seen = sha256_hex(MappedFile(path).content());
  if (seen != sha256) {
    TVM_FFI_THROW(ValueError) << "The file that was sent has the SHA-256 " << seen
                              << ", expected " << sha256;
  }
  if (std::rename(path.c_str(), target.c_str()) != 0) {
    TVM_FFI_THROW(RuntimeError) << "Cannot keep a file in " << folder_ << ": "
                                << std::strerror(errno);
  }
  touch_file(target);
  remove_old_files(folder_, max_bytes_);
}

std::string FileStore::path(const std::string& sha256) const {
  std::string file = place(sha256);
  if (access(file.c_str(), R_OK) != 0) {
    TVM_FFI_THROW(ValueError) << "The store has no file " << sha256;
  }
  return file;
}

}  // namespace adrenoc
