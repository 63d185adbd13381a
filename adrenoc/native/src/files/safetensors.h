// Reads safetensors files in memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace adrenoc_runtime {

struct StoredTensor {
  std::string dtype;  // by TVM's name: "float16"
  std::vector<int64_t> shape;
  std::string_view data;
};

// The tensors of a file by name.  Their data lies in `file`, which must outlive them.
// Throws Failure (bad bundle) where the header is damaged, a size does not fit or a tensor lies
// outside of the file.
[[nodiscard]] std::map<std::string, StoredTensor> read_safetensors(std::string_view file,
                                                                   const std::string& where);

// Bytes of a dense tensor.  Throws Failure (bad bundle) for an unknown dtype, a negative extent or
// a size beyond what memory can hold; `where` names the tensor in the message.
[[nodiscard]] uint64_t tensor_bytes(const std::string& dtype, const std::vector<int64_t>& shape,
                                    const std::string& where);

}  // namespace adrenoc_runtime
