#include "trials/deeds.h"

#include <tvm/ffi/error.h>

#include <string>
#include <utility>
#include <vector>

#include "trials/deed.h"
#include "trials/trial_measure.h"

namespace adrenoc_runtime {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

constexpr size_t kDeedRounds = 7;

using Make = std::unique_ptr<Deed>(Device& device, const json::Object& deed);
constexpr std::pair<const char*, Make*> kDeeds[] = {{"copy", make_copy_deed},
                                                    {"launches", make_launch_deed},
                                                    {"arguments", make_argument_deed},
                                                    {"hint", make_hint_deed},
                                                    {"large", make_large_deed}};

std::unique_ptr<Deed> make_deed(Device& device, const json::Object& request, size_t index) {
  const std::string named = request.at(ffi::String("deed")).cast<std::string>();
  for (const auto& [name, make] : kDeeds) {
    if (named != name) continue;
    try {
      return make(device, request);
    } catch (const ffi::Error& error) {
      throw RefusedCandidate("refused", index, error.message());
    }
  }
  TVM_FFI_THROW(ValueError) << "There is no deed \"" << named << "\"";
  TVM_FFI_UNREACHABLE();
}

}  // namespace

size_t number_of(const json::Object& deed, const char* key, size_t most) {
  const int64_t number = deed.at(ffi::String(key)).cast<int64_t>();
  if (number <= 0 || static_cast<uint64_t>(number) > most) {
    TVM_FFI_THROW(ValueError) << "A deed has the " << key << " " << number;
  }
  return static_cast<size_t>(number);
}

json::Object measure_deeds(Device& device, const json::Array& requests) {
  std::vector<std::unique_ptr<Deed>> deeds;
  for (const json::Value& request : requests) {
    deeds.push_back(make_deed(device, request.cast<json::Object>(), deeds.size()));
    (void)deeds.back()->timed_us();  // the first time of anything takes longer
  }
  std::vector<json::Array> times(deeds.size());
  for (size_t round = 0; round < kDeedRounds; ++round) {
    for (size_t i = 0; i < deeds.size(); ++i) times[i].push_back(deeds[i]->timed_us());
  }
  json::Array all;
  json::Array errors;
  for (size_t i = 0; i < deeds.size(); ++i) {
    if (!deeds[i]->is_right()) throw RefusedCandidate("wrong", i, "it brings other numbers");
    all.push_back(times[i]);
    errors.push_back(0.0);
  }
  json::Object result;
  result.Set("times_us", all);
  result.Set("errors", errors);
  return result;
}

}  // namespace opencl
}  // namespace adrenoc_runtime
