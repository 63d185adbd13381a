// Built OpenCL kernels in a folder, so that a later start needs no compiler.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace adrenoc_runtime {

// When kernels that one driver built are used with another.
enum class DriverRule {
  // Never: the driver must be the very same.
  kSame,
  // For Qualcomm's drivers as MACE does: of the same branch, or built later.
  kQualcomm,
};

// Whether `now` may run what `then` built; both are what CL_DRIVER_VERSION says.
[[nodiscard]] bool driver_fits(const std::string& now, const std::string& then, DriverRule rule);

// What a set of built kernels depends on.
struct ProgramKey {
  std::string device;   // platform, name and OpenCL version
  std::string driver;   // CL_DRIVER_VERSION
  std::string sources;  // digest of the kernels' sources and build options

  // The name of the file that holds the set: one for each device and set of kernels, so that a new
  // driver's set takes the place of the old one.
  [[nodiscard]] std::string file_name() const;
};

// What a file holds for a key, or why it does not.
struct FoundPrograms {
  std::optional<std::string> binaries;
  // The file is there and cannot be used: cut, changed, of another key or another driver.
  bool is_damaged = false;
};

// Reads the content of a file of the cache.
[[nodiscard]] FoundPrograms read_programs(std::string_view file, const ProgramKey& key,
                                          DriverRule rule);
// The content to write for a set.
[[nodiscard]] std::string programs_file(const ProgramKey& key, std::string_view binaries);

// A folder of such files.
class ProgramCache {
 public:
  explicit ProgramCache(std::string folder);

  [[nodiscard]] FoundPrograms find(const ProgramKey& key, DriverRule rule) const;

  // Writes aside and renames, so that others see all or nothing; what was used longest ago goes
  // when the folder becomes too large.  A folder that cannot be written is no failure: the cache
  // only saves time.  Returns why it was not kept, or nothing.
  std::string store(const ProgramKey& key, std::string_view binaries) const;

 private:
  std::string folder_;
};

}  // namespace adrenoc_runtime
