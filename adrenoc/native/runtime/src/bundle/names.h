// Which names a bundle may hold; adrenoc/base/text/decode.py has the same.
#pragma once

#include <string>

namespace adrenoc_runtime {

// Each throws Failure (bad bundle) that names the place `where` unless the text is such a name.

// Of a bundle: letters, digits, `_`, `.` and `-`.
void check_bundle_name(const std::string& text, const std::string& where);

// A word such as "float32", "adreno:750" or "aarch64".
void check_word(const std::string& text, const std::string& where);

// The path of a file or folder inside of the bundle.
void check_path(const std::string& text, const std::string& where);

}  // namespace adrenoc_runtime
