#include "modules/module.h"

#include <sys/stat.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/cast.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "base/stopwatch.h"
#include "base/threads.h"
#include "base/typed_function.h"
#include "files/byte_stream.h"
#include "launch/cancelling.h"
#include "launch/kernel.h"
#include "modules/built_ins.h"
#include "opencl/device.h"
#include "programs/built_program.h"
#include "programs/kernel_text.h"
#include "runtime/metadata.h"
#include "runtime/pack_args.h"
#include "runtime/thread_storage_scope.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;

// What systems tell mapped files apart by.
using FileIdentity = std::pair<dev_t, ino_t>;
using Loaded = std::map<FileIdentity, ffi::WeakObjectPtr<ffi::ModuleObj>>;

using tvm::runtime::FunctionInfo;
using FunctionMap = ffi::Map<ffi::String, FunctionInfo>;

constexpr const char* kBinariesMagic = "adrenoc-opencl-binaries-3";

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
  for (const char c : source) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return digest;
}

// A binary is valid for one device, and as a rule with one driver only.
std::string device_identity(const DeviceInfo& info) { return info.name + "\n" + info.version; }

// Calls a kernel with the arguments that TVM's host code passes: the kernel's own, then the
// extents of the thread axes.
class Launcher {
 public:
  // `find` gives the module's kernel for a device.
  Launcher(std::function<Kernel&(int device_id)> find, std::string name, const FunctionInfo& info)
      : find_(std::move(find)), name_(std::move(name)), sizes_(argument_sizes(info)) {
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
        const void* data = *static_cast<void* const*>(values[i]);
        if (data == nullptr) {
          TVM_FFI_THROW(ValueError) << "Argument " << i << " of kernel " << name_ << " is null";
        }
        arguments[i] = {sizes_[i], nullptr, &static_cast<const Descriptor*>(data)->storage()};
      } else {
        arguments[i] = {sizes_[i], values[i], nullptr};
      }
    }
    kernel(current_device_id()).launch(work, arguments);
  }

 private:
  // The module's kernel, which stays once it is there, so it is looked up once a device.
  Kernel& kernel(int device_id) const {
    const auto place = static_cast<size_t>(device_id);
    if (device_id < 0 || place >= found_->size()) return find_(device_id);
    Kernel* found = (*found_)[place].load(std::memory_order_acquire);
    if (found == nullptr) {
      found = &find_(device_id);
      (*found_)[place].store(found, std::memory_order_release);
    }
    return *found;
  }

  std::function<Kernel&(int device_id)> find_;
  std::string name_;
  // By device; shared by the copies that TVM makes of a launcher.
  std::shared_ptr<std::array<std::atomic<Kernel*>, 8>> found_ =
      std::make_shared<std::array<std::atomic<Kernel*>, 8>>();
  std::vector<size_t> sizes_;
  std::vector<char> is_memory_;
  tvm::runtime::LaunchParamConfig axes_;
};

class OpenClModule final : public ffi::ModuleObj {
 public:
  // `format` must be "cl" (OpenCL C).  `inspected` maps a format's name to text for people.
  // Throws ValueError for another format and for a function without source.
  OpenClModule(ffi::Bytes source, ffi::String format, FunctionMap functions,
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
      KernelText& text = texts_[name] = read_kernel_text(name, sources_.at(name));
      if (!has_own_text(sources_, text.program)) {
        TVM_FFI_THROW(ValueError) << "Kernel " << std::string(name) << " runs the program of "
                                  << text.program << ", which the OpenCL source does not have";
      }
      text.images = read_image_arguments(text.program, sources_.at(text.program));
    }
  }

  [[nodiscard]] const char* kind() const final { return "opencl"; }
  [[nodiscard]] int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }
  [[nodiscard]] ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    auto self = ffi::GetObjectPtr<OpenClModule>(this);
    FunctionNamed named(name);
    named.typed(kBuildAllFunction, [self](int device_id) { return self->build_all(device_id); })
        .typed(kProgramDigestFunction,
               [self](int device_id) { return self->program_digest(device_id); })
        .typed(kBuiltInsFunction, [self](int device_id) { return self->built_ins(device_id); })
        .typed(kSaveProgramsFunction,
               [self](int device_id) { return self->save_binaries(device_id); })
        .typed(kLoadProgramsFunction,
               [self](const ffi::Bytes& bytes, int device_id) {
                 self->load_binaries(bytes, device_id, true);
               })
        .typed(kSaveBinariesFunction, [self] { return self->save_binaries(current_device_id()); })
        .typed(kLoadBinariesFunction, [self](const ffi::Bytes& bytes) {
          self->load_binaries(bytes, current_device_id(), false);
        });
    if (named.found.has_value()) return named.found;
    const auto info = functions_.Get(name);
    if (!info.has_value()) return std::nullopt;
    return tvm::runtime::PackFuncVoidAddr(
        Launcher([self, kernel = std::string(name)](
                     int device_id) -> Kernel& { return self->kernel(kernel, device_id); },
                 name, *info),
        (*info)->arg_types, (*info)->arg_extra_tags);
  }

  [[nodiscard]] ffi::Bytes SaveToBytes() const final {
    ByteWriter writer;
    writer.Write(format_);
    writer.Write(functions_);
    writer.Write(code_);
    return ffi::Bytes(writer.finish());
  }

  [[nodiscard]] ffi::String InspectSource(const ffi::String& format) const final {
    if (const auto text = inspected_.Get(format); text.has_value()) return *text;
    if (format.empty() || format == format_) return ffi::String(code_.data(), code_.size());
    return ffi::String();
  }

  // The kernel built for a device, from the cache or now.
  [[nodiscard]] Kernel& kernel(const std::string& name, int device_id) {
    const auto find = [&]() -> Kernel* {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = kernels_.find({name, device_id});
      return found == kernels_.end() ? nullptr : found->second.get();
    };
    if (Kernel* found = find()) return *found;
    build_together({texts_.at(name).program}, device_id);
    return *find();
  }

  // Builds every kernel, on several threads: drivers compile one program on one.  Returns how many
  // ms each took, an equal part of its program's, and 0 for those that were there or run the
  // text of another.
  [[nodiscard]] ffi::json::Object build_all(int device_id) {
    ffi::json::Object times_ms;
    std::vector<std::string> missing;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::set<std::string> wanted;
      for (const auto& [name, text] : texts_) {
        times_ms.Set(name, 0.0);
        if (programs_.count({text.program, device_id}) == 0) wanted.insert(text.program);
      }
      missing.assign(wanted.begin(), wanted.end());
    }
    std::vector<size_t> sizes;
    for (const std::string& name : missing) sizes.push_back(sources_.at(name).size());
    const size_t threads = build_threads(missing.size());
    const auto programs = programs_of_texts(sizes, threads);
    std::vector<double> taken_ms(missing.size());
    const auto build = [&](const std::vector<size_t>& together) {
      std::vector<std::string> names;
      for (const size_t i : together) names.push_back(missing[i]);
      const Stopwatch watch;
      build_together(names, device_id);
      const double each_ms = watch.ms() / static_cast<double>(together.size());
      for (const size_t i : together) taken_ms[i] = each_ms;
    };
    const Cancelling* const cancelling = CancellingScope::current();
    side_by_side(programs.size(), threads, [&](size_t i) {
      const CancellingScope scope(cancelling);
      end_if_cancelled();
      try {
        build(programs[i]);
      } catch (const ffi::Error&) {
        if (programs[i].size() == 1) throw;
        // What fails together is built one by one, so that the right kernel is blamed.
        for (const size_t one : programs[i]) build({one});
      }
    });
    for (size_t i = 0; i < missing.size(); ++i) times_ms.Set(missing[i], taken_ms[i]);
    return times_ms;
  }

  // SHA-256 of all sources with the options that they are built with: what binaries depend on,
  // beside device and driver.
  [[nodiscard]] std::string program_digest(int device_id) const {
    std::string whole = build_options(device_at(device_id).info()) + program_head(device_id);
    for (const auto& [name, info] : functions_) {
      const std::string& source = sources_.at(name);
      whole += "\n" + std::string(name) + " " + std::to_string(source.size()) + "\n" + source;
    }
    return sha256_hex(whole);
  }

  // What becomes of built-ins that kernels are written for and drivers do not tell of, as a
  // sentence; "" where there are none.
  [[nodiscard]] std::string built_ins(int device_id) const {
    return to_text(built_in_uses(device_at(device_id), sources_));
  }

  // All kernels in the form that the device runs, building what is not built yet.
  [[nodiscard]] ffi::Bytes save_binaries(int device_id) {
    (void)build_all(device_id);
    std::vector<std::shared_ptr<const BuiltProgram>> programs;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::set<const BuiltProgram*> known;
      for (const auto& [key, program] : programs_) {
        if (key.second == device_id && known.insert(program.get()).second) {
          programs.push_back(program);
        }
      }
    }
    ByteWriter writer;
    writer.Write(std::string(kBinariesMagic));
    const DeviceInfo& info = device_at(device_id).info();
    writer.Write(device_identity(info) + program_head(device_id));
    writer.Write(info.driver);
    writer.Write(static_cast<uint64_t>(programs.size()));
    for (const auto& program : programs) {
      writer.Write(static_cast<uint64_t>(program->names().size()));
      for (const std::string& name : program->names()) {
        writer.Write(name);
        writer.Write(source_digest(sources_.at(name)));
      }
      writer.Write(program->binary());
    }
    return ffi::Bytes(writer.finish());
  }

  // Takes what save_binaries gave.  Throws ValueError when that was for another device or source,
  // or for another driver unless `driver_may_differ`; the module is then unchanged and still works
  // from source.
  void load_binaries(const std::string& bytes, int device_id, bool driver_may_differ) {
    Device& device = device_at(device_id);
    ByteReader reader("A set of kernel binaries", bytes.data(), bytes.size());
    if (reader.take<std::string>() != kBinariesMagic) {
      TVM_FFI_THROW(ValueError) << "These are not kernel binaries of this runtime's version";
    }
    const auto identity = reader.take<std::string>();
    const auto driver = reader.take<std::string>();
    const bool driver_fits = driver_may_differ || driver == device.info().driver;
    const std::string own = device_identity(device.info()) + program_head(device_id);
    if (identity != own || !driver_fits) {
      TVM_FFI_THROW(ValueError) << "The kernel binaries are for another device or driver:\n"
                                << identity << "\n"
                                << driver << "\nbut this is\n"
                                << own << "\n"
                                << device.info().driver;
    }
    std::vector<std::pair<std::shared_ptr<const BuiltProgram>, Kernels>> loaded;
    const auto count = reader.take<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      std::vector<std::string> names;
      const auto kernels = reader.take<uint64_t>();
      for (uint64_t k = 0; k < kernels; ++k) {
        names.push_back(reader.take<std::string>());
        const auto digest = reader.take<uint64_t>();
        const auto source = sources_.find(names.back());
        if (source == sources_.end() || source_digest(source->second) != digest) {
          TVM_FFI_THROW(ValueError) << "The binary of kernel " << names.back()
                                    << " was made of another source than this module holds";
        }
      }
      const auto binary = reader.take<std::string>();
      if (names.empty()) TVM_FFI_THROW(ValueError) << "A kernel binary is of no kernel";
      const auto program = std::make_shared<const BuiltProgram>(device, std::move(names),
                                                                BuiltProgram::Binary{binary});
      loaded.emplace_back(program, kernels_of(program, device_id));
    }
    for (auto& [program, kernels] : loaded) keep(program, std::move(kernels), device_id);
  }

 private:
  using Programs = std::map<std::pair<std::string, int>, std::shared_ptr<const BuiltProgram>>;
  using Kernels = std::map<std::string, std::unique_ptr<Kernel>>;

  // The kernels of this module that run what `program` holds.
  [[nodiscard]] Kernels kernels_of(const std::shared_ptr<const BuiltProgram>& program,
                                   int device_id) const {
    Kernels kernels;
    const std::vector<std::string>& names = program->names();
    for (const auto& [name, text] : texts_) {
      if (std::find(names.begin(), names.end(), text.program) == names.end()) continue;
      const size_t arguments = functions_.at(name)->arg_types.size();
      kernels[name] =
          std::make_unique<Kernel>(device_at(device_id), name, program, text, arguments);
    }
    return kernels;
  }

  // What all programs of the module begin with on a device.
  [[nodiscard]] std::string program_head(int device_id) const {
    std::string head;
    for (const BuiltInUse& use : built_in_uses(device_at(device_id), sources_)) {
      if (use.reason.empty()) head += use.define;
    }
    return head;
  }

  // Builds the texts of `names` as one program, and their kernels.
  void build_together(const std::vector<std::string>& names, int device_id) {
    std::vector<const std::string*> texts;
    const std::string head = program_head(device_id);
    if (!head.empty()) texts.push_back(&head);
    for (const std::string& name : names) texts.push_back(&sources_.at(name));
    const auto program =
        std::make_shared<const BuiltProgram>(device_at(device_id), names, std::move(texts));
    keep(program, kernels_of(program, device_id), device_id);
  }

  // What is there stays: another thread may be launching it.
  void keep(const std::shared_ptr<const BuiltProgram>& program, Kernels kernels, int device_id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::string& name : program->names()) {
      programs_.try_emplace({name, device_id}, program);
    }
    for (auto& [name, kernel] : kernels) kernels_.try_emplace({name, device_id}, std::move(kernel));
  }

  const ffi::Bytes code_;
  const ffi::String format_;
  const FunctionMap functions_;
  const ffi::Map<ffi::String, ffi::String> inspected_;
  const std::map<std::string, std::string> sources_;
  std::map<std::string, KernelText> texts_;  // of functions_
  std::mutex mutex_;
  Programs programs_;
  std::map<std::pair<std::string, int>, std::unique_ptr<Kernel>> kernels_;
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

ffi::Module open_library(const std::string& path) {
  static std::mutex mutex;
  // Never destroyed: modules may outlive what is static.
  static auto* const loaded = new Loaded();
  const std::lock_guard<std::mutex> lock(mutex);
  struct stat status{};
  // Of what is not there the loader says so.
  const bool is_there = stat(path.c_str(), &status) == 0;
  const FileIdentity identity{status.st_dev, status.st_ino};
  const auto known = loaded->find(identity);
  if (is_there && known != loaded->end()) {
    if (auto module = known->second.lock(); module != nullptr) return ffi::Module(module);
    loaded->erase(known);
  }
  // Named, because Module::LoadFromFile goes by the path's ending.
  const auto open = ffi::Function::GetGlobalRequired("ffi.Module.load_from_file.so");
  auto module = open(ffi::String(path), ffi::String("so")).cast<ffi::Module>();
  if (is_there) {
    loaded->emplace(identity,
                    ffi::details::ObjectUnsafe::ObjectPtrFromObjectRef<ffi::ModuleObj>(module));
  }
  return module;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  // The pointer of adrenoc/native/android/link.py, filled in like those that TVM's code brings.
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvModRegisterContextSymbol(
      "__TVMFFIErrorSetRaisedFromCStrParts",
      reinterpret_cast<void*>(TVMFFIErrorSetRaisedFromCStrParts)));
  publish("adrenoc.load_library", open_library);
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
TVM_FFI_STATIC_INIT_BLOCK() {
  publish("ffi.Module.create.opencl", create_module);
  publish("ffi.Module.load_from_bytes.opencl", load_module);
}

}  // namespace adrenoc_runtime::opencl
