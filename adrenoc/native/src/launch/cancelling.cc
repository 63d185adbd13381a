#include "launch/cancelling.h"

#include <algorithm>

#include "launch/pacing.h"

namespace adrenoc_runtime::opencl {

void end_if_cancelled() {
  const Cancelling* const heeded = CancellingScope::current();
  if (heeded != nullptr && heeded->is_asked()) {
    TVM_FFI_THROW(CancelledError) << "the call was cancelled";
  }
}

void end_within_if_cancelled() {
  const Cancelling* const heeded = CancellingScope::current();
  if (heeded != nullptr && heeded->how().ends_within) end_if_cancelled();
}

bool is_cancelled(const tvm::ffi::Error& error) { return error.kind() == "CancelledError"; }

double piece_limit_ms() {
  const double of_process = submission_limit_ms();
  const double own = own_piece_limit_ms();
  return of_process > 0 && own > 0 ? std::min(of_process, own) : std::max(of_process, own);
}

double own_piece_limit_ms() {
  const Cancelling* const heeded = CancellingScope::current();
  return heeded == nullptr ? 0 : heeded->how().piece_ms;
}

}  // namespace adrenoc_runtime::opencl
