#include "clml/backends.h"

#include <cstdlib>
#include <map>
#include <mutex>

#include "clml/emulator.h"

namespace adrenoc_runtime::clml {
namespace {

struct Settings {
  std::mutex mutex;
  std::string emulator;
  bool off = false;
  std::string cache_folder;
  int number = 0;
  std::map<opencl::Device*, Choice> chosen;
};

// Lives as long as the process, as devices do.
Settings& settings() {
  static auto* instance = [] {
    auto* made = new Settings();
    if (const char* text = std::getenv("ADRENOC_CLML_EMULATOR")) made->emulator = text;
    return made;
  }();
  return *instance;
}

Choice choose_backend(opencl::Device& device, const Settings& wanted) {
  if (wanted.off) return {nullptr, "CLML is switched off", true};
  try {
    if (wanted.emulator.empty()) return real_backend(device);
    const EmulatorSettings emulated = read_emulator_settings(wanted.emulator);
    if (!emulated.extension) return {nullptr, "the device lacks the extension cl_qcom_ml_ops"};
    return {make_emulator(device, emulated), ""};
  } catch (const CallError& error) {
    return {nullptr, error.what()};
  }
}

}  // namespace

Choice backend_of(opencl::Device& device) {
  Settings& all = settings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto known = all.chosen.find(&device);
  if (known != all.chosen.end()) return known->second;
  return all.chosen.emplace(&device, choose_backend(device, all)).first->second;
}

void emulate(const std::string& text) {
  if (!text.empty()) (void)read_emulator_settings(text);
  Settings& all = settings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.emulator = text;
  all.chosen.clear();
  ++all.number;
}

void switch_off(bool off) {
  Settings& all = settings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.off = off;
  all.chosen.clear();
  ++all.number;
}

void set_cache_folder(const std::string& folder) {
  Settings& all = settings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.cache_folder = folder;
}

std::string cache_folder() {
  Settings& all = settings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.cache_folder;
}

int settings_number() {
  Settings& all = settings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.number;
}

#ifndef ADRENOC_CLML_SDK
Choice real_backend(opencl::Device& device) {
  if (!device.info().has_extension("cl_qcom_ml_ops")) {
    return {nullptr, "the device lacks the extension cl_qcom_ml_ops"};
  }
  return {nullptr, "this runtime was built without CLML (adrenoc runtime build --clml-sdk PATH)"};
}
#endif

}  // namespace adrenoc_runtime::clml
