// Calls that other threads cancel: what they return, how soon, and what holds afterwards.
//
//   cancel_program LONG STEPPER DECODER OPENCL CACHE ; prints {"whole_ms", "cancelled_ms", ...}
//   LONG runs for a while; STEPPER: y = 2 (h / 2 + x), h becomes h / 2 + x
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

#include "held_model.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kSeeds = 4;
constexpr int kTries = 64;
const std::vector<int64_t> kPrompt{3, 5, 7, 11, 2, 9};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void sleep_ms(double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

// How a call ends that is cancelled so long after its start, and how long it took from then on.
struct Ended {
  Answer answer;
  double after_ms = 0;
};

template <typename Work>
Ended cancel_after(adrenoc::Model* model, double ms, Work work) {
  Ended ended;
  std::atomic<bool> begins{false};
  Clock::time_point at;
  std::thread other([&] {
    while (!begins) std::this_thread::yield();
    sleep_ms(ms);
    at = Clock::now();
    model->cancel();
  });
  begins = true;
  ended.answer = answer_of(work);
  const Clock::time_point end = Clock::now();
  other.join();
  ended.after_ms = std::chrono::duration<double, std::milli>(end - at).count();
  return ended;
}

bool is_cancelled(const Answer& answer) {
  return answer.status == ADRENOC_CANCELLED &&
         answer.text.find("cancelled") != std::string::npos;
}

// Cancels runs at other times, as a busy machine is early or late, until one run is, and how long that
// took; others have to be right.  `make` gives the model of each try.
template <typename Make>
double cancel_one(Make make, const Bytes& expected, double whole_ms, const std::string& how) {
  for (int i = 0; i < kTries; ++i) {
    HeldModel& model = make();
    model.draw(1);
    const Ended ended =
        cancel_after(&model.model, whole_ms * (i % 8) / 16, [&] { model.model.run(); });
    if (is_cancelled(ended.answer)) return ended.after_ms;
    expect(ended.answer.status == ADRENOC_OK && model.outputs() == expected,
           how + " is right or cancelled: " + ended.answer.text);
  }
  expect(false, how + " is cancelled");
  return 0;
}

// Without pieces what has begun ends as a whole.
double run_whole(const std::string& path, const adrenoc::Options& options,
                 const std::vector<Bytes>& outputs) {
  HeldModel model(path, options);
  for (unsigned i = 0; i < 8; ++i) expect(model.run(i % kSeeds) == outputs[i % kSeeds], "right");
  const Clock::time_point start = Clock::now();
  (void)model.run(0);
  const double whole_ms = ms_since(start);
  model.draw(1);
  for (int i = 0; i < kTries; ++i) {
    const Ended ended = cancel_after(&model.model, whole_ms / 4, [&] { model.model.run(); });
    if (ended.answer.status == ADRENOC_OK) break;
    expect(is_cancelled(ended.answer) && i + 1 < kTries,
           "a run that was given as a whole ends as one: " + ended.answer.text);
  }
  expect(model.outputs() == outputs[1], "and it is right");
  model.model.cancel();
  expect(model.run(2) == outputs[2], "who cancels means no later call");
  Ended many;
  for (int i = 0; i < kTries && !is_cancelled(many.answer); ++i) {  // who is early means no later call
    many = cancel_after(&model.model, whole_ms * 1.5, [&] { model.model.run_repeatedly(1000); });
  }
  expect(is_cancelled(many.answer), "runs in a row end between them: " + many.answer.text);
  expect(model.run(3) == outputs[3], "and the next is right");
  return whole_ms;
}

// In pieces, from the first run on: through the virtual machine, and with what was kept.
double run_pieces(const std::string& path, adrenoc::Options options,
                  const std::vector<Bytes>& outputs, double whole_ms) {
  options.cancel_within_ms = whole_ms / 20;
  std::unique_ptr<HeldModel> made;
  const auto make = [&]() -> HeldModel& {
    made = std::make_unique<HeldModel>(path, options);
    return *made;
  };
  (void)cancel_one(make, outputs[1], whole_ms, "the first run");
  expect(made->model.times().runs == 0, "a run that was cancelled is no run");
  HeldModel& model = *made;
  double shortest_ms = std::numeric_limits<double>::infinity();
  for (unsigned i = 0; i < kSeeds; ++i) {
    expect(model.run(i) == outputs[i], "a run after one that was cancelled is right");
    const double ms = cancel_one([&]() -> HeldModel& { return model; }, outputs[1], whole_ms,
                                 "a later run");
    shortest_ms = std::min(shortest_ms, ms);
  }
  const std::string reason = model.model.launching().reason;
  expect(reason.find("a ceiling") != std::string::npos, "it says why: " + reason);
  expect(model.run(3) == outputs[3] && model.model.launching().submissions > 4,
         "it comes in pieces");
  model.draw(2);
  model.model.run_async();
  const adrenoc_times meanwhile = model.model.times();
  const adrenoc_launching launching = model.model.launching();
  expect(!model.model.wait(0) && meanwhile.compute_ms > 0, "times wait for no run that goes on");
  expect(launching.submissions > 4 && launching.launches > 4,
         "how the run before was launched is told as soon");
  model.model.cancel();
  expect(is_cancelled(answer_of([&] { (void)model.model.wait(); })),
         "who cancels after run_async means that run");
  model.model.run_async();
  expect(model.model.wait() && model.outputs() == outputs[2], "the next one is right");
  return shortest_ms;
}

// A short run is no matter: it stays one recording.
void run_short(const std::string& path, adrenoc::Options options,
               const std::vector<Bytes>& outputs) {
  options.cancel_within_ms = 1e6;
  HeldModel model(path, options);
  for (unsigned i = 0; i < 8; ++i) expect(model.run(i % kSeeds) == outputs[i % kSeeds], "right");
  expect(model.model.launching().submissions == 0, "what is over soon is not cut");
  options.cancel_within_ms = -1;
  const Answer answer = answer_of([&] { const adrenoc::Model refused(path, options); });
  expect(answer.status == ADRENOC_BAD_ARGUMENT &&
             answer.text.find("cancel_within_ms") != std::string::npos,
         "a time is 0 or more");
  expect(adrenoc_cancel(nullptr) == ADRENOC_BAD_ARGUMENT, "there is a model");
}

// Several threads run one model, others cancel: a call is right or cancelled, never anything else.
void stress(const std::string& path, adrenoc::Options options, const std::vector<Bytes>& outputs,
            double whole_ms) {
  options.cancel_within_ms = whole_ms / 20;
  HeldModel model(path, options);
  std::mutex turn;  // what is bound is one thread's at a time
  std::atomic<int> right{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> wrong{0};
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = t; !ends; ++i) {
        const std::lock_guard<std::mutex> lock(turn);
        bool is_right = false;
        const Answer answer =
            answer_of([&] { is_right = model.run(i % kSeeds) == outputs[i % kSeeds]; });
        if (is_cancelled(answer)) {
          ++cancelled;
        } else if (is_right) {
          ++right;
        } else {
          ++wrong;
        }
      }
    });
  }
  std::thread canceller([&] {
    for (unsigned i = 0; cancelled < 20 || right < 6; ++i) {
      sleep_ms(whole_ms * (i % 7 == 0 ? 6 : 0.1 * (i % 7)));
      model.model.cancel();
    }
    ends = true;
  });
  canceller.join();
  for (std::thread& thread : threads) thread.join();
  expect(wrong == 0, "calls are right or cancelled");
  expect(model.run(0) == outputs[0], "and the last one is right");
}

// A state is as it was before a run that was cancelled.
void step(const std::string& path, adrenoc::Options options) {
  options.cancel_within_ms = 1e-6;
  adrenoc::Model model(path, options);
  const size_t numbers = model.outputs()[0].bytes / sizeof(float);
  std::vector<float> in(numbers, 1.0F);
  std::vector<float> out(numbers);
  model.bind_input(model.inputs()[0].name == "x" ? 0 : 1, in);
  model.bind_output(0, out);
  float expected = 0;
  int cancels = 0;
  for (int i = 0; i < 2000 && cancels < 5; ++i) {
    const Ended ended = cancel_after(&model, 0.1 * (i % 40), [&] { model.run(); });
    if (is_cancelled(ended.answer)) {
      ++cancels;
    } else {
      expect(ended.answer.status == ADRENOC_OK, "right or cancelled: " + ended.answer.text);
      expected = expected / 2 + 1;
    }
    model.run();
    expected = expected / 2 + 1;
    expect(std::abs(out.front() - 2 * expected) < 1e-5F && out.front() == out.back(),
           "a state goes on from the last whole run: " + std::to_string(out.front() / 2) + " and " +
               std::to_string(expected));
  }
  expect(cancels > 0, "some were cancelled");
  const Ended many = cancel_after(&model, 20, [&] { model.run_repeatedly(1000000); });
  expect(is_cancelled(many.answer), "runs in a row: " + many.answer.text);
  model.run();
  expected = expected / 2 + 1;
  expect(std::abs(out.front() - 2 * expected) < 1e-5F, "which leave no state either");
}

void make_tokens(const std::string& path, const adrenoc::Options& options) {
  adrenoc::Model model(path, options);
  std::vector<int64_t> all;
  adrenoc::Generation how;
  how.max_tokens = 12;
  model.generate(kPrompt, how, [&](int64_t token) { return all.push_back(token), true; });
  model.rewind(0);
  std::vector<int64_t> made;
  const Answer answer = answer_of([&] {
    model.generate(kPrompt, how, [&](int64_t token) {
      made.push_back(token);
      if (made.size() == 4) model.cancel();
      return true;
    });
  });
  expect(is_cancelled(answer) && made.size() == 4, "tokens end: " + answer.text);
  how.max_tokens = 8;
  model.generate({}, how, [&](int64_t token) { return made.push_back(token), true; });
  expect(made == all, "an empty prompt goes on");
}

// A prompt ends between its parts, and what waits for its turn does not begin.
void take_prompt(const std::string& path, const adrenoc::Options& options) {
  adrenoc::Model model(path, options);
  adrenoc::Generation how;
  how.max_tokens = 1;
  int64_t first = 0;
  model.generate(kPrompt, how, [&](int64_t token) { return first = token, true; });
  const uint64_t before = model.context().tokens;
  std::atomic<bool> is_inside{false};
  std::atomic<bool> goes_on{false};
  std::thread inside([&] {
    const Answer answer = answer_of([&] {
      model.generate(kPrompt, how, [&](int64_t) {
        is_inside = true;
        while (!goes_on) std::this_thread::yield();
        return true;
      });
    });
    expect(is_cancelled(answer), "the one inside: " + answer.text);
  });
  while (!is_inside) std::this_thread::yield();
  std::thread waits([&] {
    const Answer answer = answer_of([&] { model.generate(kPrompt, how, [](int64_t) { return true; }); });
    expect(is_cancelled(answer), "the one that waits: " + answer.text);
  });
  sleep_ms(100);
  model.cancel();
  goes_on = true;
  inside.join();
  waits.join();
  expect(model.context().tokens == before + kPrompt.size() + 1, "what was told stays, no more");
  model.rewind(0);
  model.generate(kPrompt, how, [&](int64_t token) {
    expect(token == first, "the next is right");
    return true;
  });
}

// Loads that are cancelled before they begin and on their way; afterwards the same loads.
void load_cancelled(const std::string& path, adrenoc::Options options, const Bytes& first) {
  options.cache_folder.clear();  // so that kernels are built
  const auto load = [&] { const adrenoc::Model model(path, options); };
  load();  // drivers keep what they built
  const Clock::time_point start = Clock::now();
  load();
  const double load_ms = ms_since(start);
  const adrenoc::Cancellation before;
  before.cancel();
  options.cancellation = &before;
  expect(is_cancelled(answer_of(load)), "a load that is cancelled before it begins");
  int cancelled = 0;
  for (int part = 0; part < 10; ++part) {
    const adrenoc::Cancellation cancellation;
    options.cancellation = &cancellation;
    std::thread other([&] {
      sleep_ms(load_ms * part / 10);
      cancellation.cancel();
    });
    const Answer answer = answer_of(load);
    other.join();
    expect(answer.status == ADRENOC_OK || is_cancelled(answer), "no other end: " + answer.text);
    cancelled += is_cancelled(answer) ? 1 : 0;
  }
  expect(cancelled > 0, "a load ends on its way");
  const adrenoc::Cancellation never;
  options.cancellation = &never;
  HeldModel model(path, options);
  expect(model.run(0) == first, "nobody cancels, and it computes");
  expect(adrenoc_cancellation_create(nullptr) == ADRENOC_BAD_ARGUMENT, "a place for it");
  expect(adrenoc_cancellation_cancel(nullptr) == ADRENOC_BAD_ARGUMENT, "there is one");
}

}  // namespace

int main(int count, char** values) {
  if (count != 6) return 2;
  adrenoc::Options options;
  options.opencl_library = values[4];
  options.cache_folder = values[5];
  try {
    const std::vector<Bytes> outputs = run_alone(values[1], options, kSeeds);
    const double whole_ms = run_whole(values[1], options, outputs);
    const double cancelled_ms = run_pieces(values[1], options, outputs, whole_ms);
    run_short(values[1], options, outputs);
    load_cancelled(values[1], options, outputs[0]);
    stress(values[1], options, outputs, whole_ms);
    step(values[2], options);
    make_tokens(values[3], options);
    take_prompt(values[3], options);
    std::printf("{\"whole_ms\": %.3f, \"cancelled_ms\": %.3f}\n", whole_ms, cancelled_ms);
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
