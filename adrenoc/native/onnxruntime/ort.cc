#include "ort.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace adrenoc_ep {
namespace {

// It outlives factories: sessions may live on when the library is unregistered.
Api the_api;

template <typename Function>
void take(const void* table, size_t place, Function* function) {
  *function = reinterpret_cast<Function>(static_cast<void* const*>(table)[place]);
}

// "1.32.0": the number between the dots is the version of the interface.
uint32_t version_in(const char* text) {
  const char* dot = std::strchr(text, '.');
  return dot == nullptr ? 0 : static_cast<uint32_t>(std::atoi(dot + 1));
}

}  // namespace

OrtStatus* open_api(const OrtApiBase& base) {
  const uint32_t found = version_in(base.GetVersionString());
  if (found < kOldestVersion) {
    take(base.GetApi(1), 0, &the_api.CreateStatus);
    const std::string said =
        std::string("adrenoc needs onnxruntime 1.23 or newer, this is ") + base.GetVersionString();
    return the_api.CreateStatus(ORT_NOT_IMPLEMENTED, said.c_str());
  }
  the_api.version = std::min(found, kNewestVersion);
  const void* table = base.GetApi(the_api.version);
#define ADRENOC_ORT_API(place, name, result, parameters) take(table, place, &the_api.name);
#define ADRENOC_ORT_EP_API(place, name, result, parameters)
#include "ort_functions.def"
#undef ADRENOC_ORT_API
#undef ADRENOC_ORT_EP_API
  table = the_api.GetEpApi();
#define ADRENOC_ORT_API(place, name, result, parameters)
#define ADRENOC_ORT_EP_API(place, name, result, parameters) take(table, place, &the_api.name);
#include "ort_functions.def"
#undef ADRENOC_ORT_API
#undef ADRENOC_ORT_EP_API
  return nullptr;
}

const Api& api() { return the_api; }

void check(OrtStatus* status) {
  if (status == nullptr) return;
  const std::string message = api().GetErrorMessage(status);
  api().ReleaseStatus(status);
  throw Refusal(ORT_RUNTIME_EXCEPTION, message);
}

OrtStatus* status_of(OrtErrorCode code, const char* message) noexcept {
  try {
    return api().CreateStatus(code, (std::string("adrenoc: ") + message).c_str());
  } catch (const std::exception&) {  // no memory is left
    return api().CreateStatus(code, message);
  }
}

void log(const OrtLogger* logger, OrtLoggingLevel level, const std::string& text) {
  const std::string said = "adrenoc: " + text;
  OrtStatus* status =
      api().Logger_LogMessage(logger, level, said.c_str(), __FILE__, __LINE__, "adrenoc");
  if (status != nullptr) api().ReleaseStatus(status);
}

}  // namespace adrenoc_ep
