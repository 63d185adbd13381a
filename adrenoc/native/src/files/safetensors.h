// Reads safetensors files in memory.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/failure.h"
#include "base/json.h"

namespace adrenoc_runtime {

struct StoredTensor {
  std::string dtype;  // by TVM's name: "float16"
  std::vector<int64_t> shape;
  std::string_view data;
};

constexpr size_t kLengthBytes = 8;

inline uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Beyond this nothing can be allocated, and sums cannot overflow below it.
constexpr uint64_t kMaxBytes = std::numeric_limits<size_t>::max() / 4;

// Bytes of a dense tensor.  Throws Failure (bad bundle) for an unknown dtype, a negative extent or
// a size beyond what memory can hold; `where` names the tensor in the message.
[[nodiscard]] inline uint64_t tensor_bytes(const std::string& dtype,
                                           const std::vector<int64_t>& shape,
                                           const std::string& where) {
  const Dtype* const known = find_dtype(dtype);
  if (known == nullptr) refuse_bundle({where, " has the unknown dtype ", dtype});
  uint64_t bytes = known->bytes;
  // A 0 comes last, so that it cannot hide an extent that is beyond all bounds.
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) refuse_bundle({where, " has a negative extent"});
    if (extent == 0) {
      empty = true;
    } else if (static_cast<uint64_t>(extent) > kMaxBytes / bytes) {
      refuse_bundle({where, " is larger than memory"});
    } else {
      bytes *= static_cast<uint64_t>(extent);
    }
  }
  return empty ? 0 : bytes;
}

inline StoredTensor read_tensor(const Json& entry, std::string_view data) {
  StoredTensor tensor;
  const std::string& stored = entry.at("dtype").text();
  for (const Dtype& dtype : kDtypes) {
    if (stored == dtype.stored) tensor.dtype = dtype.name;
  }
  if (tensor.dtype.empty()) refuse_bundle({entry.where(), " has the unknown dtype ", stored});
  for (const Json& extent : entry.at("shape").list()) tensor.shape.push_back(extent.integer());
  const Json::List& offsets = entry.at("data_offsets").list();
  if (offsets.size() != 2) refuse_bundle({entry.where(), " has no start and end"});
  const uint64_t start = offsets[0].count();
  const uint64_t end = offsets[1].count();
  if (start > end || end > data.size()) refuse_bundle({entry.where(), " lies outside of the file"});
  if (end - start != tensor_bytes(tensor.dtype, tensor.shape, entry.where())) {
    refuse_bundle({entry.where(), " has ", end - start, " bytes, which does not fit its shape"});
  }
  tensor.data = data.substr(start, end - start);
  return tensor;
}

// The tensors of a file by name.  Their data lies in `file`, which must outlive them.
// Throws Failure (bad bundle) where the header is damaged, a size does not fit or a tensor lies
// outside of the file.
[[nodiscard]] inline std::map<std::string, StoredTensor> read_safetensors(
    std::string_view file, const std::string& where) {
  if (file.size() < kLengthBytes) refuse_bundle({where, " ends too early"});
  const uint64_t header_bytes = little_endian(file.substr(0, kLengthBytes));
  if (header_bytes > file.size() - kLengthBytes) refuse_bundle({where, " ends in its header"});
  const std::string_view data = file.substr(kLengthBytes + header_bytes);
  const Json header = Json::parse(file.substr(kLengthBytes, header_bytes), where);
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, entry] : header.object()) {
    if (name != "__metadata__") tensors.emplace(name, read_tensor(entry, data));
  }
  return tensors;
}

}  // namespace adrenoc_runtime
