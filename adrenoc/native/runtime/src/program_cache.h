// Built OpenCL kernels in a folder, so that a later start needs no compiler.
#ifndef ADRENOC_RUNTIME_PROGRAM_CACHE_H_
#define ADRENOC_RUNTIME_PROGRAM_CACHE_H_

#include <optional>
#include <string>
#include <string_view>

namespace adrenoc {

// One set of built kernels: a file whose name is a digest of everything that it depends on, and
// whose content is checked when it is read.
class ProgramCacheEntry {
 public:
  // `key` tells one set from all others: model, kernels, device, driver, runtime.
  ProgramCacheEntry(const std::string& folder, const std::string& key);

  // The bytes that `store` was given; nothing where they are missing, cut or changed.
  [[nodiscard]] std::optional<std::string> find() const;

  // Writes aside and renames, so that others see all or nothing.  A folder that cannot be written
  // is no failure: the cache only saves time.
  void store(std::string_view binaries) const;

  // Removes an entry that the driver refused.
  void drop() const;

 private:
  std::string folder_;
  std::string key_digest_;
  std::string path_;
};

}  // namespace adrenoc

#endif  // ADRENOC_RUNTIME_PROGRAM_CACHE_H_
