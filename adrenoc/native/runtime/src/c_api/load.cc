// Models are loaded, let go of, and asked to hold less.
#include <memory>
#include <string_view>

#include "bundle/bundle.h"
#include "c_api/call.h"
#include "launch/cancelling.h"
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
    if (opencl::is_cancelled(error)) {
      throw Failure(ADRENOC_CANCELLED, "the load was cancelled");
    }
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
