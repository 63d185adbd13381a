#include "module.h"

#include <tvm/ffi/cast.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <vector>

#include "byte_stream.h"
#include "device_api.h"
#include "runtime/pack_args.h"
#include "runtime/thread_storage_scope.h"
#include "sha256.h"
#include "side_by_side.h"

namespace adrenoc_runtime {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::FunctionInfo;

constexpr const char* kBinariesMagic = "adrenoc-opencl-binaries-2";

// Sizes of a kernel's arguments in bytes; memory is passed as one handle.
std::vector<size_t> argument_sizes(const FunctionInfo& info) {
  std::vector<size_t> sizes;
  for (const DLDataType& type : info->arg_types) {
    if (type.code != kDLOpaqueHandle && (type.lanes != 1 || type.bits % 8 != 0)) {
      TVM_FFI_THROW(ValueError) << "Kernel " << info->name << " has an argument of type "
                                << ffi::DLDataTypeToString(type)
                                << "; only scalars of whole bytes and memory can be passed";
    }
    sizes.push_back(type.code == kDLOpaqueHandle ? sizeof(cl_mem) : type.bits / 8);
  }
  return sizes;
}

// FNV-1a, 64 bits: tells whether a binary was made of this very source.
uint64_t source_digest(const std::string& source) {
  uint64_t digest = 0xcbf29ce484222325ULL;
  for (const char c : source) {
    digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return digest;
}

// A binary is valid for one device, and as a rule with one driver only.
std::string device_identity(const DeviceInfo& info) { return info.name + "\n" + info.version; }

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Calls a kernel with the arguments that TVM's host code passes: the kernel's own, then the
// extents of the thread axes.
class Launcher {
 public:
  Launcher(ffi::ObjectPtr<OpenClModule> module, std::string name, const FunctionInfo& info)
      : module_(std::move(module)), name_(std::move(name)), sizes_(argument_sizes(info)) {
    for (const DLDataType& type : info->arg_types) {
      is_memory_.push_back(type.code == kDLOpaqueHandle);
    }
    axes_.Init(sizes_.size(), info->launch_param_tags);
  }

  void operator()(ffi::PackedArgs args, ffi::Any*, void** values) const {
    const tvm::runtime::ThreadWorkLoad load = axes_.Extract(args);
    if (load.dyn_shmem_size != 0) {
      TVM_FFI_THROW(ValueError) << "Kernel " << name_ << " asks for " << load.dyn_shmem_size
                                << " bytes of dynamic local memory, which OpenCL C does not have";
    }
    WorkSize work{static_cast<cl_uint>(axes_.work_dim()), {1, 1, 1}, {1, 1, 1}};
    for (cl_uint i = 0; i < work.dimensions; ++i) {
      work.local[i] = load.block_dim(i);
      work.global[i] = load.grid_dim(i) * load.block_dim(i);
    }
    // Kept from launch to launch: their number hardly changes.
    static thread_local std::vector<KernelArgument> arguments;
    arguments.resize(sizes_.size());
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (is_memory_[i]) {
        const Descriptor& descriptor = memory_argument(i, *static_cast<void* const*>(values[i]));
        arguments[i] = {sizes_[i], nullptr, &descriptor.storage()};
      } else {
        arguments[i] = {sizes_[i], values[i], nullptr};
      }
    }
    kernel(current_device_id()).launch(work, arguments);
  }

 private:
  const Descriptor& memory_argument(size_t index, const void* data) const {
    if (data == nullptr) {
      TVM_FFI_THROW(ValueError) << "Argument " << index << " of kernel " << name_ << " is null";
    }
    return *static_cast<const Descriptor*>(data);
  }

  // The module's kernel, which stays once it is there, so it is looked up once a device.
  Kernel& kernel(int device_id) const {
    const auto place = static_cast<size_t>(device_id);
    if (device_id < 0 || place >= found_->size()) return module_->kernel(name_, device_id);
    Kernel* found = (*found_)[place].load(std::memory_order_acquire);
    if (found == nullptr) {
      found = &module_->kernel(name_, device_id);
      (*found_)[place].store(found, std::memory_order_release);
    }
    return *found;
  }

  ffi::ObjectPtr<OpenClModule> module_;
  std::string name_;
  // By device; shared by the copies that TVM makes of a launcher.
  std::shared_ptr<std::array<std::atomic<Kernel*>, 8>> found_ =
      std::make_shared<std::array<std::atomic<Kernel*>, 8>>();
  std::vector<size_t> sizes_;
  std::vector<bool> is_memory_;
  tvm::runtime::LaunchParamConfig axes_;
};

ffi::Module create_module(ffi::Bytes code, ffi::String format, FunctionMap functions,
                          ffi::Map<ffi::String, ffi::String> inspected) {
  return ffi::Module(ffi::make_object<OpenClModule>(std::move(code), std::move(format),
                                                    std::move(functions), std::move(inspected)));
}

// The form that TVM's own OpenCL code generator saves: format, functions, source.
ffi::Module load_module(const ffi::Bytes& bytes) {
  ByteReader reader("A serialised OpenCL module", bytes.data(), bytes.size());
  auto format = reader.take<ffi::String>();
  auto functions = reader.take<FunctionMap>();
  auto code = reader.take<ffi::Bytes>();
  return create_module(std::move(code), std::move(format), std::move(functions), {});
}

}  // namespace

std::map<std::string, std::string> split_kernels(const std::string& source) {
  static const std::string marker = "// Function: ";
  std::map<std::string, std::string> kernels;
  size_t start = source.find(marker);
  while (start != std::string::npos) {
    const size_t name_start = start + marker.size();
    const size_t line_end = std::min(source.find('\n', name_start), source.size());
    const size_t next = source.find(marker, line_end);
    kernels[source.substr(name_start, line_end - name_start)] =
        source.substr(line_end, next == std::string::npos ? next : next - line_end);
    start = next;
  }
  return kernels;
}

std::string with_samplers(std::string source) {
  static const std::string printed =
      "#if __OPENCL_VERSION__ == CL_VERSION_2_0 || __OPENCL_VERSION__ == CL_VERSION_3_0";
  static const std::string meant = "#if __OPENCL_C_VERSION__ >= 200";
  for (size_t at = source.find(printed); at != std::string::npos; at = source.find(printed, at)) {
    source.replace(at, printed.size(), meant);
  }
  return source;
}

OpenClModule::OpenClModule(ffi::Bytes source, ffi::String format, FunctionMap functions,
                           ffi::Map<ffi::String, ffi::String> inspected)
    : code_(std::move(source)),
      format_(std::move(format)),
      functions_(std::move(functions)),
      inspected_(std::move(inspected)),
      sources_(split_kernels(with_samplers(std::string(code_.data(), code_.size())))) {
  if (format_ != "cl") {
    TVM_FFI_THROW(ValueError) << "An OpenCL module has the format \"cl\" (OpenCL C), but got \""
                              << format_ << "\"";
  }
  for (const auto& [name, info] : functions_) {
    if (sources_.count(name) == 0) {
      TVM_FFI_THROW(ValueError) << "The OpenCL source has no section \"// Function: " << name
                                << "\" for the kernel of that name";
    }
  }
}

ffi::Optional<ffi::Function> OpenClModule::GetFunction(const ffi::String& name) {
  auto self = ffi::GetObjectPtr<OpenClModule>(this);
  if (name == kBuildAllFunction) {
    return ffi::Function::FromTyped([self](int device_id) { return self->build_all(device_id); });
  }
  if (name == kSaveBinariesFunction) {
    return ffi::Function::FromTyped([self] { return self->save_binaries(current_device_id()); });
  }
  if (name == kLoadBinariesFunction) {
    return ffi::Function::FromTyped([self](const ffi::Bytes& bytes) {
      self->load_binaries(std::string(bytes.data(), bytes.size()), current_device_id(), false);
    });
  }
  if (name == kProgramDigestFunction) {
    return ffi::Function::FromTyped(
        [self](int device_id) { return ffi::String(self->program_digest(device_id)); });
  }
  if (name == kSaveProgramsFunction) {
    return ffi::Function::FromTyped(
        [self](int device_id) { return self->save_binaries(device_id); });
  }
  if (name == kLoadProgramsFunction) {
    return ffi::Function::FromTyped([self](const ffi::Bytes& bytes, int device_id) {
      self->load_binaries(std::string(bytes.data(), bytes.size()), device_id, true);
    });
  }
  const auto info = functions_.Get(name);
  if (!info.has_value()) return std::nullopt;
  return launcher(name, *info);
}

ffi::Function OpenClModule::launcher(const std::string& name, const FunctionInfo& info) {
  return tvm::runtime::PackFuncVoidAddr(Launcher(ffi::GetObjectPtr<OpenClModule>(this), name, info),
                                        info->arg_types, info->arg_extra_tags);
}

ffi::Bytes OpenClModule::SaveToBytes() const {
  ByteWriter writer;
  writer.Write(format_);
  writer.Write(functions_);
  writer.Write(code_);
  return ffi::Bytes(writer.finish());
}

ffi::String OpenClModule::InspectSource(const ffi::String& format) const {
  if (const auto text = inspected_.Get(format); text.has_value()) return *text;
  if (format.empty() || format == format_) return ffi::String(code_.data(), code_.size());
  return ffi::String();
}

Kernel& OpenClModule::kernel(const std::string& name, int device_id) {
  Device& device = device_at(device_id);
  std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Kernel>& entry = kernels_[{name, device_id}];
  if (entry == nullptr) entry = std::make_unique<Kernel>(device, name, sources_.at(name));
  return *entry;
}

ffi::json::Object OpenClModule::build_all(int device_id) {
  Device& device = device_at(device_id);
  std::vector<std::string> missing;
  ffi::json::Object times_ms;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [name, info] : functions_) {
      times_ms.Set(name, 0.0);
      const auto found = kernels_.find({name, device_id});
      if (found == kernels_.end() || found->second == nullptr) missing.push_back(name);
    }
  }
  std::vector<double> taken_ms(missing.size());
  side_by_side(missing.size(), build_threads(missing.size()), [&](size_t i) {
    const auto start = std::chrono::steady_clock::now();
    auto built = std::make_unique<Kernel>(device, missing[i], sources_.at(missing[i]));
    taken_ms[i] = milliseconds_since(start);
    const std::lock_guard<std::mutex> lock(mutex_);
    // A kernel that is there stays: another thread may be launching it.
    std::unique_ptr<Kernel>& entry = kernels_[{missing[i], device_id}];
    if (entry == nullptr) entry = std::move(built);
  });
  for (size_t i = 0; i < missing.size(); ++i) times_ms.Set(missing[i], taken_ms[i]);
  return times_ms;
}

std::string OpenClModule::program_digest(int device_id) const {
  std::string whole = build_options(device_at(device_id).info());
  for (const auto& [name, info] : functions_) {
    const std::string& source = sources_.at(name);
    whole += "\n" + std::string(name) + " " + std::to_string(source.size()) + "\n" + source;
  }
  return sha256_hex(whole);
}

ffi::Bytes OpenClModule::save_binaries(int device_id) {
  ByteWriter writer;
  writer.Write(std::string(kBinariesMagic));
  const DeviceInfo& info = device_at(device_id).info();
  writer.Write(device_identity(info));
  writer.Write(info.driver);
  writer.Write(static_cast<uint64_t>(functions_.size()));
  for (const auto& [name, function] : functions_) {
    writer.Write(std::string(name));
    writer.Write(source_digest(sources_.at(name)));
    writer.Write(kernel(name, device_id).binary());
  }
  return ffi::Bytes(writer.finish());
}

void OpenClModule::load_binaries(const std::string& bytes, int device_id,
                                 bool driver_may_differ) {
  Device& device = device_at(device_id);
  ByteReader reader("A set of kernel binaries", bytes.data(), bytes.size());
  if (reader.take<std::string>() != kBinariesMagic) {
    TVM_FFI_THROW(ValueError) << "These are not kernel binaries of this runtime's version";
  }
  const auto identity = reader.take<std::string>();
  const auto driver = reader.take<std::string>();
  const bool driver_fits = driver_may_differ || driver == device.info().driver;
  if (identity != device_identity(device.info()) || !driver_fits) {
    TVM_FFI_THROW(ValueError) << "The kernel binaries are for another device or driver:\n"
                              << identity << "\n"
                              << driver << "\nbut this is\n"
                              << device_identity(device.info()) << "\n"
                              << device.info().driver;
  }
  std::map<std::string, std::unique_ptr<Kernel>> loaded;
  const auto count = reader.take<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    const auto name = reader.take<std::string>();
    const auto digest = reader.take<uint64_t>();
    const auto binary = reader.take<std::string>();
    const auto source = sources_.find(name);
    if (source == sources_.end() || source_digest(source->second) != digest) {
      TVM_FFI_THROW(ValueError) << "The binary of kernel " << name
                                << " was made of another source than this module holds";
    }
    loaded[name] = std::make_unique<Kernel>(device, name, Kernel::Binary{binary});
  }
  std::lock_guard<std::mutex> lock(mutex_);
  // A kernel that is there stays: another thread may be launching it.
  for (auto& [name, kernel] : loaded) {
    std::unique_ptr<Kernel>& entry = kernels_[{name, device_id}];
    if (entry == nullptr) entry = std::move(kernel);
  }
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("ffi.Module.create.opencl", create_module)
      .def("ffi.Module.load_from_bytes.opencl", load_module);
}

}  // namespace opencl
}  // namespace adrenoc_runtime
