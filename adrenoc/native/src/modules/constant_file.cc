#include "modules/constant_file.h"

#include <tvm/ffi/error.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/sha256.h"
#include "programs/built_program.h"
#include "programs/program_cache.h"

namespace adrenoc_runtime {
namespace opencl {
namespace {

constexpr const char* kStartConstants = "START_CONSTANTS(";
constexpr const char* kConstantWords = "#ifdef CONSTANT_FILE\n";
constexpr const char* kTrialName = "constant_file_trial";
// Enough for several waves on every processor, each of which copies several times.
constexpr size_t kTrialGroups = 64;
constexpr size_t kTrialThreads = 128;
constexpr size_t kTrialCopies = 4;
constexpr size_t kVectorHalves = 8;  // of a vector that is copied
constexpr size_t kTrialLanes = 4;
constexpr size_t kVectorBytes = kVectorHalves * sizeof(uint16_t);
constexpr std::array<uint16_t, 3> kTrialNumbers = {0xBC00, 0x0000, 0x3C00};  // -1, 0 and 1 as halves

// What one kernel of a text asks of the file.
struct FileShare {
  size_t vectors = 0;  // of a wave
  size_t slots = 0;
  size_t waves = 0;
};

// Of the first kernel that starts so: "START_CONSTANTS(in2_ptr, in1_ptr, 32, 12, 32);".
FileShare read_share(const std::string& source) {
  FileShare share;
  for (size_t at = source.find(kStartConstants); at != source.npos; at = source.find(kStartConstants, at + 1)) {
    if (std::sscanf(source.c_str() + at, "START_CONSTANTS(%*[^,], %*[^,], %zu, %zu, %zu)",
                    &share.vectors, &share.slots, &share.waves) == 3) {
      return share;
    }
  }
  TVM_FFI_THROW(ValueError) << "A kernel asks for the constant file and does not say how much";
  TVM_FFI_UNREACHABLE();
}

// The number that is copied to a place, of those above.
int number_at(size_t place) { return static_cast<int>(place * 7 % 11 % kTrialNumbers.size()) - 1; }
int factor_of(size_t vector) { return vector % 2 == 0 ? 1 : 2; }

// Sums what was copied, each vector by a factor of its own, so that none may stand for another.
std::string trial_text(const std::string& source, const FileShare& share) {
  const size_t start = source.find(kConstantWords);
  const size_t end = source.find("#endif\n", start);
  if (start == source.npos || end == source.npos) {
    TVM_FFI_THROW(ValueError) << "A kernel asks for the constant file and has no words for it";
  }
  const std::string vectors = std::to_string(share.vectors);
  std::string text = std::string(kUseConstantFile) +
                     "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" +
                     source.substr(start, end - start) + "#endif\n";
  text += "#define FILE_BYTES " + std::to_string(share.slots * share.vectors * kVectorBytes) + "\n";
  if (share.slots < share.waves) text += "MOST_WAVES(" + std::to_string(share.slots) + ")\n";
  text += "__kernel void " + std::string(kTrialName) +
          "(COPIED_WEIGHTS weights ALIKE_IN_A_WAVE, CONSTANT_PLACE place IN_THE_FILE, "
          "__global float* sums) {\n"
          "  START_CONSTANTS(place, weights, " +
          vectors + ", " + std::to_string(share.slots) + ", " + std::to_string(share.waves) +
          ");\n"
          "  half4 sum = (half4)((half)0.0f);\n"
          "  for (int i = 0; i < " +
          std::to_string(kTrialCopies) + "; ++i) {\n    const int first = ((int)get_group_id(0) * " +
          std::to_string(kTrialCopies) + " + i) * " + vectors +
          ";\n    COPY_CONSTANTS(place, weights, first, " + vectors + ");\n    AWAIT_CONSTANTS(place, weights);\n";
  for (size_t at = 0; at < share.vectors * kVectorHalves / kTrialLanes; ++at) {
    text += "    sum += CONSTANT(0, " + std::to_string(at) + ") * (half)" +
            std::to_string(factor_of(at)) + ".0f;\n";
  }
  return text + "  }\n  vstore4(convert_float4(sum), get_global_id(0), sums);\n}\n";
}

std::mutex& trials_mutex() {
  static auto* mutex = new std::mutex();
  return *mutex;
}

// Guarded by the mutex.
std::string& trials_folder() {
  static auto* folder = new std::string();
  return *folder;
}

std::unique_ptr<BuiltProgram> built_trial(Device& device, const std::string& text) {
  const DeviceInfo& info = device.info();
  const ProgramKey key{info.platform + "\n" + info.name + "\n" + info.version, info.driver,
                       sha256_hex(build_options(info) + "\n" + text)};
  const ProgramCache cache(trials_folder());
  const bool is_kept = !trials_folder().empty();
  if (is_kept) {
    const FoundPrograms found = cache.find(key, DriverRule::kSame);
    if (found.binaries.has_value()) {
      try {
        return std::make_unique<BuiltProgram>(device, std::vector<std::string>{kTrialName},
                                              BuiltProgram::Binary{*found.binaries});
      } catch (const tvm::ffi::Error&) {  // then it is built
      }
    }
  }
  auto built = std::make_unique<BuiltProgram>(device, std::vector<std::string>{kTrialName},
                                              std::vector<const std::string*>{&text});
  // Only the next start gains by it, so it may fail.
  if (is_kept) (void)cache.store(key, built->binary());
  return built;
}

template <typename T>
MemHandle new_buffer(Device& device, std::vector<T>& content) {
  cl_int code = CL_SUCCESS;
  const size_t bytes = content.size() * sizeof(T);
  MemHandle made(
      api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, &code));
  check(code, "clCreateBuffer");
  return made;
}

// What each thread of each group found, four sums a thread.  A queue of its own: what the device's
// own queue gets may be recorded.
std::vector<float> run_trial(Device& device, const BuiltProgram& program, const FileShare& share) {
  std::vector<uint16_t> weights(kTrialGroups * kTrialCopies * share.vectors * kVectorHalves);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = kTrialNumbers.at(static_cast<size_t>(number_at(i) + 1));
  }
  std::vector<uint16_t> place(share.slots * share.vectors * kVectorHalves);
  std::vector<float> sums(kTrialGroups * kTrialThreads * kTrialLanes);
  const KernelHandle kernel = program.new_kernel(kTrialName);
  const MemHandle held[] = {new_buffer(device, weights), new_buffer(device, place),
                            new_buffer(device, sums)};
  cl_int code = CL_SUCCESS;
  const QueueHandle queue(
      api().clCreateCommandQueue(device.context(), device.id(), 0, &code));
  check(code, "clCreateCommandQueue");
  ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue.get(), held[0].get(), CL_TRUE, 0,
                  weights.size() * sizeof(weights[0]), weights.data(), 0, nullptr, nullptr);
  for (cl_uint i = 0; i < 3; ++i) {
    const cl_mem memory = held[i].get();
    ADRENOC_CL_CALL(clSetKernelArg, kernel.get(), i, sizeof(memory), &memory);
  }
  const size_t global = kTrialGroups * kTrialThreads;
  ADRENOC_CL_CALL(clEnqueueNDRangeKernel, queue.get(), kernel.get(), 1, nullptr, &global,
                  &kTrialThreads, 0, nullptr, nullptr);
  ADRENOC_CL_CALL(clEnqueueReadBuffer, queue.get(), held[2].get(), CL_TRUE, 0,
                  sums.size() * sizeof(sums[0]), sums.data(), 0, nullptr, nullptr);
  return sums;
}

std::string find_wrong(const std::vector<float>& sums, const FileShare& share) {
  size_t wrong = 0;
  for (size_t group = 0; group < kTrialGroups; ++group) {
    std::array<int, kTrialLanes> expected{};
    const size_t numbers = kTrialCopies * share.vectors * kVectorHalves;
    for (size_t i = 0; i < numbers; ++i) {
      const size_t vector = i % (share.vectors * kVectorHalves) / kTrialLanes;
      expected.at(i % kTrialLanes) += number_at(group * numbers + i) * factor_of(vector);
    }
    for (size_t i = 0; i < kTrialThreads * kTrialLanes; ++i) {
      const float sum = sums[group * kTrialThreads * kTrialLanes + i];
      if (sum != static_cast<float>(expected.at(i % kTrialLanes))) ++wrong;
    }
  }
  if (wrong == 0) return "";
  return std::to_string(wrong) + " of " + std::to_string(sums.size()) +
         " sums of a trial are wrong";
}

ConstantFileUse try_constant_file(Device& device, const std::string& source) {
  const char* asked = std::getenv("ADRENOC_CONSTANT_FILE");
  if (asked != nullptr && std::string(asked) == "0") {
    return {false, "ADRENOC_CONSTANT_FILE is 0"};
  }
  if (!device.info().has_extension("cl_khr_fp16")) return {false, "the device has no cl_khr_fp16"};
  try {
    const FileShare share = read_share(source);
    const auto program = built_trial(device, trial_text(source, share));
    const std::string wrong = find_wrong(run_trial(device, *program, share), share);
    return {wrong.empty(), wrong};
  } catch (const tvm::ffi::Error& error) {
    const std::string said = error.message();
    return {false, "the driver does not take its built-ins: " + said.substr(0, said.find('\n'))};
  }
}

}  // namespace

bool asks_for_constant_file(const std::string& source) {
  return source.find(kStartConstants) != source.npos;
}

ConstantFileUse constant_file_use(Device& device, const std::string& source) {
  static auto* known = new std::map<const Device*, ConstantFileUse>();
  const std::lock_guard<std::mutex> lock(trials_mutex());
  const auto found = known->find(&device);
  if (found != known->end()) return found->second;
  return known->emplace(&device, try_constant_file(device, source)).first->second;
}

void keep_trials_in(const std::string& folder) {
  const std::lock_guard<std::mutex> lock(trials_mutex());
  trials_folder() = folder;
}

}  // namespace opencl
}  // namespace adrenoc_runtime
