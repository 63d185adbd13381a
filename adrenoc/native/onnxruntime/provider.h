// What a session has of the provider: which nodes it takes, and the bundles that compute them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph.h"
#include "model.h"
#include "ort.h"

namespace adrenoc_ep {

constexpr const char* kName = "AdrenocExecutionProvider";

class Provider final : public OrtEp {
 public:
  // Reads the session's options.  Throws Refusal for one that there is not.
  Provider(const OrtSessionOptions* session, const OrtLogger* logger);

 private:
  static const char* get_name(const OrtEp* self) noexcept;
  static OrtStatus* get_capability(OrtEp* self, const OrtGraph* graph,
                                   OrtEpGraphSupportInfo* support) noexcept;
  static OrtStatus* compile(OrtEp* self, const OrtGraph** graphs, const OrtNode** fused_nodes,
                            size_t count, OrtNodeComputeInfo** infos,
                            OrtNode** context_nodes) noexcept;
  static void release_node_compute_infos(OrtEp* self, OrtNodeComputeInfo** infos,
                                         size_t count) noexcept;
  static OrtStatus* set_dynamic_options(OrtEp* self, const char* const* keys,
                                        const char* const* values, size_t count) noexcept;
  static OrtStatus* on_run_start(OrtEp* self, const OrtRunOptions* options) noexcept;
  static OrtStatus* is_concurrent_run_supported(OrtEp* self, bool* is_supported) noexcept;

  void read_options(const OrtSessionOptions* session);
  void take_nodes(const OrtGraph* graph, OrtEpGraphSupportInfo* support);
  // Takes all nodes of a model, where one of the bundles that the session names was compiled from it.
  void take_model(const OrtGraph* graph, const std::vector<Node>& nodes,
                  OrtEpGraphSupportInfo* support);
  [[nodiscard]] std::unique_ptr<OrtNodeComputeInfo> make_part(const OrtGraph* graph,
                                                              const OrtNode* fused_node);
  // Each bundle once a session.
  [[nodiscard]] std::shared_ptr<Model> load(const std::string& path);
  void cancel_runs();

  const OrtLogger* const logger_;
  Options options_;
  std::vector<std::string> bundles_;  // for models that name none
  std::string taken_;                 // the one of these that computes
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Model>> models_;  // by path
};

}  // namespace adrenoc_ep
