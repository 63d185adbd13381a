#include "generate/sampler.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "generate/sampler_text.h"

namespace adrenoc_runtime {
namespace opencl {
namespace {

constexpr size_t kMostWorkItems = 256;
constexpr size_t kFewestWorkItems = 16;
constexpr double kShares = 65536;

// The OpenCL C type of a whole number that a tensor holds.
std::string token_type(const DLTensor& tensor, const char* what) {
  if (tensor.dtype.code == kDLInt && tensor.dtype.bits == 64) return "long";
  if (tensor.dtype.code == kDLInt && tensor.dtype.bits == 32) return "int";
  TVM_FFI_THROW(ValueError) << what << " has the dtype "
                            << tvm::ffi::DLDataTypeToString(tensor.dtype)
                            << ", expected int64 or int32";
  TVM_FFI_UNREACHABLE();
}

KernelArgument memory_of(const DLTensor& tensor, const char* what) {
  const auto& descriptor = *static_cast<const Descriptor*>(tensor.data);
  if (descriptor.is_image() || tensor.byte_offset != 0) {
    TVM_FFI_THROW(ValueError) << what << " is no buffer of its own";
  }
  return {sizeof(cl_mem), nullptr, &descriptor.storage()};
}

}  // namespace

void check_sampling(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature)) {
    TVM_FFI_THROW(ValueError) << "the temperature is " << sampling.temperature
                              << ", expected 0 or more";
  }
  if (sampling.top_k < 0 || sampling.top_k > INT32_MAX) {
    TVM_FFI_THROW(ValueError) << "top-k is " << sampling.top_k << ", expected 0 or more";
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    TVM_FFI_THROW(ValueError) << "top-p is " << sampling.top_p
                              << ", expected more than 0 and at most 1";
  }
}

Sampler::Sampler(Device& device)
    : device_(device),
      group_(kMostWorkItems),
      settings_(device.memory().allocate(StorageSpec::buffer(64))) {
  const size_t most = std::min(device.info().max_work_group_size,
                               device.info().max_work_item_sizes[0]);
  while (group_ > kFewestWorkItems && group_ > most) group_ /= 2;
}

void Sampler::set(const Sampling& sampling) {
  check_sampling(sampling);
  // Colder than this is no different in a float.
  const float inverse = static_cast<float>(1 / std::max(sampling.temperature, 1e-6));
  std::array<uint32_t, 5> how{};
  std::memcpy(how.data(), &inverse, sizeof(inverse));
  how[1] = static_cast<uint32_t>(sampling.top_k);
  how[2] = static_cast<uint32_t>(std::ceil(sampling.top_p * kShares));
  how[3] = static_cast<uint32_t>(sampling.seed);
  how[4] = static_cast<uint32_t>(sampling.seed >> 32);
  const QueueLock queue = device_.lock_queue();
  ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue.get(), settings_->mem.get(), CL_TRUE, 0, sizeof(how),
                  how.data(), 0, nullptr, nullptr);
}

Kernel& Sampler::kernel(Made* made, const char* name, const std::string& macros,
                        size_t arguments) {
  if (made->kernel == nullptr) {
    const std::string body = name == std::string("adrenoc_feed") ? kFeedText : kPickText;
    auto program = std::make_shared<BuiltProgram>(
        device_, std::vector<std::string>{name}, std::vector<const std::string*>{&macros, &body});
    made->kernel =
        std::make_unique<Kernel>(device_, name, std::move(program), KernelText{name, {}}, arguments);
    made->types = macros;
  }
  if (made->types != macros) TVM_FFI_THROW(ValueError) << "steps of one model differ in dtypes";
  return *made->kernel;
}

void Sampler::feed(const StepTensors& step) {
  const std::string macros = "#define PICKED " + token_type(*step.picked, "the next token") +
                             "\n#define TOKEN " + token_type(*step.ids, "the token");
  kernel(&feed_, "adrenoc_feed", macros, 3)
      .launch({1, {1, 1, 1}, {1, 1, 1}}, {memory_of(*step.picked, "the next token"),
                                          memory_of(*step.ids, "the token"),
                                          memory_of(*step.past, "the length of the past")});
}

void Sampler::pick(const StepTensors& step) {
  const DLTensor& logits = *step.logits;
  const bool halves = logits.dtype.bits == 16;
  if (logits.dtype.code != kDLFloat || (!halves && logits.dtype.bits != 32)) {
    TVM_FFI_THROW(ValueError) << "logits have the dtype "
                              << tvm::ffi::DLDataTypeToString(logits.dtype)
                              << ", expected float32 or float16";
  }
  uint32_t count = 1;
  for (int i = 0; i < logits.ndim; ++i) count *= static_cast<uint32_t>(logits.shape[i]);
  const std::string macros = "#define TOKEN " + token_type(*step.ids, "the token") +
                             "\n#define LOGIT " + (halves ? "half" : "float") +
                             "\n#define HALVES " + (halves ? "1" : "0") + "\n#define W " +
                             std::to_string(group_);
  kernel(&pick_, "adrenoc_pick", macros, 5)
      .launch({1, {group_, 1, 1}, {group_, 1, 1}},
              {memory_of(logits, "the logits"), {sizeof(cl_mem), nullptr, &settings_},
               memory_of(*step.ids, "the token"), memory_of(*step.past, "the length of the past"),
               {sizeof(count), &count}});
}

}  // namespace opencl
}  // namespace adrenoc_runtime
