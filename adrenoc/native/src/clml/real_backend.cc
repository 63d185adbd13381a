// The library of a phone, by the header of the SDK that `adrenoc runtime build --clml-sdk` names.
// This is the one file that includes that header; it is empty without.  What is called, and how, is
// what TVM's CLML runtime (Apache-2.0) calls.
#ifdef ADRENOC_CLML_SDK

// clang-format off: our declarations of OpenCL first, since the header's macros would spoil them
#include "clml/backends.h"
#include "opencl/cl_api.h"

#include <CL/cl.h>
#include <CL/opencl.h>
#include <CL/cl_qcom_ml_ops.h>
// clang-format on

#include <dlfcn.h>

#include <cstring>
#include <functional>
#include <utility>

namespace adrenoc_runtime {
namespace clml {
namespace {

constexpr int kHeaderMajor = CL_QCOM_ML_OPS_H_MAJOR_VERSION;

void expect_success(::cl_int code, const char* call) {
  if (code != 0) throw CallError(call, opencl::error_name(code));
}

::cl_mem native_memory(opencl::cl_mem memory) { return reinterpret_cast<::cl_mem>(memory); }
::cl_command_queue native_queue(opencl::cl_command_queue queue) {
  return reinterpret_cast<::cl_command_queue>(queue);
}
::cl_event* native_event(opencl::cl_event* event) { return reinterpret_cast<::cl_event*>(event); }

// A function of libOpenCL that is no part of an interface; null where the driver lacks it.
template <typename Function>
Function* find_function(const char* name) {
  void* library = dlopen(opencl::library_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

template <typename Function>
Function* need_function(const char* name) {
  Function* found = find_function<Function>(name);
  if (found == nullptr) throw CallError(name, "no such function in libOpenCL");
  return found;
}

// A handle and what gives it back.
template <typename T>
class Held final : public Object {
 public:
  Held(T value, std::function<void(T)> release) : value(value), release_(std::move(release)) {}
  ~Held() override { release_(value); }
  const T value;

 private:
  std::function<void(T)> release_;
};

using TensorHandle = Held<cl_ml_tensor_qcom>;
using OperatorHandle = Held<cl_ml_op_qcom>;
using BindingsHandle = Held<cl_ml_tensor_mem_desc_set_qcom>;
using TuningHandle = Held<cl_ml_tuningcache_qcom>;

template <typename T>
T value_of(const Object& object) {
  return dynamic_cast<const Held<T>&>(object).value;
}

using RecordingValue = decltype(clNewRecordingQCOM(nullptr, nullptr));

struct Recording final : Object {
  ::cl_command_queue queue = nullptr;
  RecordingValue value = nullptr;
  ~Recording() override {
    using Release = ::cl_int(RecordingValue);
    if (auto* release = find_function<Release>("clReleaseRecordingQCOM"); release && value) {
      release(value);
    }
    if (queue != nullptr) {
      (void)opencl::api().clReleaseCommandQueue(
          reinterpret_cast<opencl::cl_command_queue>(queue));
    }
  }
};

cl_arithmetic_mode_qcom arithmetic_mode(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kFloat:
      return CL_ARITHMETIC_MODE_FP32_QCOM;
    case Arithmetic::kHalf:
      return CL_ARITHMETIC_MODE_FP16_QCOM;
    default:
      return CL_ARITHMETIC_MODE_FP16_ACC32_QCOM;
  }
}

cl_ml_tensor_layout_qcom layout_of(Layout layout) {
  switch (layout) {
    case Layout::kNchw:
      return CL_TENSOR_LAYOUT_NCHW_QCOM;
    case Layout::kNhwc:
      return CL_TENSOR_LAYOUT_NHWC_QCOM;
    default:
      return CL_TENSOR_LAYOUT_OPTIMAL_QCOM;
  }
}

cl_activation_function_qcom activation_of(Activation kind) {
  return kind == Activation::kRelu ? CL_ACTIVATION_RELU : CL_ACTIVATION_RELU6;
}

cl_binary_op_qcom binary_op(Binary::Kind kind) {
  switch (kind) {
    case Binary::Kind::kAdd:
      return CL_TENSOR_OP_ADD_QCOM;
    case Binary::Kind::kSubtract:
      return CL_TENSOR_OP_SUB_QCOM;
    case Binary::Kind::kMultiply:
      return CL_TENSOR_OP_MUL_QCOM;
    case Binary::Kind::kDivide:
      return CL_TENSOR_OP_DIV_QCOM;
    case Binary::Kind::kMinimum:
      return CL_TENSOR_OP_MIN_QCOM;
    default:
      return CL_TENSOR_OP_MAX_QCOM;
  }
}

cl_convolution_mode_qcom convolution_mode(Convolution::Mode mode) {
  switch (mode) {
    case Convolution::Mode::kFull:
      return CL_CONVOLUTION_MODE_CONVOLUTION_QCOM;
    case Convolution::Mode::kDepthwise:
      return CL_CONVOLUTION_MODE_DEPTHWISE_QCOM;
    default:
      return CL_CONVOLUTION_MODE_TRANSPOSE_QCOM;
  }
}

// The list that hands an epsilon over: its bits in a property's low half.
std::vector<cl_ml_op_properties_qcom> epsilon_properties(float epsilon) {
  cl_ml_op_properties_qcom bits = 0;
  std::memcpy(&bits, &epsilon, sizeof(epsilon));
  return {CL_ML_BATCH_NORM_OP_EPSILON_QCOM, bits, CL_ML_OP_PROPERTY_LIST_END_QCOM};
}

// One interface of the library: a table of functions, of which each version has its own type.
template <typename Interface, int Version>
class RealBackend final : public Backend {
 public:
  RealBackend(opencl::Device& device, Interface* interface, std::string versions)
      : device_(device),
        interface_(interface),
        versions_(std::move(versions)),
        context_(reinterpret_cast<::cl_context>(device.context())),
        unused_(create_unused()) {}

  [[nodiscard]] std::string name() const override { return "cl_qcom_ml_ops"; }
  [[nodiscard]] int version() const override { return Version; }
  [[nodiscard]] std::string versions() const override { return versions_; }

  [[nodiscard]] ObjectPtr create_tensor(const TensorSpec& spec) override {
    const ::cl_uint type = spec.dtype == DType::kFloat32 ? CL_FLOAT : CL_HALF_FLOAT;
    const cl_ml_tensor_desc_qcom desc = {type,
                                         layout_of(spec.layout),
                                         spec.dims[0],
                                         spec.dims[1],
                                         spec.dims[2],
                                         spec.dims[3],
                                         0,
                                         CL_TENSOR_DIMENSIONS_4D_QCOM,
                                         {0}};
    return make_tensor(desc, spec.usage == Usage::kParameter);
  }

  [[nodiscard]] size_t memory_bytes(const Object& tensor) override {
    uint32_t bytes = 0;
    expect_success(interface_->clGetMLTensorMemorySizeQCOM(
                       context_, value_of<cl_ml_tensor_qcom>(tensor), &bytes),
                   "clGetMLTensorMemorySizeQCOM");
    return bytes;
  }

  [[nodiscard]] ObjectPtr create_operator(const Operation& operation, Arithmetic arithmetic,
                                          const std::vector<const Object*>& inputs,
                                          const Object& output, Object* tuning) override {
    Maker maker{*this, arithmetic_mode(arithmetic), {}, value_of<cl_ml_tensor_qcom>(output),
                tuning == nullptr ? nullptr : value_of<cl_ml_tuningcache_qcom>(*tuning)};
    for (const Object* input : inputs) maker.in.push_back(value_of<cl_ml_tensor_qcom>(*input));
    std::visit([&](const auto& op) { maker.make(op); }, operation);
    if (maker.op == nullptr) throw CallError("clCreateMLOp", "no operator");
    return std::make_unique<OperatorHandle>(
        maker.op, [i = interface_](cl_ml_op_qcom op) { (void)i->clReleaseMLOpQCOM(op); });
  }

  [[nodiscard]] ObjectPtr create_bindings() override {
    cl_ml_tensor_mem_desc_set_qcom set = nullptr;
    expect_success(interface_->clCreateMLTensorMemoryDescriptorSetQCOM(&set),
                   "clCreateMLTensorMemoryDescriptorSetQCOM");
    return std::make_unique<BindingsHandle>(
        set, [i = interface_](cl_ml_tensor_mem_desc_set_qcom value) {
          (void)i->clReleaseMLTensorMemoryDescriptorSetQCOM(value);
        });
  }

  void update_bindings(Object& bindings, const std::vector<Bound>& bound) override {
    std::vector<cl_ml_tensor_memory_desc_qcom> all;
    for (const Bound& one : bound) {
      all.push_back({value_of<cl_ml_tensor_qcom>(*one.tensor), native_memory(one.memory)});
    }
    expect_success(interface_->clUpdateMLTensorMemoryDescriptorSetQCOM(
                       value_of<cl_ml_tensor_mem_desc_set_qcom>(bindings),
                       static_cast<uint32_t>(all.size()), all.data()),
                   "clUpdateMLTensorMemoryDescriptorSetQCOM");
  }

  void write(opencl::cl_command_queue queue, const void* data, const Bound& to) override {
    ::cl_event written = nullptr;
    expect_success(interface_->clEnqueueWriteMLTensorDataQCOM(
                       native_queue(queue), const_cast<void*>(data), CL_TENSOR_LAYOUT_NCHW_QCOM,
                       value_of<cl_ml_tensor_qcom>(*to.tensor), native_memory(to.memory), 0,
                       nullptr, &written),
                   "clEnqueueWriteMLTensorDataQCOM");
    // The caller's data is read until the event has happened.
    const opencl::EventHandle event(reinterpret_cast<opencl::cl_event>(written));
    const opencl::cl_event waited = event.get();
    if (waited != nullptr) {
      expect_success(opencl::api().clWaitForEvents(1, &waited), "clWaitForEvents");
    }
  }

  void copy(opencl::cl_command_queue queue, const Bound& from, const Bound& to,
            opencl::cl_event* event) override {
    expect_success(interface_->clEnqueueCopyMLTensorDataQCOM(
                       native_queue(queue), value_of<cl_ml_tensor_qcom>(*from.tensor),
                       native_memory(from.memory), value_of<cl_ml_tensor_qcom>(*to.tensor),
                       native_memory(to.memory), 0, nullptr, native_event(event)),
                   "clEnqueueCopyMLTensorDataQCOM");
  }

  void run(opencl::cl_command_queue queue, const Object& op, const Object& bindings,
           opencl::cl_event* event) override {
    expect_success(interface_->clEnqueueMLOpQCOM(
                       native_queue(queue), value_of<cl_ml_op_qcom>(op),
                       value_of<cl_ml_tensor_mem_desc_set_qcom>(bindings), 0, nullptr,
                       native_event(event)),
                   "clEnqueueMLOpQCOM");
  }

  [[nodiscard]] bool can_record() const override {
    return device_.info().has_extension("cl_qcom_recordable_queues");
  }

  [[nodiscard]] ObjectPtr record(const std::vector<const Object*>& operators,
                                 const Object& bindings) override {
    auto recording = std::make_unique<Recording>();
    opencl::cl_int code = 0;
    recording->queue = native_queue(opencl::api().clCreateCommandQueue(
        device_.context(), device_.id(), CL_QUEUE_RECORDABLE_QCOM, &code));
    expect_success(code, "clCreateCommandQueue");
    auto* begin = need_function<decltype(clNewRecordingQCOM)>("clNewRecordingQCOM");
    auto* end = need_function<decltype(clEndRecordingQCOM)>("clEndRecordingQCOM");
    ::cl_int begun = 0;
    recording->value = begin(recording->queue, &begun);
    expect_success(begun, "clNewRecordingQCOM");
    for (const Object* op : operators) {
      run(reinterpret_cast<opencl::cl_command_queue>(recording->queue), *op, bindings, nullptr);
    }
    expect_success(end(recording->value), "clEndRecordingQCOM");
    return recording;
  }

  void replay(opencl::cl_command_queue queue, const Object& recording,
              opencl::cl_event* event) override {
    const auto& recorded = dynamic_cast<const Recording&>(recording);
    expect_success(interface_->clEnqueueRecordingMLOpQCOM(
                       native_queue(queue), recorded.value, 0, nullptr, 0, nullptr, 0, nullptr, 0,
                       nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr,
                       native_event(event)),
                   "clEnqueueRecordingMLOpQCOM");
  }

  [[nodiscard]] ObjectPtr create_tuning() override {
    cl_ml_tuningcache_qcom tuning = nullptr;
    expect_success(interface_->clCreateMLTuningCacheQCOM(&tuning), "clCreateMLTuningCacheQCOM");
    return std::make_unique<TuningHandle>(tuning, [i = interface_](cl_ml_tuningcache_qcom value) {
      (void)i->clReleaseMLTuningCacheQCOM(value);
    });
  }

  void load_tuning(Object& tuning, const std::string& bytes) override {
    std::vector<unsigned char> data(bytes.begin(), bytes.end());
    expect_success(interface_->clLoadMLTuningCacheQCOM(value_of<cl_ml_tuningcache_qcom>(tuning),
                                                       data.size(), data.data()),
                   "clLoadMLTuningCacheQCOM");
  }

  [[nodiscard]] std::string save_tuning(const Object& tuning) override {
    const auto cache = value_of<cl_ml_tuningcache_qcom>(tuning);
    size_t bytes = 0, written = 0;
    expect_success(interface_->clSaveMLTuningCacheQCOM(cache, 0, nullptr, &bytes),
                   "clSaveMLTuningCacheQCOM");
    std::vector<unsigned char> data(bytes, 0);
    expect_success(interface_->clSaveMLTuningCacheQCOM(cache, data.size(), data.data(), &written),
                   "clSaveMLTuningCacheQCOM");
    return std::string(data.begin(), data.end());
  }

  void tune(opencl::cl_command_queue queue, const Object& op, const Object& bindings,
            Object& tuning) override {
    expect_success(
        interface_->clTuneMLOpQCOM(native_queue(queue), value_of<cl_ml_op_qcom>(op),
                                   value_of<cl_ml_tensor_mem_desc_set_qcom>(bindings),
                                   value_of<cl_ml_tuningcache_qcom>(tuning), nullptr),
        "clTuneMLOpQCOM");
  }

 private:
  ObjectPtr make_tensor(const cl_ml_tensor_desc_qcom& desc, [[maybe_unused]] bool parameter) {
    cl_ml_tensor_qcom tensor = nullptr;
    if constexpr (Version >= 4) {
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 4
      const bool unused = desc.num_dimensions == CL_TENSOR_UNUSED_QCOM;
      const auto usage = unused      ? CL_TENSOR_USAGE_UNUSED_QCOM
                         : parameter ? CL_TENSOR_USAGE_PARAMETER_QCOM
                                     : CL_TENSOR_USAGE_CNN_QCOM;
      expect_success(
          interface_->clCreateMLTensorWithUsageQCOM(context_, nullptr, &desc, usage, &tensor),
          "clCreateMLTensorWithUsageQCOM");
#endif
    } else {
      expect_success(interface_->clCreateMLTensorQCOM(context_, nullptr, &desc, &tensor),
                     "clCreateMLTensorQCOM");
    }
    if (tensor == nullptr) throw CallError("clCreateMLTensorQCOM", "no tensor");
    return std::make_unique<TensorHandle>(tensor, [i = interface_](cl_ml_tensor_qcom value) {
      (void)i->clReleaseMLTensorQCOM(value);
    });
  }

  // Stands where an operator has no operand.
  ObjectPtr create_unused() {
    cl_ml_tensor_desc_qcom desc = {};
    desc.num_dimensions = CL_TENSOR_UNUSED_QCOM;
    return make_tensor(desc, false);
  }

  // Makes one operator; an overload for each.
  struct Maker {
    RealBackend& backend;
    cl_arithmetic_mode_qcom mode;
    std::vector<cl_ml_tensor_qcom> in;
    cl_ml_tensor_qcom out;
    cl_ml_tuningcache_qcom tuning;
    cl_ml_op_qcom op = nullptr;

    [[nodiscard]] cl_ml_tensor_qcom unused() const {
      return value_of<cl_ml_tensor_qcom>(*backend.unused_);
    }

    void make(const Convolution& conv) {
      const cl_ml_op_convolution_desc_qcom desc{convolution_mode(conv.mode),
                                                1,
                                                4,
                                                {conv.before[0], conv.before[1]},
                                                {conv.after[0], conv.after[1]},
                                                {conv.strides[0], conv.strides[1]},
                                                {conv.dilation[0], conv.dilation[1]},
                                                0,
                                                mode};
      const cl_ml_op_activation_desc_qcom act = {
          activation_of(conv.activation.value_or(Activation::kRelu)), CL_PROPAGATE_NAN_QCOM, mode};
      const cl_ml_tensor_qcom bias = conv.has_bias ? in[2] : unused();
      if (!conv.epsilon.has_value()) {
        make_without_norm(desc, conv.activation.has_value() ? &act : nullptr, bias);
      } else {
        make_with_norm(conv, desc, act, bias);
      }
    }

    void make_without_norm(const cl_ml_op_convolution_desc_qcom& desc,
                           const cl_ml_op_activation_desc_qcom* act, cl_ml_tensor_qcom bias) {
      auto* i = backend.interface_;
      if (act == nullptr) {
        expect_success(i->clCreateMLOpConvolutionForwardQCOM(backend.context_, nullptr, &desc,
                                                             in[0], in[1], bias, out, &op, nullptr),
                       "clCreateMLOpConvolutionForwardQCOM");
        return;
      }
      expect_success(
          i->clCreateMLOpFusedConvolutionActivationForwardQCOM(backend.context_, nullptr, &desc,
                                                               act, in[0], in[1], bias, nullptr,
                                                               out, &op, tuning),
          "clCreateMLOpFusedConvolutionActivationForwardQCOM");
    }

    void make_with_norm(const Convolution& conv, const cl_ml_op_convolution_desc_qcom& desc,
                        const cl_ml_op_activation_desc_qcom& act, cl_ml_tensor_qcom bias) {
      auto* i = backend.interface_;
      const auto properties = epsilon_properties(*conv.epsilon);
      const cl_ml_op_batchnorm_desc_qcom norm = {CL_BATCHNORM_MODE_SPATIAL_QCOM, mode};
      const size_t first = conv.has_bias ? 3 : 2;  // scale, offset, mean, variance
      const cl_ml_tensor_qcom scale = in[first], offset = in[first + 1];
      const cl_ml_tensor_qcom mean = in[first + 2], variance = in[first + 3];
      if (conv.activation.has_value()) {
        expect_success(i->clCreateMLOpFusedConvolutionBatchNormActivationForwardQCOM(
                           backend.context_, properties.data(), &desc, &norm, &act, in[0], in[1],
                           bias, out, nullptr, mean, variance, scale, offset, &op, tuning),
                       "clCreateMLOpFusedConvolutionBatchNormActivationForwardQCOM");
        return;
      }
      expect_success(i->clCreateMLOpFusedConvolutionBatchNormForwardQCOM(
                         backend.context_, properties.data(), &desc, &norm, in[0], in[1], bias, out,
                         mean, variance, scale, offset, &op, tuning),
                     "clCreateMLOpFusedConvolutionBatchNormForwardQCOM");
    }

    void make(const Activate& activate) {
      const cl_ml_op_activation_desc_qcom desc = {activation_of(activate.kind),
                                                  CL_PROPAGATE_NAN_QCOM, mode};
      expect_success(
          backend.interface_->clCreateMLOpActivationForwardQCOM(backend.context_, nullptr, &desc,
                                                                in[0], unused(), out, &op, tuning),
          "clCreateMLOpActivationForwardQCOM");
    }

    void make([[maybe_unused]] const Clip& clip) {
      if constexpr (Version >= 2) {
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 2
        const cl_ml_op_clip_desc_qcom desc = {
            CL_CLIP_BY_VALUE_QCOM, {{clip.high}, CL_FLOAT}, {{clip.low}, CL_FLOAT}, mode};
        expect_success(backend.interface_->clCreateMLOpClipQCOM(backend.context_, nullptr, &desc,
                                                                in[0], out, &op, tuning),
                       "clCreateMLOpClipQCOM");
#endif
      } else {
        throw CallError("clCreateMLOpClipQCOM", "no such operator in interface 1");
      }
    }

    void make(const BatchNorm& norm) {
      const auto properties = epsilon_properties(norm.epsilon);
      const cl_ml_op_batchnorm_desc_qcom desc = {CL_BATCHNORM_MODE_SPATIAL_QCOM, mode};
      expect_success(backend.interface_->clCreateMLOpBatchNormForwardQCOM(
                         backend.context_, properties.data(), &desc, in[0], in[3], in[4], in[1],
                         in[2], out, &op, tuning),
                     "clCreateMLOpBatchNormForwardQCOM");
    }

    void make(const Pooling& pool) {
      const cl_ml_op_pooling_desc_qcom desc = {
          pool.average ? CL_POOLING_MODE_AVERAGE_EXCLUDE_PADDING_QCOM : CL_POOLING_MODE_MAX_QCOM,
          4,
          {pool.before[0], pool.before[1]},
          {pool.after[0], pool.after[1]},
          {pool.strides[0], pool.strides[1]},
          {pool.window[0], pool.window[1]},
          CL_PROPAGATE_NAN_QCOM,
          mode};
      expect_success(
          backend.interface_->clCreateMLOpPoolingForwardQCOM(backend.context_, nullptr, &desc,
                                                             in[0], unused(), out, &op, tuning),
          "clCreateMLOpPoolingForwardQCOM");
    }

    void make(const Softmax&) {
      const cl_ml_op_softmax_desc_qcom desc = {CL_SOFTMAX_ALGORITHM_ACCURATE_QCOM,
                                               CL_SOFTMAX_MODE_SPATIAL_QCOM, mode};
      expect_success(backend.interface_->clCreateMLOpSoftmaxQCOM(backend.context_, nullptr, &desc,
                                                                 in[0], out, &op, tuning),
                     "clCreateMLOpSoftmaxQCOM");
    }

    void make(const Binary& binary) {
      const cl_ml_op_binary_desc_qcom desc = {
          binary_op(binary.kind), {{1.0f}, CL_FLOAT}, {{1.0f}, CL_FLOAT}, {{0.0f}, CL_FLOAT}, mode};
      expect_success(backend.interface_->clCreateMLOpBinaryQCOM(
                         backend.context_, nullptr, &desc, in[0], in[1], out, &op, tuning),
                     "clCreateMLOpBinaryQCOM");
    }

    void make(const Concat& concat) {
      const cl_ml_op_concat_desc_qcom desc = {concat.axis, static_cast<::cl_uint>(in.size()),
                                              mode};
      expect_success(backend.interface_->clCreateMLOpConcatQCOM(backend.context_, nullptr, &desc,
                                                                in.data(), out, &op, tuning),
                     "clCreateMLOpConcatQCOM");
    }

    void make(const Reshape&) {
      expect_success(backend.interface_->clCreateMLOpReshapeQCOM(backend.context_, nullptr, in[0],
                                                                 out, &op, tuning),
                     "clCreateMLOpReshapeQCOM");
    }

    void make(const FullyConnected&) {
      const cl_ml_op_fully_connected_desc_qcom desc = {1, CL_FC_WEIGHT_TRANSFORM_TRANSPOSE_QCOM,
                                                       mode};
      expect_success(
          backend.interface_->clCreateMLOpFullyConnectedQCOM(
              backend.context_, nullptr, &desc, in[0], in[1], in[2], out, &op, tuning),
          "clCreateMLOpFullyConnectedQCOM");
    }

    void make(const Gemm& gemm) {
      const cl_ml_op_gemm_desc_qcom desc = {
          gemm.m,
          gemm.n,
          gemm.k,
          CL_GEMM_TRANSFORM_NONE_QCOM,
          gemm.transpose_b ? CL_GEMM_TRANSFORM_TRANSPOSE_QCOM : CL_GEMM_TRANSFORM_NONE_QCOM,
          {{1.0f}, CL_FLOAT},
          {{0.0f}, CL_FLOAT},
          mode};
      expect_success(backend.interface_->clCreateMLOpGemmQCOM(backend.context_, nullptr, &desc,
                                                              in[0], in[1], out, &op, tuning),
                     "clCreateMLOpGemmQCOM");
    }

    void make(const Pad& pad) {
      const cl_ml_op_pad_desc_qcom desc = {
          pad.reflect ? CL_PAD_MODE_REFLECT_QCOM : CL_PAD_MODE_CONSTANT_QCOM,
          {0, 0},
          {pad.widths[0], pad.widths[1], pad.widths[2], pad.widths[3], 0, 0, 0, 0},
          mode};
      expect_success(backend.interface_->clCreateMLOpPadQCOM(backend.context_, nullptr, &desc,
                                                             in[0], out, &op, tuning),
                     "clCreateMLOpPadQCOM");
    }

    void make(const DepthToSpace& blocks) {
      const cl_ml_op_depthtospace_desc_qcom desc = {blocks.block, mode};
      expect_success(backend.interface_->clCreateMLOpDepthToSpaceQCOM(
                         backend.context_, nullptr, &desc, in[0], out, &op, tuning),
                     "clCreateMLOpDepthToSpaceQCOM");
    }

    void make(const Upsample& upsample) {
      const cl_ml_op_resize_bilinear_desc_qcom desc = {upsample.align_corners, false, mode};
      expect_success(backend.interface_->clCreateMLOpResizeBilinearQCOM(
                         backend.context_, nullptr, &desc, in[0], out, &op, tuning),
                     "clCreateMLOpResizeBilinearQCOM");
    }
  };

  opencl::Device& device_;
  Interface* const interface_;
  const std::string versions_;
  const ::cl_context context_;
  const ObjectPtr unused_;
};

struct Versions {
  int newest = 0;  // of those that the header knows too
  int newest_minor = 0;
  std::string all;
};

Versions query_versions() {
  auto* query = need_function<decltype(clQueryMLInterfaceVersionsQCOM)>(
      "clQueryMLInterfaceVersionsQCOM");
  ::cl_uint count = 0;
  expect_success(query(nullptr, nullptr, 0, &count), "clQueryMLInterfaceVersionsQCOM");
  std::vector<::cl_int> majors(count), minors(count);
  expect_success(query(majors.data(), minors.data(), count, nullptr),
                 "clQueryMLInterfaceVersionsQCOM");
  Versions versions;
  for (::cl_uint i = 0; i < count; ++i) {
    versions.all += (i == 0 ? "" : ", ") + std::to_string(majors[i]) + "." +
                    std::to_string(minors[i]);
    if (majors[i] <= kHeaderMajor && majors[i] >= versions.newest) {
      versions.newest = majors[i];
      versions.newest_minor = minors[i];
    }
  }
  return versions;
}

template <typename Interface, int Version>
Choice make_backend(opencl::Device& device, void* interface, const Versions& versions) {
  return {std::make_shared<RealBackend<Interface, Version>>(
              device, static_cast<Interface*>(interface), versions.all),
          ""};
}

}  // namespace

Choice real_backend(opencl::Device& device) {
  if (!device.info().has_extension("cl_qcom_ml_ops")) {
    return {nullptr, "the device lacks the extension cl_qcom_ml_ops"};
  }
  const Versions versions = query_versions();
  if (versions.newest == 0) {
    return {nullptr, "the device has CLML " + versions.all + ", this runtime was built for " +
                         std::to_string(kHeaderMajor) + " and older"};
  }
  auto* get = need_function<decltype(clGetMLInterfaceQCOM)>("clGetMLInterfaceQCOM");
  void* interface = nullptr;
  get(&interface, versions.newest, versions.newest_minor);
  if (interface == nullptr) throw CallError("clGetMLInterfaceQCOM", "no interface");
  switch (versions.newest) {
    case 1:
      return make_backend<CLMLInterfaceV1QCOM, 1>(device, interface, versions);
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 2
    case 2:
      return make_backend<CLMLInterfaceV2QCOM, 2>(device, interface, versions);
#endif
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 3
    case 3:
      return make_backend<CLMLInterfaceV3QCOM, 3>(device, interface, versions);
#endif
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 4
    case 4:
      return make_backend<CLMLInterfaceV4QCOM, 4>(device, interface, versions);
#endif
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 5
    case 5:
      return make_backend<CLMLInterfaceV5QCOM, 5>(device, interface, versions);
#endif
    default:
      return {nullptr, "CLML " + std::to_string(versions.newest) + " is not known here"};
  }
}

}  // namespace clml
}  // namespace adrenoc_runtime

#endif  // ADRENOC_CLML_SDK
