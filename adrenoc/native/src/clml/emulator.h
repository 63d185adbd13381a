// A stand-in for the library of a phone, for tests: reference arithmetic on the CPU, on memory of
// any OpenCL device, with the rules of the real one made strict.
#pragma once

#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/failure.h"
#include "base/half.h"
#include "base/json.h"
#include "clml/backend.h"
#include "clml/emulator_math.h"
#include "opencl/device.h"

namespace adrenoc_runtime::clml {

// What the emulator pretends to be.
struct EmulatorSettings {
  bool extension = true;  // whether the device has cl_qcom_ml_ops at all
  std::vector<int> versions = {1, 2, 3, 4};
  bool recording = true;
  // The call that fails, by the name of the library's entry point, with this code, after so many
  // successes; empty where none fails.
  std::string failing_call;
  std::string failing_code;
  int failing_after = 0;
};

using Codes = std::vector<std::string>;

inline const Codes kQuery = {"CL_INVALID_VALUE", "CL_OUT_OF_HOST_MEMORY"};
inline const Codes kCreate = {"CL_INVALID_CONTEXT", "CL_INVALID_VALUE", "CL_OUT_OF_RESOURCES",
                              "CL_OUT_OF_HOST_MEMORY"};
inline const Codes kCreateOperator = {"CL_INVALID_CONTEXT",   "CL_INVALID_VALUE",
                                      "CL_INVALID_OPERATION", "CL_ML_OP_NOT_ACCELERATED_QCOM",
                                      "CL_OUT_OF_RESOURCES",  "CL_OUT_OF_HOST_MEMORY"};
inline const Codes kEnqueue = {"CL_INVALID_COMMAND_QUEUE", "CL_INVALID_MEM_OBJECT",
                               "CL_INVALID_OPERATION",     "CL_MEM_OBJECT_ALLOCATION_FAILURE",
                               "CL_OUT_OF_RESOURCES",      "CL_OUT_OF_HOST_MEMORY"};

// In the order of Operation, behind what depends on how a convolution is fused.
constexpr const char* kOperators[] = {"",
                                      "ActivationForward",
                                      "Clip",
                                      "BatchNormForward",
                                      "PoolingForward",
                                      "Softmax",
                                      "Binary",
                                      "Concat",
                                      "Reshape",
                                      "FullyConnected",
                                      "Gemm",
                                      "Pad",
                                      "DepthToSpace",
                                      "ResizeBilinear"};

inline std::string creating_call(const std::string& name) { return "clCreateMLOp" + name + "QCOM"; }

inline std::string convolution_call(bool has_norm, bool is_active) {
  return creating_call(std::string(has_norm || is_active ? "Fused" : "") + "Convolution" +
                       (has_norm ? "BatchNorm" : "") + (is_active ? "Activation" : "") + "Forward");
}

// Name of an entry point -> the codes that it can fail with.  The names are those that TVM's CLML
// runtime calls; the codes are what functions of their kind return in OpenCL, and the extension's
// own for an operator that the device does not accelerate.
[[nodiscard]] inline const std::map<std::string, std::vector<std::string>>& emulated_calls() {
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
    for (const bool has_norm : {false, true}) {
      for (const bool is_active : {false, true}) {
        made->emplace(convolution_call(has_norm, is_active), kCreateOperator);
      }
    }
    for (size_t i = 1; i < std::size(kOperators); ++i) {
      made->emplace(creating_call(std::string(kOperators[i])), kCreateOperator);
    }
    return made;
  }();
  return *calls;
}

// Throws Failure for a text that is not such settings as JSON.
[[nodiscard]] inline EmulatorSettings read_emulator_settings(const std::string& text) {
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
      refuse_bundle({"the CLML emulator has no setting `", name, "`"});
    }
  }
  if (!settings.failing_call.empty()) {
    const auto known = emulated_calls().find(settings.failing_call);
    if (known == emulated_calls().end() ||
        std::count(known->second.begin(), known->second.end(), settings.failing_code) == 0) {
      refuse_bundle({"the CLML emulator has no call ", settings.failing_call, " that fails with ",
                     settings.failing_code});
    }
  }
  return settings;
}

// The entry points with their error codes, as JSON.
[[nodiscard]] inline tvm::ffi::String emulated_calls_text() {
  namespace ffi = tvm::ffi;
  ffi::json::Object calls;
  for (const auto& [name, codes] : emulated_calls()) {
    ffi::json::Array list;
    for (const std::string& code : codes) list.push_back(ffi::String(code));
    calls.Set(ffi::String(name), list);
  }
  return ffi::json::Stringify(calls);
}

// The function that creates an operator.
inline std::string creating_call(const Operation& operation) {
  const auto* conv = std::get_if<Convolution>(&operation);
  if (conv == nullptr) return creating_call(std::string(kOperators[operation.index()]));
  return convolution_call(conv->epsilon.has_value(), conv->activation.has_value());
}

// The interface that has an operator first; the pattern table tells where this is from.
inline int first_version(const Operation& operation) {
  if (const auto* conv = std::get_if<Convolution>(&operation)) return conv->epsilon ? 3 : 1;
  if (std::holds_alternative<BatchNorm>(operation)) return 3;
  if (std::holds_alternative<Clip>(operation)) return 2;
  const auto* binary = std::get_if<Binary>(&operation);
  return binary != nullptr && binary->kind == Binary::Kind::kDivide ? 2 : 1;
}

inline std::atomic<int64_t> live_objects{0};

class Counted : public Object {
 public:
  Counted() { ++live_objects; }
  ~Counted() override { --live_objects; }
};

struct EmulatedTensor final : Counted {
  explicit EmulatedTensor(const TensorSpec& facts) : spec(facts) {}
  const TensorSpec spec;
};
struct EmulatedOperator final : Counted {
  Operation operation;
  std::vector<const EmulatedTensor*> inputs;
  const EmulatedTensor* output = nullptr;
};
struct EmulatedBindings final : Counted {
  std::map<const Object*, cl_mem> memory;
  mutable bool recorded = false;
};
struct EmulatedRecording final : Counted {
  std::vector<const Object*> operators;
  const Object* bindings = nullptr;
};
struct EmulatedTuning final : Counted {
  std::string bytes;
};

// The layout that is "optimal" here: blocks of four channels, lanes beyond the last one and a
// first block filled with a value that spoils whatever takes it for data.
constexpr uint32_t kBlock = 4;

inline uint32_t blocks_of(const TensorSpec& spec) { return (spec.dims[1] + kBlock - 1) / kBlock; }

inline size_t stored_elements(const TensorSpec& spec) {
  if (spec.layout != Layout::kOptimal) return spec.elements();
  const size_t pixels = size_t{spec.dims[2]} * spec.dims[3];
  return kBlock + size_t{spec.dims[0]} * blocks_of(spec) * pixels * kBlock;
}

inline float load_element(const TensorSpec& spec, const char* memory, size_t at) {
  if (spec.dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, memory + at * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, memory + at * 2, 2);
  return static_cast<float>(number_of(Half{bits}));
}

constexpr float kPoison = -12345.0f;

// Where an element lies.
inline size_t place_of(const TensorSpec& spec, uint32_t n, uint32_t c, size_t pixel) {
  const size_t pixels = size_t{spec.dims[2]} * spec.dims[3];
  switch (spec.layout) {
    case Layout::kNchw: return (size_t{n} * spec.dims[1] + c) * pixels + pixel;
    case Layout::kNhwc: return (n * pixels + pixel) * spec.dims[1] + c;
    default:
      return kBlock + ((size_t{n} * blocks_of(spec) + c / kBlock) * pixels + pixel) * kBlock +
             c % kBlock;
  }
}

template <typename Visit>
void for_each_element(const TensorSpec& spec, Visit visit) {
  const size_t pixels = size_t{spec.dims[2]} * spec.dims[3];
  size_t dense = 0;
  for (uint32_t n = 0; n < spec.dims[0]; ++n) {
    for (uint32_t c = 0; c < spec.dims[1]; ++c) {
      for (size_t p = 0; p < pixels; ++p) visit(dense++, place_of(spec, n, c, p));
    }
  }
}

inline void store_element(const TensorSpec& spec, float value, char* memory, size_t at) {
  if (spec.dtype == DType::kFloat32) {
    std::memcpy(memory + at * 4, &value, 4);
    return;
  }
  const uint16_t bits = nearest_half(value).bits;
  std::memcpy(memory + at * 2, &bits, 2);
}

inline std::string encode_tensor(const TensorSpec& spec, const std::vector<float>& data) {
  std::string memory(stored_elements(spec) * spec.element_bytes(), '\0');
  for (size_t i = 0; i < stored_elements(spec); ++i) store_element(spec, kPoison, memory.data(), i);
  for_each_element(spec, [&](size_t dense, size_t place) {
    store_element(spec, data[dense], memory.data(), place);
  });
  return memory;
}

inline std::vector<float> decode_tensor(const TensorSpec& spec, const std::string& memory) {
  std::vector<float> data(spec.elements());
  for_each_element(spec, [&](size_t dense, size_t place) {
    data[dense] = load_element(spec, memory.data(), place);
  });
  return data;
}

inline const EmulatedTensor& tensor_of(const Object* object) {
  return dynamic_cast<const EmulatedTensor&>(*object);
}

class Emulator final : public Backend {
 public:
  Emulator(opencl::Device& device, EmulatorSettings settings)
      : device_(device), settings_(std::move(settings)) {
    call("clQueryMLInterfaceVersionsQCOM");
    if (settings_.versions.empty()) {
      throw CallError("clQueryMLInterfaceVersionsQCOM", "no interface version");
    }
    version_ = *std::max_element(settings_.versions.begin(), settings_.versions.end());
    call("clGetMLInterfaceQCOM");
  }

  [[nodiscard]] std::string name() const override { return "emulator"; }
  [[nodiscard]] int version() const override { return version_; }
  [[nodiscard]] std::string versions() const override {
    std::string text;
    for (const int major : settings_.versions) {
      text += (text.empty() ? "" : ", ") + std::to_string(major) + ".0";
    }
    return text;
  }

  [[nodiscard]] ObjectPtr create_tensor(const TensorSpec& spec) override {
    call("clCreateMLTensorQCOM");
    for (const uint32_t extent : spec.dims) {
      if (extent == 0 || extent > 32768 * 4) throw CallError("clCreateMLTensorQCOM", kBadValue);
    }
    return std::make_unique<EmulatedTensor>(spec);
  }

  [[nodiscard]] size_t memory_bytes(const Object& tensor) override {
    call("clGetMLTensorMemorySizeQCOM");
    const TensorSpec& spec = tensor_of(&tensor).spec;
    return stored_elements(spec) * spec.element_bytes();
  }

  [[nodiscard]] ObjectPtr create_operator(const Operation& operation, Arithmetic arithmetic,
                                          const std::vector<const Object*>& inputs,
                                          const Object& output, Object*) override {
    const std::string name = creating_call(operation);
    call(name);
    if (first_version(operation) > version_) {
      throw CallError(name, "no such operator in interface " + std::to_string(version_));
    }
    auto op = std::make_unique<EmulatedOperator>();
    op->operation = operation;
    op->output = &tensor_of(&output);
    std::vector<std::array<uint32_t, 4>> dims;
    for (const Object* input : inputs) {
      op->inputs.push_back(&tensor_of(input));
      dims.push_back(op->inputs.back()->spec.dims);
    }
    const bool is_float = op->output->spec.dtype == DType::kFloat32;
    if (!layouts_fit(*op) || is_float != (arithmetic == Arithmetic::kFloat)) {
      throw CallError(name, kBadValue);
    }
    const std::string wrong = misfit(operation, dims, op->output->spec.dims);
    if (!wrong.empty()) throw CallError(name, std::string(kBadValue) + ": " + wrong);
    return op;
  }

  [[nodiscard]] ObjectPtr create_bindings() override {
    call("clCreateMLTensorMemoryDescriptorSetQCOM");
    return std::make_unique<EmulatedBindings>();
  }

  void update_bindings(Object& bindings, const std::vector<Bound>& bound) override {
    call("clUpdateMLTensorMemoryDescriptorSetQCOM");
    auto& table = dynamic_cast<EmulatedBindings&>(bindings);
    // A recording looked its memory up when it was made.
    if (table.recorded) throw CallError("clUpdateMLTensorMemoryDescriptorSetQCOM", kBadValue);
    table.memory.clear();
    for (const Bound& one : bound) {
      if (one.memory == nullptr) {
        throw CallError("clUpdateMLTensorMemoryDescriptorSetQCOM", kBadValue);
      }
      table.memory[one.tensor] = one.memory;
    }
  }

  void write(cl_command_queue queue, const void* data, const Bound& to) override {
    call("clEnqueueWriteMLTensorDataQCOM");
    const TensorSpec& spec = tensor_of(to.tensor).spec;
    std::vector<float> dense(spec.elements());
    for (size_t i = 0; i < dense.size(); ++i) {
      dense[i] = load_element(spec, static_cast<const char*>(data), i);
    }
    store(queue, to, dense);
  }

  void copy(cl_command_queue queue, const Bound& from, const Bound& to, cl_event*) override {
    call("clEnqueueCopyMLTensorDataQCOM");
    const TensorSpec &source = tensor_of(from.tensor).spec, &target = tensor_of(to.tensor).spec;
    if (source.dims != target.dims || source.dtype != target.dtype) {
      throw CallError("clEnqueueCopyMLTensorDataQCOM", kBadValue);
    }
    store(queue, to, load(queue, from));
  }

  void run(cl_command_queue queue, const Object& op, const Object& bindings, cl_event*) override {
    call("clEnqueueMLOpQCOM");
    execute(queue, dynamic_cast<const EmulatedOperator&>(op),
            dynamic_cast<const EmulatedBindings&>(bindings));
  }

  [[nodiscard]] bool can_record() const override { return settings_.recording; }

  [[nodiscard]] ObjectPtr record(const std::vector<const Object*>& operators,
                                 const Object& bindings) override {
    call("clNewRecordingQCOM");
    auto recording = std::make_unique<EmulatedRecording>();
    recording->operators = operators;
    recording->bindings = &bindings;
    dynamic_cast<const EmulatedBindings&>(bindings).recorded = true;
    call("clEndRecordingQCOM");
    return recording;
  }

  void replay(cl_command_queue queue, const Object& recording, cl_event*) override {
    call("clEnqueueRecordingMLOpQCOM");
    const auto& recorded = dynamic_cast<const EmulatedRecording&>(recording);
    for (const Object* op : recorded.operators) {
      execute(queue, dynamic_cast<const EmulatedOperator&>(*op),
              dynamic_cast<const EmulatedBindings&>(*recorded.bindings));
    }
  }

  [[nodiscard]] ObjectPtr create_tuning() override {
    call("clCreateMLTuningCacheQCOM");
    return std::make_unique<EmulatedTuning>();
  }
  void load_tuning(Object& tuning, const std::string& bytes) override {
    call("clLoadMLTuningCacheQCOM");
    if (bytes.rfind("emulated", 0) != 0) throw CallError("clLoadMLTuningCacheQCOM", kBadValue);
    dynamic_cast<EmulatedTuning&>(tuning).bytes = bytes;
  }
  [[nodiscard]] std::string save_tuning(const Object& tuning) override {
    call("clSaveMLTuningCacheQCOM");
    return dynamic_cast<const EmulatedTuning&>(tuning).bytes;
  }
  void tune(cl_command_queue, const Object& op, const Object&, Object& tuning) override {
    call("clTuneMLOpQCOM");
    auto& result = dynamic_cast<EmulatedTuning&>(tuning);
    if (result.bytes.empty()) result.bytes = "emulated";
    const auto& tuned = dynamic_cast<const EmulatedOperator&>(op);
    result.bytes += " " + std::to_string(tuned.operation.index());
  }

 private:
  static constexpr const char* kBadValue = "CL_INVALID_VALUE";

  // Every entry point passes here, and may be told to fail.
  void call(const std::string& entry_point) {
    if (emulated_calls().count(entry_point) == 0) throw std::logic_error(entry_point);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (settings_.failing_call != entry_point || settings_.failing_after-- > 0) return;
    settings_.failing_call.clear();  // once
    throw CallError(entry_point, settings_.failing_code);
  }

  // Products of matrices and softmax over planes take rows; all else the library's own layout.
  static bool layouts_fit(const EmulatedOperator& op) {
    if (std::holds_alternative<Softmax>(op.operation)) return true;
    const bool rows = std::holds_alternative<Gemm>(op.operation);
    const auto fits = [rows](const EmulatedTensor* tensor) {
      return (tensor->spec.layout != Layout::kOptimal) == rows;
    };
    return fits(op.output) && std::all_of(op.inputs.begin(), op.inputs.end(), fits);
  }

  void execute(cl_command_queue queue, const EmulatedOperator& op,
               const EmulatedBindings& bindings) {
    const auto memory_of = [&](const EmulatedTensor* tensor) {
      const auto found = bindings.memory.find(tensor);
      if (found == bindings.memory.end() || found->second == nullptr) {
        throw CallError("clEnqueueMLOpQCOM", "a tensor without memory");
      }
      return Bound{tensor, found->second};
    };
    std::vector<Plain> inputs;
    for (const EmulatedTensor* tensor : op.inputs) {
      inputs.push_back({tensor->spec.dims, load(queue, memory_of(tensor))});
    }
    Plain output{op.output->spec.dims, {}};
    compute(op.operation, inputs, &output);
    store(queue, memory_of(op.output), output.data);
  }

  std::vector<float> load(cl_command_queue queue, const Bound& from) {
    const TensorSpec& spec = tensor_of(from.tensor).spec;
    std::string bytes(stored_elements(spec) * spec.element_bytes(), '\0');
    const cl_int code = opencl::api().clEnqueueReadBuffer(
        queue, from.memory, opencl::CL_TRUE, 0, bytes.size(), bytes.data(), 0, nullptr, nullptr);
    if (code != opencl::CL_SUCCESS) {
      throw CallError("clEnqueueReadBuffer", opencl::error_name(code));
    }
    return decode_tensor(spec, bytes);
  }

  void store(cl_command_queue queue, const Bound& to, const std::vector<float>& data) {
    const std::string bytes = encode_tensor(tensor_of(to.tensor).spec, data);
    const cl_int code = opencl::api().clEnqueueWriteBuffer(
        queue, to.memory, opencl::CL_TRUE, 0, bytes.size(), bytes.data(), 0, nullptr, nullptr);
    if (code != opencl::CL_SUCCESS) {
      throw CallError("clEnqueueWriteBuffer", opencl::error_name(code));
    }
  }

  opencl::Device& device_;
  EmulatorSettings settings_;
  int version_ = 0;
  std::mutex mutex_;
};

// Objects of all emulators that have not been given back.
[[nodiscard]] inline int64_t live_emulator_objects() { return live_objects; }

static_assert(std::size(kOperators) == std::variant_size_v<Operation>);

}  // namespace adrenoc_runtime::clml
