// The C API of adrenoc.h for C++17: models that free themselves, failures as exceptions.
//
//   adrenoc::Model model("mobilenet_v2.adrenoc");
//   model.bind_input(0, pixels);
//   model.bind_output(0, scores);
//   model.run();
//
// Header only, so that it may be compiled with another C++ library than the runtime.
#ifndef ADRENOC_HPP_
#define ADRENOC_HPP_

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "adrenoc.h"

namespace adrenoc {

class Error : public std::runtime_error {
 public:
  explicit Error(adrenoc_status status)
      : std::runtime_error(std::string(adrenoc_status_text(status)) + ": " + adrenoc_last_error()),
        status_(status) {}
  [[nodiscard]] adrenoc_status status() const noexcept { return status_; }

 private:
  adrenoc_status status_;
};

inline void check(adrenoc_status status) {
  if (status != ADRENOC_OK) throw Error(status);
}

// What adrenoc_options holds, with strings that own their text; empty strings are the defaults.
struct Options {
  std::string device;
  std::string opencl_library;
  std::string cache_folder;
  bool trust_files = false;
  bool qualcomm_programs = false;
  bool no_record = false;
  adrenoc_level performance = ADRENOC_LEVEL_UNSET;
  adrenoc_level priority = ADRENOC_LEVEL_UNSET;
  double cancel_within_ms = 0;
  const class Cancellation* cancellation = nullptr;  // that is there until the load ends
};

// What a load is cancelled by, from any thread: it ends soon by an Error with ADRENOC_CANCELLED.
class Cancellation {
 public:
  Cancellation() {
    adrenoc_cancellation* made = nullptr;
    check(adrenoc_cancellation_create(&made));
    cancellation_.reset(made);
  }
  void cancel() const { (void)adrenoc_cancellation_cancel(cancellation_.get()); }
  [[nodiscard]] adrenoc_cancellation* get() const { return cancellation_.get(); }

 private:
  struct Free {
    void operator()(adrenoc_cancellation* one) const noexcept { adrenoc_cancellation_free(one); }
  };
  std::unique_ptr<adrenoc_cancellation, Free> cancellation_;
};

// What adrenoc_generation holds.
struct Generation {
  uint32_t max_tokens = 0;
  float temperature = 0;
  uint32_t top_k = 0;
  float top_p = 1;
  uint64_t seed = 0;
  bool has_own_ends = false;  // else the bundle's
  std::vector<int64_t> end_tokens;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<int64_t, float>> bias;  // tokens, and what is added
  std::vector<std::string> stop_texts;          // of texts: each ends the answer that has it
};

// What somebody says in a conversation; `role` is "system", "user" or "assistant".
struct Message {
  std::string role;
  std::string content;
};

// Gives the device back what no model uses.
inline void trim() {
  check(adrenoc_trim(nullptr));
}

// The most bytes of the device that all models hold between runs; 0 for no limit.
inline void set_memory_budget(uint64_t bytes) {
  check(adrenoc_set_memory_budget(bytes));
}

// Gives so much of it back, from any thread.
inline void trim_memory(adrenoc_trim_part part) {
  check(adrenoc_trim_memory(part));
}

// What all models hold of it.
[[nodiscard]] inline adrenoc_memory memory() {
  adrenoc_memory memory{};
  memory.struct_bytes = sizeof(memory);
  check(adrenoc_get_memory(&memory));
  return memory;
}

// No model computes until resume(); whether what went on has ended within that time.
inline bool pause(int64_t timeout_ms = -1) {
  const adrenoc_status status = adrenoc_pause(timeout_ms);
  if (status != ADRENOC_OK && status != ADRENOC_NOT_READY) throw Error(status);
  return status == ADRENOC_OK;
}
inline void resume() {
  check(adrenoc_resume());
}

// The most milliseconds of the device that a run takes at once; 0 for no limit.
inline void set_submission_limit(double ms) {
  check(adrenoc_set_submission_limit(ms));
}

struct Tensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t bytes;
};

// What a bundle holds, as JSON; no device is needed.
[[nodiscard]] inline std::string describe(const std::string& path) {
  const char* text = adrenoc_describe(path.c_str());
  if (text == nullptr) throw Error(ADRENOC_BAD_BUNDLE);
  return text;
}

class Model {
 public:
  // Loads a folder or a tar file.
  explicit Model(const std::string& path, const Options& options = {}) {
    const adrenoc_options plain = to_plain(options);
    take([&](adrenoc_model** model) { return adrenoc_load(path.c_str(), &plain, model); });
  }
  // Loads the tar form from memory.
  Model(const void* data, size_t bytes, const Options& options = {}) {
    const adrenoc_options plain = to_plain(options);
    take([&](adrenoc_model** model) { return adrenoc_load_memory(data, bytes, &plain, model); });
  }
  // Loads the tar form from an open file.
  Model(int descriptor, int64_t offset, int64_t bytes, const Options& options = {}) {
    const adrenoc_options plain = to_plain(options);
    take([&](adrenoc_model** model) {
      return adrenoc_load_fd(descriptor, offset, bytes, &plain, model);
    });
  }

  [[nodiscard]] std::string name() const { return adrenoc_model_name(model_.get()); }
  [[nodiscard]] std::string device() const { return adrenoc_device_name(model_.get()); }
  [[nodiscard]] std::vector<Tensor> inputs() const {
    return tensors(adrenoc_input_count(model_.get()), adrenoc_input_info);
  }
  [[nodiscard]] std::vector<Tensor> outputs() const {
    return tensors(adrenoc_output_count(model_.get()), adrenoc_output_info);
  }

  // The names of the bundle's signatures, the first chosen one before the others; none of one call.
  [[nodiscard]] std::vector<std::string> signatures() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < adrenoc_signature_count(model_.get()); ++i) {
      names.emplace_back(adrenoc_signature_name(model_.get(), i));
    }
    return names;
  }
  // Inputs, outputs and buckets are those of that signature from now on; nothing is bound.
  void set_signature(const std::string& name) {
    check(adrenoc_set_signature(model_.get(), name.c_str()));
  }

  // The inputs of each bucket, the smallest first.
  [[nodiscard]] std::vector<std::vector<Tensor>> buckets() const {
    std::vector<std::vector<Tensor>> found;
    for (size_t bucket = 0; bucket < adrenoc_bucket_count(model_.get()); ++bucket) {
      const auto info = [bucket](const adrenoc_model* model, size_t index,
                                 adrenoc_tensor_info* plain) {
        return adrenoc_bucket_input_info(model, bucket, index, plain);
      };
      found.push_back(tensors(adrenoc_input_count(model_.get()), info));
    }
    return found;
  }
  // Chooses the bucket that takes inputs of these shapes, one an input; an empty one takes any.
  // What was bound is forgotten.
  void set_input_shapes(const std::vector<std::vector<int64_t>>& shapes) {
    const std::vector<adrenoc_shape> plain = to_plain(shapes);
    check(adrenoc_set_input_shapes(model_.get(), plain.data(), plain.size()));
  }

  void bind_input(size_t index, const void* data, size_t bytes) {
    check(adrenoc_bind_input(model_.get(), index, data, bytes));
  }
  void bind_output(size_t index, void* data, size_t bytes) {
    check(adrenoc_bind_output(model_.get(), index, data, bytes));
  }
  // The vectors must stay where they are, and as long as they are.
  template <typename T>
  void bind_input(size_t index, const std::vector<T>& data) {
    bind_input(index, data.data(), data.size() * sizeof(T));
  }
  template <typename T>
  void bind_output(size_t index, std::vector<T>& data) {
    bind_output(index, data.data(), data.size() * sizeof(T));
  }

  // Buffers (cl_mem) in the context below; they are retained.
  void bind_input_opencl(size_t index, void* buffer) {
    check(adrenoc_bind_input_opencl(model_.get(), index, buffer));
  }
  void bind_output_opencl(size_t index, void* buffer) {
    check(adrenoc_bind_output_opencl(model_.get(), index, buffer));
  }
  void bind_input(size_t index, AHardwareBuffer* buffer) {
    check(adrenoc_bind_input_hardware_buffer(model_.get(), index, buffer));
  }
  void bind_output(size_t index, AHardwareBuffer* buffer) {
    check(adrenoc_bind_output_hardware_buffer(model_.get(), index, buffer));
  }
  [[nodiscard]] void* opencl_context() const { return adrenoc_opencl_context(model_.get()); }
  [[nodiscard]] void* opencl_device() const { return adrenoc_opencl_device(model_.get()); }

  void run() { check(adrenoc_run(model_.get())); }
  // Runs once on memory of its own, one tensor for each input and output; what was chosen and bound
  // stays.  An Error with ADRENOC_CANCELLED after the deadline, 0 for none, or by the cancellation.
  void run_with(const std::vector<adrenoc_tensor>& inputs,
                const std::vector<adrenoc_tensor>& outputs, double deadline_ms = 0,
                const Cancellation* cancellation = nullptr) {
    adrenoc_run_options plain{};
    plain.struct_bytes = sizeof(plain);
    plain.deadline_ms = deadline_ms;
    plain.cancellation = cancellation == nullptr ? nullptr : cancellation->get();
    check(adrenoc_run_with(model_.get(), inputs.data(), inputs.size(), outputs.data(),
                           outputs.size(), &plain));
  }
  // The shape that a run gives an output for inputs of these; an empty one is whatever there is.
  [[nodiscard]] std::vector<int64_t> output_shape_for(
      const std::vector<std::vector<int64_t>>& inputs, size_t index) const {
    const std::vector<adrenoc_shape> plain = to_plain(inputs);
    uint32_t rank = 0;
    const auto ask = [&](int64_t* extents) {
      check(adrenoc_output_shape_for(model_.get(), plain.data(), plain.size(), index, extents,
                                     &rank));
    };
    ask(nullptr);
    std::vector<int64_t> extents(rank);
    if (rank != 0) ask(extents.data());
    return extents;
  }
  // Whether this driver computes what the bundle's proof says; `wrong` says in a sentence what it
  // does not, and is empty where all is right.
  struct Verdict {
    std::string wrong;
    bool was_kept = false;
    uint32_t runs = 0;
    double ms = 0;
  };
  Verdict verify() {
    adrenoc_verdict plain{};
    plain.struct_bytes = sizeof(plain);
    const adrenoc_status status = adrenoc_verify(model_.get(), &plain);
    if (status != ADRENOC_WRONG_RESULTS) check(status);
    const bool is_right = status == ADRENOC_OK;
    return {is_right ? "" : adrenoc_last_error(), plain.was_kept != 0, plain.runs, plain.ms};
  }
  struct Pace {
    double ms;
    double host_ms;
  };
  // Runs one after the other with one wait: the time of one, and what the host takes of it.
  Pace run_repeatedly(uint32_t runs) {
    Pace pace{};
    check(adrenoc_run_repeatedly(model_.get(), runs, &pace.ms, &pace.host_ms));
    return pace;
  }
  // JSON: [kernel, start_ns, end_ns] of each launch of one run.
  std::string profile() {
    const char* text = adrenoc_profile(model_.get());
    if (text == nullptr) throw Error(ADRENOC_INTERNAL);
    return text;
  }
  // Gives the device back what is kept for the next run, which then takes longer.
  void trim() { check(adrenoc_trim(model_.get())); }
  // What a developer should know of how it runs here, a line each.
  [[nodiscard]] std::string notes() { return adrenoc_notes(model_.get()); }

  // Starts a run; wait() tells when it has ended.
  void run_async() { check(adrenoc_run_async(model_.get())); }
  // Readable once the run that was started has ended, until wait() has told so.
  [[nodiscard]] int fence() {
    int descriptor = -1;
    check(adrenoc_fence(model_.get(), &descriptor));
    return descriptor;
  }
  // Whether the run that was started has ended within that time; negative for no limit.
  bool wait(int64_t timeout_ms = -1) {
    const adrenoc_status status = adrenoc_wait(model_.get(), timeout_ms);
    if (status != ADRENOC_NOT_READY) check(status);
    return status == ADRENOC_OK;
  }

  // Calls that go on in other threads, or wait to, end soon by an Error with ADRENOC_CANCELLED.
  void cancel() { check(adrenoc_cancel(model_.get())); }

  [[nodiscard]] adrenoc_times times() const {
    adrenoc_times times{};
    check(adrenoc_get_times(model_.get(), &times));
    return times;
  }
  // A decoder takes in a prompt and tells each token that it makes; `on_token` says whether to go on.
  // What that throws ends it, and comes out here.  An Error with ADRENOC_CONTEXT_FULL: when a token
  // has no room.
  void generate(const std::vector<int64_t>& prompt, const Generation& how,
                const std::function<bool(int64_t)>& on_token) {
    const PlainGeneration plain(how);
    Listener<int64_t> listener{on_token, nullptr};
    listener.check(adrenoc_generate(model_.get(), prompt.data(), prompt.size(), &plain.plain,
                                    &Listener<int64_t>::hear, &listener));
  }
  // The bytes of the logits after the first `past` tokens of the context and these, which are taken in.
  [[nodiscard]] std::vector<char> logits(uint64_t past, const std::vector<int64_t>& tokens) {
    adrenoc_tensor_info info{};
    for (size_t i = 0; info.name == nullptr || std::string(info.name) != "logits"; ++i) {
      check(adrenoc_bucket_output_info(model_.get(), 0, i, &info));
    }
    std::vector<char> logits(info.bytes);
    check(adrenoc_logits(model_.get(), past, tokens.data(), tokens.size(), logits.data(),
                         logits.size(), nullptr));
    return logits;
  }
  // The tokens of a text, with those that the tokenizer puts around it, and the text of tokens.
  [[nodiscard]] std::vector<int64_t> encode(const std::string& text, bool with_special = true) {
    const int special = with_special ? 1 : 0;
    size_t count = 0;
    check(adrenoc_encode(model_.get(), text.data(), text.size(), special, nullptr, 0, &count));
    std::vector<int64_t> tokens(count + 1);  // null would only ask
    check(adrenoc_encode(model_.get(), text.data(), text.size(), special, tokens.data(), count,
                         &count));
    tokens.resize(count);
    return tokens;
  }
  [[nodiscard]] std::string decode(const std::vector<int64_t>& tokens) {
    size_t bytes = 0;
    check(adrenoc_decode(model_.get(), tokens.data(), tokens.size(), nullptr, 0, &bytes));
    std::string text(bytes + 1, '\0');
    check(adrenoc_decode(model_.get(), tokens.data(), tokens.size(), &text[0], bytes, &bytes));
    text.resize(bytes);
    return text;
  }
  // How the model's makers have tokens picked.
  [[nodiscard]] Generation usual_generation() {
    adrenoc_generation plain{};
    plain.struct_bytes = sizeof(plain);
    check(adrenoc_usual_generation(model_.get(), &plain));
    Generation how;
    how.temperature = plain.temperature;
    how.top_k = plain.top_k;
    how.top_p = plain.top_p;
    how.min_p = plain.min_p;
    how.repetition_penalty = plain.repetition_penalty;
    how.presence_penalty = plain.presence_penalty;
    how.frequency_penalty = plain.frequency_penalty;
    return how;
  }
  // A decoder answers a conversation, or goes on with a text, and tells whole letters as they come; as
  // generate() otherwise.
  using OnText = std::function<bool(const char*)>;
  void answer(const std::vector<Message>& messages, const Generation& how, const OnText& on_text) {
    std::vector<adrenoc_message> said;
    for (const Message& one : messages) said.push_back({one.role.c_str(), one.content.c_str()});
    const PlainGeneration plain(how);
    Listener<const char*> listener{on_text, nullptr};
    listener.check(adrenoc_answer(model_.get(), said.data(), said.size(), &plain.plain,
                                  &Listener<const char*>::hear, &listener));
  }
  void continue_text(const std::string& text, const Generation& how, const OnText& on_text) {
    const PlainGeneration plain(how);
    Listener<const char*> listener{on_text, nullptr};
    listener.check(adrenoc_continue(model_.get(), text.c_str(), &plain.plain,
                                    &Listener<const char*>::hear, &listener));
  }
  // Ends a generate(), answer() or continue_text() that goes on in another thread.
  void stop() { check(adrenoc_stop(model_.get())); }
  struct Context {
    uint64_t tokens;
    uint64_t rows;
  };
  [[nodiscard]] Context context() {
    Context context{};
    check(adrenoc_context(model_.get(), &context.tokens, &context.rows));
    return context;
  }
  void rewind(uint64_t tokens) { check(adrenoc_rewind(model_.get(), tokens)); }
  [[nodiscard]] std::vector<char> save_context() {
    size_t bytes = 0;
    check(adrenoc_save_context(model_.get(), nullptr, 0, &bytes));
    std::vector<char> saved(bytes);
    check(adrenoc_save_context(model_.get(), saved.data(), saved.size(), &bytes));
    return saved;
  }
  void restore_context(const std::vector<char>& saved) {
    check(adrenoc_restore_context(model_.get(), saved.data(), saved.size()));
  }

  // How the last run was launched; the texts are good until the next call.
  [[nodiscard]] adrenoc_launching launching() {
    adrenoc_launching launching{};
    launching.struct_bytes = sizeof(launching);
    check(adrenoc_get_launching(model_.get(), &launching));
    return launching;
  }

 private:
  template <typename Told>
  struct Listener {
    const std::function<bool(Told)>& on_told;
    std::exception_ptr thrown;
    // No exception may pass through the runtime.
    static int hear(Told told, void* user) noexcept {
      auto* self = static_cast<Listener*>(user);
      try {
        return self->on_told(told) ? 0 : 1;
      } catch (...) {
        self->thrown = std::current_exception();
        return 1;
      }
    }
    void check(adrenoc_status status) const {
      if (thrown != nullptr) std::rethrow_exception(thrown);
      adrenoc::check(status);
    }
  };
  // What C is given, and what it points to.
  struct PlainGeneration {
    explicit PlainGeneration(const Generation& how) {
      plain.struct_bytes = sizeof(plain);
      plain.max_tokens = how.max_tokens;
      plain.temperature = how.temperature;
      plain.top_k = how.top_k;
      plain.top_p = how.top_p;
      plain.seed = how.seed;
      const std::vector<int64_t>& ends = how.end_tokens;
      plain.end_tokens = how.has_own_ends ? (ends.empty() ? &none : ends.data()) : nullptr;
      plain.end_count = ends.size();
      plain.min_p = how.min_p;
      plain.repetition_penalty = how.repetition_penalty;
      plain.presence_penalty = how.presence_penalty;
      plain.frequency_penalty = how.frequency_penalty;
      for (const auto& [token, bias] : how.bias) {
        biased.push_back(token);
        added.push_back(bias);
      }
      plain.bias_tokens = biased.data();
      plain.bias = added.data();
      plain.bias_count = added.size();
      for (const std::string& text : how.stop_texts) stops.push_back(text.c_str());
      plain.stop_texts = stops.data();
      plain.stop_count = stops.size();
    }
    PlainGeneration(const PlainGeneration&) = delete;
    PlainGeneration& operator=(const PlainGeneration&) = delete;

    adrenoc_generation plain{};
    int64_t none = 0;
    std::vector<int64_t> biased{};
    std::vector<float> added{};
    std::vector<const char*> stops{};
  };
  struct Free {
    void operator()(adrenoc_model* model) const noexcept { adrenoc_free(model); }
  };

  static void check(adrenoc_status status) {
    if (status != ADRENOC_OK) throw Error(status);
  }
  static const char* or_null(const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
  }
  static adrenoc_options to_plain(const Options& options) {
    adrenoc_options plain{};
    plain.struct_bytes = sizeof(plain);
    plain.trust_files = options.trust_files ? 1 : 0;
    plain.device = or_null(options.device);
    plain.opencl_library = or_null(options.opencl_library);
    plain.cache_folder = or_null(options.cache_folder);
    plain.qualcomm_programs = options.qualcomm_programs ? 1 : 0;
    plain.no_record = options.no_record ? 1 : 0;
    plain.performance = options.performance;
    plain.priority = options.priority;
    plain.cancel_within_ms = options.cancel_within_ms;
    plain.cancellation = options.cancellation == nullptr ? nullptr : options.cancellation->get();
    return plain;
  }
  static std::vector<adrenoc_shape> to_plain(const std::vector<std::vector<int64_t>>& shapes) {
    std::vector<adrenoc_shape> plain;
    for (const std::vector<int64_t>& shape : shapes) {
      plain.push_back({shape.empty() ? nullptr : shape.data(),
                       static_cast<uint32_t>(shape.size())});
    }
    return plain;
  }
  template <typename Load>
  void take(Load load) {
    adrenoc_model* model = nullptr;
    check(load(&model));
    model_.reset(model);
  }
  template <typename Info>
  [[nodiscard]] std::vector<Tensor> tensors(size_t count, Info info) const {
    std::vector<Tensor> found;
    for (size_t i = 0; i < count; ++i) {
      adrenoc_tensor_info plain{};
      check(info(model_.get(), i, &plain));
      found.push_back({plain.name, plain.dtype, {plain.shape, plain.shape + plain.rank},
                       plain.bytes});
    }
    return found;
  }

  std::unique_ptr<adrenoc_model, Free> model_;
};

}  // namespace adrenoc

#endif  // ADRENOC_HPP_
