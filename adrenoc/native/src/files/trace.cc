#include "files/trace.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "files/mapped_file.h"

namespace adrenoc_runtime {
namespace {

constexpr size_t kTraceBytes = 512;

std::atomic<char*> trace_memory{nullptr};

}  // namespace

void open_trace(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  // Written, not only made as long: on a full disk a write to the mapped page would be a signal.
  const char empty[kTraceBytes] = {};
  if (file.get() < 0 || write(file.get(), empty, kTraceBytes) != ssize_t{kTraceBytes}) return;
  void* memory =
      mmap(nullptr, kTraceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory != MAP_FAILED) trace_memory = static_cast<char*>(memory);
}

void trace(const char* deed, const std::string& name) noexcept {
  char* memory = trace_memory.load(std::memory_order_relaxed);
  if (memory != nullptr) std::snprintf(memory, kTraceBytes, "%s %s", deed, name.c_str());
}

}  // namespace adrenoc_runtime
