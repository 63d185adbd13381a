// Which names a bundle may hold; adrenoc/base/text/decode.py has the same.
#ifndef ADRENOC_RUNTIME_BUNDLE_NAMES_H_
#define ADRENOC_RUNTIME_BUNDLE_NAMES_H_

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

#endif  // ADRENOC_RUNTIME_BUNDLE_NAMES_H_
