// What all functions of the C API share: arguments checked, exceptions turned into a status and a
// sentence.
#pragma once

#include <tvm/ffi/error.h>

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
#include <vector>

#include "adrenoc.h"
#include "base/failure.h"
#include "model/fence.h"
#include "model/model.h"

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

namespace adrenoc_runtime {

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
  if (given->struct_bytes == 0) {
    throw Failure(ADRENOC_BAD_ARGUMENT, std::string("struct_bytes of the ") + what + " is 0");
  }
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
