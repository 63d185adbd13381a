// What a phone's library declares, handles that are given back to it, and its operators: one
// overload of `make` for each kind, in the library's own terms.
// This is the one file that includes the header of the SDK that `adrenoc runtime build --clml-sdk`
// names; only `real_backend.cc` and what it is made of include this one.
#pragma once

// clang-format off: our declarations of OpenCL first, since the header's macros would spoil them
#include "clml/backend.h"
#include "opencl/cl_api.h"

#include <CL/cl.h>
#include <CL/opencl.h>
#include <CL/cl_qcom_ml_ops.h>
// clang-format on

#include <dlfcn.h>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

namespace adrenoc_runtime::clml {

constexpr int kHeaderMajor = CL_QCOM_ML_OPS_H_MAJOR_VERSION;

inline void expect_success(::cl_int code, const char* call) {
  if (code != 0) throw CallError(call, opencl::error_name(code));
}

// Calls a function of an interface, and checks it.
#define ADRENOC_CLML_CALL(interface, function, ...) \
  expect_success((interface)->function(__VA_ARGS__), #function)

inline ::cl_mem native_memory(opencl::cl_mem memory) { return reinterpret_cast<::cl_mem>(memory); }
inline ::cl_command_queue native_queue(opencl::cl_command_queue queue) {
  return reinterpret_cast<::cl_command_queue>(queue);
}
inline ::cl_event* native_event(opencl::cl_event* event) {
  return reinterpret_cast<::cl_event*>(event);
}

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
      (void)opencl::api().clReleaseCommandQueue(reinterpret_cast<opencl::cl_command_queue>(queue));
    }
  }
};

// In the order of our own values.
inline cl_arithmetic_mode_qcom arithmetic_mode(Arithmetic arithmetic) {
  constexpr cl_arithmetic_mode_qcom all[] = {CL_ARITHMETIC_MODE_FP32_QCOM,
                                             CL_ARITHMETIC_MODE_FP16_QCOM,
                                             CL_ARITHMETIC_MODE_FP16_ACC32_QCOM};
  return all[static_cast<size_t>(arithmetic)];
}

inline cl_ml_tensor_layout_qcom layout_of(Layout layout) {
  constexpr cl_ml_tensor_layout_qcom all[] = {
      CL_TENSOR_LAYOUT_OPTIMAL_QCOM, CL_TENSOR_LAYOUT_NCHW_QCOM, CL_TENSOR_LAYOUT_NHWC_QCOM};
  return all[static_cast<size_t>(layout)];
}

inline cl_activation_function_qcom activation_of(Activation kind) {
  return kind == Activation::kRelu ? CL_ACTIVATION_RELU : CL_ACTIVATION_RELU6;
}

inline cl_binary_op_qcom binary_op(Binary::Kind kind) {
  constexpr cl_binary_op_qcom all[] = {CL_TENSOR_OP_ADD_QCOM, CL_TENSOR_OP_SUB_QCOM,
                                       CL_TENSOR_OP_MUL_QCOM, CL_TENSOR_OP_DIV_QCOM,
                                       CL_TENSOR_OP_MIN_QCOM, CL_TENSOR_OP_MAX_QCOM};
  return all[static_cast<size_t>(kind)];
}

inline cl_convolution_mode_qcom convolution_mode(Convolution::Mode mode) {
  constexpr cl_convolution_mode_qcom all[] = {CL_CONVOLUTION_MODE_CONVOLUTION_QCOM,
                                              CL_CONVOLUTION_MODE_DEPTHWISE_QCOM,
                                              CL_CONVOLUTION_MODE_TRANSPOSE_QCOM};
  return all[static_cast<size_t>(mode)];
}

// The list that hands an epsilon over: its bits in a property's low half.
inline std::vector<cl_ml_op_properties_qcom> epsilon_properties(float epsilon) {
  cl_ml_op_properties_qcom bits = 0;
  std::memcpy(&bits, &epsilon, sizeof(epsilon));
  return {CL_ML_BATCH_NORM_OP_EPSILON_QCOM, bits, CL_ML_OP_PROPERTY_LIST_END_QCOM};
}

// Makes one operator of an interface; `unused` stands where an operator has no operand.
template <typename Interface, int Version>
struct OperatorMaker {
  Interface* interface;
  ::cl_context context;
  cl_ml_tensor_qcom unused;
  cl_arithmetic_mode_qcom mode;
  std::vector<cl_ml_tensor_qcom> in;
  cl_ml_tensor_qcom out;
  cl_ml_tuningcache_qcom tuning;
  cl_ml_op_qcom op = nullptr;

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
    const cl_ml_tensor_qcom bias = conv.has_bias ? in[2] : unused;
    if (!conv.epsilon.has_value()) {
      make_without_norm(desc, conv.activation.has_value() ? &act : nullptr, bias);
    } else {
      make_with_norm(conv, desc, act, bias);
    }
  }

  void make_without_norm(const cl_ml_op_convolution_desc_qcom& desc,
                         const cl_ml_op_activation_desc_qcom* act, cl_ml_tensor_qcom bias) {
    if (act == nullptr) {
      ADRENOC_CLML_CALL(interface, clCreateMLOpConvolutionForwardQCOM, context, nullptr, &desc,
                        in[0], in[1], bias, out, &op, nullptr);
      return;
    }
    ADRENOC_CLML_CALL(interface, clCreateMLOpFusedConvolutionActivationForwardQCOM, context,
                      nullptr, &desc, act, in[0], in[1], bias, nullptr, out, &op, tuning);
  }

  void make_with_norm(const Convolution& conv, const cl_ml_op_convolution_desc_qcom& desc,
                      const cl_ml_op_activation_desc_qcom& act, cl_ml_tensor_qcom bias) {
    const auto properties = epsilon_properties(*conv.epsilon);
    const cl_ml_op_batchnorm_desc_qcom norm = {CL_BATCHNORM_MODE_SPATIAL_QCOM, mode};
    const size_t first = conv.has_bias ? 3 : 2;  // scale, offset, mean, variance
    const cl_ml_tensor_qcom scale = in[first], offset = in[first + 1];
    const cl_ml_tensor_qcom mean = in[first + 2], variance = in[first + 3];
    if (conv.activation.has_value()) {
      ADRENOC_CLML_CALL(interface, clCreateMLOpFusedConvolutionBatchNormActivationForwardQCOM,
                        context, properties.data(), &desc, &norm, &act, in[0], in[1], bias, out,
                        nullptr, mean, variance, scale, offset, &op, tuning);
      return;
    }
    ADRENOC_CLML_CALL(interface, clCreateMLOpFusedConvolutionBatchNormForwardQCOM, context,
                      properties.data(), &desc, &norm, in[0], in[1], bias, out, mean, variance,
                      scale, offset, &op, tuning);
  }

  void make(const Activate& activate) {
    const cl_ml_op_activation_desc_qcom desc = {activation_of(activate.kind), CL_PROPAGATE_NAN_QCOM,
                                                mode};
    ADRENOC_CLML_CALL(interface, clCreateMLOpActivationForwardQCOM, context, nullptr, &desc, in[0],
                      unused, out, &op, tuning);
  }

  void make([[maybe_unused]] const Clip& clip) {
    if constexpr (Version >= 2) {
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 2
      const cl_ml_op_clip_desc_qcom desc = {
          CL_CLIP_BY_VALUE_QCOM, {{clip.high}, CL_FLOAT}, {{clip.low}, CL_FLOAT}, mode};
      ADRENOC_CLML_CALL(interface, clCreateMLOpClipQCOM, context, nullptr, &desc, in[0], out, &op,
                        tuning);
#endif
    } else {
      throw CallError("clCreateMLOpClipQCOM", "no such operator in interface 1");
    }
  }

  void make(const BatchNorm& norm) {
    const auto properties = epsilon_properties(norm.epsilon);
    const cl_ml_op_batchnorm_desc_qcom desc = {CL_BATCHNORM_MODE_SPATIAL_QCOM, mode};
    ADRENOC_CLML_CALL(interface, clCreateMLOpBatchNormForwardQCOM, context, properties.data(),
                      &desc, in[0], in[3], in[4], in[1], in[2], out, &op, tuning);
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
    ADRENOC_CLML_CALL(interface, clCreateMLOpPoolingForwardQCOM, context, nullptr, &desc, in[0],
                      unused, out, &op, tuning);
  }

  void make(const Softmax&) {
    const cl_ml_op_softmax_desc_qcom desc = {CL_SOFTMAX_ALGORITHM_ACCURATE_QCOM,
                                             CL_SOFTMAX_MODE_SPATIAL_QCOM, mode};
    ADRENOC_CLML_CALL(interface, clCreateMLOpSoftmaxQCOM, context, nullptr, &desc, in[0], out, &op,
                      tuning);
  }

  void make(const Binary& binary) {
    const cl_ml_op_binary_desc_qcom desc = {
        binary_op(binary.kind), {{1.0f}, CL_FLOAT}, {{1.0f}, CL_FLOAT}, {{0.0f}, CL_FLOAT}, mode};
    ADRENOC_CLML_CALL(interface, clCreateMLOpBinaryQCOM, context, nullptr, &desc, in[0], in[1], out,
                      &op, tuning);
  }

  void make(const Concat& concat) {
    const cl_ml_op_concat_desc_qcom desc = {concat.axis, static_cast<::cl_uint>(in.size()), mode};
    ADRENOC_CLML_CALL(interface, clCreateMLOpConcatQCOM, context, nullptr, &desc, in.data(), out,
                      &op, tuning);
  }

  void make(const Reshape&) {
    ADRENOC_CLML_CALL(interface, clCreateMLOpReshapeQCOM, context, nullptr, in[0], out, &op,
                      tuning);
  }

  void make(const FullyConnected&) {
    const cl_ml_op_fully_connected_desc_qcom desc = {1, CL_FC_WEIGHT_TRANSFORM_TRANSPOSE_QCOM,
                                                     mode};
    ADRENOC_CLML_CALL(interface, clCreateMLOpFullyConnectedQCOM, context, nullptr, &desc, in[0],
                      in[1], in[2], out, &op, tuning);
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
    ADRENOC_CLML_CALL(interface, clCreateMLOpGemmQCOM, context, nullptr, &desc, in[0], in[1], out,
                      &op, tuning);
  }

  void make(const Pad& pad) {
    const cl_ml_op_pad_desc_qcom desc = {
        pad.reflect ? CL_PAD_MODE_REFLECT_QCOM : CL_PAD_MODE_CONSTANT_QCOM,
        {0, 0},
        {pad.widths[0], pad.widths[1], pad.widths[2], pad.widths[3], 0, 0, 0, 0},
        mode};
    ADRENOC_CLML_CALL(interface, clCreateMLOpPadQCOM, context, nullptr, &desc, in[0], out, &op,
                      tuning);
  }

  void make(const DepthToSpace& blocks) {
    const cl_ml_op_depthtospace_desc_qcom desc = {blocks.block, mode};
    ADRENOC_CLML_CALL(interface, clCreateMLOpDepthToSpaceQCOM, context, nullptr, &desc, in[0], out,
                      &op, tuning);
  }

  void make(const Upsample& upsample) {
    const cl_ml_op_resize_bilinear_desc_qcom desc = {upsample.align_corners, false, mode};
    ADRENOC_CLML_CALL(interface, clCreateMLOpResizeBilinearQCOM, context, nullptr, &desc, in[0],
                      out, &op, tuning);
  }
};

}  // namespace adrenoc_runtime::clml
