// The C API: arguments checked, exceptions turned into a status and a sentence.
#include <tvm/ffi/error.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adrenoc.h"
#include "base/failure.h"
#include "bundle/loader_name.h"
#include "model/fence.h"
#include "model/model.h"
#include "opencl/cl_api.h"
#include "opencl/device.h"
#include "rpc/rpc_session.h"

struct adrenoc_model {
  adrenoc_runtime::Model model;
  adrenoc_runtime::Fence fence{};
  // The run that goes on; goes first, so that its thread has ended when the rest goes.
  std::mutex pending_mutex{};
  std::future<void> pending{};
};

namespace adrenoc_runtime {
namespace {

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

void require(const void* pointer, const char* what) {
  if (pointer == nullptr) {
    throw Failure(ADRENOC_BAD_ARGUMENT, std::string(what) + " is a null pointer");
  }
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

opencl::Level read_level(uint32_t given, const char* what) {
  if (given <= ADRENOC_LEVEL_HIGH) return static_cast<opencl::Level>(given);
  throw Failure(ADRENOC_BAD_ARGUMENT, std::string(what) + " is " + std::to_string(given) +
                                          ", expected an adrenoc_level");
}

LoadOptions read_options(const adrenoc_options* given) {
  adrenoc_options plain{};
  if (given != nullptr) {
    if (given->struct_bytes == 0) {
      throw Failure(ADRENOC_BAD_ARGUMENT, "struct_bytes of the options is 0");
    }
    // Programs that were compiled with another version know fewer fields, or more.
    std::memcpy(&plain, given, std::min<size_t>(given->struct_bytes, sizeof(plain)));
  }
  return {plain.trust_files != 0,
          text_or_empty(plain.device),
          text_or_empty(plain.opencl_library),
          text_or_empty(plain.cache_folder),
          plain.qualcomm_programs != 0,
          plain.no_record != 0,
          {read_level(plain.performance, "performance"), read_level(plain.priority, "priority")}};
}

// `open(verify)` gives the bundle.
template <typename Open>
void load(const adrenoc_options* given, adrenoc_model** model, Open open) {
  require(model, "model");
  *model = nullptr;
  const LoadOptions options = read_options(given);
  try {
    *model = new adrenoc_model{Model(open(!options.trust_files), options)};
  } catch (...) {
    // What was on the device already went into the pool.
    opencl::release_all_pools();
    throw;
  }
}

const TensorSpec& at(const std::vector<TensorSpec>& specs, size_t index) {
  if (index < specs.size()) return specs[index];
  throw Failure(ADRENOC_BAD_ARGUMENT,
                "index " + std::to_string(index) + " is out of " + std::to_string(specs.size()));
}

const Manifest& bucket_at(const Model& model, size_t index) {
  if (index < model.buckets().size()) return model.buckets()[index].manifest;
  throw Failure(ADRENOC_BAD_ARGUMENT, "bucket " + std::to_string(index) + " is out of " +
                                          std::to_string(model.buckets().size()));
}

void fill_info(const TensorSpec& spec, adrenoc_tensor_info* info) {
  require(info, "info");
  *info = {spec.name.c_str(), spec.dtype.c_str(), spec.shape.data(),
           static_cast<uint32_t>(spec.shape.size()), spec.bytes};
}

std::vector<std::optional<Shape>> read_shapes(const adrenoc_shape* shapes, size_t count) {
  std::vector<std::optional<Shape>> read(count);
  if (count != 0) require(shapes, "shapes");
  for (size_t i = 0; i < count; ++i) {
    // A scalar has no extents, and needs to have none: all buckets take it.
    if (shapes[i].extents == nullptr) continue;
    read[i].emplace(shapes[i].extents, shapes[i].extents + shapes[i].rank);
  }
  return read;
}

}  // namespace
}  // namespace adrenoc_runtime

using adrenoc_runtime::Failure;
using adrenoc_runtime::guarded;
using adrenoc_runtime::Manifest;
using adrenoc_runtime::require;

const char* adrenoc_last_error(void) { return adrenoc_runtime::last_error().c_str(); }

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
  }
  return "unknown status";
}

adrenoc_status adrenoc_load(const char* path, const adrenoc_options* options,
                            adrenoc_model** model) {
  return guarded([&] {
    require(path, "path");
    adrenoc_runtime::load(options, model, [&](bool verify) {
      return std::make_unique<adrenoc_runtime::Bundle>(std::string(path), verify);
    });
  });
}

adrenoc_status adrenoc_load_fd(int descriptor, int64_t offset, int64_t bytes,
                               const adrenoc_options* options, adrenoc_model** model) {
  return guarded([&] {
    adrenoc_runtime::load(options, model, [&](bool verify) {
      return std::make_unique<adrenoc_runtime::Bundle>(
          adrenoc_runtime::MappedFile(descriptor, offset, bytes, "the open file"), verify);
    });
  });
}

adrenoc_status adrenoc_load_memory(const void* data, size_t bytes, const adrenoc_options* options,
                                   adrenoc_model** model) {
  return guarded([&] {
    require(data, "data");
    adrenoc_runtime::load(options, model, [&](bool verify) {
      const std::string_view archive(static_cast<const char*>(data), bytes);
      return std::make_unique<adrenoc_runtime::Bundle>(archive, verify);
    });
  });
}

void adrenoc_free(adrenoc_model* model) {
  (void)guarded([&] {
    delete model;
    adrenoc_runtime::opencl::release_all_pools();
  });
}

adrenoc_status adrenoc_trim(adrenoc_model* model) {
  return guarded([&] {
    if (model != nullptr) model->model.trim();
    adrenoc_runtime::opencl::release_all_pools();
  });
}

const char* adrenoc_notes(adrenoc_model* model) {
  const char* notes = "";
  (void)guarded([&] {
    if (model != nullptr) notes = model->model.notes();
  });
  return notes;
}

const char* adrenoc_model_name(const adrenoc_model* model) {
  return model == nullptr ? "" : model->model.manifest().name.c_str();
}

const char* adrenoc_device_name(const adrenoc_model* model) {
  return model == nullptr ? "" : model->model.device_name().c_str();
}

size_t adrenoc_input_count(const adrenoc_model* model) {
  return model == nullptr ? 0 : model->model.manifest().inputs.size();
}

size_t adrenoc_output_count(const adrenoc_model* model) {
  return model == nullptr ? 0 : model->model.manifest().outputs.size();
}

adrenoc_status adrenoc_input_info(const adrenoc_model* model, size_t index,
                                  adrenoc_tensor_info* info) {
  return guarded([&] {
    require(model, "model");
    adrenoc_runtime::fill_info(model->model.input(index), info);
  });
}

adrenoc_status adrenoc_output_info(const adrenoc_model* model, size_t index,
                                   adrenoc_tensor_info* info) {
  return guarded([&] {
    require(model, "model");
    adrenoc_runtime::fill_info(model->model.output(index), info);
  });
}

size_t adrenoc_bucket_count(const adrenoc_model* model) {
  return model == nullptr ? 0 : model->model.buckets().size();
}

adrenoc_status adrenoc_bucket_input_info(const adrenoc_model* model, size_t bucket, size_t index,
                                         adrenoc_tensor_info* info) {
  return guarded([&] {
    require(model, "model");
    const Manifest& manifest = adrenoc_runtime::bucket_at(model->model, bucket);
    adrenoc_runtime::fill_info(adrenoc_runtime::at(manifest.inputs, index), info);
  });
}

adrenoc_status adrenoc_bucket_output_info(const adrenoc_model* model, size_t bucket, size_t index,
                                          adrenoc_tensor_info* info) {
  return guarded([&] {
    require(model, "model");
    const Manifest& manifest = adrenoc_runtime::bucket_at(model->model, bucket);
    adrenoc_runtime::fill_info(adrenoc_runtime::at(manifest.outputs, index), info);
  });
}

adrenoc_status adrenoc_set_input_shapes(adrenoc_model* model, const adrenoc_shape* shapes,
                                        size_t count) {
  return guarded([&] {
    require(model, "model");
    model->model.set_shapes(adrenoc_runtime::read_shapes(shapes, count));
  });
}

adrenoc_status adrenoc_bind_input(adrenoc_model* model, size_t index, const void* data,
                                  size_t bytes) {
  return guarded([&] {
    require(model, "model");
    model->model.bind_input(index, data, bytes);
  });
}

adrenoc_status adrenoc_bind_output(adrenoc_model* model, size_t index, void* data, size_t bytes) {
  return guarded([&] {
    require(model, "model");
    model->model.bind_output(index, data, bytes);
  });
}

namespace {

using Memory = adrenoc_runtime::Model::Memory;

adrenoc_status bind_input_memory(adrenoc_model* model, size_t index, void* memory, Memory kind) {
  return guarded([&] {
    require(model, "model");
    require(memory, "memory");
    model->model.bind_input_memory(index, memory, kind);
  });
}

adrenoc_status bind_output_memory(adrenoc_model* model, size_t index, void* memory, Memory kind) {
  return guarded([&] {
    require(model, "model");
    require(memory, "memory");
    model->model.bind_output_memory(index, memory, kind);
  });
}

}  // namespace

adrenoc_status adrenoc_bind_input_opencl(adrenoc_model* model, size_t index, void* buffer) {
  return bind_input_memory(model, index, buffer, Memory::kOpenClBuffer);
}

adrenoc_status adrenoc_bind_output_opencl(adrenoc_model* model, size_t index, void* buffer) {
  return bind_output_memory(model, index, buffer, Memory::kOpenClBuffer);
}

adrenoc_status adrenoc_bind_input_hardware_buffer(adrenoc_model* model, size_t index,
                                                  struct AHardwareBuffer* buffer) {
  return bind_input_memory(model, index, buffer, Memory::kHardwareBuffer);
}

adrenoc_status adrenoc_bind_output_hardware_buffer(adrenoc_model* model, size_t index,
                                                   struct AHardwareBuffer* buffer) {
  return bind_output_memory(model, index, buffer, Memory::kHardwareBuffer);
}

void* adrenoc_opencl_context(const adrenoc_model* model) {
  void* context = nullptr;
  (void)guarded([&] {
    if (model != nullptr) context = model->model.opencl_context();
  });
  return context;
}

void* adrenoc_opencl_device(const adrenoc_model* model) {
  void* device = nullptr;
  (void)guarded([&] {
    if (model != nullptr) device = model->model.opencl_device();
  });
  return device;
}

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
    model->pending = std::async(std::launch::async, [model] {
      const adrenoc_runtime::Fence::Signal at_end(model->fence);
      model->model.run();
    });
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

adrenoc_status adrenoc_serve_rpc(int descriptor, const adrenoc_rpc_options* options) {
  return guarded([&] {
    require(options, "options");
    // Programs that were compiled with another version know fewer fields.
    const bool may_refuse = options->struct_bytes > offsetof(adrenoc_rpc_options, refusal);
    if (may_refuse && options->refusal != nullptr) {
      adrenoc_runtime::refuse_rpc(descriptor, options->refusal);
      return;
    }
    require(options->folder, "folder");
    try {
      adrenoc_runtime::claim_loader_name();
    } catch (const Failure& failure) {
      adrenoc_runtime::refuse_rpc(descriptor, failure.what());
      throw;
    }
    const std::string library = adrenoc_runtime::text_or_empty(options->opencl_library);
    if (!library.empty()) adrenoc_runtime::opencl::set_library(library);
    adrenoc_runtime::RpcSession session;
    session.folder = options->folder;
    session.store = adrenoc_runtime::text_or_empty(options->store);
    if (options->max_message_bytes != 0) session.max_message_bytes = options->max_message_bytes;
    adrenoc_runtime::serve_rpc(descriptor, session);
  });
}
