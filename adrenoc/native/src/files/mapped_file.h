// Files in memory, without copying them.
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

}  // namespace adrenoc_runtime
