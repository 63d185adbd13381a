#include "bundle/manifest.h"

#include "base/failure.h"
#include "base/json.h"
#include "bundle/names.h"
#include "files/safetensors.h"

namespace adrenoc_runtime {
namespace {

constexpr int64_t kSchemaVersion = 1;
constexpr const char* kWhere = "manifest.json";

std::vector<int64_t> read_shape(const Json& spec) {
  std::vector<int64_t> shape;
  for (const Json& extent : spec.at("shape").list()) shape.push_back(extent.integer());
  return shape;
}

using CheckName = void (*)(const std::string& text, const std::string& where);

const std::string& read_name(const Json& value, CheckName check) {
  check(value.text(), value.where());
  return value.text();
}

std::vector<TensorSpec> read_tensors(const Json& specs) {
  std::vector<TensorSpec> tensors;
  for (const Json& spec : specs.list()) {
    TensorSpec tensor{spec.at("name").text(), read_name(spec.at("dtype"), check_word),
                      read_shape(spec), 0};
    tensor.bytes = tensor_bytes(tensor.dtype, tensor.shape, spec.where());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<ParamSpec> read_params(const Json& specs) {
  std::vector<ParamSpec> params;
  for (const Json& spec : specs.list()) {
    params.push_back({spec.at("name").text(), read_name(spec.at("dtype"), check_word),
                      read_shape(spec), read_name(spec.at("scope"), check_word)});
  }
  return params;
}

std::map<std::string, FileEntry> read_files(const Json& entries) {
  std::map<std::string, FileEntry> files;
  for (const Json& entry : entries.list()) {
    const std::string& path = read_name(entry.at("path"), check_path);
    FileEntry file{entry.at("bytes").count(), entry.at("sha256").text()};
    if (!files.emplace(path, std::move(file)).second) {
      refuse_bundle(entry.where() + " lists " + path + " again");
    }
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
  return {read_name(json.at("name"), check_bundle_name),
          read_name(json.at("target").at("name"), check_word),
          read_name(json.at("library").at("machine"), check_word),
          read_tensors(json.at("inputs")),
          read_tensors(json.at("outputs")),
          read_params(json.at("params")),
          read_files(json.at("files"))};
}

}  // namespace adrenoc_runtime
