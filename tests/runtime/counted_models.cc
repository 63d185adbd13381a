// Two models run in turns on the counting OpenCL library: what it hands out comes back, counted.
//
//   counted_models BUNDLE OTHER STUB DEVICE RUNS ; prints {"live": [...], "grown_kib", "kept"}:
//   objects at each quarter of the runs, and those that are left once both models are freed
#include <dlfcn.h>

#include "held_model.h"

int main(int count, char** values) {
  if (count != 6) return 2;
  void* stub = dlopen(values[3], RTLD_NOW);
  const auto live = reinterpret_cast<long (*)()>(dlsym(stub, "stub_live"));
  adrenoc::Options options;
  options.opencl_library = values[3];
  options.device = values[4];
  const long runs = std::atol(values[5]);
  long seen[5] = {};
  long grown_kib = 0;
  try {
    HeldModel first(values[1], options);
    HeldModel second(values[2], options);
    for (long run = 0; run < runs; ++run) {
      if (run % (runs / 4) == 0 && run != 0) seen[run / (runs / 4) - 1] = live();
      if (run == runs / 4) grown_kib = resident_kib();
      (run % 2 == 0 ? first : second).model.run();
    }
    seen[3] = live();
    grown_kib = resident_kib() - grown_kib;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("{\"live\": [%ld, %ld, %ld, %ld], \"grown_kib\": %ld, \"kept\": %ld}\n", seen[0],
              seen[1], seen[2], seen[3], grown_kib, live());
  return 0;
}
