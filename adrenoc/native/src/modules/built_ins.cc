#include "modules/built_ins.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "base/sha256.h"
#include "programs/built_program.h"
#include "programs/program_cache.h"

namespace adrenoc_runtime::opencl {
namespace {

struct BuiltIn {
  const char* name;
  const char* start;
  const char* define;
  BuiltInTrial (*trial)(const std::string& source);
};

constexpr BuiltIn kBuiltIns[] = {
    {"the constant file", kStartConstants, "#define CONSTANT_FILE\n", constant_file_trial},
    {"matrix units", kStartMatrices, "#define MATRIX_UNITS\n", matrix_units_trial},
};

struct KnownTrials {
  std::mutex mutex;
  std::string folder;
  std::map<std::pair<const Device*, const BuiltIn*>, std::string> reasons;
};

KnownTrials& known_trials() {
  static auto* known = new KnownTrials();
  return *known;
}

std::unique_ptr<BuiltProgram> built_trial(Device& device, const std::string& text,
                                          const std::string& folder) {
  const DeviceInfo& info = device.info();
  const ProgramKey key{info.key(), info.driver, sha256_hex(build_options(info) + "\n" + text)};
  const ProgramCache cache(folder);
  const FoundPrograms found = folder.empty() ? FoundPrograms{} : cache.find(key, DriverRule::kSame);
  if (found.binaries.has_value()) {
    try {
      return std::make_unique<BuiltProgram>(device, std::vector<std::string>{kTrialName},
                                            BuiltProgram::Binary{*found.binaries});
    } catch (const tvm::ffi::Error&) {  // then it is built
    }
  }
  auto built = std::make_unique<BuiltProgram>(device, std::vector<std::string>{kTrialName},
                                              std::vector<const std::string*>{&text});
  // Only the next start gains by it, so it may fail.
  if (!folder.empty()) (void)cache.store(key, built->binary());
  return built;
}

MemHandle new_buffer(Device& device, size_t bytes) {
  cl_int code = CL_SUCCESS;
  MemHandle made(api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, &code));
  check(code, "clCreateBuffer");
  return made;
}

// A queue of its own: what the device's own queue gets may be recorded.
std::vector<float> run_trial(Device& device, const BuiltProgram& program,
                             const BuiltInTrial& trial) {
  std::vector<float> sums(trial.expected.size());
  const size_t bytes[] = {trial.weights.size() * sizeof(uint16_t),
                          trial.place.size() * sizeof(uint16_t), sums.size() * sizeof(float)};
  const KernelHandle kernel = program.new_kernel(kTrialName);
  cl_int code = CL_SUCCESS;
  const QueueHandle queue(api().clCreateCommandQueue(device.context(), device.id(), 0, &code));
  check(code, "clCreateCommandQueue");
  std::vector<MemHandle> held;
  for (cl_uint i = 0; i < 3; ++i) {
    held.push_back(new_buffer(device, bytes[i]));
    const cl_mem memory = held.back().get();
    ADRENOC_CL_CALL(clSetKernelArg, kernel.get(), i, sizeof(memory), &memory);
  }
  const auto write = [&](size_t i, const std::vector<uint16_t>& halves) {
    ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue.get(), held[i].get(), CL_TRUE, 0, bytes[i],
                    halves.data(), 0, nullptr, nullptr);
  };
  write(0, trial.weights);
  write(1, trial.place);
  const size_t global = trial.groups * kTrialThreads;
  ADRENOC_CL_CALL(clEnqueueNDRangeKernel, queue.get(), kernel.get(), 1, nullptr, &global,
                  &kTrialThreads, 0, nullptr, nullptr);
  ADRENOC_CL_CALL(clEnqueueReadBuffer, queue.get(), held[2].get(), CL_TRUE, 0, bytes[2],
                  sums.data(), 0, nullptr, nullptr);
  return sums;
}

// Why kernels have to do without; "" where they need not.
std::string try_built_in(Device& device, const BuiltIn& one, const std::string& source,
                         const std::string& folder) {
  const char* asked = std::getenv("ADRENOC_BUILT_INS");
  if (asked != nullptr && std::string(asked) == "0") return "ADRENOC_BUILT_INS is 0";
  if (!device.info().has_extension("cl_khr_fp16")) return "the device has no cl_khr_fp16";
  try {
    const BuiltInTrial trial = one.trial(source);
    const auto program = built_trial(device, one.define + trial.text, folder);
    const std::vector<float> sums = run_trial(device, *program, trial);
    size_t wrong = 0;
    // What is not a number is none that is expected.
    for (size_t i = 0; i < sums.size(); ++i) wrong += sums[i] == trial.expected[i] ? 0 : 1;
    if (wrong == 0) return "";
    return std::to_string(wrong) + " of " + std::to_string(sums.size()) +
           " sums of a trial are wrong";
  } catch (const tvm::ffi::Error& error) {
    const std::string said = error.message();
    return "the driver does not take its built-ins: " + said.substr(0, said.find('\n'));
  }
}

}  // namespace

std::vector<BuiltInUse> built_in_uses(Device& device,
                                      const std::map<std::string, std::string>& sources) {
  std::vector<BuiltInUse> uses;
  for (const BuiltIn& one : kBuiltIns) {
    const auto asking = std::find_if(sources.begin(), sources.end(), [&](const auto& source) {
      return source.second.find(one.start) != std::string::npos;
    });
    if (asking == sources.end()) continue;
    KnownTrials& known = known_trials();
    const std::lock_guard<std::mutex> lock(known.mutex);
    const std::pair<const Device*, const BuiltIn*> key(&device, &one);
    if (known.reasons.count(key) == 0) {
      known.reasons[key] = try_built_in(device, one, asking->second, known.folder);
    }
    uses.push_back({one.name, one.define, known.reasons.at(key)});
  }
  return uses;
}

std::string to_text(const std::vector<BuiltInUse>& uses) {
  std::string text;
  for (const BuiltInUse& use : uses) {
    text += (text.empty() ? "" : "; ") + use.name + ": ";
    text += use.reason.empty() ? "used, its trial was right" : "not used, " + use.reason;
  }
  return text;
}

void keep_trials_in(const std::string& folder) {
  KnownTrials& known = known_trials();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.folder = folder;
}

}  // namespace adrenoc_runtime::opencl
