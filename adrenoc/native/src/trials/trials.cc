// Candidate kernels of a tuner: built side by side while others are measured, one at a time.
#include <signal.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/threads.h"
#include "base/typed_function.h"
#include "launch/copy.h"
#include "modules/module.h"
#include "opencl/device.h"
#include "trials/trial_measure.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

constexpr size_t kMostBuilders = 8;

// A few threads that build kernels, in the order in which they are asked.  Never destroyed: a
// build that hangs would be waited for.
class Builders {
 public:
  [[nodiscard]] static Builders& global() {
    static auto* all = new Builders();
    return *all;
  }

  template <typename Work>
  auto submit(Work work) -> std::future<decltype(work())> {
    auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.emplace_back([task] { (*task)(); });
    }
    has_work_.notify_one();
    return task->get_future();
  }

 private:
  Builders() {
    const size_t threads = build_threads(kMostBuilders);
    for (size_t i = 0; i < threads; ++i) std::thread([this] { work(); }).detach();
  }

  void work() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        has_work_.wait(lock, [this] { return !waiting_.empty(); });
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::function<void()>> waiting_;
};

// Ends this process where something takes too long that nothing else can end: a kernel that hangs,
// a compiler that does not come back.
class Watchdog {
 public:
  // Kills the process after `limit_s` unless it is destroyed before; 0 is no limit.
  explicit Watchdog(double limit_s) {
    if (limit_s <= 0) return;
    thread_ = std::thread([this, limit_s] {
      std::unique_lock<std::mutex> lock(mutex_);
      const auto limit = std::chrono::duration<double>(limit_s);
      // SIGKILL: no handler and no destructor of a driver may wait for what hangs.
      if (!ended_.wait_for(lock, limit, [this] { return is_over_; })) kill(getpid(), SIGKILL);
    });
  }
  ~Watchdog() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

struct TrialKernel {
  std::future<std::unique_ptr<Kernel>> built;
  WorkSize work;
};

struct OpenTrial {
  Device* device;
  std::vector<TrialKernel> kernels;
};

struct OpenTrials {
  std::mutex mutex;
  int64_t next = 1;
  std::map<int64_t, std::shared_ptr<OpenTrial>> all;
};

OpenTrials& open_trials() {
  static auto* known = new OpenTrials();
  return *known;
}

std::shared_ptr<OpenTrial> trial_of(int64_t number) {
  OpenTrials& known = open_trials();
  const std::lock_guard<std::mutex> lock(known.mutex);
  const auto found = known.all.find(number);
  if (found == known.all.end()) TVM_FFI_THROW(ValueError) << "There is no trial " << number;
  return found->second;
}

WorkSize work_size_of(const Json& kernel) {
  WorkSize work{3, {1, 1, 1}, {1, 1, 1}};
  for (size_t i = 0; i < 3; ++i) {
    work.global[i] = kernel.at("global").list().at(i).count();
    work.local[i] = kernel.at("local").list().at(i).count();
  }
  return work;
}

// Throws RefusedCandidate with the compiler's words.
std::vector<std::unique_ptr<Kernel>> built_kernels(OpenTrial* trial) {
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (TrialKernel& kernel : trial->kernels) {
    try {
      kernels.push_back(kernel.built.get());
    } catch (const ffi::Error& error) {
      throw RefusedCandidate("build", kernels.size(), error.message());
    }
  }
  return kernels;
}

TrialSettings settings_of(const Json& request, const std::vector<const DLTensor*>& tensors) {
  TrialSettings settings;
  settings.tolerance = request.at("tolerance").number();
  settings.stop_us = request.at("stop_us").number();
  settings.is_bytes = request.at("bytes").boolean();
  if (request.at("compare").boolean()) settings.reference = tensors.at(0);
  return settings;
}

json::Object measured_trial(OpenTrial* trial, const Json& request,
                            const std::vector<const DLTensor*>& tensors) {
  if (request.object().count("operations") != 0) {
    return measure_host_operations(*trial->device, request.at("operations").list());
  }
  const std::vector<std::unique_ptr<Kernel>> kernels = built_kernels(trial);
  const TrialSettings settings = settings_of(request, tensors);
  const Json::List& counts = request.at("counts").list();
  size_t next = settings.reference != nullptr ? 1 : 0;
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto count = static_cast<size_t>(counts.at(i).count());
    if (next + count > tensors.size()) TVM_FFI_THROW(ValueError) << "A trial lacks tensors";
    Candidate candidate{kernels[i].get(), trial->kernels[i].work, {}};
    for (size_t end = next + count; next < end; ++next)
      candidate.arguments.push_back(tensors[next]);
    candidates.push_back(std::move(candidate));
  }
  return measure_candidates(candidates, settings);
}

// Begins to build the kernels of a trial in the background; returns its number.  `text` is JSON:
// {"kernels": [{"name", "source", "global": [x, y, z], "local": [x, y, z]}...],
// "limit_s": 20}.  A build that takes longer than the limit ends this process.
int64_t start_trial(int device_id, const std::string& text) {
  const Json request = Json::parse(text, "the trial");
  const double limit_s = request.at("limit_s").number();
  auto trial = std::make_shared<OpenTrial>();
  Device& device = device_at(device_id);
  trial->device = &device;
  for (const Json& kernel : request.at("kernels").list()) {
    const std::string name = kernel.at("name").text();
    const std::string source = with_samplers(kernel.at("source").text());
    auto built = Builders::global().submit([&device, name, source, limit_s] {
      const Watchdog watchdog(limit_s);
      return std::make_unique<Kernel>(built_kernel(device, name, source));
    });
    trial->kernels.push_back({std::move(built), work_size_of(kernel)});
  }
  OpenTrials& known = open_trials();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.all[known.next] = std::move(trial);
  return known.next++;
}

// Whether all its kernels are built, or refused, after waiting for at most `wait_ms`.
bool trial_is_built(int64_t number, int64_t wait_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  const std::shared_ptr<OpenTrial> trial = trial_of(number);
  return std::all_of(trial->kernels.begin(), trial->kernels.end(),
                     [end](const TrialKernel& kernel) {
                       return kernel.built.wait_until(end) == std::future_status::ready;
                     });
}

// Measures it as `measure_candidates` does, and forgets it.  `text` is JSON: {"counts": [arguments
// of each kernel...], "limit_s", "tolerance", "stop_us", "bytes": false, "compare": false}; with
// "operations": [...] it does those in place of kernels (`measure_host_operations`).  `tensors` are
// those arguments, after the reference if there is one.  Returns JSON: what `measure_candidates`
// does, or {"refused": KIND, "index": WHICH, "detail": TEXT}, KIND being build too.  What takes
// longer than the limit ends this process.
std::string measure_trial(int64_t number, const std::string& text,
                          const std::vector<const DLTensor*>& tensors) {
  const std::shared_ptr<OpenTrial> trial = trial_of(number);
  {
    OpenTrials& known = open_trials();
    const std::lock_guard<std::mutex> lock(known.mutex);
    known.all.erase(number);
  }
  const Json request = Json::parse(text, "the trial");
  const Watchdog watchdog(request.at("limit_s").number());
  json::Object result;
  try {
    result = measured_trial(trial.get(), request, tensors);
  } catch (const RefusedCandidate& refused) {
    result.Set("refused", ffi::String(refused.kind()));
    result.Set("index", static_cast<int64_t>(refused.index()));
    result.Set("detail", ffi::String(refused.what()));
  }
  return std::string(json::Stringify(result));
}

// Fills a tensor of the device with the bytes of one on the host, again and again, for what is made
// here need not be sent.  Throws ValueError where that one is empty or not on the host.
void repeat_pattern(const DLTensor& pattern, const DLTensor& to) {
  const size_t period = tvm::ffi::GetDataSize(pattern);
  const size_t bytes = tvm::ffi::GetDataSize(to);
  if (pattern.device.device_type != kDLCPU || period == 0) {
    TVM_FFI_THROW(ValueError) << "A pattern has elements, and lies on the host";
  }
  const char* first = static_cast<const char*>(pattern.data) + pattern.byte_offset;
  std::vector<char> whole(bytes);
  for (size_t done = 0; done < bytes; done += period) {
    std::memcpy(whole.data() + done, first, std::min(period, bytes - done));
  }
  copy_tensor(on_host(to, whole.data()), to);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  publish("adrenoc.trials.start", start_trial);
  publish("adrenoc.trials.is_built", trial_is_built);
  publish("adrenoc.trials.repeat",
          [](DLTensor* pattern, DLTensor* to) { repeat_pattern(*pattern, *to); });
  publish("adrenoc.trials.keep", [](DLTensor* from, DLTensor* to) { copy_tensor(*from, *to); });
  publish_packed("adrenoc.trials.measure", [](ffi::PackedArgs args, ffi::Any* result) {
    std::vector<const DLTensor*> tensors;
    for (int i = 2; i < args.size(); ++i) tensors.push_back(args[i].cast<DLTensor*>());
    *result =
        ffi::String(measure_trial(args[0].cast<int64_t>(), args[1].cast<std::string>(), tensors));
  });
}

}  // namespace adrenoc_runtime::opencl
