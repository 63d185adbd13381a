// Files: in memory without copying them, in caches, and what tells after a crash what was done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace adrenoc_runtime {

// A descriptor that is closed when it goes.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();
  [[nodiscard]] int get() const { return number_; }

 private:
  int number_;
};

// A plain file opened for reading.  Throws Failure (not found) with the system's reason.
[[nodiscard]] Descriptor open_file(const std::string& path);

// A part of a file, readable as long as the object lives.  Nobody may cut the file meanwhile.
class MappedFile {
 public:
  // `bytes` from `offset` of an open file.  Throws Failure: bad argument when the file does not
  // hold them, not found when it cannot be mapped.
  MappedFile(int descriptor, int64_t offset, int64_t bytes, const std::string& shown);
  // All of an open file.
  MappedFile(int descriptor, const std::string& shown);
  // All of a file.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  [[nodiscard]] std::string_view content() const { return content_; }
  // Gives back the memory of a part of it, which counts as the process's once read; whoever reads
  // there again gets it from the file.  Nothing where `part` lies elsewhere.
  void forget(std::string_view part) const;

 private:
  void map(int descriptor, int64_t offset, int64_t bytes, const std::string& shown);

  void* start_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::string_view content_;
};

// Makes a folder of a cache for this user alone, unless it is there.  Why nothing of it may be
// used: it is missing, somebody else's, or anybody may write there; empty where it may.
std::string make_private_folder(const std::string& folder);

// The same of a folder that is not made where it is missing.
[[nodiscard]] std::string why_not_private(const std::string& folder);

// A plain file of this user or of root that nobody else may write to, opened for reading.  Throws
// Failure (not found) with the reason for another one.
[[nodiscard]] Descriptor open_private_file(const std::string& path);

// Writes a file that only this user may read, aside and then renamed: others see all or nothing.
// Returns why it could not be written, or nothing.
std::string write_private_file(const std::string& path, std::string_view content);

// Removes the plain files of `folder` that were used longest ago, until the rest has `max_bytes`.
// Files that other processes remove meanwhile are no failure.
void remove_old_files(const std::string& folder, uint64_t max_bytes);

// Notes that a file was used now.
void touch_file(const std::string& path);

// From now on `trace` writes into this file, through memory: what was written stays when the
// process is killed.  Does nothing where the file cannot be made.
void open_trace(const std::string& path);

// "launched kernel NAME", cut to what the file holds.  Costs a test of a pointer without a file.
void trace(const char* deed, const std::string& name) noexcept;

}  // namespace adrenoc_runtime
