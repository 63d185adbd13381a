
#include <tvm/ffi/extra/json.h>

#include <algorithm>
#include <variant>

#include "base/failure.h"
#include "base/json.h"
#include "clml/emulator.h"

namespace adrenoc_runtime::clml {
namespace {

using Codes = std::vector<std::string>;

const Codes kQuery = {"CL_INVALID_VALUE", "CL_OUT_OF_HOST_MEMORY"};
const Codes kCreate = {"CL_INVALID_CONTEXT", "CL_INVALID_VALUE", "CL_OUT_OF_RESOURCES",
                       "CL_OUT_OF_HOST_MEMORY"};
const Codes kCreateOperator = {"CL_INVALID_CONTEXT",   "CL_INVALID_VALUE",
                               "CL_INVALID_OPERATION", "CL_ML_OP_NOT_ACCELERATED_QCOM",
                               "CL_OUT_OF_RESOURCES",  "CL_OUT_OF_HOST_MEMORY"};
const Codes kEnqueue = {"CL_INVALID_COMMAND_QUEUE", "CL_INVALID_MEM_OBJECT",
                        "CL_INVALID_OPERATION",     "CL_MEM_OBJECT_ALLOCATION_FAILURE",
                        "CL_OUT_OF_RESOURCES",      "CL_OUT_OF_HOST_MEMORY"};

struct CreatingCall {
  std::string operator()(const Convolution& conv) const {
    const std::string norm = conv.epsilon ? "BatchNorm" : "";
    const std::string act = conv.activation ? "Activation" : "";
    const std::string fused = conv.epsilon || conv.activation ? "Fused" : "";
    return "clCreateMLOp" + fused + "Convolution" + norm + act + "ForwardQCOM";
  }
  std::string operator()(const Activate&) const { return "clCreateMLOpActivationForwardQCOM"; }
  std::string operator()(const Clip&) const { return "clCreateMLOpClipQCOM"; }
  std::string operator()(const BatchNorm&) const { return "clCreateMLOpBatchNormForwardQCOM"; }
  std::string operator()(const Pooling&) const { return "clCreateMLOpPoolingForwardQCOM"; }
  std::string operator()(const Softmax&) const { return "clCreateMLOpSoftmaxQCOM"; }
  std::string operator()(const Binary&) const { return "clCreateMLOpBinaryQCOM"; }
  std::string operator()(const Concat&) const { return "clCreateMLOpConcatQCOM"; }
  std::string operator()(const Reshape&) const { return "clCreateMLOpReshapeQCOM"; }
  std::string operator()(const FullyConnected&) const { return "clCreateMLOpFullyConnectedQCOM"; }
  std::string operator()(const Gemm&) const { return "clCreateMLOpGemmQCOM"; }
  std::string operator()(const Pad&) const { return "clCreateMLOpPadQCOM"; }
  std::string operator()(const DepthToSpace&) const { return "clCreateMLOpDepthToSpaceQCOM"; }
  std::string operator()(const Upsample&) const { return "clCreateMLOpResizeBilinearQCOM"; }
};

}  // namespace

const std::map<std::string, Codes>& emulated_calls() {
  static const auto* calls = [] {
    auto* made = new std::map<std::string, Codes>{
        {"clQueryMLInterfaceVersionsQCOM", kQuery},
        {"clGetMLInterfaceQCOM", kQuery},
        {"clCreateMLTensorQCOM", kCreate},
        {"clGetMLTensorMemorySizeQCOM", kQuery},
        {"clCreateMLTensorMemoryDescriptorSetQCOM", kCreate},
        {"clUpdateMLTensorMemoryDescriptorSetQCOM", kQuery},
        {"clEnqueueWriteMLTensorDataQCOM", kEnqueue},
        {"clEnqueueCopyMLTensorDataQCOM", kEnqueue},
        {"clEnqueueMLOpQCOM", kEnqueue},
        {"clNewRecordingQCOM", kCreate},
        {"clEndRecordingQCOM", kQuery},
        {"clEnqueueRecordingMLOpQCOM", kEnqueue},
        {"clCreateMLTuningCacheQCOM", kCreate},
        {"clLoadMLTuningCacheQCOM", kQuery},
        {"clSaveMLTuningCacheQCOM", kQuery},
        {"clTuneMLOpQCOM", kEnqueue},
    };
    Convolution active, normed, both;
    active.activation = both.activation = Activation::kRelu;
    normed.epsilon = both.epsilon = 0.0f;
    const Operation each[] = {Convolution{},  active,      normed,           both,      Activate{},
                              Clip{},         BatchNorm{}, Pooling{},        Softmax{}, Binary{},
                              Concat{},       Reshape{},   FullyConnected{}, Gemm{},    Pad{},
                              DepthToSpace{}, Upsample{}};
    for (const Operation& operation : each)
      made->emplace(creating_call(operation), kCreateOperator);
    return made;
  }();
  return *calls;
}

std::string creating_call(const Operation& operation) {
  return std::visit(CreatingCall{}, operation);
}

int first_version(const Operation& operation) {
  if (const auto* conv = std::get_if<Convolution>(&operation)) return conv->epsilon ? 3 : 1;
  if (std::holds_alternative<BatchNorm>(operation)) return 3;
  if (std::holds_alternative<Clip>(operation)) return 2;
  const auto* binary = std::get_if<Binary>(&operation);
  return binary != nullptr && binary->kind == Binary::Kind::kDivide ? 2 : 1;
}

EmulatorSettings read_emulator_settings(const std::string& text) {
  const Json json = Json::parse(text, "the settings of the CLML emulator");
  EmulatorSettings settings;
  for (const auto& [name, value] : json.object()) {
    if (name == "extension") {
      settings.extension = value.boolean();
    } else if (name == "recording") {
      settings.recording = value.boolean();
    } else if (name == "versions") {
      settings.versions.clear();
      for (const Json& one : value.list()) settings.versions.push_back(int(one.integer()));
    } else if (name == "failing_call") {
      settings.failing_call = value.text();
    } else if (name == "failing_code") {
      settings.failing_code = value.text();
    } else if (name == "failing_after") {
      settings.failing_after = static_cast<int>(value.integer());
    } else {
      refuse_bundle("the CLML emulator has no setting `" + name + "`");
    }
  }
  if (!settings.failing_call.empty()) {
    const auto known = emulated_calls().find(settings.failing_call);
    if (known == emulated_calls().end() ||
        std::count(known->second.begin(), known->second.end(), settings.failing_code) == 0) {
      refuse_bundle("the CLML emulator has no call " + settings.failing_call + " that fails with " +
                    settings.failing_code);
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
