// Models are loaded, let go of, and asked to hold less; and what holds for all of the process:
// memory of the device, pauses, a ceiling on submissions.
#include <memory>
#include <string_view>

#include "bundle/bundle.h"
#include "c_api/call.h"
#include "launch/cancelling.h"
#include "model/residency.h"
#include "opencl/device.h"

namespace adrenoc_runtime {
namespace {

// `open(verify)` gives the bundle.
template <typename Open>
void load(const adrenoc_options* given, adrenoc_model** model, Open open) {
  require(model, "model");
  *model = nullptr;
  const adrenoc_options plain = read_plain(given, "options");
  const LoadOptions options = read_options(plain);
  const std::atomic<uint64_t> never{0};
  const opencl::Cancelling cancelling(plain.cancellation ? plain.cancellation->asked : never, 0);
  const opencl::CancellingScope scope(&cancelling);
  try {
    opencl::end_if_cancelled();
    std::unique_ptr<Bundle> bundle = open(!options.trust_files);
    opencl::end_if_cancelled();
    *model = new adrenoc_model{Model(std::move(bundle), options)};
  } catch (const tvm::ffi::Error& error) {
    opencl::release_all_pools();
    if (opencl::is_cancelled(error)) throw Failure(ADRENOC_CANCELLED, "the load was cancelled");
    throw;
  } catch (...) {
    // What was on the device already went into the pool.
    opencl::release_all_pools();
    throw;
  }
}

}  // namespace

}  // namespace adrenoc_runtime

using namespace adrenoc_runtime;

adrenoc_status adrenoc_load(const char* path, const adrenoc_options* options,
                            adrenoc_model** model) {
  return guarded([&] {
    require(path, "path");
    load(options, model,
         [&](bool verify) { return std::make_unique<Bundle>(std::string(path), verify); });
  });
}

adrenoc_status adrenoc_load_fd(int descriptor, int64_t offset, int64_t bytes,
                               const adrenoc_options* options, adrenoc_model** model) {
  return guarded([&] {
    load(options, model, [&](bool verify) {
      return std::make_unique<Bundle>(MappedFile(descriptor, offset, bytes, "the open file"),
                                      verify);
    });
  });
}

adrenoc_status adrenoc_load_memory(const void* data, size_t bytes, const adrenoc_options* options,
                                   adrenoc_model** model) {
  return guarded([&] {
    require(data, "data");
    load(options, model, [&](bool verify) {
      const std::string_view archive(static_cast<const char*>(data), bytes);
      return std::make_unique<Bundle>(archive, verify);
    });
  });
}

adrenoc_status adrenoc_cancellation_create(adrenoc_cancellation** cancellation) {
  return guarded([&] {
    require(cancellation, "cancellation");
    *cancellation = nullptr;
    *cancellation = new adrenoc_cancellation();
  });
}

adrenoc_status adrenoc_cancellation_cancel(adrenoc_cancellation* cancellation) {
  return guarded([&] {
    require(cancellation, "cancellation");
    ++cancellation->asked;
  });
}

void adrenoc_cancellation_free(adrenoc_cancellation* cancellation) { delete cancellation; }

void adrenoc_free(adrenoc_model* model) {
  (void)guarded([&] {
    delete model;
    opencl::release_all_pools();
  });
}

adrenoc_status adrenoc_trim(adrenoc_model* model) {
  return guarded([&] {
    if (model != nullptr) model->model.trim();
    opencl::release_all_pools();
  });
}

adrenoc_status adrenoc_set_memory_budget(uint64_t bytes) {
  return guarded([&] { Residency::global().set_budget(bytes); });
}

adrenoc_status adrenoc_trim_memory(uint32_t part) {
  return guarded([&] {
    switch (part) {
      case ADRENOC_TRIM_UNUSED: opencl::release_all_pools(); return;
      case ADRENOC_TRIM_BETWEEN: Residency::global().trim(Resident::Part::kBetween); return;
      case ADRENOC_TRIM_CONSTANTS: Residency::global().trim(Resident::Part::kConstants); return;
      default: refuse_argument({"part is ", part, ", expected an adrenoc_trim_part"});
    }
  });
}

adrenoc_status adrenoc_get_memory(adrenoc_memory* memory) {
  return guarded([&] {
    require(memory, "memory");
    (void)read_plain(memory, "memory");
    const Residency::Facts facts = Residency::global().facts();
    const opencl::HeldBytes held = opencl::held_bytes();
    adrenoc_memory told{};
    told.models = facts.models;
    told.evicted = facts.evicted;
    told.budget_bytes = facts.budget_bytes;
    told.used_bytes = held.used;
    told.pooled_bytes = held.pooled;
    told.evictions = facts.evictions;
    told.returns = facts.returns;
    told.return_ms = facts.return_ms;
    tell_plain(told, memory);
  });
}

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
    if (!(ms >= 0)) refuse_argument({"a submission of ", ms, " ms, expected 0 or more"});
    opencl::set_submission_limit(ms);
  });
}
