// What GPUs can do by words that no extension list names, or that drivers get wrong: whether
// kernels may use it, a trial on the device tells.
#pragma once

#include <tvm/ffi/error.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "opencl/device.h"
#include "programs/built_program.h"
#include "programs/program_cache.h"

namespace adrenoc_runtime::opencl {

// What became of one that kernels are written for.
struct BuiltInUse {
  std::string name;    // "the constant file"
  std::string define;  // what programs begin with where it is used
  std::string reason;  // why it is not used; "" where it is
};

// The kernel of a trial: its weights and `place` are halves, what it sums are floats, which are
// whole numbers that halves hold.
struct BuiltInTrial {
  std::string text;
  std::vector<uint16_t> weights;
  std::vector<uint16_t> place;
  std::vector<float> expected;
  size_t groups = 0;
};

struct BuiltIn {
  const char* name;
  const char* start;
  const char* define;
  BuiltInTrial (*trial)(const std::string& source);
};

// Texts that begin with these may use the constant file, or matrix units.
constexpr const char* kStartConstants = "START_CONSTANTS(";
constexpr const char* kStartMatrices = "START_MATRICES(";

constexpr size_t kTrialThreads = 128;  // of a work-group

constexpr size_t kTrialGroups = 64;  // enough for several waves on every processor
constexpr size_t kVectorHalves = 8;  // of a vector that is copied to the constant file
constexpr size_t kTrialLanes = 4;
constexpr size_t kFileCopies = 4;  // of a wave, one after the other
constexpr std::array<uint16_t, 3> kSmallHalves = {0xBC00, 0x0000, 0x3C00};  // -1, 0 and 1

// The number at a place of what a trial reads, of those above.
inline int trial_number(size_t place) {
  return static_cast<int>(place * 7 % 11 % kSmallHalves.size()) - 1;
}

inline std::vector<uint16_t> trial_halves(size_t count) {
  std::vector<uint16_t> halves(count);
  for (size_t i = 0; i < count; ++i) {
    halves[i] = kSmallHalves.at(static_cast<size_t>(trial_number(i) + 1));
  }
  return halves;
}

// The section of `prelude.cl` in a kernel's text that begins so.
inline std::string words_of(const std::string& source, const std::string& begin) {
  const size_t start = source.find(begin);
  const size_t end = source.find("#endif\n", start);
  if (start == source.npos || end == source.npos) {
    TVM_FFI_THROW(ValueError) << "A kernel asks for built-ins and has no words for them";
  }
  return "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" + source.substr(start, end - start) +
         "#endif\n";
}

constexpr const char* kTrialName = "trial";

inline std::string kernel_head(const std::string& weights, const std::string& place) {
  return "__kernel void " + std::string(kTrialName) + "(" + weights + ", " + place +
         ", __global float* sums) {\n";
}

// What one kernel of a text takes of the constant file.
struct FileShare {
  size_t vectors = 0;  // of a wave
  size_t slots = 0;
  size_t waves = 0;
};

// Of the first kernel that starts so: "START_CONSTANTS(in2_ptr, in1_ptr, 32, 12, 32);".
inline FileShare read_share(const std::string& source) {
  FileShare share;
  const std::string start = kStartConstants;
  for (size_t at = source.find(start); at != source.npos; at = source.find(start, at + 1)) {
    if (std::sscanf(source.c_str() + at, "START_CONSTANTS(%*[^,], %*[^,], %zu, %zu, %zu)",
                    &share.vectors, &share.slots, &share.waves) == 3) {
      return share;
    }
  }
  TVM_FFI_THROW(ValueError) << "A kernel asks for the constant file and does not say how much";
  TVM_FFI_UNREACHABLE();
}

// Each vector counts by a factor of its own, so that none may stand for another.
inline int factor_of(size_t vector) { return vector % 2 == 0 ? 1 : 2; }

[[nodiscard]] inline BuiltInTrial constant_file_trial(const std::string& source) {
  const FileShare share = read_share(source);
  const size_t step = share.vectors * kVectorHalves;
  const std::string vectors = std::to_string(share.vectors);
  const std::string copies = std::to_string(kFileCopies);
  BuiltInTrial trial;
  trial.groups = kTrialGroups;
  trial.weights = trial_halves(kTrialGroups * kFileCopies * step);
  trial.place.resize(share.slots * step);
  std::string& text = trial.text = words_of(source, "#ifdef CONSTANT_FILE\n");
  text += "#define FILE_BYTES " + std::to_string(trial.place.size() * sizeof(uint16_t)) + "\n";
  if (share.slots < share.waves) text += "MOST_WAVES(" + std::to_string(share.slots) + ")\n";
  text +=
      kernel_head("COPIED_WEIGHTS weights ALIKE_IN_A_WAVE", "CONSTANT_PLACE place IN_THE_FILE") +
      "  START_CONSTANTS(place, weights, " + vectors + ", " + std::to_string(share.slots) + ", " +
      std::to_string(share.waves) + ");\n" +
      "  half4 sum = (half4)((half)0.0f);\n  for (int i = 0; i < " + copies +
      "; ++i) {\n    const int first = ((int)get_group_id(0) * " + copies + " + i) * " + vectors +
      ";\n    COPY_CONSTANTS(place, weights, first, " + vectors +
      ");\n    AWAIT_CONSTANTS(place, weights);\n";
  for (size_t at = 0; at < step / kTrialLanes; ++at) {
    text += "    sum += CONSTANT(0, " + std::to_string(at) + ") * (half)" +
            std::to_string(factor_of(at)) + ".0f;\n";
  }
  text += "  }\n  vstore4(convert_float4(sum), get_global_id(0), sums);\n}\n";
  for (size_t group = 0; group < kTrialGroups; ++group) {
    std::array<int, kTrialLanes> sums{};
    for (size_t i = 0; i < kFileCopies * step; ++i) {
      const int number = trial_number(group * kFileCopies * step + i);
      sums.at(i % kTrialLanes) += number * factor_of(i % step / kTrialLanes);
    }
    for (size_t i = 0; i < kTrialThreads * kTrialLanes; ++i) {
      trial.expected.push_back(static_cast<float>(sums.at(i % kTrialLanes)));
    }
  }
  return trial;
}

constexpr size_t kTileSide = 16;  // of a tile
constexpr size_t kTileSteps = 3;  // of tiles that are multiplied and added up

// Each work-group makes one tile, of tiles of weights of its own.
[[nodiscard]] inline BuiltInTrial matrix_units_trial(const std::string& source) {
  constexpr size_t kTile = kTileSide * kTileSide;
  constexpr size_t kVectors = kTile / kTrialLanes;
  BuiltInTrial trial;
  trial.groups = kTrialGroups;
  trial.weights = trial_halves(kTrialGroups * kTileSteps * kTile);
  trial.place = trial_halves(kTileSteps * kTile);
  const std::string side = std::to_string(kTileSide);
  const std::string tile = std::to_string(kTile);
  const std::string vectors = std::to_string(kVectors);
  const std::string threads = std::to_string(kTrialThreads);
  const std::string steps = std::to_string(kTileSteps);
  const std::string barrier = "barrier(CLK_LOCAL_MEM_FENCE);\n";
  trial.text = words_of(source, "#define SIDE ") +
               kernel_head("__global const half* weights", "__global const half* place") +
               "  __local half4 left[" + vectors + "];\n  __local float4 made[" + vectors +
               "];\n  const int thread = get_local_id(0);\n  START_MATRICES(thread, " + threads +
               ");\n  NEW_SUM(0, " + threads + ");\n  for (int i = 0; i < " + steps +
               "; ++i) {\n    " + barrier + "    if (thread < " + vectors +
               ") left[thread] = vload4(i * " + vectors + " + thread, place);\n    " + barrier +
               "    LOAD_RIGHT(0, weights, ((int)get_group_id(0) * " + steps + " + i) * " + tile +
               ", " + side + ");\n    LOAD_LEFT(0, left, 0, " + side +
               ");\n    ADD_PRODUCT(0, 0, 0);\n  }\n  STORE_SUM(0, made, 0, " + side + ");\n  " +
               barrier + "  if (thread < " + vectors +
               ") vstore4(made[thread], get_group_id(0) * " + vectors + " + thread, sums);\n}\n";
  for (size_t group = 0; group < kTrialGroups; ++group) {
    for (size_t element = 0; element < kTile; ++element) {
      int sum = 0;
      for (size_t term = 0; term < kTileSteps * kTileSide; ++term) {
        const size_t step = term / kTileSide;
        const size_t of_step = term % kTileSide;
        const size_t right =
            (group * kTileSteps + step) * kTile + of_step * kTileSide + element % kTileSide;
        sum += trial_number(step * kTile + element / kTileSide * kTileSide + of_step) *
               trial_number(right);
      }
      trial.expected.push_back(static_cast<float>(sum));
    }
  }
  return trial;
}

constexpr BuiltIn kBuiltIns[] = {
    {"the constant file", kStartConstants, "#define CONSTANT_FILE\n", constant_file_trial},
    {"matrix units", kStartMatrices, "#define MATRIX_UNITS\n", matrix_units_trial},
};

struct KnownTrials {
  std::mutex mutex;
  std::string folder;
  std::map<std::pair<const Device*, const BuiltIn*>, std::string> reasons;
};

inline KnownTrials& known_trials() {
  static auto* known = new KnownTrials();
  return *known;
}

inline std::unique_ptr<BuiltProgram> built_trial(Device& device, const std::string& text,
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

// A queue of its own: what the device's own queue gets may be recorded.
inline std::vector<float> run_trial(Device& device, const BuiltProgram& program,
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
    held.push_back(new_buffer(device.context(), bytes[i]));
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
inline std::string try_built_in(Device& device, const BuiltIn& one, const std::string& source,
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

// Of those that the texts of kernels ask for.  The trial of each, by a kernel with the words of the
// first text that asks for it, is made once a process; ADRENOC_BUILT_INS=0 forgoes all.
[[nodiscard]] inline std::vector<BuiltInUse> built_in_uses(
    Device& device, const std::map<std::string, std::string>& sources) {
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

// "the constant file: used; matrix units: ...".
[[nodiscard]] inline std::string to_text(const std::vector<BuiltInUse>& uses) {
  std::string text;
  for (const BuiltInUse& use : uses) {
    text += (text.empty() ? "" : "; ") + use.name + ": ";
    text += use.reason.empty() ? "used, its trial was right" : "not used, " + use.reason;
  }
  return text;
}

// Keeps what trials build in a folder, so that a later process compiles nothing for them.
inline void keep_trials_in(const std::string& folder) {
  KnownTrials& known = known_trials();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.folder = folder;
}

}  // namespace adrenoc_runtime::opencl
