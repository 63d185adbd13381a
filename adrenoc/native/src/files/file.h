// Files: in memory without copying them, in caches, and what tells after a crash what was done.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/failure.h"

namespace adrenoc_runtime {

// A descriptor that is closed when it goes.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  [[nodiscard]] int get() const { return number_; }

 private:
  int number_;
};

[[noreturn]] inline void cannot_read(const std::string& shown, int code) {
  throw Failure(ADRENOC_NOT_FOUND, {"cannot read ", shown, ": ", std::strerror(code)});
}

// A plain file opened for reading.  Throws Failure (not found) with the system's reason.
[[nodiscard]] inline Descriptor open_file(const std::string& path) {
  // Without O_NONBLOCK a pipe of that name would wait for a writer for ever.
  const int number = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) cannot_read(path, errno);
  return Descriptor(number);
}

inline int64_t file_bytes(int descriptor, const std::string& shown) {
  struct stat facts{};
  if (fstat(descriptor, &facts) != 0) cannot_read(shown, errno);
  if (!S_ISREG(facts.st_mode)) {
    throw Failure(ADRENOC_NOT_FOUND, {"cannot read ", shown, ": it is not a plain file"});
  }
  return facts.st_size;
}

// A part of a file, readable as long as the object lives.  Nobody may cut the file meanwhile.
class MappedFile {
 public:
  // `bytes` from `offset` of an open file.  Throws Failure: bad argument when the file does not
  // hold them, not found when it cannot be mapped.
  MappedFile(int descriptor, int64_t offset, int64_t bytes, const std::string& shown) {
    const int64_t size = file_bytes(descriptor, shown);
    if (offset < 0 || bytes < 0 || offset > size || bytes > size - offset) {
      refuse_argument({shown, " has ", size, " bytes, asked for ", bytes, " from ", offset});
    }
    map(descriptor, offset, bytes, shown);
  }
  // All of an open file.
  MappedFile(int descriptor, const std::string& shown) {
    map(descriptor, 0, file_bytes(descriptor, shown), shown);
  }
  // All of a file: mapped, it needs no descriptor any more.
  explicit MappedFile(const std::string& path) : MappedFile(open_file(path).get(), path) {}
  MappedFile(MappedFile&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)),
        mapped_bytes_(other.mapped_bytes_),
        content_(other.content_) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile() {
    if (start_ != nullptr) munmap(start_, mapped_bytes_);
  }

  [[nodiscard]] std::string_view content() const { return content_; }
  // Gives back the memory of a part of it, which counts as the process's once read; whoever reads
  // there again gets it from the file.  Nothing where `part` lies elsewhere.
  void forget(std::string_view part) const {
    const auto begin = reinterpret_cast<uintptr_t>(part.data());
    const auto first = reinterpret_cast<uintptr_t>(start_);
    if (start_ == nullptr || part.empty() || begin < first ||
        begin + part.size() > first + mapped_bytes_) {
      return;
    }
    // Whole pages: those that it shares with a neighbour are read again where that one is.
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t from = begin - begin % page;
    // A hint: where it is not taken, the memory stays in use as before.
    (void)madvise(reinterpret_cast<void*>(from), begin + part.size() - from, MADV_DONTNEED);
  }

 private:
  void map(int descriptor, int64_t offset, int64_t bytes, const std::string& shown) {
    if (bytes == 0) return;  // which cannot be mapped
    // Mappings start at a page.
    const int64_t before = offset % sysconf(_SC_PAGESIZE);
    const auto whole = static_cast<size_t>(bytes + before);
    void* start = mmap(nullptr, whole, PROT_READ, MAP_PRIVATE, descriptor,
                       static_cast<off_t>(offset - before));
    if (start == MAP_FAILED) cannot_read(shown, errno);
    start_ = start;
    mapped_bytes_ = whole;
    content_ = {static_cast<const char*>(start) + before, static_cast<size_t>(bytes)};
  }

  void* start_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::string_view content_;
};

// Root may put anything anywhere as it is.
inline bool is_trusted_owner(const struct stat& facts) {
  return facts.st_uid == 0 || facts.st_uid == geteuid();
}

inline std::string of_another_user(const std::string& path, const struct stat& facts) {
  return path + " belongs to another user (number " + std::to_string(facts.st_uid) + ")";
}

// The same of a folder that is not made where it is missing.
[[nodiscard]] inline std::string why_not_private(const std::string& folder) {
  struct stat facts{};
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

// Makes a folder of a cache for this user alone, unless it is there.  Why nothing of it may be
// used: it is missing, somebody else's, or anybody may write there; empty where it may.
inline std::string make_private_folder(const std::string& folder) {
  mkdir(folder.c_str(), 0700);  // what it says does not matter: looking tells
  return why_not_private(folder);
}

// A plain file of this user or of root that nobody else may write to, opened for reading.  Throws
// Failure (not found) with the reason for another one.
[[nodiscard]] inline Descriptor open_private_file(const std::string& path) {
  Descriptor file = open_file(path);
  struct stat facts{};
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
  if (!wrong.empty()) throw Failure(ADRENOC_NOT_FOUND, {"cannot use ", path, ": ", wrong});
  return file;
}

inline bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(file) == 0;
}

// Writes a file that only this user may read, aside and then renamed: others see all or nothing.
// Returns why it could not be written, or nothing.
inline std::string write_private_file(const std::string& path, std::string_view content) {
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

struct OldFile {
  std::pair<int64_t, int64_t> time;  // seconds and nanoseconds
  std::string path;
  uint64_t bytes;
};

// Removes the plain files of `folder` that were used longest ago, until the rest has `max_bytes`.
// Files that other processes remove meanwhile are no failure.
inline void remove_old_files(const std::string& folder, uint64_t max_bytes) {
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return;
  std::vector<OldFile> files;
  uint64_t bytes = 0;
  while (const dirent* entry = readdir(listing)) {
    const std::string path = folder + "/" + entry->d_name;
    struct stat facts{};
    if (lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
    files.push_back({{facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec},
                     path,
                     static_cast<uint64_t>(facts.st_size)});
    bytes += files.back().bytes;
  }
  closedir(listing);
  std::sort(files.begin(), files.end(),
            [](const OldFile& a, const OldFile& b) { return a.time < b.time; });
  for (const OldFile& file : files) {
    if (bytes <= max_bytes) return;
    unlink(file.path.c_str());
    bytes -= file.bytes;
  }
}

// Notes that a file was used now.
inline void touch_file(const std::string& path) {
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // a folder that cannot be written keeps its times
}

constexpr size_t kTraceBytes = 512;

inline std::atomic<char*> trace_memory{nullptr};

// From now on `trace` writes into this file, through memory: what was written stays when the
// process is killed.  Does nothing where the file cannot be made.
inline void open_trace(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  // Written, not only made as long: on a full disk a write to the mapped page would be a signal.
  const char empty[kTraceBytes] = {};
  if (file.get() < 0 || write(file.get(), empty, kTraceBytes) != ssize_t{kTraceBytes}) return;
  void* memory = mmap(nullptr, kTraceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory != MAP_FAILED) trace_memory = static_cast<char*>(memory);
}

// "launched kernel NAME", cut to what the file holds.  Costs a test of a pointer without a file.
inline void trace(const char* deed, const std::string& name) noexcept {
  char* memory = trace_memory.load(std::memory_order_relaxed);
  if (memory != nullptr) std::snprintf(memory, kTraceBytes, "%s %s", deed, name.c_str());
}

}  // namespace adrenoc_runtime
