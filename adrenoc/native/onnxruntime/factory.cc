// What onnxruntime opens the library for: a factory of one device.
#include <cstring>
#include <memory>
#include <string>

#include "adrenoc.h"
#include "ort.h"
#include "provider.h"

namespace adrenoc_ep {
namespace {

const char* get_name(const OrtEpFactory*) noexcept { return kName; }
const char* get_vendor(const OrtEpFactory*) noexcept { return "adrenoc"; }
uint32_t get_vendor_id(const OrtEpFactory*) noexcept { return 0x5143; }  // Qualcomm's
// The runtime's, without what it was built with: onnxruntime takes three numbers.
const char* get_version(const OrtEpFactory*) noexcept {
  static const std::string version = [] {
    const std::string whole = adrenoc_runtime_version();
    return whole.substr(0, whole.find(' '));
  }();
  return version.c_str();
}
bool is_stream_aware(const OrtEpFactory*) noexcept { return false; }

// onnxruntime lists no Adreno: the CPU, which is everywhere, stands for it.  Nothing of OpenCL is
// touched here.
OrtStatus* get_supported_devices(OrtEpFactory* self, const OrtHardwareDevice* const* devices,
                                 size_t count, OrtEpDevice** found, size_t most,
                                 size_t* found_count) noexcept {
  *found_count = 0;
  return guarded([&] {
    for (size_t i = 0; i < count && *found_count < 1 && most > 0; ++i) {
      if (api().HardwareDevice_Type(devices[i]) != OrtHardwareDeviceType_CPU) continue;
      const auto free = [](OrtKeyValuePairs* one) { api().ReleaseKeyValuePairs(one); };
      OrtKeyValuePairs* metadata = nullptr;
      api().CreateKeyValuePairs(&metadata);
      const std::unique_ptr<OrtKeyValuePairs, decltype(free)> held(metadata, free);
      api().AddKeyValuePair(metadata, "runtime", adrenoc_runtime_version());
      check(api().CreateEpDevice(self, devices[i], metadata, nullptr, found));
      *found_count = 1;
    }
  });
}

OrtStatus* create_ep(OrtEpFactory*, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*,
                     size_t, const OrtSessionOptions* session, const OrtLogger* logger,
                     OrtEp** provider) noexcept {
  *provider = nullptr;
  return guarded([&] { *provider = std::make_unique<Provider>(session, logger).release(); });
}

void release_ep(OrtEpFactory*, OrtEp* provider) noexcept { delete static_cast<Provider*>(provider); }

// Tensors lie in memory of the host.
OrtStatus* create_data_transfer(OrtEpFactory*, void** transfer) noexcept {
  *transfer = nullptr;
  return nullptr;
}

// One for the process: sessions that outlive a registration give their providers back to it.
OrtEpFactory* the_factory() {
  static OrtEpFactory factory = [] {
    OrtEpFactory made;
    made.version = api().version;
    made.set(OrtEpFactory::kGetName, get_name);
    made.set(OrtEpFactory::kGetVendor, get_vendor);
    made.set(OrtEpFactory::kGetVendorId, get_vendor_id);
    made.set(OrtEpFactory::kGetVersion, get_version);
    made.set(OrtEpFactory::kGetSupportedDevices, get_supported_devices);
    made.set(OrtEpFactory::kCreateEp, create_ep);
    made.set(OrtEpFactory::kReleaseEp, release_ep);
    made.set(OrtEpFactory::kCreateDataTransfer, create_data_transfer);
    made.set(OrtEpFactory::kIsStreamAware, is_stream_aware);
    return made;
  }();
  return &factory;
}

}  // namespace
}  // namespace adrenoc_ep

#define ADRENOC_EP_EXPORT extern "C" __attribute__((visibility("default")))

ADRENOC_EP_EXPORT OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*,
                                               OrtEpFactory** factories, size_t most,
                                               size_t* count) {
  *count = 0;
  OrtStatus* refusal = adrenoc_ep::open_api(*base);
  if (refusal != nullptr || most == 0) return refusal;
  factories[0] = adrenoc_ep::the_factory();
  *count = 1;
  return nullptr;
}

ADRENOC_EP_EXPORT OrtStatus* ReleaseEpFactory(OrtEpFactory*) { return nullptr; }
