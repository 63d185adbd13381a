// The last error of each thread, and the statuses in words.

#include "c_api/call.h"

namespace adrenoc_runtime {

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

adrenoc_status failed(adrenoc_status status, const char* message) noexcept {
  try {
    last_error() = message;
  } catch (const std::bad_alloc&) {
    last_error().clear();
  }
  return status;
}

void require(const void* pointer, const char* what) {
  if (pointer == nullptr) {
    throw Failure(ADRENOC_BAD_ARGUMENT, std::string(what) + " is a null pointer");
  }
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

}  // namespace adrenoc_runtime

const char* adrenoc_last_error(void) { return adrenoc_runtime::last_error().c_str(); }

int adrenoc_status_is_permanent(adrenoc_status status) {
  switch (status) {
    case ADRENOC_NOT_FOUND:
    case ADRENOC_BAD_BUNDLE:
    case ADRENOC_NO_DEVICE:
    case ADRENOC_UNSUPPORTED:
    case ADRENOC_WRONG_RESULTS:
      return 1;
    default:
      return 0;
  }
}

const char* adrenoc_status_text(adrenoc_status status) {
  switch (status) {
    case ADRENOC_OK:
      return "all is well";
    case ADRENOC_BAD_ARGUMENT:
      return "bad argument";
    case ADRENOC_NOT_FOUND:
      return "not found";
    case ADRENOC_BAD_BUNDLE:
      return "bad bundle";
    case ADRENOC_NO_DEVICE:
      return "no device";
    case ADRENOC_DEVICE_FAILED:
      return "the device failed";
    case ADRENOC_OUT_OF_MEMORY:
      return "out of memory";
    case ADRENOC_INTERNAL:
      return "a defect of the runtime";
    case ADRENOC_NOT_READY:
      return "not ready";
    case ADRENOC_UNSUPPORTED:
      return "not supported";
    case ADRENOC_WRONG_RESULTS:
      return "wrong results";
    case ADRENOC_CONTEXT_FULL:
      return "the context is full";
    case ADRENOC_CANCELLED:
      return "cancelled";
  }
  return "unknown status";
}
