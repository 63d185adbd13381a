// For Python and RPC clients: bound runs as modules of kind "adrenoc.run", token loops as modules
// of kind "adrenoc.tokens".
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <chrono>
#include <cstring>

#include "base/json.h"
#include "base/typed_function.h"
#include "generate/token_loop.h"
#include "launch/bound_run.h"

namespace adrenoc_runtime::opencl {

namespace {

namespace ffi = tvm::ffi;

// Functions: "run" gives the results, "report" JSON (LaunchReport), "rebind" takes the number of an
// argument and another tensor for it, "forget" gives memory back.
class BoundRunModule final : public ffi::ModuleObj {
 public:
  BoundRunModule(const ffi::Function& main, const std::vector<ffi::AnyView>& arguments,
                 int device_id, Recording wish)
      : run_(main, arguments, device_id, wish) {}

  [[nodiscard]] const char* kind() const final { return "adrenoc.run"; }
  [[nodiscard]] int GetPropertyMask() const final { return ffi::Module::kRunnable; }

  [[nodiscard]] ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    auto self = ffi::GetObjectPtr<BoundRunModule>(this);
    return FunctionNamed(name)
        .packed("run", [self](ffi::PackedArgs, ffi::Any* result) { *result = self->run_.run(); })
        .typed("report", [self] { return ffi::json::Stringify(self->run_.report().to_json()); })
        .typed("rebind",
               [self](int64_t index, const tvm::runtime::Tensor& tensor) {
                 self->run_.rebind(static_cast<size_t>(index), tensor);
               })
        .typed("forget", [self] { self->run_.forget(); })
        .found;
  }

 private:
  BoundRun run_;
};

// bind_run(module, name of its function, OpenCL device, recording, arguments...)
void bind_run(ffi::PackedArgs args, ffi::Any* result) {
  constexpr int kOwn = 4;
  if (args.size() < kOwn) {
    TVM_FFI_THROW(ValueError) << "bind_run takes a module, a function, a device, how to record, "
                                 "and the function's arguments";
  }
  std::vector<ffi::AnyView> arguments;
  for (int i = kOwn; i < args.size(); ++i) arguments.push_back(args[i]);
  *result = ffi::Module(ffi::make_object<BoundRunModule>(
      function_of(args[0], args[1].cast<ffi::String>()), arguments, args[2].cast<int>(),
      recording_of(args[3].cast<std::string>())));
}

namespace json = tvm::ffi::json;

// A peer says how long one call may collect tokens; longer would look like a server that hangs.
constexpr int64_t kLongestCall_ms = 10000;

template <typename Number>
std::vector<Number> read_numbers(const Json& list) {
  std::vector<Number> numbers;
  for (const Json& one : list.list()) numbers.push_back(static_cast<Number>(one.integer()));
  return numbers;
}

LoopEntry read_entry(const std::string& text) {
  const Json json = Json::parse(text, "the entry");
  const auto place = [&](const char* key) { return static_cast<size_t>(json.at(key).count()); };
  LoopEntry entry;
  entry.tokens = json.at("tokens").integer();
  entry.ids = place("ids");
  entry.past = place("past");
  entry.picked = place("picked");
  entry.picks = json.at("picks").boolean();
  entry.logits = place("logits");
  entry.vocabulary = json.at("vocabulary").integer();
  entry.states = read_numbers<size_t>(json.at("states"));
  entry.slack = json.at("slack").integer();
  entry.recurrent = read_numbers<size_t>(json.at("recurrent"));
  return entry;
}

GenerateWish read_wish(const std::string& text) {
  const Json json = Json::parse(text, "how tokens are made");
  GenerateWish wish;
  wish.most = json.at("most").integer();
  wish.ends = read_numbers<int64_t>(json.at("ends"));
  wish.suppressed = read_numbers<int64_t>(json.at("suppressed"));
  wish.suppressed_first = read_numbers<int64_t>(json.at("suppressed_first"));
  wish.with_logits = json.at("with_logits").boolean();
  wish.is_constrained = json.at("is_constrained").boolean();
  wish.guesses = json.at("guesses").boolean();
  wish.sampling.temperature = json.at("temperature").number();
  wish.sampling.top_k = json.at("top_k").integer();
  wish.sampling.top_p = json.at("top_p").number();
  wish.sampling.min_p = json.at("min_p").number();
  wish.sampling.repetition_penalty = json.at("repetition_penalty").number();
  wish.sampling.presence_penalty = json.at("presence_penalty").number();
  wish.sampling.frequency_penalty = json.at("frequency_penalty").number();
  for (const Json& pair : json.at("bias").list()) {
    wish.sampling.bias.emplace_back(pair.list().at(0).integer(), pair.list().at(1).number());
  }
  wish.sampling.seed = static_cast<uint64_t>(json.at("seed").integer());
  return wish;
}

class TokenLoopModule final : public ffi::ModuleObj {
 public:
  TokenLoopModule(int device_id, Recording recording, int64_t rows)
      : loop_(device_id, recording, rows) {}

  [[nodiscard]] const char* kind() const final { return "adrenoc.tokens"; }
  [[nodiscard]] int GetPropertyMask() const final { return ffi::Module::kRunnable; }

  // "add_entry" takes places as JSON (LoopEntry), a module, the name of its function and that one's
  // arguments; "take_in" JSON of tokens; "start" a token and JSON (GenerateWish); "next" how many
  // ms it may collect tokens, of which it waits for one: {"tokens": [..], "ended": why or ""};
  // "allow" words of 32 bits, a bit for each token that may come next.
  [[nodiscard]] ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    auto self = ffi::GetObjectPtr<TokenLoopModule>(this);
    TokenLoop& loop = loop_;
    return FunctionNamed(name)
        .packed("add_entry", [self](ffi::PackedArgs args, ffi::Any*) { self->add_entry(args); })
        .typed("take_in",
               [self, &loop](const std::string& tokens) {
                 loop.take_in(read_numbers<int64_t>(Json::parse(tokens, "the tokens")));
               })
        .typed("start",
               [self, &loop](int64_t token, const std::string& wish) {
                 loop.start(token, read_wish(wish));
               })
        .typed("next", [self](int64_t budget_ms) { return self->next(budget_ms); })
        .typed("allow",
               [self, &loop](const ffi::Bytes& tokens) {
                 std::vector<uint32_t> words(tokens.size() / sizeof(uint32_t));
                 std::memcpy(words.data(), tokens.data(), words.size() * sizeof(uint32_t));
                 loop.allow(words);
               })
        .typed("stop", [self, &loop] { loop.stop(); })
        .typed("length", [self, &loop] { return loop.length(); })
        .typed("clear", [self, &loop] { loop.clear(); })
        .typed("rewind", [self, &loop](int64_t length) { loop.rewind(length); })
        .typed("logits",
               [self, &loop] { return ffi::Bytes(loop.logits().data(), loop.logits().size()); })
        .typed("save", [self, &loop] { return ffi::Bytes(loop.save()); })
        .typed("restore", [self, &loop](const ffi::Bytes& saved) { loop.restore(saved); })
        .typed("guessed",
               [self, &loop] {
                 json::Object told;
                 told.Set("runs", loop.guessed().runs);
                 told.Set("tokens", loop.guessed().tokens);
                 return json::Stringify(told);
               })
        .typed("report", [self, &loop] { return json::Stringify(loop.report().to_json()); })
        .found;
  }

 private:
  void add_entry(ffi::PackedArgs args) {
    constexpr int kOwn = 3;
    if (args.size() < kOwn) {
      TVM_FFI_THROW(ValueError) << "add_entry takes places, a module or function, the name of "
                                   "the module's function, and arguments";
    }
    const ffi::Function main = function_of(args[1], args[2].cast<ffi::String>());
    std::vector<ffi::AnyView> arguments;
    for (int i = kOwn; i < args.size(); ++i) arguments.push_back(args[i]);
    loop_.add_entry(read_entry(args[0].cast<std::string>()), main, arguments);
  }

  ffi::String next(int64_t budget_ms) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::milliseconds(
                                        std::min(std::max<int64_t>(budget_ms, 0), kLongestCall_ms));
    json::Array tokens;
    do {
      const auto token = loop_.next();
      if (!token.has_value()) break;
      tokens.push_back(*token);
    } while (loop_.ended().empty() && !loop_.waits() && Clock::now() < end);
    json::Object told;
    told.Set("tokens", tokens);
    told.Set("ended", ffi::String(loop_.ended()));
    return json::Stringify(told);
  }

  TokenLoop loop_;
};

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  publish_packed("adrenoc.opencl.bind_run", bind_run);
  // tokens(OpenCL device, recording, rows of the caches)
  publish("adrenoc.opencl.tokens", [](int device_id, const std::string& recording, int64_t rows) {
    return ffi::Module(ffi::make_object<TokenLoopModule>(device_id, recording_of(recording), rows));
  });
}

}  // namespace adrenoc_runtime::opencl
