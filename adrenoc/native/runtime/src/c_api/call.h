// What all functions of the C API share: arguments checked, exceptions turned into a status and a
// sentence.
#pragma once

#include <sys/eventfd.h>
#include <tvm/ffi/error.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <future>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adrenoc.h"
#include "base/failure.h"
#include "files/file.h"
#include "model/model.h"

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

// The sentence about this thread's last failure.
std::string& last_error();

adrenoc_status failed(adrenoc_status status, const char* message) noexcept;

void require(const void* pointer, const char* what);

std::string text_or_empty(const char* text);

// `count` of them; nothing where the caller leaves the choice.
[[nodiscard]] std::vector<std::optional<Shape>> read_shapes(const adrenoc_shape* shapes,
                                                            size_t count);

// What a caller gives in a struct that begins with `struct_bytes`: programs that were compiled with
// another version know fewer fields, or more.  Zeros for null.
template <typename Struct>
[[nodiscard]] Struct read_plain(const Struct* given, const char* what) {
  Struct plain{};
  if (given == nullptr) return plain;
  if (given->struct_bytes == 0) refuse_argument({"struct_bytes of the ", what, " is 0"});
  std::memcpy(&plain, given, std::min<size_t>(given->struct_bytes, sizeof(plain)));
  return plain;
}

// How a run ends before its end; `options` may be null.
[[nodiscard]] opencl::Ending read_ending(const adrenoc_run_options* options);

// What a caller wants of a load.  Throws Failure (bad argument) for a value that no field takes.
[[nodiscard]] LoadOptions read_options(const adrenoc_options& plain);
// What an app says of how tokens are picked.
[[nodiscard]] Generation read_generation(const adrenoc_generation* given);

// Runs `work` and lets no exception out.
template <typename Work>
adrenoc_status guarded(Work work) noexcept {
  try {
    work();
    return ADRENOC_OK;
  } catch (const Failure& failure) {
    return failed(failure.status(), failure.what());
  } catch (const tvm::ffi::Error& error) {
    const bool memory = error.kind() == "MemoryError";
    return failed(memory ? ADRENOC_OUT_OF_MEMORY : ADRENOC_DEVICE_FAILED, error.message().c_str());
  } catch (const std::bad_alloc&) {
    return failed(ADRENOC_OUT_OF_MEMORY, "no memory is left on the host");
  } catch (const std::exception& error) {
    return failed(ADRENOC_INTERNAL, error.what());
  } catch (...) {
    return failed(ADRENOC_INTERNAL, "an unknown exception");
  }
}

// The same on a model, which has to be there.
template <typename Given, typename Work>
adrenoc_status with_model(Given* given, Work work) noexcept {
  return guarded([&] {
    require(given, "model");
    work(given->model);
  });
}

// Gives `told` to a caller whose struct, which read_plain() took, may know fewer fields, or more.
template <typename Struct>
void tell_plain(Struct told, Struct* given) {
  told.struct_bytes = given->struct_bytes;
  std::memcpy(given, &told, std::min<size_t>(told.struct_bytes, sizeof(told)));
}

}  // namespace adrenoc_runtime

struct adrenoc_model {
  adrenoc_runtime::Model model;
  adrenoc_runtime::Fence fence{};
  // The run that goes on; goes first, so that its thread has ended when the rest goes.
  std::mutex pending_mutex{};
  std::future<void> pending{};
};

struct adrenoc_cancellation {
  std::atomic<uint64_t> asked{0};
};
