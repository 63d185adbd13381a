// A region made ready for one device: tensors, operators, memory, and the commands of a run.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "clml/backend.h"
#include "clml/graph.h"
#include "clml/tuning.h"
#include "opencl/device.h"

namespace adrenoc_runtime::clml {

// The elements of a node in the library's own layout, and row by row.
inline Form own_form(const GraphNode& node) { return {false, node.dims(), Layout::kOptimal}; }
inline Form rows_form(const GraphNode& node) { return {true, node.dims(), Layout::kNchw}; }

inline int64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

class Engine {
 public:
  // `constants` is the host data of the graph's constants, dense, in order.  Throws CallError when
  // the library refuses, MemoryError when the device is full.
  Engine(opencl::Device& device, Backend& backend, const Graph& graph, std::string symbol,
         const std::vector<const void*>& constants, const TuningStore& tuning)
      : device_(device),
        backend_(backend),
        symbol_(std::move(symbol)),
        values_(graph.nodes.size()) {
    // Views are pointed to: a node has few, and none may move.
    for (Value& value : values_) value.views.reserve(8);
    tuning_ = backend_.create_tuning();
    const std::string stored = tuning.is_tuning_run() ? "" : tuning.find(symbol_, &tuning_note_);
    if (!stored.empty()) load_tuning(stored);
    build(graph);
    if (!tuning.is_tuning_run()) share();  // tuning runs operators now, without a caller
    allocate();
    write_constants(graph, constants);
    bind();
    if (tuning.is_tuning_run()) tune(tuning);
    record();
  }

  // Enqueues a run over row-major tensors in buffers.  Throws CallError.
  void run(const std::vector<cl_mem>& inputs, const std::vector<cl_mem>& outputs) {
    const opencl::QueueLock lock = device_.lock_queue();
    const cl_command_queue queue = lock.get();
    if (shared_ != 0) {
      for (Piece& piece : pieces_) {
        if (!piece.shared.has_value()) continue;
        piece.buffer = (piece.shared->is_output ? outputs : inputs)[piece.shared->number];
      }
      update_bindings();
    }
    for (const Border& load : loads_) {
      const Bound from{values_[load.node].outside.get(), inputs[load.argument]};
      timed("copy in", [&](cl_event* e) { backend_.copy(queue, from, bound(*load.inner), e); });
    }
    if (recording_ != nullptr && !device_.profiler().is_recording()) {
      backend_.replay(queue, *recording_, nullptr);
    } else {
      for (const Step& step : steps_) {
        timed(step.name, [&](cl_event* e) {
          if (step.op != nullptr) {
            backend_.run(queue, *step.op, *bindings_, e);
          } else {
            backend_.copy(queue, bound(*step.from), bound(*step.to), e);
          }
        });
      }
    }
    for (const Border& store : stores_) {
      const Bound to{values_[store.node].outside.get(), outputs[store.argument]};
      timed("copy out", [&](cl_event* e) { backend_.copy(queue, bound(*store.inner), to, e); });
    }
  }

  [[nodiscard]] size_t operators() const { return operators_.size(); }
  // Tensors of the caller that operators read and write where they lie.
  [[nodiscard]] size_t shared() const { return shared_; }
  // Commands of a run that only convert between layouts: at the border, and inside.
  [[nodiscard]] size_t border_copies() const { return loads_.size() + stores_.size(); }
  [[nodiscard]] size_t inner_copies() const { return steps_.size() - operators_.size(); }
  [[nodiscard]] size_t memory_bytes() const {
    std::map<cl_mem, size_t> sizes;
    for (const Piece& piece : pieces_) {
      if (piece.shared.has_value()) continue;
      size_t& most = sizes[piece.buffer];
      most = std::max(most, piece.bytes);
    }
    size_t total = 0;
    for (const auto& entry : sizes) total += entry.second;
    return total;
  }

  [[nodiscard]] bool recorded() const { return recording_ != nullptr; }
  // "" where no tuning was asked for, else what became of it.
  [[nodiscard]] const std::string& tuning_note() const { return tuning_note_; }

 private:
  // One of the tensors that a run is given.
  struct Argument {
    bool is_output = false;
    size_t number = 0;
  };
  // A piece of memory; tensors that are never alive together share one buffer.
  struct Piece {
    size_t bytes = 0;         // that the library asks for
    size_t dense_bytes = 0;   // of the elements alone
    size_t first = SIZE_MAX;  // moments of the run at which it is written first and read last
    size_t last = 0;
    bool constant = false;
    std::optional<Argument> shared;  // the caller's memory, anew in each run
    cl_mem buffer = nullptr;
  };
  // One way to see the elements of a node.
  struct View {
    Form form;
    ObjectPtr tensor;
    size_t piece = 0;
  };
  struct Value {
    std::vector<View> views;
    bool in_optimal = false;  // which of the two memories holds the elements by now
    bool in_rows = false;
    std::optional<size_t> rows_piece;
    ObjectPtr outside;  // the caller's row-major memory, for inputs and outputs
  };
  // `op`, or a copy where that is null.
  struct Step {
    const Object* op = nullptr;
    const View* from = nullptr;
    const View* to = nullptr;
    std::string name;
  };
  // A copy between the caller's tensor number `argument` and one of ours.
  struct Border {
    size_t node = 0;
    size_t argument = 0;
    const View* inner = nullptr;
  };

  void build(const Graph& graph) {
    size_t moment = 0;  // inputs come in at 0
    for (size_t node = 0; node < graph.nodes.size(); ++node) {
      if (graph.nodes[node].kind == GraphNode::Kind::kKernel) add_operator(graph, node, ++moment);
    }
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const size_t node = graph.outputs[i];
      Value& value = values_[node];
      const Form form = value.in_rows ? rows_form(graph.nodes[node]) : own_form(graph.nodes[node]);
      const View& made = demand(graph, node, form, moment + 1);
      value.outside = backend_.create_tensor(
          {graph.nodes[node].dtype, Layout::kNchw, graph.nodes[node].dims(), Usage::kData});
      stores_.push_back({node, i, &made});
    }
  }

  void add_operator(const Graph& graph, size_t node, size_t moment) {
    const GraphNode& facts = graph.nodes[node];
    const Lowered lowered = lower_node(graph, facts);
    std::vector<const Object*> inputs;
    for (size_t i = 0; i < facts.inputs.size(); ++i) {
      inputs.push_back(demand(graph, facts.inputs[i], lowered.inputs[i], moment).tensor.get());
    }
    const View& output = provide(graph, node, lowered.output, moment);
    operators_.push_back(backend_.create_operator(lowered.operation, lowered.arithmetic, inputs,
                                                  *output.tensor, tuning_.get()));
    steps_.push_back({operators_.back().get(), nullptr, nullptr, facts.name});
  }

  // The view that an operator reads at `moment`; a copy is added where only the other memory of the
  // node holds its elements yet.
  const View& demand(const Graph& graph, size_t node, const Form& form, size_t moment) {
    const GraphNode& facts = graph.nodes[node];
    Value& value = values_[node];
    View& wanted = view(graph, node, form);
    bool& is_there = form.linear ? value.in_rows : value.in_optimal;
    if (facts.kind != GraphNode::Kind::kConst && !is_there) {
      View& target = view(graph, node, form.linear ? rows_form(facts) : own_form(facts));
      Piece& written = pieces_[target.piece];
      if (facts.kind == GraphNode::Kind::kInput) {
        if (value.outside == nullptr) {
          value.outside =
              backend_.create_tensor({facts.dtype, Layout::kNchw, facts.dims(), Usage::kData});
        }
        const auto place = std::find(graph.inputs.begin(), graph.inputs.end(), node);
        loads_.push_back({node, static_cast<size_t>(place - graph.inputs.begin()), &target});
        written.first = 0;
      } else {
        const View& source = view(graph, node, form.linear ? own_form(facts) : rows_form(facts));
        Piece& read = pieces_[source.piece];
        read.last = std::max(read.last, moment);
        written.first = std::min(written.first, moment);
        steps_.push_back({nullptr, &source, &target, "copy"});
      }
      is_there = true;
    }
    Piece& piece = pieces_[wanted.piece];
    piece.last = std::max(piece.last, moment);
    return wanted;
  }

  // The view that an operator writes at `moment`.
  const View& provide(const Graph& graph, size_t node, const Form& form, size_t moment) {
    View& made = view(graph, node, form);
    (form.linear ? values_[node].in_rows : values_[node].in_optimal) = true;
    Piece& piece = pieces_[made.piece];
    piece.first = std::min(piece.first, moment);
    piece.last = std::max(piece.last, moment);
    return made;
  }

  View& view(const Graph& graph, size_t node, const Form& form) {
    const GraphNode& facts = graph.nodes[node];
    const bool constant = facts.kind == GraphNode::Kind::kConst;
    Value& value = values_[node];
    for (View& known : value.views) {
      if (known.form == form) return known;
    }
    if (value.views.size() == value.views.capacity()) {
      throw CallError("a tensor of " + symbol_, "too many views");
    }
    View made;
    made.form = form;
    made.tensor = backend_.create_tensor(
        {facts.dtype, form.layout, form.dims, constant ? Usage::kParameter : Usage::kData});
    if (form.linear && value.rows_piece.has_value()) {
      made.piece = *value.rows_piece;
    } else {
      made.piece = pieces_.size();
      pieces_.push_back({});
      pieces_.back().constant = constant;
      if (form.linear) value.rows_piece = made.piece;
    }
    Piece& piece = pieces_[made.piece];
    piece.bytes = std::max(piece.bytes, backend_.memory_bytes(*made.tensor));
    piece.dense_bytes = facts.elements() * (facts.dtype == DType::kFloat32 ? 4 : 2);
    value.views.push_back(std::move(made));
    return value.views.back();
  }

  void write_constants(const Graph& graph, const std::vector<const void*>& constants) {
    const opencl::QueueLock queue = device_.lock_queue();
    for (size_t i = 0; i < graph.constants.size(); ++i) {
      for (const View& view : values_[graph.constants[i]].views) {
        backend_.write(queue.get(), constants[i], bound(view));
      }
    }
  }

  // What is row-major inside of the region too lies in the caller's memory, without a copy.  But a
  // recording knows its memory by heart: where one is possible it is worth more.
  void share() {
    if (backend_.can_record() && inner_copies() == 0) return;
    const auto take_out = [this](std::vector<Border>* borders, bool are_outputs) {
      const auto taken = [this, are_outputs](const Border& border) {
        Piece& piece = pieces_[border.inner->piece];
        // The library may ask for more memory than the elements take, which the caller's has not.
        const bool fits = border.inner->form.linear && piece.bytes <= piece.dense_bytes;
        if (piece.shared.has_value() || !fits) return false;
        piece.shared = Argument{are_outputs, border.argument};
        ++shared_;
        return true;
      };
      borders->erase(std::remove_if(borders->begin(), borders->end(), taken), borders->end());
    };
    take_out(&loads_, false);
    take_out(&stores_, true);
  }

  // A buffer serves the next tensor once its last reader has run; the smallest that fits is taken.
  void allocate() {
    struct Slot {
      size_t bytes;
      size_t free_after;
      cl_mem buffer;
    };
    std::vector<Slot> slots;
    std::vector<Piece*> order;
    for (Piece& piece : pieces_) {
      if (!piece.shared.has_value()) order.push_back(&piece);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Piece* a, const Piece* b) { return a->first < b->first; });
    const auto create = [this](size_t bytes) {
      buffers_.push_back(opencl::new_buffer(device_.context(), bytes));
      return buffers_.back().get();
    };
    for (Piece* piece : order) {
      if (piece->constant) {
        piece->buffer = create(piece->bytes);
        continue;
      }
      Slot* best = nullptr;
      for (Slot& slot : slots) {
        const bool fits = slot.free_after < piece->first && slot.bytes >= piece->bytes;
        if (fits && (best == nullptr || slot.bytes < best->bytes)) best = &slot;
      }
      if (best == nullptr) {
        slots.push_back({piece->bytes, 0, create(piece->bytes)});
        best = &slots.back();
      }
      best->free_after = piece->last;
      piece->buffer = best->buffer;
    }
  }

  void bind() {
    bindings_ = backend_.create_bindings();
    if (shared_ == 0) update_bindings();
  }

  void update_bindings() {
    std::vector<Bound> all;
    for (const Value& value : values_) {
      for (const View& view : value.views) all.push_back(bound(view));
    }
    backend_.update_bindings(*bindings_, all);
  }

  // What the library does not take any more is no reason to do without the library.
  void load_tuning(const std::string& stored) {
    try {
      backend_.load_tuning(*tuning_, stored);
    } catch (const CallError& error) {
      tuning_ = backend_.create_tuning();
      tuning_note_ = "not " + tuning_note_ + ": " + error.what();
    }
  }

  void tune(const TuningStore& store) {
    {
      device_.want_profiling(true);  // tuning reads the times of its own commands
      struct Off {
        opencl::Device& device;
        ~Off() { device.want_profiling(false); }
      } off{device_};
      const opencl::QueueLock queue = device_.lock_queue();
      for (const ObjectPtr& op : operators_) backend_.tune(queue.get(), *op, *bindings_, *tuning_);
    }
    try {
      tuning_note_ = store.save(symbol_, backend_.save_tuning(*tuning_));
    } catch (const CallError& error) {
      tuning_note_ = std::string("tuned, but not kept: ") + error.what();
    }
  }

  // A recording replays operators alone, so a region with copies inside is not recorded.
  void record() {
    if (!backend_.can_record() || inner_copies() != 0 || shared_ != 0) return;
    std::vector<const Object*> all;
    for (const ObjectPtr& op : operators_) all.push_back(op.get());
    recording_ = backend_.record(all, *bindings_);
  }

  [[nodiscard]] Bound bound(const View& view) const {
    return {view.tensor.get(), pieces_[view.piece].buffer};
  }

  // Gives a command, and notes when it ran where the device is being profiled: by the command's
  // event, or by the clock where it has none.
  template <typename Command>
  void timed(const std::string& name, Command command) {
    opencl::Profiler& profiler = device_.profiler();
    if (!profiler.is_recording()) {
      command(nullptr);
      return;
    }
    cl_event event = nullptr;
    const int64_t start = now_ns();
    command(&event);
    const std::string label = symbol_ + "/" + name;
    if (event != nullptr) {
      profiler.record(label, opencl::EventHandle(event));
    } else {
      profiler.record_span(label, start, now_ns());
    }
  }

  opencl::Device& device_;
  Backend& backend_;
  const std::string symbol_;
  std::vector<Value> values_;  // one a node
  std::vector<Piece> pieces_;
  std::vector<opencl::MemHandle> buffers_;
  ObjectPtr tuning_;
  std::vector<ObjectPtr> operators_;
  std::vector<Step> steps_;
  std::vector<Border> loads_;
  std::vector<Border> stores_;
  size_t shared_ = 0;
  ObjectPtr bindings_;
  ObjectPtr recording_;
  std::string tuning_note_;
};

}  // namespace adrenoc_runtime::clml
