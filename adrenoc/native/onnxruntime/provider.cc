// What onnxruntime opens the library for: a factory of one device, and what a session has of the
// provider: which nodes it takes, and the bundles that compute them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adrenoc.h"
#include "graph.h"
#include "model.h"
#include "ort.h"

namespace adrenoc_ep {
namespace {

constexpr const char* kName = "AdrenocExecutionProvider";
constexpr std::string_view kPrefix = "ep.adrenocexecutionprovider.";
constexpr std::string_view kBundles = "bundles";
constexpr const char* kCancel = "ep.adrenoc.cancel";      // a dynamic option of sessions
constexpr const char* kDeadline = "adrenoc.deadline_ms";  // an entry of a run's options

bool is_context(const Node& node) {
  return node.op == "EPContext" && node.domain == "com.microsoft" &&
         text_attribute(node, "source") == kName;
}

void take(OrtEpGraphSupportInfo* support, const std::vector<const OrtNode*>& nodes) {
  const OrtNodeFusionOptions fusion{api().version, true};
  check(api().EpGraphSupportInfo_AddNodesToFuse(support, nodes.data(), nodes.size(), &fusion));
}

// The bundle that an EPContext node names: beside the model's file, unless it is absolute.
std::string bundle_of(const Node& node, const std::string& model) {
  // The node's default is a bundle inside of it.
  if (integer_attribute(node, "embed_mode").value_or(1) != 0) {
    throw Refusal(ORT_NOT_IMPLEMENTED,
                  "the EPContext node has embed_mode 1, expected 0: adrenoc compile --onnxruntime "
                  "writes a node that names the bundle beside it");
  }
  const std::string given = text_attribute(node, "ep_cache_context").value_or("");
  if (given.empty()) {
    throw Refusal(ORT_INVALID_GRAPH, "the EPContext node names no bundle in ep_cache_context");
  }
  const size_t slash = model.rfind('/');
  const bool is_beside = given[0] != '/' && slash != model.npos;
  return is_beside ? model.substr(0, slash + 1) + given : given;
}

thread_local double deadline_ms = 0;

using Names = std::vector<std::string>;

// Where `name` is among `names`.
size_t place_of(const std::string& name, const Names& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw Refusal(ORT_INVALID_GRAPH, "the node has no tensor `" + name + "`");
  return static_cast<size_t>(found - names.begin());
}

bool has_all(const Names& names, const std::vector<Model::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const Model::Tensor& tensor) {
    return std::find(names.begin(), names.end(), tensor.name) != names.end();
  });
}

// What stands for the bundle's tensors, in their order.
Names in_order(const Names& context, const std::vector<Model::Tensor>& tensors, bool by_name,
               const char* kind) {
  Names ordered;
  if (by_name) {
    for (const Model::Tensor& tensor : tensors) ordered.push_back(tensor.name);
    return ordered;
  }
  if (context.size() != tensors.size()) {
    throw Refusal(ORT_INVALID_GRAPH, "the node has " + std::to_string(context.size()) + " " + kind +
                                         ", the bundle has " + std::to_string(tensors.size()));
  }
  return context;
}

struct Facts {
  int dtype = 0;
  Extents shape;
};

Facts facts_of(const OrtValue* value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api().GetTensorTypeAndShape(value, &info));
  const auto free = [](OrtTensorTypeAndShapeInfo* one) {
    api().ReleaseTensorTypeAndShapeInfo(one);
  };
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(free)> held(info, free);
  Facts facts;
  size_t rank = 0;
  check(api().GetTensorElementType(info, &facts.dtype));
  check(api().GetDimensionsCount(info, &rank));
  facts.shape.resize(rank);
  check(api().GetDimensions(info, facts.shape.data(), rank));
  return facts;
}

// `shape` is that of an input, and has to outlive what is given; empty of an output.
adrenoc_tensor in_host(const OrtValue* value, void* memory, const Extents& shape) {
  static char nothing;  // for tensors of no bytes, whose memory may be null
  size_t bytes = 0;
  check(api().GetTensorSizeInBytes(value, &bytes));
  adrenoc_tensor given{};
  given.memory = memory == nullptr ? &nothing : memory;
  given.bytes = bytes;
  given.shape = {shape.data(), static_cast<uint32_t>(shape.size())};
  return given;
}

// A node that a bundle computes in place of one or more of onnxruntime's.
class Part final : public OrtNodeComputeInfo {
 public:
  // `inputs` and `outputs` name the tensors of the node that onnxruntime calls; `context_inputs`
  // and `context_outputs` those that stand for the bundle's.  By name where all of the bundle's
  // names are among these, else by their order.  Throws Refusal where they do not fit.
  Part(std::shared_ptr<Model> model, const Names& inputs, const Names& outputs,
       const Names& context_inputs, const Names& context_outputs)
      : model_(std::move(model)) {
    version = api().version;
    set(kCreateState, create_state);
    set(kCompute, compute);
    set(kReleaseState, release_state);
    const bool by_name =
        has_all(context_inputs, model_->inputs()) && has_all(context_outputs, model_->outputs());
    for (const std::string& name : in_order(context_inputs, model_->inputs(), by_name, "inputs")) {
      input_of_.push_back(place_of(name, inputs));
    }
    const Names made = in_order(context_outputs, model_->outputs(), by_name, "outputs");
    for (const std::string& name : outputs) output_of_.push_back(place_of(name, made));
  }

 private:
  // Runs have nothing of their own.
  static OrtStatus* create_state(OrtNodeComputeInfo* self, void*, void** state) noexcept {
    *state = self;
    return nullptr;
  }

  static OrtStatus* compute(OrtNodeComputeInfo* self, void*, OrtKernelContext* context) noexcept {
    return guarded([&] { static_cast<const Part*>(self)->run(context); });
  }

  static void release_state(OrtNodeComputeInfo*, void*) noexcept {}

  void run(OrtKernelContext* context) const {
    std::vector<Facts> facts;
    Tensors inputs;
    facts.reserve(input_of_.size());
    for (size_t i = 0; i < input_of_.size(); ++i) {
      const Model::Tensor& tensor = model_->inputs()[i];
      const OrtValue* value = nullptr;
      check(api().KernelContext_GetInput(context, input_of_[i], &value));
      const void* data = nullptr;
      check(api().GetTensorData(value, &data));
      facts.push_back(facts_of(value));
      if (facts.back().dtype != tensor.dtype) {
        throw Refusal(ORT_INVALID_ARGUMENT, "input `" + tensor.name + "` has the ONNX dtype " +
                                                std::to_string(facts.back().dtype) +
                                                ", the bundle was compiled for " +
                                                std::to_string(tensor.dtype));
      }
      // Nothing is written to an input.
      inputs.push_back(in_host(value, const_cast<void*>(data), facts.back().shape));
    }
    Tensors outputs(model_->outputs().size());
    for (size_t i = 0; i < output_of_.size(); ++i) {
      const size_t place = output_of_[i];
      const Extents shape = model_->shape_of(inputs, place);
      OrtValue* value = nullptr;
      check(api().KernelContext_GetOutput(context, i, shape.data(), shape.size(), &value));
      if (value == nullptr) continue;  // nobody asks for it
      void* data = nullptr;
      check(api().GetTensorMutableData(value, &data));
      outputs[place] = in_host(value, data, {});
    }
    adrenoc_run_options options{};
    options.struct_bytes = sizeof(options);
    options.deadline_ms = deadline_ms;
    model_->run(inputs, outputs, options);
  }

  std::shared_ptr<Model> model_;
  std::vector<size_t> input_of_;   // input i of the bundle is input input_of_[i] of the node
  std::vector<size_t> output_of_;  // output i of the node is output output_of_[i] of the bundle
};

class Provider final : public OrtEp {
 public:
  // Reads the session's options.  Throws Refusal for one that there is not.
  Provider(const OrtSessionOptions* session, const OrtLogger* logger) : logger_(logger) {
    version = api().version;
    set(kGetName, get_name);
    set(kGetCapability, get_capability);
    set(kCompile, compile);
    set(kReleaseNodeComputeInfos, release_node_compute_infos);
    set(kSetDynamicOptions, set_dynamic_options);
    set(kOnRunStart, on_run_start);
    if (version >= 24) set(kIsConcurrentRunSupported, is_concurrent_run_supported);
    read_options(session);
  }

 private:
  static const char* get_name(const OrtEp*) noexcept { return kName; }

  static OrtStatus* get_capability(OrtEp* self, const OrtGraph* graph,
                                   OrtEpGraphSupportInfo* support) noexcept {
    return guarded([&] { static_cast<Provider*>(self)->take_nodes(graph, support); });
  }

  static OrtStatus* compile(OrtEp* self, const OrtGraph** graphs, const OrtNode** fused_nodes,
                            size_t count, OrtNodeComputeInfo** infos, OrtNode**) noexcept {
    return guarded([&] {
      std::vector<std::unique_ptr<OrtNodeComputeInfo>> made;
      for (size_t i = 0; i < count; ++i) {
        made.push_back(static_cast<Provider*>(self)->make_part(graphs[i], fused_nodes[i]));
      }
      for (size_t i = 0; i < count; ++i) infos[i] = made[i].release();
    });
  }

  static void release_node_compute_infos(OrtEp*, OrtNodeComputeInfo** infos,
                                         size_t count) noexcept {
    for (size_t i = 0; i < count; ++i) delete static_cast<Part*>(infos[i]);
  }

  static OrtStatus* set_dynamic_options(OrtEp* self, const char* const* keys, const char* const*,
                                        size_t count) noexcept {
    return guarded([&] {
      for (size_t i = 0; i < count; ++i) {
        if (std::strcmp(keys[i], kCancel) == 0) static_cast<Provider*>(self)->cancel_runs();
      }
    });
  }

  static OrtStatus* on_run_start(OrtEp*, const OrtRunOptions* options) noexcept {
    return guarded([&] {
      const char* text = api().GetRunConfigEntry(options, kDeadline);
      char* end = nullptr;
      const double ms = text == nullptr ? 0 : std::strtod(text, &end);
      if (text != nullptr && (end == text || *end != 0 || !std::isfinite(ms) || ms < 0)) {
        throw Refusal(ORT_INVALID_ARGUMENT, std::string(kDeadline) + " is \"" + text +
                                                "\", expected 0 or more milliseconds");
      }
      deadline_ms = ms;
    });
  }

  static OrtStatus* is_concurrent_run_supported(OrtEp*, bool* is_supported) noexcept {
    *is_supported = true;  // a run is one call
    return nullptr;
  }

  void read_options(const OrtSessionOptions* session) {
    OrtKeyValuePairs* pairs = nullptr;
    check(api().GetSessionOptionsConfigEntries(session, &pairs));
    const auto free = [](OrtKeyValuePairs* one) { api().ReleaseKeyValuePairs(one); };
    const std::unique_ptr<OrtKeyValuePairs, decltype(free)> held(pairs, free);
    const char* const* keys = nullptr;
    const char* const* values = nullptr;
    size_t count = 0;
    api().GetKeyValuePairs(pairs, &keys, &values, &count);
    adrenoc_options trial{};
    trial.struct_bytes = sizeof(trial);
    for (size_t i = 0; i < count; ++i) {
      const std::string_view key = keys[i];
      if (key == "ep.context_enable" && std::string_view(values[i]) == "1") {
        throw Refusal(ORT_NOT_IMPLEMENTED,
                      "ep.context_enable is 1: adrenoc compile --onnxruntime writes such a model");
      }
      if (key.substr(0, kPrefix.size()) != kPrefix) continue;
      if (key.substr(kPrefix.size()) == kBundles) {
        bundles_ = split_paths(values[i]);
        continue;
      }
      std::string option = std::string(key.substr(kPrefix.size())) + "=" + values[i];
      check(adrenoc_set_option(&trial, option.c_str()));
      options_.push_back(std::move(option));
    }
  }

  void take_nodes(const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
    const std::vector<Node> nodes = read_nodes(graph);
    bool has_context = false;
    for (const Node& node : nodes) {
      if (!is_context(node)) continue;
      // Unseen: nobody else runs it, and what is wrong with its bundle reaches the app only by
      // compile().
      take(support, {node.handle});
      has_context = true;
    }
    if (!has_context && !is_subgraph(graph)) take_model(graph, nodes, support);
  }

  // Takes all nodes of a model, where one of the bundles that the session names was compiled from
  // it.  What is wrong is a warning: onnxruntime computes.
  void take_model(const OrtGraph* graph, const std::vector<Node>& nodes,
                  OrtEpGraphSupportInfo* support) {
    const std::vector<std::string> bundles = taken_.empty() ? bundles_ : Options{taken_};
    for (const std::string& bundle : bundles) {
      std::string why = why_not(bundle, model_path(graph), nodes);
      if (why.empty()) {
        try {
          (void)load(bundle);
        } catch (const Refusal& refusal) {
          why = refusal.what();
        }
      }
      if (!why.empty()) {
        log(logger_, ORT_LOGGING_LEVEL_WARNING, bundle + " is not used: " + why);
        continue;
      }
      std::vector<const OrtNode*> all;
      for (const Node& node : nodes) all.push_back(node.handle);
      take(support, all);
      taken_ = bundle;
      return;
    }
    bundles_.clear();  // onnxruntime asks several times
  }

  [[nodiscard]] std::unique_ptr<OrtNodeComputeInfo> make_part(const OrtGraph* graph,
                                                              const OrtNode* fused_node) {
    const std::vector<Node> nodes = read_nodes(graph);
    const Node fused = read_node(fused_node);
    const bool names_bundle = is_context(nodes.front());
    const Node& named = names_bundle ? nodes.front() : fused;
    const std::string path = names_bundle ? bundle_of(named, model_path(graph)) : taken_;
    return std::make_unique<Part>(load(path), fused.inputs, fused.outputs, named.inputs,
                                  named.outputs);
  }

  // Each bundle once a session.
  [[nodiscard]] std::shared_ptr<Model> load(const std::string& path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<Model>& model = models_[path];
    if (model == nullptr) model = open_model(path, options_, logger_);
    return model;
  }

  void cancel_runs() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [path, model] : models_) {
      if (model != nullptr) model->cancel();
    }
  }

  const OrtLogger* const logger_;
  Options options_;
  std::vector<std::string> bundles_;  // for models that name none
  std::string taken_;                 // the one of these that computes
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Model>> models_;  // by path
};
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

void release_ep(OrtEpFactory*, OrtEp* provider) noexcept {
  delete static_cast<Provider*>(provider);
}

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

ADRENOC_EP_EXPORT OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base,
                                               const OrtLogger*, OrtEpFactory** factories,
                                               size_t most, size_t* count) {
  *count = 0;
  OrtStatus* refusal = adrenoc_ep::open_api(*base);
  if (refusal != nullptr || most == 0) return refusal;
  factories[0] = adrenoc_ep::the_factory();
  *count = 1;
  return nullptr;
}

ADRENOC_EP_EXPORT OrtStatus* ReleaseEpFactory(OrtEpFactory*) { return nullptr; }
