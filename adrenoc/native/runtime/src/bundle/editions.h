// What a bundle holds for single GPUs, and which of it a driver gets.
// The rules are those of adrenoc/bundle/buckets.py.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace adrenoc_runtime {

struct Edition {
  std::string folder;  // "." for the common one
  std::string gpu;     // the number of an Adreno ("750"); "" of the common one
  std::string driver;  // "" where any driver will do

  // What it is for, in words.
  [[nodiscard]] std::string title() const;
};

// Reads devices.json: the common edition is the last one.  Throws Failure (bad bundle).
[[nodiscard]] std::vector<Edition> read_editions(std::string_view text);

struct RankedEditions {
  std::vector<Edition> editions;  // the best first, the common one last
  std::string reason;
};

// The editions that a device may run: `gpu` is the number of an Adreno, "" for another device.
[[nodiscard]] RankedEditions rank_editions(const std::vector<Edition>& editions,
                                           const std::string& gpu, const std::string& driver);

}  // namespace adrenoc_runtime
