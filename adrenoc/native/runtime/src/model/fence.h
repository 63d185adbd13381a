// Tells whoever polls file descriptors that a run has ended.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "base/failure.h"
#include "files/mapped_file.h"

namespace adrenoc_runtime {

class Fence {
 public:
  // Readable from signal() to reset(); made at the first call.  Throws Failure (out of memory)
  // where the process has no descriptor left.
  [[nodiscard]] int descriptor() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!event_.has_value()) {
      Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (event.get() < 0) throw Failure(ADRENOC_OUT_OF_MEMORY, "no file descriptor is left");
      event_.emplace(std::move(event));
      if (signalled_) write_locked();
    }
    return event_->get();
  }
  void signal() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    signalled_ = true;
    write_locked();
  }
  void reset() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    signalled_ = false;
    uint64_t count = 0;
    if (event_.has_value()) (void)!read(event_->get(), &count, sizeof(count));
  }
  [[nodiscard]] bool is_signalled() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    return signalled_;
  }

  // Signals when it goes, however the run ends.
  class Signal {
   public:
    explicit Signal(Fence& fence) : fence_(fence) {}
    Signal(const Signal&) = delete;
    Signal& operator=(const Signal&) = delete;
    ~Signal() { fence_.signal(); }

   private:
    Fence& fence_;
  };

 private:
  void write_locked() noexcept {
    const uint64_t one = 1;
    if (event_.has_value()) (void)!write(event_->get(), &one, sizeof(one));
  }

  std::mutex mutex_;
  std::optional<Descriptor> event_;
  bool signalled_ = false;  // a run may end before anybody asks for the descriptor
};

}  // namespace adrenoc_runtime
