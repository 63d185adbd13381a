// What a bundle says of itself before it is loaded.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph.h"

namespace adrenoc_ep {

// "a.adrenoc;b.adrenoc" as paths.
[[nodiscard]] std::vector<std::string> split_paths(const std::string& text);

// The inputs that a bundle keeps from run to run.  Throws Refusal where it cannot be read.
[[nodiscard]] std::set<std::string> states_of(const std::string& bundle);

// Why a bundle does not compute these nodes, which are all of the model in a file; "" where it does:
// it was compiled from that very file, and the nodes read and make all of its tensors.
[[nodiscard]] std::string why_not(const std::string& bundle, const std::string& model,
                                  const std::vector<Node>& nodes);

}  // namespace adrenoc_ep
