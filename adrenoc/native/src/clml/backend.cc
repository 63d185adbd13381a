#include "clml/backend.h"

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
    return {std::make_shared<Emulator>(device, emulated), ""};
  } catch (const CallError& error) {
    return {nullptr, error.what()};
  }
}

// Does something with the settings, alone.
template <typename Work>
auto with_settings(Work work) {
  Settings& all = settings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return work(all);
}

void note_change(Settings* all) {
  all->chosen.clear();
  ++all->number;
}

}  // namespace

Choice backend_of(opencl::Device& device) {
  return with_settings([&](Settings& all) {
    const auto known = all.chosen.find(&device);
    if (known != all.chosen.end()) return known->second;
    return all.chosen.emplace(&device, choose_backend(device, all)).first->second;
  });
}

void emulate(const std::string& text) {
  if (!text.empty()) (void)read_emulator_settings(text);
  with_settings([&](Settings& all) {
    all.emulator = text;
    note_change(&all);
  });
}

void switch_off(bool off) {
  with_settings([&](Settings& all) {
    all.off = off;
    note_change(&all);
  });
}

void set_cache_folder(const std::string& folder) {
  with_settings([&](Settings& all) { all.cache_folder = folder; });
}

std::string cache_folder() {
  return with_settings([](Settings& all) { return all.cache_folder; });
}

int settings_number() {
  return with_settings([](Settings& all) { return all.number; });
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
