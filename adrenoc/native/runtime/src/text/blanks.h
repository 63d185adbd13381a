// Blanks (Unicode's property White_Space) around a part of a text.
#pragma once

#include <cstddef>
#include <string_view>

namespace adrenoc_runtime {

// Where the blanks begin that end at `end`, not before `least`.
[[nodiscard]] size_t left_of_blanks(std::string_view text, size_t least, size_t end);
// Where the blanks end that begin at `begin`.
[[nodiscard]] size_t right_of_blanks(std::string_view text, size_t begin);

}  // namespace adrenoc_runtime
