// Token loops for Python and RPC clients: modules of kind "adrenoc.tokens".
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <chrono>
#include <cstring>

#include "base/typed_function.h"
#include "generate/token_loop.h"
#include "launch/function_of.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

// A peer says how long one call may collect tokens; longer would look like a server that hangs.
constexpr int64_t kLongestCall_ms = 10000;

std::vector<int64_t> read_tokens(const ffi::Any& list) {
  std::vector<int64_t> tokens;
  for (const ffi::Any& token : list.cast<json::Array>()) tokens.push_back(token.cast<int64_t>());
  return tokens;
}

ffi::Any value_at(const json::Object& object, const char* key) {
  const auto found = object.find(ffi::String(key));
  if (found == object.end()) TVM_FFI_THROW(ValueError) << "there is no key \"" << key << "\"";
  return (*found).second;
}

size_t place_at(const json::Object& object, const char* key) {
  const auto place = value_at(object, key).cast<int64_t>();
  if (place < 0) TVM_FFI_THROW(ValueError) << key << " is " << place << ", expected 0 or more";
  return static_cast<size_t>(place);
}

LoopEntry read_entry(const std::string& text) {
  const auto object = json::Parse(ffi::String(text)).cast<json::Object>();
  LoopEntry entry;
  entry.tokens = value_at(object, "tokens").cast<int64_t>();
  entry.ids = place_at(object, "ids");
  entry.past = place_at(object, "past");
  entry.picked = place_at(object, "picked");
  entry.picks = value_at(object, "picks").cast<bool>();
  entry.logits = place_at(object, "logits");
  entry.vocabulary = value_at(object, "vocabulary").cast<int64_t>();
  for (const int64_t place : read_tokens(value_at(object, "states"))) {
    entry.states.push_back(static_cast<size_t>(place));
  }
  entry.slack = value_at(object, "slack").cast<int64_t>();
  for (const int64_t place : read_tokens(value_at(object, "recurrent"))) {
    entry.recurrent.push_back(static_cast<size_t>(place));
  }
  return entry;
}

GenerateWish read_wish(const std::string& text) {
  const auto object = json::Parse(ffi::String(text)).cast<json::Object>();
  GenerateWish wish;
  wish.most = value_at(object, "most").cast<int64_t>();
  wish.ends = read_tokens(value_at(object, "ends"));
  wish.suppressed = read_tokens(value_at(object, "suppressed"));
  wish.suppressed_first = read_tokens(value_at(object, "suppressed_first"));
  wish.with_logits = value_at(object, "with_logits").cast<bool>();
  wish.is_constrained = value_at(object, "is_constrained").cast<bool>();
  wish.guesses = value_at(object, "guesses").cast<bool>();
  wish.sampling.temperature = value_at(object, "temperature").cast<double>();
  wish.sampling.top_k = value_at(object, "top_k").cast<int64_t>();
  wish.sampling.top_p = value_at(object, "top_p").cast<double>();
  wish.sampling.min_p = value_at(object, "min_p").cast<double>();
  wish.sampling.repetition_penalty = value_at(object, "repetition_penalty").cast<double>();
  wish.sampling.presence_penalty = value_at(object, "presence_penalty").cast<double>();
  wish.sampling.frequency_penalty = value_at(object, "frequency_penalty").cast<double>();
  for (const ffi::Any& pair : value_at(object, "bias").cast<json::Array>()) {
    const auto both = pair.cast<json::Array>();
    wish.sampling.bias.emplace_back(both[0].cast<int64_t>(), both[1].cast<double>());
  }
  wish.sampling.seed = static_cast<uint64_t>(value_at(object, "seed").cast<int64_t>());
  return wish;
}

class TokenLoopModule final : public ffi::ModuleObj {
 public:
  TokenLoopModule(int device_id, Recording recording, int64_t rows)
      : loop_(device_id, recording, rows) {}

  [[nodiscard]] const char* kind() const final { return "adrenoc.tokens"; }
  [[nodiscard]] int GetPropertyMask() const final { return ffi::Module::kRunnable; }

  // "add_entry" takes places as JSON (LoopEntry), a module, the name of its function and that one's
  // arguments; "take_in" JSON of tokens; "start" a token and JSON (GenerateWish); "next" how many ms
  // it may collect tokens, of which it waits for one: {"tokens": [..], "ended": why or ""}; "allow"
  // words of 32 bits, a bit for each token that may come next.
  [[nodiscard]] ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    auto self = ffi::GetObjectPtr<TokenLoopModule>(this);
    TokenLoop& loop = loop_;
    if (name == "add_entry") {
      return packed([self](ffi::PackedArgs args, ffi::Any*) { self->add_entry(args); });
    }
    if (name == "take_in") {
      return typed("take_in", [self, &loop](const ffi::String& tokens) {
        loop.take_in(read_tokens(json::Parse(tokens)));
      });
    }
    if (name == "start") {
      return typed("start", [self, &loop](int64_t token, const ffi::String& wish) {
        loop.start(token, read_wish(wish));
      });
    }
    if (name == "next") {
      return typed("next", [self](int64_t budget_ms) { return self->next(budget_ms); });
    }
    if (name == "allow") {
      return typed("allow", [self, &loop](const ffi::Bytes& tokens) {
        std::vector<uint32_t> words(tokens.size() / sizeof(uint32_t));
        std::memcpy(words.data(), tokens.data(), words.size() * sizeof(uint32_t));
        loop.allow(words);
      });
    }
    if (name == "stop") return typed("stop", [self, &loop] { loop.stop(); });
    if (name == "length") return typed("length", [self, &loop] { return loop.length(); });
    if (name == "clear") return typed("clear", [self, &loop] { loop.clear(); });
    if (name == "rewind") {
      return typed("rewind", [self, &loop](int64_t length) { loop.rewind(length); });
    }
    if (name == "logits") {
      return typed("logits", [self, &loop] {
        return ffi::Bytes(loop.logits().data(), loop.logits().size());
      });
    }
    if (name == "save") {
      return typed("save", [self, &loop] { return ffi::Bytes(loop.save()); });
    }
    if (name == "restore") {
      return typed("restore", [self, &loop](const ffi::Bytes& saved) {
        loop.restore(std::string(saved.data(), saved.size()));
      });
    }
    if (name == "guessed") {
      return typed("guessed", [&loop, self] {
        json::Object told;
        told.Set("runs", loop.guessed().runs);
        told.Set("tokens", loop.guessed().tokens);
        return json::Stringify(told);
      });
    }
    if (name == "report") {
      return typed("report", [self, &loop] { return json::Stringify(loop.report().to_json()); });
    }
    return std::nullopt;
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
  // tokens(OpenCL device, recording, rows of the caches)
  publish("adrenoc.opencl.tokens",
          [](int device_id, const ffi::String& recording, int64_t rows) {
            return ffi::Module(ffi::make_object<TokenLoopModule>(
                device_id, recording_of(std::string(recording)), rows));
          });
}

}  // namespace adrenoc_runtime::opencl
