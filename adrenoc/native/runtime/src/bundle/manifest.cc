#include "bundle/manifest.h"

#include <algorithm>
#include <utility>

#include "base/failure.h"
#include "base/json.h"
#include "files/safetensors.h"

namespace adrenoc_runtime {
namespace {

constexpr int64_t kSchemaVersion = 3;
constexpr int64_t kDeflatedVersion = 4;  // some files may be stored deflated
constexpr const char* kManifestFile = "manifest.json";

std::vector<int64_t> read_integers(const Json::List& list) {
  std::vector<int64_t> numbers;
  for (const Json& number : list) numbers.push_back(number.integer());
  return numbers;
}

std::vector<int64_t> read_shape(const Json& spec) { return read_integers(spec.at("shape").list()); }

// What older bundles lack, and others leave out where it is empty.
const Json::List& list_or_empty(const Json& json, const std::string& key) {
  static const Json::List none;
  return json.object().count(key) == 0 ? none : json.at(key).list();
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
                      read_shape(spec), 0, read_integers(list_or_empty(spec, "bounds"))};
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
    const bool is_deflated = entry.object().count("inflated_bytes") != 0;
    FileEntry file{entry.at("bytes").count(), entry.at("sha256").text(),
                   is_deflated ? entry.at("inflated_bytes").count() : 0};
    if (!files.emplace(path, std::move(file)).second) {
      refuse_bundle(entry.where() + " lists " + path + " again");
    }
  }
  return files;
}

int64_t integer_or_zero(const Json& json, const std::string& key) {
  const auto found = json.object().find(key);
  return found == json.object().end() ? 0 : found->second.integer();
}

std::vector<std::string> read_states(const Json& json, const char* key,
                                     const std::vector<TensorSpec>& inputs) {
  std::vector<std::string> states;
  for (const Json& state : list_or_empty(json, key)) {
    const auto is_it = [&](const TensorSpec& input) { return input.name == state.text(); };
    if (std::none_of(inputs.begin(), inputs.end(), is_it)) {
      refuse_bundle(state.where() + " is no input");
    }
    states.push_back(state.text());
  }
  return states;
}

constexpr size_t kMostLetters = 100;
constexpr size_t kMostInPart = 200;
constexpr size_t kMostInPath = 1000;
constexpr long kMostFolders = 7;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether it begins with a letter, digit or `_` and has nothing but these and `marks` after it.
bool is_name(std::string_view text, size_t most, std::string_view marks) {
  const auto is_plain = [](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && text.size() <= most && is_plain(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_plain(c) || marks.find(c) != marks.npos; });
}

// As it may be printed: what moves a cursor does not get through, nor do pages of text.
std::string shown(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, kMostLetters)) out += c < ' ' || c > '~' ? '?' : c;
  return out + (text.size() > kMostLetters ? "..." : "");
}

void enforce(bool fits, const std::string& text, const std::string& where, const char* expected) {
  if (!fits) refuse_bundle(where + " is \"" + shown(text) + "\", expected " + expected);
}

}  // namespace

Manifest read_manifest(std::string_view text) {
  const Json json = Json::parse(text, kManifestFile);
  const int64_t version = json.at("schema_version").integer();
  if (version != kSchemaVersion && version != kDeflatedVersion) {
    refuse_bundle(std::string(kManifestFile) + " has schema version " + std::to_string(version) +
                  "; this runtime reads " + std::to_string(kSchemaVersion) + " and " +
                  std::to_string(kDeflatedVersion));
  }
  std::vector<TensorSpec> inputs = read_tensors(json.at("inputs"));
  std::vector<std::string> states = read_states(json, "states", inputs);
  std::vector<std::string> recurrent = read_states(json, "recurrent", inputs);
  return {read_name(json.at("name"), check_bundle_name),
          read_name(json.at("target").at("name"), check_word),
          read_name(json.at("library").at("machine"), check_word),
          !json.at("kernels").list().empty(),
          std::move(inputs),
          read_tensors(json.at("outputs")),
          std::move(states),
          std::move(recurrent),
          integer_or_zero(json, "slack"),
          read_integers(list_or_empty(json, "end_tokens")),
          read_integers(list_or_empty(json, "suppress_tokens")),
          read_integers(list_or_empty(json, "begin_suppress_tokens")),
          read_params(json.at("params")),
          read_files(json.at("files"))};
}

void check_bundle_name(const std::string& text, const std::string& where) {
  enforce(is_name(text, kMostLetters, ".-"), text, where,
          "a name of at most 100 letters, digits, `_`, `.` and `-`");
}

void check_word(const std::string& text, const std::string& where) {
  enforce(is_name(text, kMostInPart, ".:+-"), text, where,
          "a word of at most 200 letters, digits, `_`, `.`, `:`, `+` and `-`");
}

void check_path(const std::string& text, const std::string& where) {
  bool fits =
      text.size() <= kMostInPath && std::count(text.begin(), text.end(), '/') <= kMostFolders;
  for (size_t start = 0; fits && start <= text.size();) {
    const size_t end = std::min(text.find('/', start), text.size());
    fits = is_name(std::string_view(text).substr(start, end - start), kMostInPart, ".+-");
    start = end + 1;
  }
  enforce(fits, text, where, "the path of a file inside of the bundle");
}

}  // namespace adrenoc_runtime
