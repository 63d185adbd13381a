// Models leave the device to others: pieces of a run, and pauses.
//
//   pace_program BUNDLE OTHER DECODER OPENCL CACHE ; prints {"launches", "submissions", ...}
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "held_model.h"

namespace {

constexpr unsigned kSeeds = 4;
constexpr unsigned kRuns = 12;
const std::vector<int64_t> kPrompt{3, 5, 7, 11, 2, 9};

void run_right(HeldModel* model, const std::vector<Bytes>& outputs, const std::string& how) {
  for (unsigned i = 0; i < kRuns; ++i) {
    expect(model->run(i % kSeeds) == outputs[i % kSeeds], "runs are right " + how);
  }
}

// Every launch a piece of its own, all in few pieces, and no pieces.
void cut(const std::string& path, const adrenoc::Options& options,
         const std::vector<Bytes>& outputs) {
  HeldModel model(path, options);
  run_right(&model, outputs, "without a limit");
  expect(model.model.launching().submissions == 0, "without a limit nothing is cut");
  const std::string before = model.model.launching().mode;
  adrenoc::set_submission_limit(1e-6);
  run_right(&model, outputs, "in pieces");
  const adrenoc_launching pieces = model.model.launching();
  expect(pieces.submissions == pieces.launches && pieces.launches > 1,
         "each launch is a piece: " + std::to_string(pieces.submissions) + " of " +
             std::to_string(pieces.launches));
  expect(pieces.longest_submission_ms > 0 && pieces.gap_ms > 0, "pieces and gaps take time");
  const std::string reason = pieces.reason;
  expect(reason.find("a ceiling") != std::string::npos &&
             reason.find("by itself, more than the ceiling") != std::string::npos,
         "it says why: " + reason);
  adrenoc::set_submission_limit(1e6);
  run_right(&model, outputs, "in one piece");
  const adrenoc_launching whole = model.model.launching();
  expect(whole.submissions >= 1 && whole.submissions < pieces.submissions, 
         "pieces are as long as may be: " + std::to_string(whole.submissions));
  adrenoc::set_submission_limit(0);
  run_right(&model, outputs, "without a limit again");
  expect(model.model.launching().submissions == 0, "nothing is cut any more");
  expect(adrenoc_set_submission_limit(-1) == ADRENOC_BAD_ARGUMENT &&
             adrenoc_set_submission_limit(std::numeric_limits<double>::quiet_NaN()) ==
                 ADRENOC_BAD_ARGUMENT,
         "a limit is 0 or more");
  std::printf("{\"launches\": %u, \"submissions\": %u, \"whole\": %u, \"gap_ms\": %.6f}\n",
              pieces.launches, pieces.submissions, whole.submissions, pieces.gap_ms);
}

// Models that run at once take turns within their runs.
void cut_two(const std::string& one, const std::string& other, const adrenoc::Options& options,
             const std::vector<Bytes>& first, const std::vector<Bytes>& second) {
  adrenoc::set_submission_limit(1e-6);
  std::thread thread([&] {
    HeldModel model(one, options);
    for (int i = 0; i < 10; ++i) run_right(&model, first, "in pieces beside others");
  });
  HeldModel model(other, options);
  for (int i = 0; i < 10; ++i) run_right(&model, second, "in pieces, the other one");
  thread.join();
  adrenoc::set_submission_limit(0);
}

void pause_runs(const std::string& path, const adrenoc::Options& options,
                const std::vector<Bytes>& outputs) {
  HeldModel model(path, options);
  std::atomic<int> runs{0};
  std::atomic<bool> ends{false};
  std::atomic<int> wrong{0};
  std::thread thread([&] {
    for (unsigned i = 0; !ends; ++i) {
      const Answer answer = answer_of([&] {
        if (model.run(i % kSeeds) != outputs[i % kSeeds]) ++wrong;
        ++runs;
      });
      if (answer.status != ADRENOC_OK && answer.status != ADRENOC_NOT_READY) ++wrong;
    }
  });
  for (int i = 0; i < 20; ++i) {
    const int before_pause = runs;
    while (runs < before_pause + 3) std::this_thread::yield();
    expect(adrenoc::pause(), "what goes on ends");
    // The run's own end is seen first, then its count grows.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const int before = runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    expect(runs == before, "nothing runs in a pause");
    adrenoc::resume();
  }
  expect(adrenoc::pause(), "a pause");
  expect(adrenoc::pause(0), "another one");
  ends = true;
  thread.join();
  expect(adrenoc_run(nullptr) == ADRENOC_BAD_ARGUMENT, "arguments come first");
  const Answer paused = answer_of([&] { model.run(0); });
  expect(paused.status == ADRENOC_NOT_READY &&
             paused.text.find("adrenoc_resume") != std::string::npos,
         "it says what helps: " + paused.text);
  expect(model.model.inputs().size() > 0 && model.model.notes().find('?') == std::string::npos,
         "the rest of a model can be asked");
  adrenoc::trim_memory(ADRENOC_TRIM_CONSTANTS);
  adrenoc::resume();
  expect(model.run(1) == outputs[1] && wrong == 0, "runs are right around pauses");
}

void pause_tokens(const std::string& path, const adrenoc::Options& options) {
  adrenoc::Model model(path, options);
  std::vector<int64_t> all;
  adrenoc::Generation how;
  how.max_tokens = 12;
  model.generate(kPrompt, how, [&](int64_t token) { return all.push_back(token), true; });
  model.rewind(0);
  std::vector<int64_t> made;
  const Answer paused = answer_of([&] {
    model.generate(kPrompt, how, [&](int64_t token) {
      made.push_back(token);
      if (made.size() == 4) {
        std::thread other([] { expect(!adrenoc::pause(0), "tokens are under way"); });
        other.join();
      }
      return true;
    });
  });
  expect(paused.status == ADRENOC_NOT_READY && made.size() == 4, "a pause ends tokens: " + paused.text);
  expect(adrenoc::pause(), "now nothing goes on");
  adrenoc::resume();
  how.max_tokens = 8;
  model.generate({}, how, [&](int64_t token) { return made.push_back(token), true; });
  expect(made == all, "an empty prompt goes on");
}

}  // namespace

int main(int count, char** values) {
  if (count != 6) return 2;
  adrenoc::Options options;
  options.opencl_library = values[4];
  options.cache_folder = values[5];
  try {
    const std::vector<Bytes> first = run_alone(values[1], options, kSeeds);
    const std::vector<Bytes> second = run_alone(values[2], options, kSeeds);
    cut(values[1], options, first);
    cut_two(values[1], values[2], options, first, second);
    pause_runs(values[1], options, first);
    pause_tokens(values[3], options);
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
