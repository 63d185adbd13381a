// Whether kernels that one driver built are used with another; the tests compile this file.
//
//   driver_rule same|qualcomm NOW THEN CACHE_FOLDER ; prints "fits" or "does not", after asking the
//   rule and a cache that the driver THEN has filled, which have to agree.
#include <cstdio>
#include <cstring>

#include "programs/program_cache.h"

int main(int count, char** values) {
  if (count != 5) return 2;
  const auto rule = std::strcmp(values[1], "qualcomm") == 0 ? adrenoc_runtime::DriverRule::kQualcomm
                                                            : adrenoc_runtime::DriverRule::kSame;
  const adrenoc_runtime::ProgramKey now{"a device", values[2], "sources"};
  const adrenoc_runtime::ProgramKey then{"a device", values[3], "sources"};
  const bool fits = adrenoc_runtime::driver_fits(now.driver, then.driver, rule);
  const adrenoc_runtime::ProgramCache cache(values[4]);
  cache.store(then, "binaries");
  const adrenoc_runtime::FoundPrograms found = cache.find(now, rule);
  if (found.binaries.has_value() != fits || found.is_damaged == fits) return 1;
  // Another device is another entry, whatever the driver.
  const adrenoc_runtime::ProgramKey other{"another device", values[3], "sources"};
  if (cache.find(other, rule).binaries.has_value()) return 1;
  std::puts(fits ? "fits" : "does not");
  return 0;
}
