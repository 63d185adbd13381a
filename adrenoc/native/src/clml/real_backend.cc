// The library of a phone, by the header of the SDK that `adrenoc runtime build --clml-sdk` names:
// it is empty without.  What is called, and how, is what TVM's CLML runtime (Apache-2.0) calls.
#ifdef ADRENOC_CLML_SDK

#include <string>
#include <utility>
#include <vector>

#include "clml/real_library.h"

namespace adrenoc_runtime::clml {
namespace {

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
    const cl_ml_tensor_desc_qcom desc = {
        type, layout_of(spec.layout),       spec.dims[0], spec.dims[1], spec.dims[2], spec.dims[3],
        0,    CL_TENSOR_DIMENSIONS_4D_QCOM, {0}};
    return make_tensor(desc, spec.usage == Usage::kParameter);
  }

  [[nodiscard]] size_t memory_bytes(const Object& tensor) override {
    uint32_t bytes = 0;
    ADRENOC_CLML_CALL(interface_, clGetMLTensorMemorySizeQCOM, context_,
                      value_of<cl_ml_tensor_qcom>(tensor), &bytes);
    return bytes;
  }

  [[nodiscard]] ObjectPtr create_operator(const Operation& operation, Arithmetic arithmetic,
                                          const std::vector<const Object*>& inputs,
                                          const Object& output, Object* tuning) override {
    OperatorMaker<Interface, Version> maker{
        interface_,
        context_,
        value_of<cl_ml_tensor_qcom>(*unused_),
        arithmetic_mode(arithmetic),
        {},
        value_of<cl_ml_tensor_qcom>(output),
        tuning == nullptr ? nullptr : value_of<cl_ml_tuningcache_qcom>(*tuning)};
    for (const Object* input : inputs) maker.in.push_back(value_of<cl_ml_tensor_qcom>(*input));
    std::visit([&](const auto& op) { maker.make(op); }, operation);
    if (maker.op == nullptr) throw CallError("clCreateMLOp", "no operator");
    return std::make_unique<OperatorHandle>(
        maker.op, [i = interface_](cl_ml_op_qcom op) { (void)i->clReleaseMLOpQCOM(op); });
  }

  [[nodiscard]] ObjectPtr create_bindings() override {
    cl_ml_tensor_mem_desc_set_qcom set = nullptr;
    ADRENOC_CLML_CALL(interface_, clCreateMLTensorMemoryDescriptorSetQCOM, &set);
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
    ADRENOC_CLML_CALL(interface_, clUpdateMLTensorMemoryDescriptorSetQCOM,
                      value_of<cl_ml_tensor_mem_desc_set_qcom>(bindings),
                      static_cast<uint32_t>(all.size()), all.data());
  }

  void write(opencl::cl_command_queue queue, const void* data, const Bound& to) override {
    ::cl_event written = nullptr;
    ADRENOC_CLML_CALL(interface_, clEnqueueWriteMLTensorDataQCOM, native_queue(queue),
                      const_cast<void*>(data), CL_TENSOR_LAYOUT_NCHW_QCOM,
                      value_of<cl_ml_tensor_qcom>(*to.tensor), native_memory(to.memory), 0, nullptr,
                      &written);
    // The caller's data is read until the event has happened.
    const opencl::EventHandle event(reinterpret_cast<opencl::cl_event>(written));
    const opencl::cl_event waited = event.get();
    if (waited != nullptr) {
      expect_success(opencl::api().clWaitForEvents(1, &waited), "clWaitForEvents");
    }
  }

  void copy(opencl::cl_command_queue queue, const Bound& from, const Bound& to,
            opencl::cl_event* event) override {
    ADRENOC_CLML_CALL(interface_, clEnqueueCopyMLTensorDataQCOM, native_queue(queue),
                      value_of<cl_ml_tensor_qcom>(*from.tensor), native_memory(from.memory),
                      value_of<cl_ml_tensor_qcom>(*to.tensor), native_memory(to.memory), 0, nullptr,
                      native_event(event));
  }

  void run(opencl::cl_command_queue queue, const Object& op, const Object& bindings,
           opencl::cl_event* event) override {
    ADRENOC_CLML_CALL(
        interface_, clEnqueueMLOpQCOM, native_queue(queue), value_of<cl_ml_op_qcom>(op),
        value_of<cl_ml_tensor_mem_desc_set_qcom>(bindings), 0, nullptr, native_event(event));
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
    ADRENOC_CLML_CALL(interface_, clEnqueueRecordingMLOpQCOM, native_queue(queue), recorded.value,
                      0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0,
                      nullptr, 0, nullptr, native_event(event));
  }

  [[nodiscard]] ObjectPtr create_tuning() override {
    cl_ml_tuningcache_qcom tuning = nullptr;
    ADRENOC_CLML_CALL(interface_, clCreateMLTuningCacheQCOM, &tuning);
    return std::make_unique<TuningHandle>(tuning, [i = interface_](cl_ml_tuningcache_qcom value) {
      (void)i->clReleaseMLTuningCacheQCOM(value);
    });
  }

  void load_tuning(Object& tuning, const std::string& bytes) override {
    std::vector<unsigned char> data(bytes.begin(), bytes.end());
    ADRENOC_CLML_CALL(interface_, clLoadMLTuningCacheQCOM, value_of<cl_ml_tuningcache_qcom>(tuning),
                      data.size(), data.data());
  }

  [[nodiscard]] std::string save_tuning(const Object& tuning) override {
    const auto cache = value_of<cl_ml_tuningcache_qcom>(tuning);
    size_t bytes = 0, written = 0;
    ADRENOC_CLML_CALL(interface_, clSaveMLTuningCacheQCOM, cache, 0, nullptr, &bytes);
    std::vector<unsigned char> data(bytes, 0);
    ADRENOC_CLML_CALL(interface_, clSaveMLTuningCacheQCOM, cache, data.size(), data.data(),
                      &written);
    return std::string(data.begin(), data.end());
  }

  void tune(opencl::cl_command_queue queue, const Object& op, const Object& bindings,
            Object& tuning) override {
    ADRENOC_CLML_CALL(interface_, clTuneMLOpQCOM, native_queue(queue), value_of<cl_ml_op_qcom>(op),
                      value_of<cl_ml_tensor_mem_desc_set_qcom>(bindings),
                      value_of<cl_ml_tuningcache_qcom>(tuning), nullptr);
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
      ADRENOC_CLML_CALL(interface_, clCreateMLTensorWithUsageQCOM, context_, nullptr, &desc, usage,
                        &tensor);
#endif
    } else {
      ADRENOC_CLML_CALL(interface_, clCreateMLTensorQCOM, context_, nullptr, &desc, &tensor);
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
  auto* query =
      need_function<decltype(clQueryMLInterfaceVersionsQCOM)>("clQueryMLInterfaceVersionsQCOM");
  ::cl_uint count = 0;
  expect_success(query(nullptr, nullptr, 0, &count), "clQueryMLInterfaceVersionsQCOM");
  std::vector<::cl_int> majors(count), minors(count);
  expect_success(query(majors.data(), minors.data(), count, nullptr),
                 "clQueryMLInterfaceVersionsQCOM");
  Versions versions;
  for (::cl_uint i = 0; i < count; ++i) {
    versions.all +=
        (i == 0 ? "" : ", ") + std::to_string(majors[i]) + "." + std::to_string(minors[i]);
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
    case 1: return make_backend<CLMLInterfaceV1QCOM, 1>(device, interface, versions);
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 2
    case 2: return make_backend<CLMLInterfaceV2QCOM, 2>(device, interface, versions);
#endif
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 3
    case 3: return make_backend<CLMLInterfaceV3QCOM, 3>(device, interface, versions);
#endif
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 4
    case 4: return make_backend<CLMLInterfaceV4QCOM, 4>(device, interface, versions);
#endif
#if CL_QCOM_ML_OPS_H_MAJOR_VERSION >= 5
    case 5: return make_backend<CLMLInterfaceV5QCOM, 5>(device, interface, versions);
#endif
    default: return {nullptr, "CLML " + std::to_string(versions.newest) + " is not known here"};
  }
}

}  // namespace adrenoc_runtime::clml

#endif  // ADRENOC_CLML_SDK
