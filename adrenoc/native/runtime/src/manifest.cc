#include "manifest.h"

#include "failure.h"
#include "json.h"
#include "safetensors.h"

namespace adrenoc {
namespace {

constexpr int64_t kSchemaVersion = 1;
constexpr const char* kWhere = "manifest.json";

std::vector<int64_t> read_shape(const Json& spec) {
  std::vector<int64_t> shape;
  for (const Json& extent : spec.at("shape").list()) shape.push_back(extent.integer());
  return shape;
}

std::vector<TensorSpec> read_tensors(const Json& specs) {
  std::vector<TensorSpec> tensors;
  for (const Json& spec : specs.list()) {
    TensorSpec tensor{spec.at("name").text(), spec.at("dtype").text(), read_shape(spec), 0};
    tensor.bytes = tensor_bytes(tensor.dtype, tensor.shape, spec.where());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<ParamSpec> read_params(const Json& specs) {
  std::vector<ParamSpec> params;
  for (const Json& spec : specs.list()) {
    params.push_back({spec.at("name").text(), spec.at("dtype").text(), read_shape(spec),
                      spec.at("scope").text()});
  }
  return params;
}

void check_path(const std::string& path) {
  const std::string framed = "/" + path + "/";
  if (path.empty() || path.front() == '/' || framed.find("/../") != framed.npos) {
    refuse_bundle(std::string(kWhere) + " names a file outside of the bundle: " + path);
  }
}

std::map<std::string, FileEntry> read_files(const Json& entries) {
  std::map<std::string, FileEntry> files;
  for (const Json& entry : entries.list()) {
    check_path(entry.at("path").text());
    files[entry.at("path").text()] = {entry.at("bytes").count(), entry.at("sha256").text()};
  }
  return files;
}

}  // namespace

Manifest read_manifest(std::string_view text) {
  const Json json = Json::parse(text, kWhere);
  const int64_t version = json.at("schema_version").integer();
  if (version != kSchemaVersion) {
    refuse_bundle(std::string(kWhere) + " has schema version " + std::to_string(version) +
                  "; this runtime reads " + std::to_string(kSchemaVersion));
  }
  return {json.at("name").text(),
          json.at("target").at("name").text(),
          json.at("library").at("machine").text(),
          read_tensors(json.at("inputs")),
          read_tensors(json.at("outputs")),
          read_params(json.at("params")),
          read_files(json.at("files"))};
}

}  // namespace adrenoc
