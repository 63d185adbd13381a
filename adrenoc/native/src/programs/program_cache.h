// Built OpenCL kernels in a folder, so that a later start needs no compiler.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/failure.h"
#include "base/sha256.h"
#include "files/file.h"

namespace adrenoc_runtime {

// When kernels that one driver built are used with another.
enum class DriverRule {
  // Never: the driver must be the very same.
  kSame,
  // For Qualcomm's drivers as MACE does: of the same branch, or built later.
  kQualcomm,
};

inline std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// The word behind `name`: "Remote Branch: refs/tags/X".  Empty where the next name follows at once,
// as in "Remote Branch:  Reconstruct Branch: ".
inline std::string field_of(const std::string& driver, const std::string& name) {
  const size_t at = driver.find(name);
  if (at == driver.npos) return "";
  size_t start = at + name.size();
  if (start < driver.size() && driver[start] == ' ') ++start;
  const size_t end = std::min(driver.find(' ', start), driver.size());
  if (driver.compare(end, 8, " Branch:") == 0) return "";
  return driver.substr(start, end - start);
}

// "10/01/21" (month, day, year) as a text that sorts by time; empty for anything else.
inline std::string build_date(const std::string& driver) {
  const std::string date = field_of(driver, "Date:");
  const bool fits = date.size() == 8 && date[2] == '/' && date[5] == '/';
  return fits ? date.substr(6, 2) + date.substr(0, 2) + date.substr(3, 2) : "";
}

// Whether `now` may run what `then` built; both are what CL_DRIVER_VERSION says.
[[nodiscard]] inline bool driver_fits(const std::string& now, const std::string& then,
                                      DriverRule rule) {
  if (one_line(now) == one_line(then)) return true;
  if (rule == DriverRule::kSame) return false;
  const auto is_qualcomm = [](const std::string& driver) {
    return driver.find("QUALCOMM") != driver.npos;
  };
  if (!is_qualcomm(now) || !is_qualcomm(then)) return false;
  const std::string branch = field_of(now, "Remote Branch:");
  if (!branch.empty() && branch == field_of(then, "Remote Branch:")) return true;
  const std::string now_date = build_date(now);
  const std::string then_date = build_date(then);
  return !now_date.empty() && !then_date.empty() && now_date > then_date;
}

constexpr std::string_view kMagic = "adrenoc-programs-2";

// What a set of built kernels depends on.
struct ProgramKey {
  std::string device;   // platform, name and OpenCL version
  std::string driver;   // CL_DRIVER_VERSION
  std::string sources;  // digest of the kernels' sources and build options

  // The name of the file that holds the set: one for each device and set of kernels, so that a new
  // driver's set takes the place of the old one.
  [[nodiscard]] std::string file_name() const {
    return sha256_hex(std::string(kMagic) + "\n" + device + "\n" + sources) + ".programs";
  }
};

// What a file holds for a key, or why it does not.
struct FoundPrograms {
  std::optional<std::string> binaries;
  // The file is there and cannot be used: cut, changed, of another key or another driver.
  bool is_damaged = false;
};

// Takes the text before the next line break from `rest`.
inline std::string_view take_line(std::string_view* rest) {
  const size_t end = std::min(rest->find('\n'), rest->size());
  const std::string_view line = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return line;
}

// Reads the content of a file of the cache.
[[nodiscard]] inline FoundPrograms read_programs(std::string_view file, const ProgramKey& key,
                                                 DriverRule rule) {
  const FoundPrograms unusable{std::nullopt, true};
  std::string_view rest = file;
  if (take_line(&rest) != kMagic || take_line(&rest) != key.file_name()) return unusable;
  const std::string_view digest = take_line(&rest);
  if (digest != sha256_hex(rest)) return unusable;
  const std::string driver(take_line(&rest));
  if (!driver_fits(key.driver, driver, rule)) return unusable;
  return {std::string(rest), false};
}

// The content to write for a set.
[[nodiscard]] inline std::string programs_file(const ProgramKey& key, std::string_view binaries) {
  const std::string body = one_line(key.driver) + "\n" + std::string(binaries);
  return std::string(kMagic) + "\n" + key.file_name() + "\n" + sha256_hex(body) + "\n" + body;
}

constexpr uint64_t kMaxFolderBytes = uint64_t{512} << 20;

// A folder of such files.
class ProgramCache {
 public:
  explicit ProgramCache(std::string folder) : folder_(std::move(folder)) {}

  [[nodiscard]] FoundPrograms find(const ProgramKey& key, DriverRule rule) const {
    const std::string path = folder_ + "/" + key.file_name();
    if (!why_not_private(folder_).empty()) return {};  // `store` says why
    try {
      const Descriptor file = open_private_file(path);
      const MappedFile content(file.get(), path);
      FoundPrograms found = read_programs(content.content(), key, rule);
      if (found.binaries.has_value()) touch_file(path);
      return found;
    } catch (const Failure&) {
      return {};  // not there, not readable, or not to be trusted: all mean to build
    }
  }

  // Writes aside and renames, so that others see all or nothing; what was used longest ago goes
  // when the folder becomes too large.  A folder that cannot be written is no failure: the cache
  // only saves time.  Returns why it was not kept, or nothing.
  std::string store(const ProgramKey& key, std::string_view binaries) const {
    std::string wrong = make_private_folder(folder_);
    if (!wrong.empty()) return wrong;
    wrong = write_private_file(folder_ + "/" + key.file_name(), programs_file(key, binaries));
    remove_old_files(folder_, kMaxFolderBytes);
    return wrong;
  }

 private:
  std::string folder_;
};

}  // namespace adrenoc_runtime
