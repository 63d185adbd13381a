// Runs a bundle: raw inputs in, raw outputs and times out.  For `adb shell` and for tests.
//
//   adrenoc_run BUNDLE [OPTION]...      (adrenoc_run --help lists them)
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "adrenoc.hpp"
#include "words.h"

namespace {

constexpr int kUsageCode = 2;
constexpr int kFirstStatusCode = 20;
constexpr long kTimeoutSeconds = 600;  // as adrenoc_rpc gives a session

constexpr char kUsage[] =
    "usage: adrenoc_run BUNDLE [OPTION]...\n"
    "\n"
    "Runs a bundle of adrenoc; prints one line of JSON with its times.\n"
    "\n"
    "  --shape NAME=DxDx...   of an input of a bundle for several shapes\n"
    "  --signature NAME       of a bundle that holds several  [default: the first]\n"
    "  --input NAME=FILE      bytes of an input, dense and row-major; zeros without, but for a "
    "decoder\n"
    "  --output NAME=FILE     where the bytes of an output go\n"
    "  --repeat N             timed runs (1)\n"
    "  --warmup N             runs before them (0)\n"
    "  --queue N              also N runs with one wait at the end\n"
    "  --profile FILE         when each kernel ran, as JSON\n"
    "  --device NAME          the OpenCL device whose name holds this\n"
    "  --prompt ID,ID,...     a decoder makes tokens after these, in a line before that of JSON\n"
    "  --say TEXT             a decoder answers this, and what is said after it, in one "
    "conversation\n"
    "  --system TEXT          before that, how it is to answer\n"
    "  --max-tokens N         so many, or until the context is full (0)\n"
    "  --temperature T        draw tokens; 0 takes the likeliest (0)\n"
    "  --top-k K              ... among so many of the likeliest; 0 for all (0)\n"
    "  --top-p P              ... and the fewest of so much probability (1)\n"
    "  --seed N               the same seed draws the same tokens\n"
    "  --end ID,ID,...        no more after these  [default: as the bundle says]\n"
    "  --opencl LIBRARY       the OpenCL library to open\n"
    "  --cache FOLDER         where built kernels are kept for the next start\n"
    "  --qualcomm-programs    keep them as Qualcomm's own rule says\n"
    "  --verify               only say whether the driver computes what the bundle's proof says\n"
    "  --no-record            run all through the virtual machine\n"
    "  --perf-hint LEVEL      ask the driver for a low, normal or high clock\n"
    "  --priority LEVEL       ask it to let others go first, or this; \"notes\" tell what became\n"
    "  --timeout SECONDS      end where a load, a run or a token takes longer; 0 for never (600)\n"
    "  --trust-files          do not check the digests of the bundle's files\n"
    "  --version, --help\n"
    "\n"
    "Ends with 0, 2 for a wrong command line, or 20 and more: 20 + the status of the C API.\n";

// Ends a program whose device does not: a driver that hangs keeps its caller for ever.
// Has a limit for each step, in seconds; 0 for none.
class Watch {
 public:
  Watch(long limit_s, int code) : limit_s_(limit_s), code_(code) {
    if (limit_s_ > 0) thread_ = std::thread([this] { watch(); });
  }
  ~Watch() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_done_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  // What is begun now, for the sentence of one that does not end; the step before has ended.
  void begin(const char* step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    step_ = step;
    end_ = Clock::now() + std::chrono::seconds(limit_s_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!is_done_ && Clock::now() < end_) changed_.wait_until(lock, end_);
    if (is_done_) return;
    std::fprintf(stderr,
                 "adrenoc_run: %s did not end within %ld s: the device or its driver hangs; "
                 "--timeout SECONDS waits longer\n",
                 step_.c_str(), limit_s_);
    // Nothing is cleaned up: that would wait for the device, too.
    _exit(code_);
  }

  const long limit_s_;
  const int code_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  std::string step_ = "the start";
  Clock::time_point end_ = Clock::now() + std::chrono::seconds(limit_s_);
  std::thread thread_;
};

struct Arguments {
  std::string bundle;
  std::map<std::string, std::string> shapes;
  std::map<std::string, std::string> inputs;
  std::map<std::string, std::string> outputs;
  long repeat = 1;
  long warmup = 0;
  long queue = 0;
  long timeout_s = kTimeoutSeconds;
  std::string profile;
  std::string signature;
  bool verify = false;
  std::vector<int64_t> prompt;
  std::string system;
  std::vector<std::string> said;
  adrenoc::Generation how;
  adrenoc::Options options;
};

void add_pair(const std::string& option, const std::string& text, const char* expected,
              std::map<std::string, std::string>* pairs) {
  // A tensor's name may hold a '=', a path seldom does.
  const size_t split = text.rfind('=');
  if (split == std::string::npos || split == 0) {
    throw UsageError(option + " is \"" + text + "\", expected " + expected);
  }
  (*pairs)[text.substr(0, split)] = text.substr(split + 1);
}

inline adrenoc_level parse_level(const std::string& option, const std::string& text) {
  if (text == "low") return ADRENOC_LEVEL_LOW;
  if (text == "normal") return ADRENOC_LEVEL_NORMAL;
  if (text == "high") return ADRENOC_LEVEL_HIGH;
  throw UsageError(option + " is \"" + text + "\", expected low, normal or high");
}

using Text = const std::string&;
constexpr Option<Arguments> kOptions[] = {
    {"--shape", [](Arguments& a, Text o, Text v) { add_pair(o, v, "NAME=DxDx...", &a.shapes); }},
    {"--input", [](Arguments& a, Text o, Text v) { add_pair(o, v, "NAME=FILE", &a.inputs); }},
    {"--output", [](Arguments& a, Text o, Text v) { add_pair(o, v, "NAME=FILE", &a.outputs); }},
    {"--repeat", [](Arguments& a, Text o, Text v) { a.repeat = parse_count(o, v); }},
    {"--warmup", [](Arguments& a, Text o, Text v) { a.warmup = parse_count(o, v); }},
    {"--queue", [](Arguments& a, Text o, Text v) { a.queue = parse_count(o, v); }},
    {"--timeout", [](Arguments& a, Text o, Text v) { a.timeout_s = parse_count(o, v); }},
    {"--profile", [](Arguments& a, Text, Text v) { a.profile = v; }},
    {"--signature", [](Arguments& a, Text, Text v) { a.signature = v; }},
    {"--prompt", [](Arguments& a, Text o, Text v) { a.prompt = parse_counts(o, v, ','); }},
    {"--say", [](Arguments& a, Text, Text v) { a.said.push_back(v); }},
    {"--system", [](Arguments& a, Text, Text v) { a.system = v; }},
    {"--max-tokens", [](Arguments& a, Text o, Text v) { a.how.max_tokens = parse_count(o, v); }},
    {"--temperature", [](Arguments& a, Text o, Text v) { a.how.temperature = parse_number(o, v); }},
    {"--top-k", [](Arguments& a, Text o, Text v) { a.how.top_k = parse_count(o, v); }},
    {"--top-p", [](Arguments& a, Text o, Text v) { a.how.top_p = parse_number(o, v); }},
    {"--seed", [](Arguments& a, Text o, Text v) { a.how.seed = parse_count(o, v); }},
    {"--end",
     [](Arguments& a, Text o, Text v) {
       a.how.has_own_ends = true;
       a.how.end_tokens = parse_counts(o, v, ',');
     }},
    {"--perf-hint",
     [](Arguments& a, Text o, Text v) { a.options.performance = parse_level(o, v); }},
    {"--priority", [](Arguments& a, Text o, Text v) { a.options.priority = parse_level(o, v); }},
    {"--device", [](Arguments& a, Text, Text v) { a.options.device = v; }},
    {"--opencl", [](Arguments& a, Text, Text v) { a.options.opencl_library = v; }},
    {"--cache", [](Arguments& a, Text, Text v) { a.options.cache_folder = v; }},
    {"--trust-files", [](Arguments& a, Text, Text) { a.options.trust_files = true; }, false},
    {"--verify", [](Arguments& a, Text, Text) { a.verify = true; }, false},
    {"--no-record", [](Arguments& a, Text, Text) { a.options.no_record = true; }, false},
    {"--qualcomm-programs", [](Arguments& a, Text, Text) { a.options.qualcomm_programs = true; },
     false},
};

Arguments parse(int count, char** values) {
  Arguments arguments;
  parse_options(count, values, kOptions, &arguments, [&](const std::string& word) {
    if (!arguments.bundle.empty()) throw UsageError("more than one bundle: " + word);
    arguments.bundle = word;
  });
  if (arguments.bundle.empty()) throw UsageError("no bundle is named");
  return arguments;
}

std::vector<char> read_file(const std::string& path, const adrenoc::Tensor& tensor) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw UsageError("cannot read " + path);
  std::vector<char> content((std::istreambuf_iterator<char>(stream)), {});
  if (content.size() != tensor.bytes) {
    throw UsageError(path + " has " + std::to_string(content.size()) + " bytes, but `" +
                     tensor.name + "` has " + std::to_string(tensor.bytes));
  }
  return content;
}

void write_file(const std::string& path, const std::vector<char>& content) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
  stream.close();
  if (!stream) throw UsageError("cannot write " + path);
}

// Every name that the user gave must be one of the model's.
void check_names(const std::map<std::string, std::string>& files,
                 const std::vector<adrenoc::Tensor>& tensors, const char* kind) {
  for (const auto& [name, path] : files) {
    const auto has_name = [&name = name](const adrenoc::Tensor& t) { return t.name == name; };
    if (std::none_of(tensors.begin(), tensors.end(), has_name)) {
      throw UsageError("the model has no " + std::string(kind) + " `" + name + "`");
    }
  }
}

void choose_shapes(const std::map<std::string, std::string>& shapes, adrenoc::Model* model) {
  if (shapes.empty()) return;
  const std::vector<adrenoc::Tensor> inputs = model->inputs();
  check_names(shapes, inputs, "input");
  std::vector<std::vector<int64_t>> wanted;
  for (const adrenoc::Tensor& tensor : inputs) {
    const auto shape = shapes.find(tensor.name);
    wanted.emplace_back();
    if (shape != shapes.end()) wanted.back() = parse_counts("--shape", shape->second, 'x');
  }
  model->set_input_shapes(wanted);
}

// The nearest-rank percentile.
double percentile(const std::vector<double>& ascending, size_t percent) {
  if (ascending.empty()) return 0.0;
  const size_t rank = (percent * ascending.size() + 99) / 100;
  return ascending[std::max<size_t>(rank, 1) - 1];
}

void print_result(const adrenoc_launching& launching, const adrenoc::Model& model,
                  std::vector<double> warm_ms, const adrenoc::Model::Pace& pace,
                  const std::string& notes) {
  std::sort(warm_ms.begin(), warm_ms.end());
  const adrenoc_times times = model.times();
  // Kernels are built while the constants move: `build_ms` holds that time.
  const double load_ms = times.open_ms;
  std::printf(
      "{\"runtime\": %s, \"model\": %s, \"device\": %s, \"load_ms\": %.3f, \"build_ms\": %.3f, "
      "\"first_ms\": %.3f, \"cold_ms\": %.3f, \"p50_ms\": %.3f, \"p90_ms\": %.3f, "
      "\"p99_ms\": %.3f, \"queued_ms\": %.3f, \"host_ms\": %.3f, \"runs\": %llu, "
      "\"cache_hits\": %u, \"cache_misses\": %u, \"cache_damaged\": %u, \"launches\": %u, "
      "\"api_calls\": %u, \"launch_ms\": %.4f, \"mode\": %s, \"mode_reason\": %s, "
      "\"notes\": %s}\n",
      json_quoted(adrenoc_runtime_version()).c_str(), json_quoted(model.name()).c_str(),
      json_quoted(model.device()).c_str(), load_ms, times.build_ms, times.first_compute_ms,
      load_ms + times.build_ms + times.first_compute_ms, percentile(warm_ms, 50),
      percentile(warm_ms, 90), percentile(warm_ms, 99), pace.ms, pace.host_ms,
      static_cast<unsigned long long>(times.runs), times.cache_hits, times.cache_misses,
      times.cache_damaged, launching.launches, launching.api_calls, launching.host_ms,
      json_quoted(launching.mode).c_str(), json_quoted(launching.reason).c_str(),
      json_lines(notes).c_str());
}

void verify(adrenoc::Model* model) {
  const adrenoc::Model::Verdict verdict = model->verify();
  std::printf("{\"right\": %s, \"wrong\": %s, \"kept\": %s, \"runs\": %u, \"ms\": %.3f}\n",
              verdict.wrong.empty() ? "true" : "false", json_quoted(verdict.wrong).c_str(),
              verdict.was_kept ? "true" : "false", verdict.runs, verdict.ms);
  if (!verdict.wrong.empty()) throw adrenoc::Error(ADRENOC_WRONG_RESULTS);
}

// Tokens as they come, then one line of JSON.
void generate(const Arguments& arguments, adrenoc::Model* model, Watch* watch) {
  uint64_t made = 0;
  bool is_full = false;
  const auto start = std::chrono::steady_clock::now();
  const auto ms = [&start] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  };
  double first_ms = 0;
  try {
    model->generate(arguments.prompt, arguments.how, [&](int64_t token) {
      if (made++ == 0) first_ms = ms();
      watch->begin("a token");
      std::printf("%lld ", static_cast<long long>(token));
      std::fflush(stdout);
      return true;
    });
  } catch (const adrenoc::Error& error) {
    // Before the first token it is the prompt that has no room.
    if (error.status() != ADRENOC_CONTEXT_FULL || made == 0) throw;
    is_full = true;
  }
  const double rest_ms = made > 1 ? (ms() - first_ms) / static_cast<double>(made - 1) : 0.0;
  const adrenoc::Model::Context context = model->context();
  std::printf(
      "\n{\"model\": %s, \"device\": %s, \"tokens\": %llu, \"first_ms\": %.3f, "
      "\"token_ms\": %.3f, \"context\": %llu, \"rows\": %llu, \"full\": %s}\n",
      json_quoted(model->name()).c_str(), json_quoted(model->device()).c_str(),
      static_cast<unsigned long long>(made), first_ms, rest_ms,
      static_cast<unsigned long long>(context.tokens),
      static_cast<unsigned long long>(context.rows), is_full ? "true" : "false");
}

// Answers as they come, each in lines of its own.
void talk(const Arguments& arguments, adrenoc::Model* model, Watch* watch) {
  std::vector<adrenoc::Message> messages;
  if (!arguments.system.empty()) messages.push_back({"system", arguments.system});
  for (const std::string& said : arguments.said) {
    messages.push_back({"user", said});
    std::string answer;
    model->answer(messages, arguments.how, [&](const char* piece) {
      watch->begin("an answer");
      answer += piece;
      std::fputs(piece, stdout);
      std::fflush(stdout);
      return true;
    });
    std::printf("\n");
    messages.push_back({"assistant", answer});
  }
}

void run(const Arguments& arguments) {
  // It lives longest: what the model leaves may wait for the device as well.
  Watch watch(arguments.timeout_s, kFirstStatusCode + static_cast<int>(ADRENOC_DEVICE_FAILED));
  watch.begin("the load");
  adrenoc::Model model(arguments.bundle, arguments.options);
  watch.begin("a run");
  if (arguments.verify) {
    verify(&model);
    return;
  }
  const bool makes_tokens = !arguments.prompt.empty() || !arguments.said.empty();
  if (!arguments.signature.empty()) model.set_signature(arguments.signature);
  choose_shapes(arguments.shapes, &model);
  const std::vector<adrenoc::Tensor> inputs = model.inputs();
  const std::vector<adrenoc::Tensor> outputs = model.outputs();
  check_names(arguments.inputs, inputs, "input");
  check_names(arguments.outputs, outputs, "output");
  std::vector<std::vector<char>> in;
  std::vector<std::vector<char>> out;
  for (const adrenoc::Tensor& tensor : inputs) {
    const auto file = arguments.inputs.find(tensor.name);
    const bool given = file != arguments.inputs.end();
    in.emplace_back();
    if (makes_tokens && !given) continue;
    in.back() = given ? read_file(file->second, tensor) : std::vector<char>(tensor.bytes);
    // An empty vector may have no memory at all, and null is not bound.
    in.back().reserve(1);
    model.bind_input(in.size() - 1, in.back());
  }
  if (makes_tokens) {
    (arguments.said.empty() ? generate : talk)(arguments, &model, &watch);
    return;
  }
  for (const adrenoc::Tensor& tensor : outputs) {
    out.emplace_back(tensor.bytes);
    model.bind_output(out.size() - 1, out.back());
  }
  const auto compute = [&] {
    watch.begin("a run");
    model.run();
  };
  compute();
  for (long i = 0; i < arguments.warmup; ++i) compute();
  std::vector<double> warm_ms;
  for (long i = 0; i < arguments.repeat; ++i) {
    compute();
    warm_ms.push_back(model.times().compute_ms);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto file = arguments.outputs.find(outputs[i].name);
    if (file != arguments.outputs.end()) write_file(file->second, out[i]);
  }
  adrenoc::Model::Pace pace{};
  watch.begin("the queued runs");
  if (arguments.queue > 0) pace = model.run_repeatedly(static_cast<uint32_t>(arguments.queue));
  const adrenoc_launching launching = model.launching();
  if (!arguments.profile.empty()) {
    watch.begin("the profile");
    const std::string text = model.profile();
    write_file(arguments.profile, std::vector<char>(text.begin(), text.end()));
  }
  print_result(launching, model, std::move(warm_ms), pace, model.notes());
}

}  // namespace

int main(int count, char** values) {
  if (count == 2 && std::strcmp(values[1], "--version") == 0) {
    std::printf("%s\n", adrenoc_runtime_version());
    return 0;
  }
  if (count == 2 && (std::strcmp(values[1], "--help") == 0 || std::strcmp(values[1], "-h") == 0)) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    run(parse(count, values));
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "adrenoc_run: %s\n", error.what());
    return kFirstStatusCode + static_cast<int>(error.status());
  } catch (const UsageError& error) {
    std::fprintf(stderr, "adrenoc_run: %s\n%s", error.what(), kUsage);
    return kUsageCode;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "adrenoc_run: %s\n", error.what());
    return kFirstStatusCode + static_cast<int>(ADRENOC_INTERNAL);
  }
}
