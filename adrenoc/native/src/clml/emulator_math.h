// The reference arithmetic of the emulator: dense tensors of floats in the order n, c, h, w.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "clml/backend.h"

namespace adrenoc_runtime::clml {

struct Plain {
  std::array<uint32_t, 4> dims = {1, 1, 1, 1};
  std::vector<float> data;

  [[nodiscard]] size_t offset(uint32_t n, uint32_t c) const {
    return (size_t{n} * dims[1] + c) * dims[2] * dims[3];
  }
};

// Fills `output`, whose dims are set.
void compute(const Operation& operation, const std::vector<Plain>& inputs, Plain* output);

// Why the dims do not go with the operator; "" where they do.
[[nodiscard]] std::string misfit(const Operation& operation,
                                 const std::vector<std::array<uint32_t, 4>>& inputs,
                                 const std::array<uint32_t, 4>& output);

}  // namespace adrenoc_runtime::clml
