// A bundle that is loaded on a device and can run.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/runtime/tensor.h>

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "adrenoc.h"
#include "base/failure.h"
#include "bundle/bundle.h"
#include "launch/cancelling.h"
#include "model/cpu_model.h"
#include "model/program.h"
#include "model/residency.h"
#include "model/session.h"
#include "modules/program_build.h"
#include "opencl/device.h"
#include "proof/proof.h"
#include "text/tokenizer.h"

namespace adrenoc_runtime {

struct LoadOptions {
  bool trust_files = false;
  std::string device;
  std::string opencl_library;
  std::string cache_folder;
  bool qualcomm_programs = false;
  bool no_record = false;
  opencl::Hints hints;
  double cancel_within_ms = 0;
};

class Model final : public Resident {
 public:
  // Loads all buckets: moves the constants to the device and builds the kernels.  Where there is
  // no device, or it refuses them, the bundle's own code for the CPU computes, if it carries some.
  // Throws Failure.
  Model(std::unique_ptr<Bundle> bundle, const LoadOptions& options);
  ~Model() override;

  [[nodiscard]] const Manifest& manifest() const { return buckets().back().manifest; }
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return bundle_->buckets(); }
  // Those of the signature that was chosen, all of a bundle without any.
  [[nodiscard]] std::vector<const Bucket*> own_buckets() const;
  [[nodiscard]] const std::string& device_name() const { return device_name_; }

  // The tensors in the shapes that were chosen; good until others are.
  [[nodiscard]] const TensorSpec& input(size_t index) const;
  [[nodiscard]] const TensorSpec& output(size_t index) const;
  [[nodiscard]] size_t input_count() const { return called().manifest.inputs.size(); }
  [[nodiscard]] size_t output_count() const;
  // Chooses the signature of that name; what was bound is forgotten.
  void set_signature(const std::string& name);
  // Chooses shapes, nothing for an input that may have any; what was bound is forgotten.
  void set_shapes(const std::vector<std::optional<Shape>>& shapes);

  // The shapes of the outputs for inputs of these; nothing is chosen.
  [[nodiscard]] std::vector<TensorSpec> outputs_for(
      const std::vector<std::optional<Shape>>& shapes) const;

  // Memory that a tensor is read from or written to; null for none.  Of the host it has as many
  // `bytes` as the tensor; of the device an app made it, see external_memory.h.
  struct Given {
    enum class Kind { kHost, kOpenClBuffer, kHardwareBuffer };
    Kind kind = Kind::kHost;
    void* memory = nullptr;
    uint64_t bytes = 0;
    uint64_t offset = 0;  // into an OpenCL buffer
  };
  void bind_input(size_t index, const Given& given);
  void bind_output(size_t index, const Given& given);
  // The cl_context and cl_device_id, null on the CPU.
  [[nodiscard]] void* opencl_context() const;
  [[nodiscard]] void* opencl_device() const;

  // Gives back what is kept for the next run.
  void trim();
  bool give_up(Part part, bool owes) override;
  [[nodiscard]] bool has_constants() const override { return has_constants_; }
  // A line for each thing that a developer should know; good until the next call.
  [[nodiscard]] const char* notes();

  // How often somebody has cancelled.  A call below ends where that is more than it was `since`, by
  // Failure (cancelled).
  [[nodiscard]] uint64_t cancels() const { return cancels_; }
  void cancel() { ++cancels_; }

  void run() { run(cancels()); }
  void run(uint64_t since);
  // Runs once on memory of its own, one an input and one an output, in these shapes of the inputs;
  // what was chosen and bound stays.
  void run_with(const std::vector<std::optional<Shape>>& shapes, const std::vector<Given>& inputs,
                const std::vector<Given>& outputs, const opencl::Ending& ending);
  struct Pace {
    double ms;
    double host_ms;
  };
  [[nodiscard]] Pace run_repeatedly(uint32_t runs);
  // Whether the device computes what the bundle's proof says; what was chosen and bound stays.
  struct Verdict {
    std::string wrong;  // in a sentence; "" where all is right
    bool was_kept = false;
    uint32_t runs = 0;
    double ms = 0;
  };
  [[nodiscard]] Verdict verify();
  // JSON: [kernel, start_ns, end_ns] of each launch of one run; good until the next call.
  [[nodiscard]] const char* profile();
  // Of what has ended: waits for nothing.
  [[nodiscard]] adrenoc_times times() const;
  // Of the last run; the texts are good until the next call.
  [[nodiscard]] adrenoc_launching launching();

  // A decoder makes tokens after `prompt` and what its context holds; throws Failure where that is
  // full, when all tokens that fit have been told.  `on_token` says whether to go on.
  using OnToken = Session::OnToken;
  void generate(const std::vector<int64_t>& prompt, const Generation& how, const OnToken& on_token);
  // What turns texts into tokens and back.  Throws Failure (unsupported) where the bundle has none.
  [[nodiscard]] const Tokenizer& tokenizer();
  struct Answer {
    std::vector<int64_t> prompt;
    Generation how;
    std::vector<std::string> stops;  // texts that end it
  };
  // A decoder makes text after `prompt`, which is all that the context holds then: what it begins
  // with and is there already is not computed again.  `on_text` is told whole letters, and says
  // whether to go on.  Throws as generate().
  using OnText = std::function<bool(const std::string& piece)>;
  void answer(const Answer& asked, const OnText& on_text);
  // What the next token is picked of, after the first `past` tokens of the context and these.
  void give_logits(uint64_t past, const std::vector<int64_t>& tokens, void* logits, size_t bytes,
                   const opencl::Ending& ending);
  // Ends a generate() that goes on in another thread.
  void stop_generating() { stops_ = true; }
  // What `work` does with the context.
  template <typename Work>
  auto with_session(Work work) {
    return at_work([&] { return work(session()); });
  }

 private:
  using Tensor = tvm::runtime::Tensor;
  using Tensors = std::vector<Tensor>;
  // Where a run reads an input from, or writes an output to: at most one of the two.
  struct Bound {
    void* host = nullptr;
    std::optional<Tensor> memory;

    [[nodiscard]] bool is_there() const { return host != nullptr || memory.has_value(); }
  };

  // What was chosen and bound, while a call has shapes and memory of its own.
  class Aside {
   public:
    explicit Aside(Model* model)
        : model_(model),
          chosen_(std::move(model->chosen_)),
          inputs_(std::move(model->bound_inputs_)),
          outputs_(std::move(model->bound_outputs_)) {}
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;
    ~Aside() {
      model_->chosen_ = std::move(chosen_);
      model_->bound_inputs_ = std::move(inputs_);
      model_->bound_outputs_ = std::move(outputs_);
    }

   private:
    Model* const model_;
    Chosen chosen_;
    std::vector<Bound> inputs_;
    std::vector<Bound> outputs_;
  };

  // The lock; at its end others make room, and what was asked for meanwhile is given up.
  class Turn {
   public:
    explicit Turn(Model* model) : model_(model), lock_(model->mutex_) {}
    ~Turn() {
      model_->settle();
      model_->show_last_run();
      lock_.unlock();
      model_->pay_what_is_owed();
    }

   private:
    Model* const model_;
    std::unique_lock<std::mutex> lock_;
  };

  // Works under the lock, on the device; what a device says of a failure is explained by how it is
  // then.
  template <typename Work>
  auto at_work(Work work, std::optional<uint64_t> since = std::nullopt,
               const opencl::Ending& ending = {}) -> decltype(work());
  // The same, which a pause refuses, and who has cancelled since then.
  template <typename Work>
  auto at_turn(uint64_t since, Work work, const opencl::Ending& ending = {}) -> decltype(work()) {
    const Pause::Turn turn;
    return at_work(std::move(work), since, ending);
  }
  // What the call that works heeds.
  [[nodiscard]] opencl::Cancelling cancelling(opencl::Pieceable how = {}) const {
    return {cancels_, since_, how, ending_};
  }
  [[noreturn]] void refuse_cancelled() const;
  void run_once();
  [[nodiscard]] Verdict prove();
  [[nodiscard]] std::string prove_bucket(const Trial& trial, uint32_t* runs);
  void load_on_device(const LoadOptions& options);
  void load_edition(const LoadOptions& options);
  // The kernels of the device's own GPU, or where there are none, or it refuses them, the common.
  void load_best_edition(const LoadOptions& options);
  void load_on_cpu(const std::string& reason);
  void run_on_cpu();
  void check_bound() const;
  [[nodiscard]] Session& session();
  // While the lock is held.
  void make_tokens(const std::vector<int64_t>& prompt, const Generation& how,
                   const OnToken& on_token);
  // Moves what is bound of a decoder's inputs beside its tokens and states to where programs read
  // it.
  void give_to_session();
  // Whether there are such inputs.
  [[nodiscard]] bool reads_beside_tokens() const;
  [[nodiscard]] opencl::Recording recording() const;
  void load_programs();
  void upload_constants();
  // Constants, inputs and states.
  void move_to_device();
  void leave_device();
  // Brings back what was given up.
  void return_to_device();
  bool give_up_locked(Part part);
  void settle() noexcept;
  // To who asks for times and launches while the next call goes on.
  void show_last_run() noexcept;
  void pay_what_is_owed() noexcept;
  void forget_launches();
  // Of the chosen bucket; all buckets share the memory.
  [[nodiscard]] bool is_state(size_t index) const;
  // Those of all buckets, by name.
  [[nodiscard]] std::map<std::string, Tensor> states() const;
  // Zeros, before the first run.
  void begin_states();
  void save_states();
  void restore_states();
  [[nodiscard]] uint64_t resident_bytes() const;
  [[nodiscard]] std::string memory_note() const;
  // Builds kernels in the background, while constants move to the device.
  [[nodiscard]] std::future<opencl::BuildReport> start_build(const LoadOptions& options) const;
  void finish_build(std::future<opencl::BuildReport> build);
  void choose(Chosen chosen);
  // A bucket of the signature that was chosen.
  [[nodiscard]] const Bucket& called() const { return buckets()[signature_]; }
  // Throws Failure (bad argument) where no bucket takes the shapes.
  [[nodiscard]] Chosen choose_for(const std::vector<std::optional<Shape>>& shapes) const;
  [[nodiscard]] Bound bound_input(size_t index, const Given& given) const;
  [[nodiscard]] Bound bound_output(size_t index, const Given& given) const;
  // `whole` is the tensor as the bucket has it.
  [[nodiscard]] Bound bound(const TensorSpec& spec, const TensorSpec& whole,
                            const Given& given) const;
  [[nodiscard]] const Manifest& chosen_manifest() const;
  // What is bound to memory of the device.
  [[nodiscard]] Tensors bound_memory() const;
  // Gives what `main` reads.
  [[nodiscard]] Tensors upload();
  [[nodiscard]] Tensors launch(const Tensors& inputs);
  // So many runs, which end where somebody cancels.
  [[nodiscard]] Tensors launch_cancellable(const Tensors& inputs, uint32_t runs);
  // How long a piece of a run may take, so that cancelling ends it soon; 0 for no limit.
  [[nodiscard]] double piece_ms() const;
  // What a run may leave half written.
  [[nodiscard]] Tensors changed_states(const Tensors& inputs) const;
  void check_output(const Tensor& tensor, const TensorSpec& spec) const;
  void download(const Tensors& outputs);
  void synchronize() const;

  // The bundle comes first, so that it goes last: the programs' code lies in its files.
  std::unique_ptr<Bundle> bundle_;
  DLDevice device_;
  std::string device_name_;
  std::unique_ptr<CpuModel> cpu_;  // instead of programs
  std::string cpu_reason_;
  std::string edition_;       // its folder; "" where the bundle is for one device
  std::string library_note_;  // that another OpenCL library than the one asked for is open
  std::string edition_note_;  // which one was taken, and why
  std::string cache_folder_;
  bool no_record_ = false;
  std::vector<Program> programs_;  // one a bucket
  std::vector<Tensors> inputs_;  // of each program, for what comes from the host; all share states
  std::unique_ptr<Session> session_;  // of a decoder, once it is asked for
  std::once_flag has_tokenizer_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::atomic<bool> stops_{false};
  std::atomic<uint64_t> cancels_{0};
  uint64_t since_ = 0;  // of the call that works, as the next
  opencl::Ending ending_;
  double cancel_within_ms_ = 0;
  size_t launched_ = 0;                    // the bucket of the last run
  double last_run_ms_ = -1;                // which took so long; below 0: not known
  std::atomic<bool> has_constants_{true};  // on the device; the rest of these goes with them
  std::atomic<int> owed_{0};  // the part that is to be given up when the work ends, and 1
  uint64_t resident_bytes_ = 0;
  std::string kept_context_;                              // of a decoder that is not on the device
  std::map<std::string, std::vector<char>> kept_states_;  // of another model that is not there
  bool has_states_ = false;  // zeros, or what a run left; false of memory that holds anything
  uint64_t evictions_ = 0;
  double return_ms_ = 0;
  std::atomic<size_t> signature_{0};  // a bucket of the one that was chosen
  Chosen chosen_;
  std::vector<Bound> bound_inputs_;
  std::vector<Bound> bound_outputs_;
  std::vector<char> scratch_;
  opencl::LaunchReport launching_;  // told last
  adrenoc_times times_{};           // of whoever works
  adrenoc_times shown_times_{};     // of what has ended, as the next
  std::shared_ptr<const opencl::LaunchHistory> shown_history_;
  std::string profile_;
  std::string unsaved_programs_;
  std::string built_ins_;
  std::string notes_;
  mutable std::mutex mutex_;
  mutable std::mutex shown_mutex_;  // the innermost
};

template <typename Work>
auto Model::at_work(Work work, std::optional<uint64_t> since, const opencl::Ending& ending)
    -> decltype(work()) {
  const Turn turn(this);
  since_ = since.value_or(cancels_);
  ending_ = ending;
  if (cancelling().is_asked()) refuse_cancelled();
  try {
    return_to_device();
    return work();
  } catch (const tvm::ffi::Error& error) {
    if (opencl::is_cancelled(error)) refuse_cancelled();
    if (device_.device_type != kDLOpenCL || error.kind() == "MemoryError") throw;
    throw Failure(ADRENOC_DEVICE_FAILED,
                  opencl::explained(error.message(), opencl::device_at(device_.device_id)));
  }
}

}  // namespace adrenoc_runtime
