// Files that peers sent, kept under their digests so that nothing is sent twice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace adrenoc_runtime {

// Throws ValueError for a digest that is none: a peer names content, not places.
class FileStore {
 public:
  // Keeps the files used last, up to `max_bytes`.  The folder is made if its parent is there.
  FileStore(std::string folder, uint64_t max_bytes);

  // Whether the file is there; it then counts as just used.
  [[nodiscard]] bool has(const std::string& sha256) const;

  // Moves a file in, from another file system too.  Throws ValueError when it has another digest,
  // and RuntimeError when there is no room or no right to keep it.
  void keep(const std::string& path, const std::string& sha256) const;

  // Where a file lies that is there.  Throws ValueError when it is not.
  [[nodiscard]] std::string path(const std::string& sha256) const;

 private:
  [[nodiscard]] std::string place(const std::string& sha256) const;
  // Whether a file is there, and nobody else put it there.
  [[nodiscard]] bool is_usable(const std::string& file) const;

  std::string folder_;
  uint64_t max_bytes_;
};

// Writes a file, all or nothing.  Throws RuntimeError, with the reason, when it cannot be.
void write_file(const std::string& path, std::string_view content);

}  // namespace adrenoc_runtime
