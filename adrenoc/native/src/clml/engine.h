// A region made ready for one device: tensors, operators, memory, and the commands of a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "clml/backend.h"
#include "clml/graph.h"
#include "clml/operation.h"
#include "clml/tuning.h"
#include "opencl/device.h"

namespace adrenoc_runtime::clml {

class Engine {
 public:
  // `constants` is the host data of the graph's constants, dense, in order.  Throws CallError when
  // the library refuses, MemoryError when the device is full.
  Engine(opencl::Device& device, Backend& backend, const Graph& graph, std::string symbol,
         const std::vector<const void*>& constants, const TuningStore& tuning);

  // Enqueues a run over row-major tensors in buffers.  Throws CallError.
  void run(const std::vector<cl_mem>& inputs, const std::vector<cl_mem>& outputs);

  [[nodiscard]] size_t operators() const { return operators_.size(); }
  // Tensors of the caller that operators read and write where they lie.
  [[nodiscard]] size_t shared() const { return shared_; }
  // Commands of a run that only convert between layouts: at the border, and inside.
  [[nodiscard]] size_t border_copies() const { return loads_.size() + stores_.size(); }
  [[nodiscard]] size_t inner_copies() const { return steps_.size() - operators_.size(); }
  [[nodiscard]] size_t memory_bytes() const;
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
    size_t bytes = 0;        // that the library asks for
    size_t dense_bytes = 0;  // of the elements alone
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

  void build(const Graph& graph);
  void add_operator(const Graph& graph, size_t node, size_t moment);
  const View& demand(const Graph& graph, size_t node, const Form& form, size_t moment);
  const View& provide(const Graph& graph, size_t node, const Form& form, size_t moment);
  View& view(const Graph& graph, size_t node, const Form& form);
  void write_constants(const Graph& graph, const std::vector<const void*>& constants);
  void share();
  void allocate();
  void bind();
  void update_bindings();
  void load_tuning(const std::string& stored);
  void tune(const TuningStore& store);
  void record();
  [[nodiscard]] Bound bound(const View& view) const;
  template <typename Command>
  void timed(const std::string& name, Command command);

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
