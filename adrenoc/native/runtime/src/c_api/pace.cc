// How models leave the device to others: pauses, and a ceiling on what they give it at once.

#include "c_api/call.h"
#include "launch/pacing.h"
#include "model/pause.h"

using adrenoc_runtime::Failure;
using adrenoc_runtime::guarded;
using adrenoc_runtime::Pause;

adrenoc_status adrenoc_pause(int64_t timeout_ms) {
  return guarded([&] {
    if (Pause::global().begin(timeout_ms)) return;
    throw Failure(ADRENOC_NOT_READY, "a model still computes; no other run begins");
  });
}

adrenoc_status adrenoc_resume(void) {
  return guarded([&] { Pause::global().end(); });
}

adrenoc_status adrenoc_set_submission_limit(double ms) {
  return guarded([&] {
    if (!(ms >= 0)) {
      throw Failure(ADRENOC_BAD_ARGUMENT,
                    "a submission of " + std::to_string(ms) + " ms, expected 0 or more");
    }
    adrenoc_runtime::opencl::set_submission_limit(ms);
  });
}
