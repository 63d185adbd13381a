#include "files/safetensors.h"

#include <limits>

#include "base/failure.h"
#include "base/json.h"

namespace adrenoc_runtime {
namespace {

struct Dtype {
  const char* stored;
  const char* name;
  uint64_t bytes;
};

constexpr Dtype kDtypes[] = {
    {"F64", "float64", 8}, {"F32", "float32", 4}, {"F16", "float16", 2}, {"BF16", "bfloat16", 2},
    {"I64", "int64", 8},   {"I32", "int32", 4},   {"I16", "int16", 2},   {"I8", "int8", 1},
    {"U64", "uint64", 8},  {"U32", "uint32", 4},  {"U16", "uint16", 2},  {"U8", "uint8", 1},
    {"BOOL", "bool", 1},
};

constexpr size_t kLengthBytes = 8;
// Beyond this nothing can be allocated, and sums cannot overflow below it.
constexpr uint64_t kMaxBytes = std::numeric_limits<size_t>::max() / 4;

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

StoredTensor read_tensor(const Json& entry, std::string_view data) {
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

}  // namespace

uint64_t tensor_bytes(const std::string& dtype, const std::vector<int64_t>& shape,
                      const std::string& where) {
  uint64_t bytes = 0;
  for (const Dtype& known : kDtypes) {
    if (dtype == known.name) bytes = known.bytes;
  }
  if (bytes == 0) refuse_bundle({where, " has the unknown dtype ", dtype});
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

std::map<std::string, StoredTensor> read_safetensors(std::string_view file,
                                                     const std::string& where) {
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
