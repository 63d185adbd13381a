// What the runtime takes from a bundle's manifest.json.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace adrenoc_runtime {

struct TensorSpec {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t bytes;
  std::vector<int64_t> bounds{};  // the smallest and the largest number, where it indexes something
};

struct ParamSpec {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string scope;  // "global" or "global.texture"
};

// As it is stored.
struct FileEntry {
  uint64_t bytes;
  std::string sha256;
  uint64_t inflated_bytes;  // of what it holds, where it is stored deflated, else 0
};

struct Manifest {
  std::string name;
  std::string target;
  std::string machine;  // of model.so: "aarch64"
  bool has_kernels;     // of OpenCL: else its code is for the CPU alone
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<std::string> states;  // inputs whose memory a run changes for the next one
  std::vector<std::string> recurrent;  // those of a decoder that every token changes as a whole
  int64_t slack;  // rows that caches of a window hold beyond it; 0 where all hold every row
  std::vector<int64_t> end_tokens;  // of a decoder: after one of these it has no more to say
  std::vector<int64_t> suppress_tokens;        // of a decoder: it never makes these
  std::vector<int64_t> begin_suppress_tokens;  // nor these as the first behind a prompt
  std::vector<ParamSpec> params;
  std::map<std::string, FileEntry> files;  // by path inside the bundle
};

// Throws Failure (bad bundle) where the text is no manifest of the version that this runtime reads.
[[nodiscard]] Manifest read_manifest(std::string_view text);

// Each throws Failure (bad bundle) that names the place `where` unless the text is such a name.

// Of a bundle: letters, digits, `_`, `.` and `-`.
void check_bundle_name(const std::string& text, const std::string& where);

// A word such as "float32", "adreno:750" or "aarch64".
void check_word(const std::string& text, const std::string& where);

// The path of a file or folder inside of the bundle.
void check_path(const std::string& text, const std::string& where);

}  // namespace adrenoc_runtime
