// The last error of each thread, and the statuses in words.
#include <iterator>

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

using namespace adrenoc_runtime;

const char* adrenoc_last_error(void) { return last_error().c_str(); }

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
  static constexpr const char* texts[] = {
      "all is well", "bad argument",      "not found",     "bad bundle",
      "no device",   "the device failed", "out of memory", "a defect of the runtime",
      "not ready",   "not supported",     "wrong results", "the context is full",
      "cancelled"};
  const auto place = static_cast<size_t>(status);
  return place < std::size(texts) ? texts[place] : "unknown status";
}
