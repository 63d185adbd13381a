#include "trials/host_operations.h"

#include <tvm/ffi/error.h>

#include <string>
#include <utility>
#include <vector>

#include "trials/host_operation.h"
#include "trials/trial_measure.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

constexpr size_t kOperationRounds = 7;

using Make = std::unique_ptr<HostOperation>(Device& device, const json::Object& operation);
constexpr std::pair<const char*, Make*> kOperations[] = {
    {"launches", make_launch_operation},
    {"hint", make_hint_operation},
    {"large", make_large_operation}};

std::unique_ptr<HostOperation> make_operation(Device& device, const json::Object& request,
                                              size_t index) {
  const std::string named = request.at(ffi::String("operation")).cast<std::string>();
  for (const auto& [name, make] : kOperations) {
    if (named != name) continue;
    try {
      return make(device, request);
    } catch (const ffi::Error& error) {
      throw RefusedCandidate("refused", index, error.message());
    }
  }
  TVM_FFI_THROW(ValueError) << "There is no operation \"" << named << "\"";
  TVM_FFI_UNREACHABLE();
}

}  // namespace

size_t number_of(const json::Object& operation, const char* key, size_t most) {
  const int64_t number = operation.at(ffi::String(key)).cast<int64_t>();
  if (number <= 0 || static_cast<uint64_t>(number) > most) {
    TVM_FFI_THROW(ValueError) << "An operation has the " << key << " " << number;
  }
  return static_cast<size_t>(number);
}

json::Object measure_host_operations(Device& device, const json::Array& requests) {
  std::vector<std::unique_ptr<HostOperation>> operations;
  for (const json::Value& request : requests) {
    operations.push_back(make_operation(device, request.cast<json::Object>(), operations.size()));
    (void)operations.back()->timed_us();  // the first time of anything takes longer
  }
  std::vector<json::Array> times(operations.size());
  for (size_t round = 0; round < kOperationRounds; ++round) {
    for (size_t i = 0; i < operations.size(); ++i) times[i].push_back(operations[i]->timed_us());
  }
  json::Array all;
  json::Array errors;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (!operations[i]->is_right()) throw RefusedCandidate("wrong", i, "it brings other numbers");
    all.push_back(times[i]);
    errors.push_back(0.0);
  }
  json::Object result;
  result.Set("times_us", all);
  result.Set("errors", errors);
  return result;
}

}  // namespace adrenoc_runtime::opencl
