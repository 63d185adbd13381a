#include "model/fence.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/failure.h"

namespace adrenoc_runtime {

int Fence::descriptor() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!event_.has_value()) {
    Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (event.get() < 0) throw Failure(ADRENOC_OUT_OF_MEMORY, "no file descriptor is left");
    event_.emplace(std::move(event));
    if (signalled_) write_locked();
  }
  return event_->get();
}

void Fence::signal() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  signalled_ = true;
  write_locked();
}

void Fence::reset() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  signalled_ = false;
  uint64_t count = 0;
  if (event_.has_value()) (void)!read(event_->get(), &count, sizeof(count));
}

bool Fence::is_signalled() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return signalled_;
}

void Fence::write_locked() noexcept {
  const uint64_t one = 1;
  if (event_.has_value()) (void)!write(event_->get(), &one, sizeof(one));
}

}  // namespace adrenoc_runtime
