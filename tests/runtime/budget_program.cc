// Models within a budget of the device's memory: evicted, brought back, right all the while.
//
//   budget_program BUNDLE OTHER DECODER LARGE OPENCL CACHE TIMES ; prints {"evictions", ...}
#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>

#include "held_model.h"

namespace {

constexpr unsigned kSeeds = 4;
constexpr int kThreads = 4;
const std::vector<int64_t> kPrompt{3, 5, 7, 11, 2, 9};

// Until it holds what it will hold from run to run.
void run_some(HeldModel* model) {
  for (unsigned i = 0; i < 8; ++i) (void)model->run(i % kSeeds);
}

uint64_t held_now() {
  const adrenoc_memory memory = adrenoc::memory();
  return memory.used_bytes + memory.pooled_bytes;
}

uint64_t held_alone(const std::string& path, const adrenoc::Options& options) {
  HeldModel model(path, options);
  run_some(&model);
  return held_now();
}

// What two models hold between runs, and the one that ran last.
void keep_within(const std::string& one, const std::string& other, const adrenoc::Options& options,
                 const std::vector<Bytes>& first_outputs, const std::vector<Bytes>& second_outputs) {
  const uint64_t larger = std::max(held_alone(one, options), held_alone(other, options));
  HeldModel first(one, options);
  run_some(&first);
  HeldModel second(other, options);
  run_some(&second);
  expect(held_now() > larger, "two models hold more than one");
  expect(adrenoc::memory().models == 2 && adrenoc::memory().evicted == 0, "two are there");

  // So much that one of both fits.
  adrenoc::set_memory_budget(larger);
  expect(held_now() <= adrenoc::memory().budget_bytes, "a budget holds at once");
  expect(adrenoc::memory().evicted == 1, "the one that was used longest ago is evicted");
  expect(first.model.notes().find("were taken from the device 1 times") != std::string::npos,
         "its notes tell: " + first.model.notes());
  expect(second.model.notes().find("taken from the device") == std::string::npos,
         "the other's do not");
  for (unsigned i = 0; i < 3 * kSeeds; ++i) {
    expect(first.run(i % kSeeds) == first_outputs[i % kSeeds], "evicted models are right again");
    expect(held_now() <= adrenoc::memory().budget_bytes, "the budget holds after a run");
    expect(second.run(i % kSeeds) == second_outputs[i % kSeeds], "the second one, too");
    expect(held_now() <= adrenoc::memory().budget_bytes, "the budget holds after the other: " + std::to_string(held_now()) + " of " +
               std::to_string(adrenoc::memory().budget_bytes) + " bytes");
  }
  const adrenoc_memory told = adrenoc::memory();
  expect(told.evictions >= 6 * kSeeds && told.returns >= 6 * kSeeds && told.return_ms > 0,
         "each run brought one back");

  // One that is too large by itself runs, and evicts all others.
  adrenoc::set_memory_budget(1);
  expect(first.run(1) == first_outputs[1], "a model beyond the budget is right");
  expect(first.model.notes().find("less than the") != std::string::npos, "and says so");
  adrenoc::set_memory_budget(0);
  expect(second.run(1) == second_outputs[1] && first.run(2) == first_outputs[2], "no budget");
  expect(adrenoc::memory().evicted == 0, "and nobody is evicted any more");
}

void trim_all(const std::string& path, const adrenoc::Options& options,
              const std::vector<Bytes>& outputs) {
  HeldModel model(path, options);
  (void)model.run(0);
  const uint64_t whole = held_now();
  adrenoc::trim_memory(ADRENOC_TRIM_BETWEEN);
  const uint64_t between = held_now();
  expect(between < whole, "what lies between launches is given back");
  expect(adrenoc::memory().evicted == 0, "and constants are not");
  adrenoc::trim_memory(ADRENOC_TRIM_CONSTANTS);
  expect(held_now() == 0, "then nothing is held");
  expect(adrenoc::memory().evicted == 1, "the model is told as evicted");
  expect(model.run(1) == outputs[1] && adrenoc::memory().evicted == 0, "it is right again");
  expect(adrenoc_trim_memory(3) == ADRENOC_BAD_ARGUMENT, "there are three parts");
  // A model that came from memory has nothing to come back from.
  std::ifstream file(path.substr(0, path.rfind('.')) + ".tar", std::ios::binary);
  std::string tar{std::istreambuf_iterator<char>(file), {}};
  adrenoc::Model loaded(tar.data(), tar.size(), options);
  tar.assign(tar.size(), 'x');
  adrenoc::trim_memory(ADRENOC_TRIM_CONSTANTS);
  expect(adrenoc::memory().evicted == 1, "its constants stay");
}

std::vector<int64_t> tokens_of(adrenoc::Model* model, const std::vector<int64_t>& prompt,
                               uint32_t count) {
  std::vector<int64_t> made;
  adrenoc::Generation how;
  how.max_tokens = count;
  model->generate(prompt, how, [&](int64_t token) {
    made.push_back(token);
    return true;
  });
  return made;
}

// A decoder's context comes back with it.
void keep_context(const std::string& path, const adrenoc::Options& options) {
  adrenoc::Model model(path, options);
  const std::vector<int64_t> all = tokens_of(&model, kPrompt, 12);
  model.rewind(0);
  std::vector<int64_t> parts = tokens_of(&model, kPrompt, 4);
  for (int i = 0; i < 2; ++i) {
    adrenoc::trim_memory(ADRENOC_TRIM_CONSTANTS);
    expect(adrenoc::memory().evicted == 1, "the decoder is evicted");
    const std::vector<int64_t> more = tokens_of(&model, {}, 4);
    parts.insert(parts.end(), more.begin(), more.end());
  }
  expect(parts == all, "tokens go on where they ended");
}

// Runs, evictions, trims and other models at once: each result is right.
void crowd(const std::string& one, const std::string& other, const adrenoc::Options& options,
           const std::vector<Bytes>& first_outputs, const std::vector<Bytes>& second_outputs,
           int times) {
  std::atomic<int> wrong{0};
  std::atomic<bool> ended{false};
  adrenoc::set_memory_budget(1 << 16);
  std::thread trimmer([&] {
    for (uint32_t i = 0; !ended; ++i) {
      if (adrenoc_trim_memory(i % 3) != ADRENOC_OK) ++wrong;
      std::this_thread::yield();
    }
  });
  HeldModel* shared = new HeldModel(one, options);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      HeldModel own(t % 2 == 0 ? one : other, options);
      const std::vector<Bytes>& outputs = t % 2 == 0 ? first_outputs : second_outputs;
      for (int i = 0; i < times; ++i) {
        const auto seed = static_cast<unsigned>(i + t) % kSeeds;
        if (own.run(seed) != outputs[seed]) ++wrong;
        if (t == 0 && shared->run(seed) != outputs[seed]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  delete shared;
  ended = true;
  trimmer.join();
  adrenoc::set_memory_budget(0);
  expect(wrong == 0, std::to_string(wrong) + " results among threads are wrong");
}

}  // namespace

int main(int count, char** values) {
  if (count != 8) return 2;
  adrenoc::Options options;
  options.opencl_library = values[5];
  options.cache_folder = values[6];
  try {
    const std::vector<Bytes> first = run_alone(values[1], options, kSeeds);
    const std::vector<Bytes> second = run_alone(values[2], options, kSeeds);
    expect(held_now() == 0, "nothing is held without models");
    const std::vector<Bytes> large = run_alone(values[4], options, kSeeds);
    // Of one size, most of it constants: else both fit where one does, without what lies between.
    keep_within(values[4], values[4], options, large, large);
    trim_all(values[1], options, first);
    keep_context(values[3], options);
    crowd(values[1], values[2], options, first, second, std::atoi(values[7]));
    const adrenoc_memory told = adrenoc::memory();
    expect(told.models == 0 && held_now() == 0, "nothing is left");
    std::printf("{\"evictions\": %llu, \"returns\": %llu, \"return_ms\": %.3f}\n",
                static_cast<unsigned long long>(told.evictions),
                static_cast<unsigned long long>(told.returns), told.return_ms);
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
