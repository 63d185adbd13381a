// What the runtime asks of an OpenCL ML library, in terms of our own: tensors, operators, memory,
// tuning, commands; and which library a device runs, if any.  That of a phone and the emulator of
// the tests are two implementations.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "opencl/cl_types.h"
#include "opencl/device.h"

namespace adrenoc_runtime::clml {

using opencl::cl_command_queue;
using opencl::cl_event;
using opencl::cl_int;
using opencl::cl_mem;

// kPacked holds eight weights of four bits: TVM writes such graphs, and nothing here runs them.
enum class DType { kFloat32, kFloat16, kPacked };

// kOptimal is the library's own, which nobody but it can read.
enum class Layout { kOptimal, kNchw, kNhwc };

enum class Usage { kData, kParameter };

// What an operator computes in; kHalfSumInFloat multiplies halves and adds them up as floats.
enum class Arithmetic { kFloat, kHalf, kHalfSumInFloat };

struct TensorSpec {
  DType dtype = DType::kFloat32;
  Layout layout = Layout::kOptimal;
  std::array<uint32_t, 4> dims = {1, 1, 1, 1};  // n, c, h, w, whatever the layout
  Usage usage = Usage::kData;

  [[nodiscard]] size_t elements() const { return size_t{dims[0]} * dims[1] * dims[2] * dims[3]; }
  [[nodiscard]] size_t element_bytes() const { return dtype == DType::kFloat16 ? 2 : 4; }
};

using Pair = std::array<uint32_t, 2>;  // along h, along w

enum class Activation { kRelu, kRelu6 };

// The operators.  What they read, in order, stands behind each.

// data, weights, then the bias if has_bias, then scale, offset, mean, variance if epsilon is there
struct Convolution {
  enum class Mode { kFull, kDepthwise, kTranspose };
  Mode mode = Mode::kFull;
  Pair before = {0, 0};
  Pair after = {0, 0};
  Pair strides = {1, 1};
  Pair dilation = {1, 1};
  bool has_bias = false;
  std::optional<float> epsilon;
  std::optional<Activation> activation;
};
struct Activate {  // data
  Activation kind = Activation::kRelu;
};
struct Clip {  // data
  float low = 0;
  float high = 0;
};
struct BatchNorm {  // data, scale, offset, mean, variance
  float epsilon = 0;
};
struct Pooling {  // data; an average leaves padding out
  bool average = false;
  Pair before = {0, 0};
  Pair after = {0, 0};
  Pair strides = {1, 1};
  Pair window = {1, 1};
};
struct Softmax {};  // data; along c
struct Binary {     // two of equal dims
  enum class Kind { kAdd, kSubtract, kMultiply, kDivide, kMinimum, kMaximum };
  Kind kind = Kind::kAdd;
};
struct Concat {  // two or more
  uint32_t axis = 1;
};
struct Reshape {};         // data
struct FullyConnected {};  // data [1,i,1,1], weights [1,1,o,i], bias [1,o,1,1]
struct Gemm {              // a, b; b is [n,k] if transposed, else [k,n]; only the sizes matter
  uint32_t m = 1;
  uint32_t n = 1;
  uint32_t k = 1;
  bool transpose_b = false;
};
struct Pad {  // data
  bool reflect = false;
  std::array<uint32_t, 4> widths = {0, 0, 0, 0};  // top, bottom, left, right
};
struct DepthToSpace {  // data; order DCR
  uint32_t block = 1;
};
struct Upsample {  // data; bilinear
  bool align_corners = false;
};

using Operation = std::variant<Convolution, Activate, Clip, BatchNorm, Pooling, Softmax, Binary,
                               Concat, Reshape, FullyConnected, Gemm, Pad, DepthToSpace, Upsample>;

// An object of the library; its destructor gives it back.
class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};
using ObjectPtr = std::unique_ptr<Object>;

// A tensor and the memory that holds it.
struct Bound {
  const Object* tensor = nullptr;
  cl_mem memory = nullptr;
};

// A call into the library that failed.
class CallError : public std::runtime_error {
 public:
  CallError(std::string call, const std::string& code)
      : std::runtime_error(call + " failed with " + code), call_(std::move(call)) {}
  [[nodiscard]] const std::string& call() const { return call_; }

 private:
  std::string call_;
};

// Every function throws CallError when the library fails.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  // The interface version in use, and all that the device offers ("1.0, 2.0, 3.1").
  [[nodiscard]] virtual int version() const = 0;
  [[nodiscard]] virtual std::string versions() const = 0;

  [[nodiscard]] virtual ObjectPtr create_tensor(const TensorSpec& spec) = 0;
  [[nodiscard]] virtual size_t memory_bytes(const Object& tensor) = 0;

  // `tuning` may be null.
  [[nodiscard]] virtual ObjectPtr create_operator(const Operation& operation, Arithmetic arithmetic,
                                                  const std::vector<const Object*>& inputs,
                                                  const Object& output, Object* tuning) = 0;

  // A table of tensors and their memory, which operators look theirs up in when they are enqueued.
  [[nodiscard]] virtual ObjectPtr create_bindings() = 0;
  // Enters `bound`, which is all of the table.
  virtual void update_bindings(Object& bindings, const std::vector<Bound>& bound) = 0;

  // Host data is dense, in the order n, c, h, w; returns when it may be changed again.
  virtual void write(cl_command_queue queue, const void* data, const Bound& to) = 0;
  // Commands.  `event`, if not null, is given the command's event, or null without one.
  virtual void copy(cl_command_queue queue, const Bound& from, const Bound& to,
                    cl_event* event) = 0;
  virtual void run(cl_command_queue queue, const Object& op, const Object& bindings,
                   cl_event* event) = 0;

  [[nodiscard]] virtual bool can_record() const = 0;
  // All of `operators`, to be run by one command.
  [[nodiscard]] virtual ObjectPtr record(const std::vector<const Object*>& operators,
                                         const Object& bindings) = 0;
  virtual void replay(cl_command_queue queue, const Object& recording, cl_event* event) = 0;

  [[nodiscard]] virtual ObjectPtr create_tuning() = 0;
  virtual void load_tuning(Object& tuning, const std::string& bytes) = 0;
  [[nodiscard]] virtual std::string save_tuning(const Object& tuning) = 0;
  virtual void tune(cl_command_queue queue, const Object& op, const Object& bindings,
                    Object& tuning) = 0;
};

// The library of a device, or the reason why there is none.
struct Choice {
  std::shared_ptr<Backend> backend;
  std::string reason;
  bool by_request = false;  // nobody needs to be told
};

// Asked once a device and kept, until the settings change.
[[nodiscard]] Choice backend_of(opencl::Device& device);

// Settings of the process, each with a function "adrenoc.clml.*" of its own.

// Devices are emulated as this JSON says (EmulatorSettings); "" ends it.  At the start the
// environment variable ADRENOC_CLML_EMULATOR says so.
void emulate(const std::string& settings);
// Lets regions run in textures although CLML could run them.
void switch_off(bool off);
// Where tuning results are kept; "" keeps none.
void set_cache_folder(const std::string& folder);
[[nodiscard]] std::string cache_folder();
// Grows whenever a setting changes: what was decided before holds no longer.
[[nodiscard]] int settings_number();

// Made by the one file that knows the real library; null and a reason where it is not built in,
// or the device does not have it.
[[nodiscard]] Choice real_backend(opencl::Device& device);

}  // namespace adrenoc_runtime::clml
