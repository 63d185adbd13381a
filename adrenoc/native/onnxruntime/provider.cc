#include "provider.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "bundle.h"
#include "part.h"

namespace adrenoc_ep {
namespace {

constexpr std::string_view kPrefix = "ep.adrenocexecutionprovider.";
constexpr std::string_view kBundles = "bundles";
constexpr const char* kCancel = "ep.adrenoc.cancel";       // a dynamic option of sessions
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

}  // namespace

Provider::Provider(const OrtSessionOptions* session, const OrtLogger* logger) : logger_(logger) {
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

void Provider::read_options(const OrtSessionOptions* session) {
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

const char* Provider::get_name(const OrtEp*) noexcept { return kName; }

OrtStatus* Provider::get_capability(OrtEp* self, const OrtGraph* graph,
                                    OrtEpGraphSupportInfo* support) noexcept {
  return guarded([&] { static_cast<Provider*>(self)->take_nodes(graph, support); });
}

void Provider::take_nodes(const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
  const std::vector<Node> nodes = read_nodes(graph);
  bool has_context = false;
  for (const Node& node : nodes) {
    if (!is_context(node)) continue;
    // Unseen: nobody else runs it, and what is wrong with its bundle reaches the app only by compile().
    take(support, {node.handle});
    has_context = true;
  }
  if (!has_context && !is_subgraph(graph)) take_model(graph, nodes, support);
}

// What is wrong is a warning: onnxruntime computes.
void Provider::take_model(const OrtGraph* graph, const std::vector<Node>& nodes,
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

OrtStatus* Provider::compile(OrtEp* self, const OrtGraph** graphs, const OrtNode** fused_nodes,
                             size_t count, OrtNodeComputeInfo** infos, OrtNode**) noexcept {
  return guarded([&] {
    std::vector<std::unique_ptr<OrtNodeComputeInfo>> made;
    for (size_t i = 0; i < count; ++i) {
      made.push_back(static_cast<Provider*>(self)->make_part(graphs[i], fused_nodes[i]));
    }
    for (size_t i = 0; i < count; ++i) infos[i] = made[i].release();
  });
}

std::unique_ptr<OrtNodeComputeInfo> Provider::make_part(const OrtGraph* graph,
                                                        const OrtNode* fused_node) {
  const std::vector<Node> nodes = read_nodes(graph);
  const Node fused = read_node(fused_node);
  const bool names_bundle = is_context(nodes.front());
  const Node& named = names_bundle ? nodes.front() : fused;
  const std::string path = names_bundle ? bundle_of(named, model_path(graph)) : taken_;
  return std::make_unique<Part>(load(path), fused.inputs, fused.outputs, named.inputs,
                                named.outputs);
}

void Provider::release_node_compute_infos(OrtEp*, OrtNodeComputeInfo** infos,
                                          size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) delete static_cast<Part*>(infos[i]);
}

std::shared_ptr<Model> Provider::load(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Model>& model = models_[path];
  if (model == nullptr) model = open_model(path, options_, logger_);
  return model;
}

OrtStatus* Provider::set_dynamic_options(OrtEp* self, const char* const* keys, const char* const*,
                                         size_t count) noexcept {
  return guarded([&] {
    for (size_t i = 0; i < count; ++i) {
      if (std::strcmp(keys[i], kCancel) == 0) static_cast<Provider*>(self)->cancel_runs();
    }
  });
}

void Provider::cancel_runs() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [path, model] : models_) {
    if (model != nullptr) model->cancel();
  }
}

OrtStatus* Provider::on_run_start(OrtEp*, const OrtRunOptions* options) noexcept {
  return guarded([&] {
    const char* text = api().GetRunConfigEntry(options, kDeadline);
    char* end = nullptr;
    const double ms = text == nullptr ? 0 : std::strtod(text, &end);
    if (text != nullptr && (end == text || *end != 0 || !std::isfinite(ms) || ms < 0)) {
      throw Refusal(ORT_INVALID_ARGUMENT, std::string(kDeadline) + " is \"" + text +
                                              "\", expected 0 or more milliseconds");
    }
    set_deadline_ms(ms);
  });
}

OrtStatus* Provider::is_concurrent_run_supported(OrtEp*, bool* is_supported) noexcept {
  *is_supported = true;  // a run is one call
  return nullptr;
}

}  // namespace adrenoc_ep
