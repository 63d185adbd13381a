// What all functions of the C API share: arguments checked, exceptions turned into a status and a
// sentence.
#pragma once

#include <tvm/ffi/error.h>

#include <exception>
#include <future>
#include <mutex>
#include <new>
#include <string>

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

namespace adrenoc_runtime {

// The sentence about this thread's last failure.
std::string& last_error();

adrenoc_status failed(adrenoc_status status, const char* message) noexcept;

void require(const void* pointer, const char* what);

std::string text_or_empty(const char* text);

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

}  // namespace adrenoc_runtime
