#include "clml/module.h"

#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/tensor.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/typed_function.h"
#include "clml/backend.h"
#include "clml/emulator.h"
#include "clml/engine.h"
#include "clml/graph.h"
#include "files/byte_stream.h"
#include "launch/kernel.h"
#include "opencl/memory.h"

namespace adrenoc_runtime::clml {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

DType dtype_of_tensor(const DLTensor& tensor) {
  if (tensor.dtype.code == kDLFloat && tensor.dtype.lanes == 1) {
    if (tensor.dtype.bits == 32) return DType::kFloat32;
    if (tensor.dtype.bits == 16) return DType::kFloat16;
  }
  TVM_FFI_THROW(ValueError) << "CLML has no " << ffi::DLDataTypeToString(tensor.dtype);
  TVM_FFI_UNREACHABLE();
}

void check_elements(const DLTensor& tensor, const GraphNode& node, const std::string& what) {
  size_t count = 1;
  for (int i = 0; i < tensor.ndim; ++i) count *= static_cast<size_t>(tensor.shape[i]);
  if (count != node.elements() || dtype_of_tensor(tensor) != node.dtype ||
      !ffi::IsContiguous(tensor)) {
    TVM_FFI_THROW(ValueError) << what << " " << node.name << " has another shape or dtype, or is "
                              << "not dense";
  }
}

// A function that the module has beside those that TVM's own has: (device id) -> facts as JSON;
// it makes the region ready for the device, if it can.
constexpr const char* kPrepareFunction = "adrenoc.clml.prepare";

// The functions, with SYMBOL the name of the region, as TVM's JSON runtimes have them:
//   get_symbol(), get_const_vars()
//   __init_SYMBOL(constants)         host tensors, once
//   SYMBOL(inputs..., outputs...)    tensors in buffers of one OpenCL device
// and of our own:
//   SYMBOL_usable(version, tensor) -> whether CLML runs the region on the tensor's device, with
//   an interface of at least this version.  Where not, the bundle runs the same operators by its
//   own kernels.
class ClmlModule final : public ffi::ModuleObj {
 public:
  using Names = ffi::Array<ffi::String>;

  // Throws Failure for a damaged graph.
  ClmlModule(const ffi::String& symbol, const ffi::String& graph, Names constants)
      : symbol_(symbol),
        graph_text_(graph),
        constant_names_(std::move(constants)),
        graph_(read_graph(graph_text_)) {
    if (constant_names_.size() != graph_.constants.size()) {
      TVM_FFI_THROW(ValueError) << "The CLML graph " << symbol_ << " reads "
                                << graph_.constants.size() << " constants, but "
                                << constant_names_.size() << " are named";
    }
  }

  [[nodiscard]] const char* kind() const final { return "clml"; }
  [[nodiscard]] int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }
  [[nodiscard]] ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    const auto self = ffi::GetObjectPtr<ClmlModule>(this);
    return FunctionNamed(name)
        .typed("get_symbol", [self] { return self->symbol_; })
        .typed("get_const_vars", [self] { return self->constant_names_; })
        .typed(init_name_.c_str(),
               [self](const ffi::Array<Tensor>& constants) {
                 self->initialize(constants);
                 return 0;
               })
        .packed(symbol_.c_str(), [self](ffi::PackedArgs args, ffi::Any*) { self->run(args); })
        .typed(usable_name_.c_str(),
               [self](int version, const Tensor& tensor) {
                 const DLDevice device = tensor->device;
                 return device.device_type == kDLOpenCL && self->usable(version, device.device_id);
               })
        .typed(kPrepareFunction, [self](int device_id) { return self->facts(device_id); })
        .found;
  }

  [[nodiscard]] ffi::Bytes SaveToBytes() const final {
    opencl::ByteWriter writer;
    writer.Write(symbol_);
    writer.Write(graph_text_);
    writer.Write(static_cast<uint64_t>(constant_names_.size()));
    for (const ffi::String& name : constant_names_) writer.Write(std::string(name));
    return ffi::Bytes(writer.finish());
  }

  [[nodiscard]] ffi::String InspectSource(const ffi::String&) const final { return graph_text_; }

 private:
  // What became of the region on one device.
  struct Prepared {
    std::shared_ptr<Backend> backend;
    std::unique_ptr<Engine> engine;  // null where CLML does not run the region
    std::string reason;
    int settings = 0;
  };

  void initialize(const ffi::Array<Tensor>& constants) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (initialized_) return;
    if (constants.size() != graph_.constants.size()) {
      TVM_FFI_THROW(ValueError) << symbol_ << " reads " << graph_.constants.size()
                                << " constants, but was given " << constants.size();
    }
    for (size_t i = 0; i < constants.size(); ++i) {
      const GraphNode& node = graph_.nodes[graph_.constants[i]];
      check_elements(*constants[i].operator->(), node, "The constant");
      constants_.push_back(constants[i]);
    }
    initialized_ = true;
  }

  [[nodiscard]] bool usable(int version, int device_id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    wanted_version_ = version;
    Prepared& state = prepared(device_id);
    if (state.engine != nullptr && state.backend->version() < version) {
      give_up(&state, "it needs CLML " + std::to_string(version) + ", the device has " +
                          std::to_string(state.backend->version()));
    }
    if (opencl::Capture* capture = opencl::CaptureScope::current()) {
      capture->require([settings = settings_number()] { return settings_number() == settings; });
    }
    opencl::Device& device = opencl::device_at(device_id);
    const opencl::QueueLock queue = device.lock_queue();
    if (state.engine == nullptr && device.profiler().is_recording()) {
      // Tells the reader of the profile that the next kernels stand in for this region.
      device.profiler().record_span(symbol_ + "/textures", 0, 0);
    }
    return state.engine != nullptr;
  }

  void run(ffi::PackedArgs args) {
    const size_t inputs = graph_.inputs.size(), outputs = graph_.outputs.size();
    if (static_cast<size_t>(args.size()) != inputs + outputs) {
      TVM_FFI_THROW(ValueError) << symbol_ << " takes " << inputs << " inputs and " << outputs
                                << " outputs, got " << args.size() << " arguments";
    }
    std::vector<cl_mem> given, made;
    int device_id = 0;
    for (size_t i = 0; i < inputs + outputs; ++i) {
      const auto* tensor = args[static_cast<int>(i)].cast<DLTensor*>();
      device_id = tensor->device.device_id;
      const bool is_input = i < inputs;
      const size_t node = is_input ? graph_.inputs[i] : graph_.outputs[i - inputs];
      (is_input ? given : made).push_back(memory_of(*tensor, node));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    Prepared& state = prepared(device_id);
    if (state.engine == nullptr) {
      TVM_FFI_THROW(RuntimeError) << symbol_ << " cannot run by CLML: " << state.reason;
    }
    if (opencl::Capture* capture = opencl::CaptureScope::current()) {
      capture->obstruct("CLML runs the region " + symbol_);
    }
    try {
      state.engine->run(given, made);
    } catch (const CallError& error) {
      // The commands before this one may have run: the results are lost, the next run is safe.
      give_up(&state, error.what());
      TVM_FFI_THROW(RuntimeError) << "CLML failed in " << symbol_ << ": " << error.what()
                                  << "; from now on its texture kernels run instead";
    }
  }

  [[nodiscard]] cl_mem memory_of(const DLTensor& tensor, size_t node) const {
    const GraphNode& facts = graph_.nodes[node];
    check_elements(tensor, facts, "The tensor for");
    const auto* descriptor = static_cast<const opencl::Descriptor*>(tensor.data);
    if (tensor.device.device_type != kDLOpenCL || descriptor == nullptr || descriptor->is_image() ||
        tensor.byte_offset != 0) {
      TVM_FFI_THROW(ValueError) << symbol_ << " takes whole buffers of an OpenCL device alone";
    }
    return descriptor->mem();
  }

  [[nodiscard]] Prepared& prepared(int device_id) {
    const int settings = settings_number();
    const auto known = prepared_.find(device_id);
    if (known != prepared_.end() && known->second.settings == settings) return known->second;
    prepared_.erase(device_id);
    Prepared made = prepare(opencl::device_at(device_id));
    made.settings = settings;
    return prepared_.emplace(device_id, std::move(made)).first->second;
  }

  [[nodiscard]] Prepared prepare(opencl::Device& device) const {
    Prepared result;
    const Choice choice = backend_of(device);
    result.backend = choice.backend;
    if (!initialized_ && !graph_.constants.empty()) {
      give_up(&result, "its constants were not loaded");
      return result;
    }
    if (choice.backend == nullptr) {
      result.reason = choice.reason;
      if (!choice.by_request) give_up(&result, choice.reason);
      return result;
    }
    std::vector<const void*> constants;
    for (const Tensor& tensor : constants_) {
      constants.push_back(static_cast<const char*>(tensor->data) + tensor->byte_offset);
    }
    const opencl::DeviceInfo& info = device.info();
    const TuningStore tuning(cache_folder(), info.key() + "\n" + info.driver + "\n" +
                                                 choice.backend->name() + " " +
                                                 choice.backend->versions() + "\n" + graph_text_);
    try {
      result.engine =
          std::make_unique<Engine>(device, *choice.backend, graph_, symbol_, constants, tuning);
    } catch (const std::runtime_error& error) {  // of the library, or of the graph
      give_up(&result, error.what());
    } catch (const ffi::Error& error) {  // of OpenCL itself: no memory, mostly
      give_up(&result, error.message());
    }
    return result;
  }

  void give_up(Prepared* prepared, const std::string& reason) const {
    prepared->engine.reset();
    prepared->reason = reason;
    LOG(WARNING) << symbol_ << " runs by texture kernels, not by CLML: " << reason;
  }

  [[nodiscard]] ffi::json::Object facts(int device_id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Prepared& state = prepared(device_id);
    ffi::json::Object result;
    result.Set(ffi::String("symbol"), ffi::String(symbol_));
    result.Set(ffi::String("used"), state.engine != nullptr);
    result.Set(ffi::String("reason"), ffi::String(state.reason));
    result.Set(ffi::String("wanted_version"), static_cast<int64_t>(wanted_version_));
    const bool known = state.backend != nullptr;
    result.Set(ffi::String("library"), ffi::String(known ? state.backend->name() : ""));
    result.Set(ffi::String("versions"), ffi::String(known ? state.backend->versions() : ""));
    const Engine* engine = state.engine.get();
    const auto set_count = [&](const char* key, size_t value) {
      result.Set(ffi::String(key), static_cast<int64_t>(value));
    };
    set_count("operators", engine != nullptr ? engine->operators() : 0);
    set_count("border_copies", engine != nullptr ? engine->border_copies() : 0);
    set_count("shared", engine != nullptr ? engine->shared() : 0);
    set_count("inner_copies", engine != nullptr ? engine->inner_copies() : 0);
    set_count("memory_bytes", engine != nullptr ? engine->memory_bytes() : 0);
    result.Set(ffi::String("recorded"), engine != nullptr && engine->recorded());
    result.Set(ffi::String("tuning"),
               ffi::String(engine != nullptr ? engine->tuning_note() : std::string()));
    return result;
  }

  const std::string symbol_;
  const std::string init_name_ = "__init_" + symbol_;
  const std::string usable_name_ = symbol_ + "_usable";
  const std::string graph_text_;
  const Names constant_names_;
  const Graph graph_;
  std::mutex mutex_;
  std::vector<Tensor> constants_;
  bool initialized_ = false;
  int wanted_version_ = 0;  // the last that the bundle asked for
  std::map<int, Prepared> prepared_;
};

// The form of TVM's JSON runtimes: symbol, graph, names of the constants.
ffi::Module load_clml_module(const ffi::Bytes& bytes) {
  opencl::ByteReader reader("A serialised CLML module", bytes.data(), bytes.size());
  const auto symbol = reader.take<std::string>();
  const auto graph = reader.take<std::string>();
  const auto count = reader.take<uint64_t>();
  ClmlModule::Names names;
  for (uint64_t i = 0; i < count; ++i) names.push_back(ffi::String(reader.take<std::string>()));
  return make_clml_module(ffi::String(symbol), ffi::String(graph), names);
}

}  // namespace

ffi::Module make_clml_module(const ffi::String& symbol, const ffi::String& graph,
                             const ffi::Array<ffi::String>& constants) {
  return ffi::Module(ffi::make_object<ClmlModule>(symbol, graph, constants));
}

ffi::String prepare_regions(const ffi::Module& module, int device_id) {
  ffi::json::Array list;
  for (const ffi::Module& region : modules_of(module, "clml")) {
    if (const auto prepare = region->GetFunction(kPrepareFunction)) {
      list.push_back((*prepare)(device_id).cast<ffi::json::Object>());
    }
  }
  return ffi::json::Stringify(list);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  publish("runtime.clml_runtime_create", make_clml_module);
  publish("ffi.Module.load_from_bytes.clml", load_clml_module);
  publish("adrenoc.clml.regions", prepare_regions);
  publish("adrenoc.clml.emulate", emulate);
  publish("adrenoc.clml.emulated_calls", emulated_calls_text);
  publish("adrenoc.clml.emulated_objects", live_emulator_objects);
  publish("adrenoc.clml.switch_off", switch_off);
  publish("adrenoc.clml.set_cache_folder", set_cache_folder);
}

}  // namespace adrenoc_runtime::clml
