#include "program_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "failure.h"
#include "mapped_file.h"
#include "old_files.h"
#include "sha256.h"

namespace adrenoc_runtime {
namespace {

constexpr std::string_view kMagic = "adrenoc-programs-2";
constexpr uint64_t kMaxFolderBytes = uint64_t{512} << 20;

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(file) == 0;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Takes the text before the next line break from `rest`.
std::string_view take_line(std::string_view* rest) {
  const size_t end = std::min(rest->find('\n'), rest->size());
  const std::string_view line = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return line;
}

// The word behind `name`: "Remote Branch: refs/tags/X".  Empty where the next name follows at once,
// as in "Remote Branch:  Reconstruct Branch: ".
std::string field_of(const std::string& driver, const std::string& name) {
  const size_t at = driver.find(name);
  if (at == driver.npos) return "";
  size_t start = at + name.size();
  if (start < driver.size() && driver[start] == ' ') ++start;
  const size_t end = std::min(driver.find(' ', start), driver.size());
  if (driver.compare(end, 8, " Branch:") == 0) return "";
  return driver.substr(start, end - start);
}

// "10/01/21" (month, day, year) as a text that sorts by time; empty for anything else.
std::string build_date(const std::string& driver) {
  const std::string date = field_of(driver, "Date:");
  const bool fits = date.size() == 8 && date[2] == '/' && date[5] == '/';
  return fits ? date.substr(6, 2) + date.substr(0, 2) + date.substr(3, 2) : "";
}

}  // namespace

bool driver_fits(const std::string& now, const std::string& then, DriverRule rule) {
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

std::string ProgramKey::file_name() const {
  return sha256_hex(std::string(kMagic) + "\n" + device + "\n" + sources) + ".programs";
}

FoundPrograms read_programs(std::string_view file, const ProgramKey& key, DriverRule rule) {
  const FoundPrograms unusable{std::nullopt, true};
  std::string_view rest = file;
  if (take_line(&rest) != kMagic || take_line(&rest) != key.file_name()) return unusable;
  const std::string_view digest = take_line(&rest);
  if (digest != sha256_hex(rest)) return unusable;
  const std::string driver(take_line(&rest));
  if (!driver_fits(key.driver, driver, rule)) return unusable;
  return {std::string(rest), false};
}

std::string programs_file(const ProgramKey& key, std::string_view binaries) {
  const std::string body = one_line(key.driver) + "\n" + std::string(binaries);
  return std::string(kMagic) + "\n" + key.file_name() + "\n" + sha256_hex(body) + "\n" + body;
}

ProgramCache::ProgramCache(std::string folder) : folder_(std::move(folder)) {}

FoundPrograms ProgramCache::find(const ProgramKey& key, DriverRule rule) const {
  const std::string path = folder_ + "/" + key.file_name();
  try {
    const MappedFile file(path);
    FoundPrograms found = read_programs(file.content(), key, rule);
    if (found.binaries.has_value()) touch_file(path);
    return found;
  } catch (const Failure&) {
    return {};  // not there, or not readable: both mean to build
  }
}

std::string ProgramCache::store(const ProgramKey& key, std::string_view binaries) const {
  mkdir(folder_.c_str(), 0700);  // what it says does not matter: opening tells
  const std::string path = folder_ + "/" + key.file_name();
  std::string aside = path + ".XXXXXX";
  const Descriptor file(mkstemp(aside.data()));
  if (file.get() < 0) return "cannot write to " + folder_ + ": " + std::strerror(errno);
  std::string wrong;
  if (!write_all(file.get(), programs_file(key, binaries)) ||
      std::rename(aside.c_str(), path.c_str()) != 0) {
    wrong = "cannot write " + path + ": " + std::strerror(errno);
    unlink(aside.c_str());
  }
  remove_old_files(folder_, kMaxFolderBytes);
  return wrong;
}

}  // namespace adrenoc_runtime
