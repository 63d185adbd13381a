#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/failure.h"

namespace adrenoc_runtime {
namespace {

[[noreturn]] void cannot_read(const std::string& shown, int code) {
  throw Failure(ADRENOC_NOT_FOUND, "cannot read " + shown + ": " + std::strerror(code));
}

int64_t file_bytes(int descriptor, const std::string& shown) {
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0) cannot_read(shown, errno);
  if (!S_ISREG(facts.st_mode)) {
    throw Failure(ADRENOC_NOT_FOUND, "cannot read " + shown + ": it is not a plain file");
  }
  return facts.st_size;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Descriptor open_file(const std::string& path) {
  // Without O_NONBLOCK a pipe of that name would wait for a writer for ever.
  const int number = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) cannot_read(path, errno);
  return Descriptor(number);
}

MappedFile::MappedFile(int descriptor, int64_t offset, int64_t bytes, const std::string& shown) {
  const int64_t size = file_bytes(descriptor, shown);
  if (offset < 0 || bytes < 0 || offset > size || bytes > size - offset) {
    throw Failure(ADRENOC_BAD_ARGUMENT,
                  shown + " has " + std::to_string(size) + " bytes, asked for " +
                      std::to_string(bytes) + " from " + std::to_string(offset));
  }
  map(descriptor, offset, bytes, shown);
}

MappedFile::MappedFile(int descriptor, const std::string& shown) {
  map(descriptor, 0, file_bytes(descriptor, shown), shown);
}

// Mapped, a file needs no descriptor any more.
MappedFile::MappedFile(const std::string& path) : MappedFile(open_file(path).get(), path) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : start_(std::exchange(other.start_, nullptr)),
      mapped_bytes_(other.mapped_bytes_),
      content_(other.content_) {}

MappedFile::~MappedFile() {
  if (start_ != nullptr) munmap(start_, mapped_bytes_);
}

void MappedFile::forget(std::string_view part) const {
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

void MappedFile::map(int descriptor, int64_t offset, int64_t bytes, const std::string& shown) {
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

}  // namespace adrenoc_runtime
