// Files that peers sent, kept under their digests so that nothing is sent twice.
#pragma once

#include <tvm/ffi/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/failure.h"
#include "base/sha256.h"
#include "files/mapped_file.h"
#include "files/private_files.h"

namespace adrenoc_runtime {

// Writes a file, all or nothing.  Throws RuntimeError, with the reason, when it cannot be.
inline void write_file(const std::string& path, std::string_view content) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool written = file != nullptr;
  if (written) {
    written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
    const int code = errno;
    // A full disk may show only now.
    if (std::fclose(file) != 0) {
      written = false;
    } else if (!written) {
      errno = code;
    }
  }
  if (written) return;
  const std::string reason = std::strerror(errno);
  unlink(path.c_str());
  TVM_FFI_THROW(RuntimeError) << "Cannot keep " << path << ": " << reason;
}

// Throws ValueError for a digest that is none: a peer names content, not places.
class FileStore {
 public:
  // Keeps the files used last, up to `max_bytes`.  The folder is made if its parent is there.
  FileStore(std::string folder, uint64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {
    (void)make_private_folder(folder_);  // keeping a file tells what was wrong
  }

  // Whether the file is there; it then counts as just used.
  [[nodiscard]] bool has(const std::string& sha256) const {
    const std::string file = place(sha256);
    if (!is_usable(file)) return false;
    touch_file(file);
    return true;
  }

  // Moves a file in, from another file system too.  Throws ValueError when it has another digest,
  // and RuntimeError when there is no room or no right to keep it.
  void keep(const std::string& path, const std::string& sha256) const {
    const std::string target = place(sha256);
    if (const std::string wrong = why_not_private(folder_); !wrong.empty()) {
      TVM_FFI_THROW(RuntimeError) << "Cannot keep " << target << ": " << wrong;
    }
    const MappedFile sent(path);
    const std::string seen = sha256_hex(sent.content());
    if (seen != sha256) {
      TVM_FFI_THROW(ValueError) << "The file that was sent has the SHA-256 " << seen
                                << ", expected " << sha256;
    }
    if (std::rename(path.c_str(), target.c_str()) != 0) {
      if (errno != EXDEV) {
        TVM_FFI_THROW(RuntimeError) << "Cannot keep " << target << ": " << std::strerror(errno);
      }
      // Sessions have their folder where temporary files are, which may be a disk of its own.
      const std::string aside = target + "." + std::to_string(getpid());
      write_file(aside, sent.content());
      if (std::rename(aside.c_str(), target.c_str()) != 0) {
        const std::string reason = std::strerror(errno);
        unlink(aside.c_str());
        TVM_FFI_THROW(RuntimeError) << "Cannot keep " << target << ": " << reason;
      }
      unlink(path.c_str());
    }
    touch_file(target);
    remove_old_files(folder_, max_bytes_);
  }

  // Where a file lies that is there.  Throws ValueError when it is not.
  [[nodiscard]] std::string path(const std::string& sha256) const {
    std::string file = place(sha256);
    if (!is_usable(file)) {
      TVM_FFI_THROW(ValueError) << "The store has no file " << sha256;
    }
    return file;
  }

 private:
  [[nodiscard]] std::string place(const std::string& sha256) const {
    constexpr size_t letters = 64;
    if (sha256.size() != letters ||
        sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
      TVM_FFI_THROW(ValueError) << "A file of the store is named by its SHA-256, got \"" << sha256
                                << "\"";
    }
    return folder_ + "/" + sha256;
  }
  // Whether a file is there, and nobody else put it there.
  [[nodiscard]] bool is_usable(const std::string& file) const {
    if (!why_not_private(folder_).empty()) return false;
    try {
      (void)open_private_file(file);
      return true;
    } catch (const Failure&) {
      return false;
    }
  }

  std::string folder_;
  uint64_t max_bytes_;
};

}  // namespace adrenoc_runtime
