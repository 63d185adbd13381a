// Runs by a bundle's code for the CPU that another thread cancels.
//
//   cancel_on_cpu BUNDLE OPENCL CACHE
#include <atomic>
#include <thread>

#include "held_model.h"

int main(int count, char** values) {
  if (count != 4) return 2;
  adrenoc::Options options;
  options.device = "cpu";
  options.opencl_library = values[2];
  options.cache_folder = values[3];
  try {
    HeldModel model(values[1], options);
    const Bytes expected = model.run(1);
    std::atomic<bool> ends{false};
    std::thread other([&] {
      while (!ends) model.model.cancel();
    });
    int cancelled = 0;
    int right = 0;
    for (int i = 0; i < 2000 && cancelled < 50; ++i) {
      const Answer answer = answer_of([&] { right += model.run(1) == expected ? 1 : 0; });
      if (answer.status == ADRENOC_CANCELLED) ++cancelled;
    }
    ends = true;
    other.join();
    expect(cancelled == 50, "runs are cancelled: " + std::to_string(cancelled));
    expect(model.run(1) == expected, "the next one is right");
    expect(model.model.times().runs == static_cast<uint64_t>(right) + 2,
           "runs that were cancelled are no runs");
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
