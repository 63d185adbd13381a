#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>

#include <algorithm>

#include "clml/emulator.h"
#include "clml/emulator_calls.h"

namespace adrenoc_runtime::clml {

EmulatorSettings read_emulator_settings(const std::string& text) {
  namespace ffi = tvm::ffi;
  namespace json = tvm::ffi::json;
  ffi::String error;
  const json::Value whole = json::Parse(ffi::String(text), &error);
  const auto object = whole.try_cast<json::Object>();
  if (!error.empty() || !object.has_value()) {
    TVM_FFI_THROW(ValueError) << "The settings of the CLML emulator are no JSON object: " << text;
  }
  EmulatorSettings settings;
  for (const auto& [key, value] : *object) {
    const std::string name = key.cast<ffi::String>();
    if (name == "extension") {
      settings.extension = value.cast<bool>();
    } else if (name == "recording") {
      settings.recording = value.cast<bool>();
    } else if (name == "versions") {
      settings.versions.clear();
      for (const ffi::Any& one : value.cast<json::Array>()) {
        settings.versions.push_back(one.cast<int>());
      }
    } else if (name == "failing_call") {
      settings.failing_call = value.cast<ffi::String>();
    } else if (name == "failing_code") {
      settings.failing_code = value.cast<ffi::String>();
    } else if (name == "failing_after") {
      settings.failing_after = value.cast<int>();
    } else {
      TVM_FFI_THROW(ValueError) << "The CLML emulator has no setting `" << name << "`";
    }
  }
  if (!settings.failing_call.empty()) {
    const auto known = emulated_calls().find(settings.failing_call);
    if (known == emulated_calls().end() ||
        std::count(known->second.begin(), known->second.end(), settings.failing_code) == 0) {
      TVM_FFI_THROW(ValueError) << "The CLML emulator has no call " << settings.failing_call
                                << " that fails with " << settings.failing_code;
    }
  }
  return settings;
}

tvm::ffi::String emulated_calls_text() {
  namespace ffi = tvm::ffi;
  ffi::json::Object calls;
  for (const auto& [name, codes] : emulated_calls()) {
    ffi::json::Array list;
    for (const std::string& code : codes) list.push_back(ffi::String(code));
    calls.Set(ffi::String(name), list);
  }
  return ffi::json::Stringify(calls);
}

}  // namespace adrenoc_runtime::clml
