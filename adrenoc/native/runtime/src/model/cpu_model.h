// The model's code for the CPU, which an int8 bundle may carry (`compile --fallback cpu`).
#pragma once

#include <dlfcn.h>
#include <sys/auxv.h>
#include <tvm/runtime/c_backend_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "bundle/manifest.h"
#include "files/safetensors.h"
#include "launch/cancelling.h"
#include "model/model_environment.h"

namespace adrenoc_runtime {

constexpr size_t kAlignment = 64;
constexpr int32_t kMostThreads = 8;

inline uint32_t core_features() {
  uint32_t found = 0;
#if defined(__aarch64__)
  found = MODEL_HAS_NEON;
#if defined(__linux__)
  constexpr unsigned long dot = 1UL << 20, i8mm = 1UL << 13;  // HWCAP_ASIMDDP, HWCAP2_I8MM
  if ((getauxval(AT_HWCAP) & dot) != 0) found |= MODEL_HAS_DOT;
  if ((getauxval(AT_HWCAP2) & i8mm) != 0) found |= MODEL_HAS_I8MM;
#endif
#endif
  return found;
}

// The call that goes on: who cancels it has the layers that are left compute nothing.
struct Call {
  const opencl::Cancelling& cancelling;
  bool is_whole = true;
};

struct Parts {
  int32_t count;
  void (*task)(const void*, int32_t);
  const void* argument;
};

inline int take_parts(int thread, TVMParallelGroupEnv* group, void* given) {
  const Parts& parts = *static_cast<const Parts*>(given);
  for (int32_t part = thread; part < parts.count; part += group->num_task) {
    parts.task(parts.argument, part);
  }
  return 0;
}

// Parts of a layer on the threads that TVM keeps, which the calling thread is one of.
inline void on_threads(void* pool, int32_t count, void (*task)(const void*, int32_t),
                       const void* argument) {
  Call& call = *static_cast<Call*>(pool);
  call.is_whole = call.is_whole && !call.cancelling.is_asked();
  if (!call.is_whole) return;
  Parts parts{count, task, argument};
  if (TVMBackendParallelLaunch(take_parts, &parts, 0) == 0) return;
  // No threads are to be had: each part once more gives the same numbers.
  for (int32_t part = 0; part < count; ++part) task(argument, part);
}

constexpr float kFar = 1024.0F;  // beyond what int8 holds after any zero point

inline int8_t near(float real, const model_border& border) {
  const float quanta = std::clamp(real / border.scale, -kFar, kFar);
  const float whole =
      border.dtype == MODEL_FLOAT32_EVEN ? std::nearbyint(quanta) : std::round(quanta);
  const float stored = whole + static_cast<float>(border.zero);
  return static_cast<int8_t>(std::clamp(stored, -128.0F, 127.0F));
}

// Not a number becomes zero.
inline void to_code(const void* from, const model_border& border, std::vector<int8_t>* to) {
  const auto* floats = static_cast<const float*>(from);
  const auto* bytes = static_cast<const uint8_t*>(from);
  for (size_t i = 0; i < to->size(); ++i) {
    (*to)[i] = border.dtype == MODEL_UINT8 ? static_cast<int8_t>(bytes[i] - 128)
               : std::isnan(floats[i])     ? near(0.0F, border)
                                           : near(floats[i], border);
  }
}

inline void from_code(const std::vector<int8_t>& from, const model_border& border, void* to) {
  for (size_t i = 0; i < from.size(); ++i) {
    if (border.dtype == MODEL_UINT8) {
      static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(from[i] + 128);
    } else {
      static_cast<float*>(to)[i] = static_cast<float>(from[i] - border.zero) * border.scale;
    }
  }
}

inline bool is_of(const model_border& border, const TensorSpec& spec) {
  const bool dtype = border.dtype == MODEL_INT8    ? spec.dtype == "int8"
                     : border.dtype == MODEL_UINT8 ? spec.dtype == "uint8"
                                                   : spec.dtype == "float32";
  const uint64_t width = spec.dtype == "float32" ? sizeof(float) : 1;
  return dtype && border.elements > 0 &&
         static_cast<uint64_t>(border.elements) == spec.bytes / width;
}

class CpuModel {
 public:
  // Opens the library at `path`, and gives it the weights that it takes of `params`, which are not
  // read later.  Throws Failure (bad bundle) where it is not what `manifest` says.
  CpuModel(const std::string& path, const Manifest& manifest,
           const std::map<std::string, StoredTensor>& params)
      : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) refuse_bundle({"cpu.so cannot be loaded: ", dlerror()});
    try {
      facts_ = static_cast<const model_facts*>(dlsym(library_, "adrenoc_cpu_model"));
      check(manifest);
      borrow(params);
      void* arena = nullptr;
      const size_t bytes = static_cast<size_t>(facts_->arena_bytes) + kAlignment;
      if (posix_memalign(&arena, kAlignment, bytes) != 0) throw std::bad_alloc();
      arena_.reset(arena);
      for (int32_t i = 0; i < facts_->inputs + facts_->outputs; ++i) {
        numbers_.emplace_back(static_cast<size_t>(facts_->borders[i].elements));
      }
    } catch (...) {
      dlclose(library_);
      throw;
    }
    const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
    environment_ = {core_features(), std::clamp(cores, 1, kMostThreads), nullptr, on_threads};
  }
  ~CpuModel() { dlclose(library_); }

  // Computes on numbers as the model file has them; an output may be null.  One call at a time.
  // False where it was cancelled: the outputs hold anything then.
  [[nodiscard]] bool compute(const std::vector<const void*>& inputs,
                             const std::vector<void*>& outputs,
                             const opencl::Cancelling& cancelling) {
    std::vector<const void*> read(inputs);
    std::vector<void*> written(outputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const model_border& border = facts_->borders[i];
      if (border.dtype == MODEL_INT8) continue;
      to_code(inputs[i], border, &numbers_[i]);
      read[i] = numbers_[i].data();
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t place = inputs.size() + i;
      const bool as_it_is = facts_->borders[place].dtype == MODEL_INT8 && outputs[i] != nullptr;
      if (!as_it_is) written[i] = numbers_[place].data();
    }
    Call call{cancelling};
    environment_.pool = &call;
    facts_->compute(read.data(), written.data(), arena_.get(), &environment_);
    environment_.pool = nullptr;
    if (!call.is_whole) return false;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t place = inputs.size() + i;
      if (outputs[i] == nullptr || facts_->borders[place].dtype == MODEL_INT8) continue;
      from_code(numbers_[place], facts_->borders[place], outputs[i]);
    }
    return true;
  }

 private:
  struct FreeAligned {
    void operator()(void* memory) const { std::free(memory); }
  };
  void check(const Manifest& manifest) const {
    if (facts_ == nullptr || facts_->version != MODEL_FACTS_VERSION) {
      refuse_bundle("cpu.so is of another version");
    }
    if (static_cast<size_t>(facts_->inputs) != manifest.inputs.size() ||
        static_cast<size_t>(facts_->outputs) != manifest.outputs.size() ||
        facts_->arena_bytes < 0) {
      refuse_bundle("cpu.so has other inputs or outputs than the manifest promises");
    }
    size_t place = 0;
    for (const auto* specs : {&manifest.inputs, &manifest.outputs}) {
      for (const TensorSpec& spec : *specs) {
        if (is_of(facts_->borders[place++], spec)) continue;
        refuse_bundle({"cpu.so has `", spec.name, "` in another size or dtype than the manifest"});
      }
    }
  }
  void borrow(const std::map<std::string, StoredTensor>& params) const {
    std::vector<const void*> given;
    for (int32_t i = 0; i < facts_->params; ++i) {
      const model_param& lender = facts_->lenders[i];
      const auto found = params.find(lender.name);
      if (found == params.end() || found->second.data.size() != static_cast<size_t>(lender.bytes)) {
        refuse_bundle({"cpu.so takes weights of ", lender.name,
                       ", which params.safetensors lacks or has in another size"});
      }
      given.push_back(found->second.data.data());
    }
    if (!given.empty()) facts_->borrow(given.data());
  }

  void* library_ = nullptr;
  const model_facts* facts_ = nullptr;
  model_environment environment_{};
  std::unique_ptr<void, FreeAligned> arena_;
  std::vector<std::vector<int8_t>> numbers_;  // of inputs, then outputs, in the code's own type
};

}  // namespace adrenoc_runtime
