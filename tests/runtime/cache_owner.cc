// Keeps built kernels in a folder and finds them again; the tests compile this file.
//
//   cache_owner FOLDER store|find ; prints why nothing was kept, or "kept"; "found" or "not found".
#include <cstdio>
#include <cstring>

#include "programs/program_cache.h"

int main(int count, char** values) {
  if (count != 3) return 2;
  const adrenoc_runtime::ProgramCache cache(values[1]);
  const adrenoc_runtime::ProgramKey key{"a device", "a driver", "sources"};
  if (std::strcmp(values[2], "store") == 0) {
    const std::string wrong = cache.store(key, "binaries");
    std::puts(wrong.empty() ? "kept" : wrong.c_str());
    return 0;
  }
  const auto found = cache.find(key, adrenoc_runtime::DriverRule::kSame);
  std::puts(found.binaries == "binaries" ? "found" : "not found");
  return 0;
}
