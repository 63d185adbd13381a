// Runs a bundle through the C++ wrapper, on several threads; the tests compile this file.
//
//   cpp_program BUNDLE OPENCL CACHE INPUT... ; outputs go to stdout as raw bytes.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "adrenoc.hpp"

namespace {

constexpr int kThreads = 4;
constexpr int kRunsEach = 25;
constexpr int kCancels = 200;

std::vector<char> read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

struct Bound {
  std::vector<std::vector<char>> inputs;
  std::vector<std::vector<char>> outputs;

  void to(adrenoc::Model* model) {
    for (size_t i = 0; i < inputs.size(); ++i) model->bind_input(i, inputs[i]);
    for (const adrenoc::Tensor& tensor : model->outputs()) outputs.emplace_back(tensor.bytes);
    for (size_t i = 0; i < outputs.size(); ++i) model->bind_output(i, outputs[i]);
  }
};

// Threads run one model while another one cancels: each call is right or cancelled, and so is what
// follows.
bool cancel_runs(const std::string& path, adrenoc::Options options, Bound bound,
                 const std::vector<std::vector<char>>& expected) {
  options.cancel_within_ms = 1e-3;
  adrenoc::Model model(path, options);
  bound.outputs.clear();
  bound.to(&model);
  std::atomic<bool> ends{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!ends) {
        try {
          model.run();
        } catch (const adrenoc::Error& error) {
          if (error.status() != ADRENOC_CANCELLED) ++wrong;
        }
      }
    });
  }
  for (int i = 0; i < kCancels; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(i * 37 % 2000));
    model.cancel();
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  model.run();
  return wrong == 0 && bound.outputs == expected;
}

}  // namespace

int main(int count, char** values) {
  adrenoc::Options options;
  options.opencl_library = values[2];
  options.cache_folder = values[3];
  try {
    const adrenoc::Model missing("nowhere.adrenoc", options);
    return 1;
  } catch (const adrenoc::Error& error) {
    if (error.status() != ADRENOC_NOT_FOUND) return 1;
  }

  adrenoc::Model shared(values[1], options);
  Bound bound;
  for (int i = 4; i < count; ++i) bound.inputs.push_back(read_file(values[i]));
  bound.to(&shared);
  shared.run();
  for (const std::vector<char>& output : bound.outputs) {
    std::fwrite(output.data(), 1, output.size(), stdout);
  }

  // A run that was started gives the same, once it has ended.
  const std::vector<std::vector<char>> first = bound.outputs;
  for (std::vector<char>& output : bound.outputs) std::fill(output.begin(), output.end(), 0);
  shared.run_async();
  try {
    shared.run_async();
    return 1;  // nobody has waited for the first
  } catch (const adrenoc::Error& error) {
    if (error.status() != ADRENOC_NOT_READY) return 1;
  }
  while (!shared.wait(1)) {
  }
  if (bound.outputs != first) return 1;
  // A descriptor tells the end to whoever polls; asked for before, while or after it runs.
  pollfd fence{shared.fence(), POLLIN, 0};
  if (poll(&fence, 1, 0) != 0) return 1;
  shared.run_async();
  if (poll(&fence, 1, 60000) != 1 || shared.fence() != fence.fd) return 1;
  if (!shared.wait(0)) return 1;  // what the fence tells has come to pass
  if (poll(&fence, 1, 0) != 0) return 1;

  // One model that all threads run, and one for each thread.
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, inputs = bound.inputs, expected = bound.outputs] {
      try {
        adrenoc::Model own(values[1], options);
        Bound mine{inputs, {}};
        mine.to(&own);
        for (int i = 0; i < kRunsEach; ++i) {
          own.run();
          shared.run();
          if (mine.outputs != expected) ++wrong;
        }
      } catch (const adrenoc::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!cancel_runs(values[1], options, bound, bound.outputs)) return 1;
  const auto runs = shared.times().runs;
  return wrong == 0 && runs == 3 + kThreads * kRunsEach ? 0 : 1;
}
