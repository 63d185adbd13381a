// The one exception of the runtime's own code: a status of the C API and a sentence.
#pragma once

#include <stdexcept>
#include <string>

#include "adrenoc.h"

namespace adrenoc_runtime {

class Failure : public std::runtime_error {
 public:
  Failure(adrenoc_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  [[nodiscard]] adrenoc_status status() const noexcept { return status_; }

 private:
  adrenoc_status status_;
};

[[noreturn]] inline void refuse_bundle(const std::string& message) {
  throw Failure(ADRENOC_BAD_BUNDLE, message);
}

}  // namespace adrenoc_runtime
