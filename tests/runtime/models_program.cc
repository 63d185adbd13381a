// Two models in one process: their numbers are those that each has alone, whoever runs when.
//
//   models_program BUNDLE OTHER OPENCL CACHE RUNS ; prints {"runs", "grown_kib", "contexts"}
#include <atomic>
#include <thread>

#include "held_model.h"

namespace {

constexpr unsigned kSeeds = 5;
constexpr int kThreads = 4;
constexpr int kRunsEach = 20;

struct Known {
  std::string path;
  std::vector<Bytes> outputs;  // of each seed
};

Known know(const std::string& path, const adrenoc::Options& options) {
  return {path, run_alone(path, options, kSeeds)};
}

// Now the one, now the other, now one of them twice; returns by how much memory grew since a quarter.
long interleave(const Known& one, const Known& other, const adrenoc::Options& options, long runs) {
  HeldModel first(one.path, options);
  HeldModel second(other.path, options);
  long before_kib = 0;
  for (long run = 0; run < runs; ++run) {
    const unsigned seed = static_cast<unsigned>(run) % kSeeds;
    if (run == runs / 4) before_kib = resident_kib();
    const bool is_first = run % 7 < 3 ? run % 2 == 0 : run % 3 != 0;
    const Bytes& seen = is_first ? first.run(seed) : second.run(seed);
    const Bytes& expected = (is_first ? one : other).outputs[seed];
    if (seen != expected) expect(false, "run " + std::to_string(run) + " is right");
  }
  return resident_kib() - before_kib;
}

// One of each that all threads run, one of each for a thread, and some that come and go.
void run_on_threads(const Known& one, const Known& other, const adrenoc::Options& options) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Known& mine = t % 2 == 0 ? one : other;
      HeldModel own(mine.path, options);
      for (int i = 0; i < kRunsEach; ++i) {
        const auto seed = static_cast<unsigned>(i + t) % kSeeds;
        if (own.run(seed) != mine.outputs[seed]) ++wrong;
        if (i != 4 * t) continue;
        HeldModel guest(other.path, options);
        if (guest.run(seed) != other.outputs[seed]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(wrong == 0, "runs on threads are right");
}

}  // namespace

int main(int count, char** values) {
  if (count != 6) return 2;
  adrenoc::Options options;
  options.opencl_library = values[3];
  options.cache_folder = values[4];
  // What some drivers keep of each command buffer would hide what the runtime keeps.
  options.no_record = std::getenv("NO_RECORD") != nullptr;
  try {
    const Known one = know(values[1], options);
    const Known other = know(values[2], options);
    run_on_threads(one, other, options);
    HeldModel first(one.path, options);
    HeldModel second(other.path, options);
    const bool is_shared = first.model.opencl_context() == second.model.opencl_context();
    const long runs = std::atol(values[5]);
    const long grown_kib = interleave(one, other, options, runs);
    std::printf("{\"runs\": %ld, \"grown_kib\": %ld, \"contexts\": %d}\n", runs, grown_kib,
                is_shared ? 1 : 2);
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
