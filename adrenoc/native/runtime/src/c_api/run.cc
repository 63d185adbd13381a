// A model runs, here or in a thread of its own, and tells how long it took.
#include <chrono>

#include "c_api/call.h"

using adrenoc_runtime::Failure;
using adrenoc_runtime::guarded;
using adrenoc_runtime::require;

adrenoc_status adrenoc_run(adrenoc_model* model) {
  return guarded([&] {
    require(model, "model");
    model->model.run();
  });
}

adrenoc_status adrenoc_run_repeatedly(adrenoc_model* model, uint32_t runs, double* ms,
                                      double* host_ms) {
  return guarded([&] {
    require(model, "model");
    const adrenoc_runtime::Model::Pace pace = model->model.run_repeatedly(runs);
    if (ms != nullptr) *ms = pace.ms;
    if (host_ms != nullptr) *host_ms = pace.host_ms;
  });
}

adrenoc_status adrenoc_verify(adrenoc_model* model, adrenoc_verdict* verdict) {
  return guarded([&] {
    require(model, "model");
    if (verdict != nullptr && verdict->struct_bytes == 0) {
      throw Failure(ADRENOC_BAD_ARGUMENT, "struct_bytes of the verdict is 0");
    }
    const adrenoc_runtime::Model::Verdict found = model->model.verify();
    if (verdict != nullptr) {
      adrenoc_verdict told{};
      told.struct_bytes = verdict->struct_bytes;
      told.was_kept = found.was_kept ? 1 : 0;
      told.runs = found.runs;
      told.ms = found.ms;
      std::memcpy(verdict, &told, std::min<size_t>(told.struct_bytes, sizeof(told)));
    }
    if (!found.wrong.empty()) throw Failure(ADRENOC_WRONG_RESULTS, found.wrong);
  });
}

const char* adrenoc_profile(adrenoc_model* model) {
  const char* text = nullptr;
  guarded([&] {
    require(model, "model");
    text = model->model.profile();
  });
  return text;
}

adrenoc_status adrenoc_run_async(adrenoc_model* model) {
  return guarded([&] {
    require(model, "model");
    const std::lock_guard<std::mutex> lock(model->pending_mutex);
    if (model->pending.valid()) {
      throw Failure(ADRENOC_NOT_READY, "a run goes on that nobody has waited for");
    }
    // Who cancels from here on means this run, whenever its thread begins.
    model->pending = std::async(std::launch::async, [model, since = model->model.cancels()] {
      const adrenoc_runtime::Fence::Signal at_end(model->fence);
      model->model.run(since);
    });
  });
}

adrenoc_status adrenoc_cancel(adrenoc_model* model) {
  return guarded([&] {
    require(model, "model");
    model->model.cancel();
  });
}

adrenoc_status adrenoc_fence(adrenoc_model* model, int* descriptor) {
  return guarded([&] {
    require(model, "model");
    require(descriptor, "descriptor");
    *descriptor = model->fence.descriptor();
  });
}

adrenoc_status adrenoc_wait(adrenoc_model* model, int64_t timeout_ms) {
  return guarded([&] {
    require(model, "model");
    const std::lock_guard<std::mutex> lock(model->pending_mutex);
    std::future<void>& pending = model->pending;
    if (!pending.valid()) throw Failure(ADRENOC_BAD_ARGUMENT, "no run was started");
    // Longer waits would overflow the clock.
    constexpr int64_t longest_ms = int64_t{1000} * 60 * 60 * 24 * 365;
    const std::chrono::milliseconds limit(std::min(timeout_ms, longest_ms));
    const bool ended = timeout_ms < 0 || pending.wait_for(limit) == std::future_status::ready;
    // The thread signals just before its last deed.
    if (!ended && !model->fence.is_signalled()) {
      throw Failure(ADRENOC_NOT_READY, "the run goes on");
    }
    pending.wait();
    model->fence.reset();
    pending.get();
  });
}

adrenoc_status adrenoc_get_times(const adrenoc_model* model, adrenoc_times* times) {
  return guarded([&] {
    require(model, "model");
    require(times, "times");
    *times = model->model.times();
  });
}

adrenoc_status adrenoc_get_launching(adrenoc_model* model, adrenoc_launching* launching) {
  return guarded([&] {
    require(model, "model");
    require(launching, "launching");
    if (launching->struct_bytes == 0) {
      throw Failure(ADRENOC_BAD_ARGUMENT, "struct_bytes of the launching is 0");
    }
    adrenoc_launching told = model->model.launching();
    told.struct_bytes = launching->struct_bytes;
    std::memcpy(launching, &told, std::min<size_t>(told.struct_bytes, sizeof(told)));
  });
}
