#include "generate/sampler.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace adrenoc_runtime::opencl {
namespace {

// The OpenCL C of the kernels that pick tokens.
//
// Drawing needs no sum over all probabilities: each token has a random time, exponential with its
// weight as the rate, and the earliest wins (in logarithms, so that nothing overflows).  What top-k
// and top-p leave is found digit by digit: of the logits as integers of the same order, the highest
// eight bits of the least one that stays, then the next eight.  Weights are summed up as integers,
// so neither the order of work-items nor their number changes a result.

// Macros before it: PICKED, TOKEN.
constexpr const char* kFeedText = R"(
kernel void adrenoc_feed(global const PICKED* picked, global TOKEN* ids, global int* past) {
  ids[0] = (TOKEN)picked[0];
  past[0] += 1;
}
)";

// `how` of those below: 1 / temperature, top_k, top_p in 65536ths, the seed in two words, how far
// below the largest a logit may be; 1 / repetition_penalty and repetition_penalty, those of
// presence and of frequency, and how many tokens there were before those that are made.
//
// Macros before it: LOGIT, HALVES.
constexpr const char* kLogitText = R"(
float logit_at(global const LOGIT* logits, uint i) {
#if HALVES
  const float x = vload_half(i, logits);
#else
  const float x = logits[i];
#endif
  return isnan(x) ? -INFINITY : x;
}
)";

// A work-item for each token.  The step's own token is counted first, by its work-item.
// Macros before it: TOKEN; kLogitText.
constexpr const char* kChangeText = R"(
kernel void adrenoc_change(global const LOGIT* logits, global const float* bias, global uint* seen,
                           global const uint* allowed, global const uint* how,
                           global const TOKEN* ids, global const int* past, global float* changed,
                           uint count) {
  const uint i = get_global_id(0);
  if (i >= count) return;
  uint times = seen[i];
  if ((uint)ids[0] == i) {
    times = past[0] > (int)how[10] ? times + 1 : times | 0x80000000u;
    seen[i] = times;
  }
  float x = logit_at(logits, i) + bias[i];
  if (times != 0) x *= as_float(how[x > 0.0f ? 6 : 7]);
  const float made = (float)(times & 0x7fffffffu);
  if (made > 0.0f) x -= made * as_float(how[9]) + as_float(how[8]);
  changed[i] = ((allowed[i >> 5] >> (i & 31)) & 1) != 0 ? x : -INFINITY;
}
)";

// Macros before it: TOKEN, W (work-items, a power of two from 16 on); kLogitText.
constexpr const char* kPickText = R"(
// Integers in the order of the floats.
uint key_of(float x) {
  const uint bits = as_uint(x);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// The finaliser of MurmurHash3.
uint mixed(uint x) {
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  return x ^ (x >> 16);
}

// The logarithm of a token's weight; the largest is 0.
float log_weight(float x, float largest, float inverse) {
  return x == largest ? 0.0f : (x - largest) * inverse;
}

// The key of the last token that stays when, from the likeliest on, `share` tokens are kept, or
// (by_mass) as many as have share / 65536 of the weight.
uint least_key(global const LOGIT* logits, uint count, float largest, float inverse, uint floor_key,
               int by_mass, uint share, local uint* high, local uint* low, local ulong* sums,
               local ulong* state) {
  const uint lane = get_local_id(0);
  uint prefix = 0;
  ulong left = share;
  for (uint shift = 32; shift != 0;) {
    shift -= 8;
    for (uint i = lane; i < 256; i += W) high[i] = low[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    // Neighbours often have the same digit: their weights are added up first.
    uint digit = 0, run_high = 0, run_low = 0;
    for (uint i = lane; i < count; i += W) {
      const float x = logit_at(logits, i);
      const uint key = key_of(x);
      if (key < floor_key || (shift != 24 && (key >> (shift + 8)) != prefix)) continue;
      const uint now = (key >> shift) & 255;
      if (now != digit) {
        if (run_high != 0) atomic_add(&high[digit], run_high);
        if (run_low != 0) atomic_add(&low[digit], run_low);
        digit = now;
        run_high = run_low = 0;
      }
      const uint weight =
          by_mass ? (uint)(exp(log_weight(x, largest, inverse)) * 16777216.0f) : 1;
      run_high += weight >> 12;
      run_low += weight & 4095;
    }
    if (run_high != 0) atomic_add(&high[digit], run_high);
    if (run_low != 0) atomic_add(&low[digit], run_low);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < 16) {
      ulong sum = 0;
      for (uint i = lane * 16; i < lane * 16 + 16; ++i) sum += ((ulong)high[i] << 12) + low[i];
      sums[lane] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0) {
      if (by_mass && shift == 24) {
        ulong total = 0;
        for (uint part = 0; part < 16; ++part) total += sums[part];
        left = max((total * share) >> 16, (ulong)1);
      }
      uint part = 15;
      for (; part != 0 && sums[part] < left; --part) left -= sums[part];
      uint bin = part * 16 + 15;
      for (; bin != part * 16; --bin) {
        const ulong there = ((ulong)high[bin] << 12) + low[bin];
        if (there >= left) break;
        left -= there;
      }
      state[0] = left;
      state[1] = (prefix << 8) | bin;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    left = state[0];
    prefix = (uint)state[1];
  }
  return prefix;
}

kernel __attribute__((reqd_work_group_size(W, 1, 1))) void adrenoc_pick(
    global const LOGIT* logits, global const uint* how, global TOKEN* ids, global int* past,
    uint count) {
  local float best[W];
  local uint places[W];
  local uint high[256];
  local uint low[256];
  local ulong sums[16];
  local ulong state[2];
  const uint lane = get_local_id(0);
  const float inverse = as_float(how[0]);
  float largest = -INFINITY;
  for (uint i = lane; i < count; i += W) largest = fmax(largest, logit_at(logits, i));
  best[lane] = largest;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_of = W / 2; half_of != 0; half_of /= 2) {
    if (lane < half_of) best[lane] = fmax(best[lane], best[lane + half_of]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  largest = best[0];
  uint least = 0;
  if (how[1] != 0 && how[1] < count) {
    least = least_key(logits, count, largest, inverse, least, 0, how[1], high, low, sums, state);
  }
  if (how[2] < 65536) {
    least = least_key(logits, count, largest, inverse, least, 1, how[2], high, low, sums, state);
  }
  least = max(least, key_of(largest - as_float(how[5])));
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint stream = mixed(how[3] ^ mixed(how[4] ^ mixed((uint)past[0] + 0x9e3779b9u)));
  float earliest = -INFINITY;
  uint place = count;
  for (uint i = lane; i < count; i += W) {
    const float x = logit_at(logits, i);
    if (key_of(x) < least) continue;
    const uint drawn = mixed(stream ^ mixed(i + 0x85ebca6bu));
    const float part = fmin(((float)drawn + 0.5f) * 0x1p-32f, 0x1.fffffep-1f);
    // Of the likeliest alone, which have no temperature, the first is taken.
    const float chance = inverse == 0.0f ? 0.0f : log(-log1p(-part));
    const float score = log_weight(x, largest, inverse) - chance;
    if (score > earliest || place == count) {
      earliest = score;
      place = i;
    }
  }
  best[lane] = earliest;
  places[lane] = place;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_of = W / 2; half_of != 0; half_of /= 2) {
    if (lane < half_of) {
      const float other = best[lane + half_of];
      const uint there = places[lane + half_of];
      const int is_better = other > best[lane] || (other == best[lane] && there < places[lane]);
      if (places[lane] == count || (there != count && is_better)) {
        best[lane] = other;
        places[lane] = there;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (lane == 0) {
    // Where no logit is a number, no token is drawn: what is beyond the last says so.
    ids[0] = (TOKEN)(largest == -INFINITY ? count : places[0]);
    past[0] += 1;
  }
}
)";

constexpr size_t kMostWorkItems = 256;
constexpr size_t kFewestWorkItems = 16;
constexpr size_t kChanging = 64;  // work-items of a group that changes logits
constexpr double kShares = 65536;
constexpr uint32_t kInPrompt = 1U << 31;
constexpr size_t kPenalties = 6;  // of the settings: the first word that change() reads

// The OpenCL C type of a whole number that a tensor holds.
std::string token_type(const DLTensor& tensor, const char* what) {
  if (tensor.dtype.code == kDLInt && tensor.dtype.bits == 64) return "long";
  if (tensor.dtype.code == kDLInt && tensor.dtype.bits == 32) return "int";
  TVM_FFI_THROW(ValueError) << what << " has the dtype "
                            << tvm::ffi::DLDataTypeToString(tensor.dtype)
                            << ", expected int64 or int32";
  TVM_FFI_UNREACHABLE();
}

KernelArgument memory_of(const DLTensor& tensor, const char* what) {
  const auto& descriptor = *static_cast<const Descriptor*>(tensor.data);
  if (descriptor.is_image() || tensor.byte_offset != 0) {
    TVM_FFI_THROW(ValueError) << what << " is no buffer of its own";
  }
  return {sizeof(cl_mem), nullptr, &descriptor.storage()};
}

KernelArgument memory_of(const std::shared_ptr<Storage>& storage) {
  return {sizeof(cl_mem), nullptr, &storage};
}

// The macros by which the kernels read logits.
std::string logit_macros(bool halves) {
  return std::string("\n#define LOGIT ") + (halves ? "half" : "float") + "\n#define HALVES " +
         (halves ? "1" : "0");
}

bool are_halves(const DLTensor& logits) {
  if (logits.dtype.code == kDLFloat && (logits.dtype.bits == 16 || logits.dtype.bits == 32)) {
    return logits.dtype.bits == 16;
  }
  TVM_FFI_THROW(ValueError) << "logits have the dtype "
                            << tvm::ffi::DLDataTypeToString(logits.dtype)
                            << ", expected float32 or float16";
  TVM_FFI_UNREACHABLE();
}

uint32_t count_numbers(const DLTensor& tensor) {
  uint32_t count = 1;
  for (int i = 0; i < tensor.ndim; ++i) count *= static_cast<uint32_t>(tensor.shape[i]);
  return count;
}

// Throws where a number means nothing.
void expect(bool fits, const char* what, double value, const char* expected) {
  if (fits) return;
  TVM_FFI_THROW(ValueError) << what << " is " << value << ", expected " << expected;
}

bool is_number(double value) { return std::isfinite(static_cast<float>(value)); }

}  // namespace

void check_sampling(const Sampling& how, int64_t vocabulary) {
  expect(how.temperature >= 0 && std::isfinite(how.temperature), "the temperature", how.temperature,
         "0 or more");
  if (how.top_k < 0 || how.top_k > INT32_MAX) {
    TVM_FFI_THROW(ValueError) << "top-k is " << how.top_k << ", expected 0 or more";
  }
  expect(how.top_p >= 0 && how.top_p <= 1, "top-p", how.top_p, "0 to 1");
  expect(how.min_p >= 0 && how.min_p <= 1, "min-p", how.min_p, "0 to 1");
  const auto factor = static_cast<float>(how.repetition_penalty);
  expect(factor > 0 && std::isfinite(factor) && std::isfinite(1 / factor), "the repetition penalty",
         how.repetition_penalty, "more than 0");
  expect(is_number(how.presence_penalty), "the presence penalty", how.presence_penalty, "a number");
  expect(is_number(how.frequency_penalty), "the frequency penalty", how.frequency_penalty,
         "a number");
  for (const auto& [token, added] : how.bias) {
    expect(is_number(added), "the bias of a token", added, "a number");
    if (token < 0 || token >= vocabulary) {
      TVM_FFI_THROW(ValueError) << "a bias is given for the token " << token << ", expected 0 to "
                                << vocabulary - 1;
    }
  }
}

Sampler::Sampler(Device& device)
    : device_(device),
      group_(kMostWorkItems),
      settings_(device.memory().allocate(StorageSpec::buffer(64))) {
  const size_t most =
      std::min(device.info().max_work_group_size, device.info().max_work_item_sizes[0]);
  while (group_ > kFewestWorkItems && group_ > most) group_ /= 2;
}

void Sampler::write(const Storage& to, const void* data, size_t offset, size_t bytes) {
  const QueueLock queue = device_.lock_queue();
  ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue.get(), to.mem.get(), CL_TRUE, offset, bytes, data, 0,
                  nullptr, nullptr);
}

void Sampler::set(const Sampling& sampling) {
  // Colder than this is no different in a float; the likeliest alone are drawn without chance.
  const double heat = sampling.is_greedy() ? 0 : std::max(sampling.temperature, 1e-6);
  const auto inverse = sampling.is_greedy() ? 0.0F : static_cast<float>(1 / heat);
  // How far below the largest a logit may be: all that a float holds where there is no bound.
  const float below = sampling.is_greedy() ? 0
                      : sampling.min_p > 0 ? static_cast<float>(-std::log(sampling.min_p) * heat)
                                           : std::numeric_limits<float>::max();
  std::array<uint32_t, kPenalties> how{};
  std::memcpy(how.data(), &inverse, sizeof(inverse));
  how[1] = sampling.is_greedy() ? 0 : static_cast<uint32_t>(sampling.top_k);
  how[2] =
      static_cast<uint32_t>(sampling.is_greedy() ? kShares : std::ceil(sampling.top_p * kShares));
  how[3] = static_cast<uint32_t>(sampling.seed);
  how[4] = static_cast<uint32_t>(sampling.seed >> 32);
  std::memcpy(&how[5], &below, sizeof(below));
  write(*settings_, how.data(), 0, sizeof(how));
}

void Sampler::set_row(const Sampling& sampling, const std::vector<int64_t>& context,
                      int64_t vocabulary) {
  const auto count = static_cast<size_t>(vocabulary);
  if (row_.vocabulary != vocabulary) {
    const auto make = [this](size_t words) {
      return device_.memory().allocate(StorageSpec::buffer(words * sizeof(uint32_t)));
    };
    row_ = {vocabulary, make(count), make(count), make((count + 31) / 32), make(count)};
  }
  const auto factor = static_cast<float>(sampling.repetition_penalty);
  struct Penalties {
    float shrink;  // of positive logits
    float grow;
    float presence;
    float frequency;
    int32_t first;  // tokens before those that are made
  } const penalties{1 / factor, factor, static_cast<float>(sampling.presence_penalty),
                    static_cast<float>(sampling.frequency_penalty),
                    static_cast<int32_t>(context.size())};
  write(*settings_, &penalties, kPenalties * sizeof(uint32_t), sizeof(penalties));
  std::vector<float> bias(count, 0.0F);
  for (const auto& [token, added] : sampling.bias) {
    bias[static_cast<size_t>(token)] = static_cast<float>(added);
  }
  write(*row_.bias, bias.data(), 0, count * sizeof(float));
  std::vector<uint32_t> seen(count, 0);
  for (const int64_t token : context) {
    if (token >= 0 && token < vocabulary) seen[static_cast<size_t>(token)] = kInPrompt;
  }
  write(*row_.seen, seen.data(), 0, count * sizeof(uint32_t));
}

void Sampler::allow(const std::vector<uint32_t>& tokens) {
  const auto words = static_cast<size_t>(row_.vocabulary + 31) / 32;
  if (words == 0 || tokens.size() != words) {
    TVM_FFI_THROW(ValueError) << "the tokens that are allowed are " << tokens.size()
                              << " words of 32 bits, expected " << words;
  }
  write(*row_.allowed, tokens.data(), 0, words * sizeof(uint32_t));
}

Kernel& Sampler::kernel(Made* made, const char* name, const std::string& macros,
                        const std::string& body, size_t arguments) {
  if (made->kernel == nullptr) {
    auto program = std::make_shared<BuiltProgram>(device_, std::vector<std::string>{name},
                                                  std::vector<const std::string*>{&macros, &body});
    made->kernel = std::make_unique<Kernel>(device_, name, std::move(program), KernelText{name, {}},
                                            arguments);
    made->types = macros;
  }
  if (made->types != macros) TVM_FFI_THROW(ValueError) << "steps of one model differ in dtypes";
  return *made->kernel;
}

void Sampler::feed(const StepTensors& step) {
  const std::string macros = "#define PICKED " + token_type(*step.picked, "the next token") +
                             "\n#define TOKEN " + token_type(*step.ids, "the token");
  kernel(&feed_, "adrenoc_feed", macros, kFeedText, 3)
      .launch({1, {1, 1, 1}, {1, 1, 1}},
              {memory_of(*step.picked, "the next token"), memory_of(*step.ids, "the token"),
               memory_of(*step.past, "the length of the past")});
}

void Sampler::pick(const StepTensors& step) {
  launch_pick(&pick_, step, memory_of(*step.logits, "the logits"), are_halves(*step.logits));
}

void Sampler::change_and_pick(const StepTensors& step) {
  const uint32_t count = count_numbers(*step.logits);
  if (row_.vocabulary != count) {
    TVM_FFI_THROW(ValueError) << "a step gives " << count << " logits, expected "
                              << row_.vocabulary;
  }
  const std::string macros = "#define TOKEN " + token_type(*step.ids, "the token") +
                             logit_macros(are_halves(*step.logits));
  const size_t items = (count + kChanging - 1) / kChanging * kChanging;
  kernel(&change_, "adrenoc_change", macros, std::string(kLogitText) + kChangeText, 9)
      .launch({1, {items, 1, 1}, {kChanging, 1, 1}},
              {memory_of(*step.logits, "the logits"),
               memory_of(row_.bias),
               memory_of(row_.seen),
               memory_of(row_.allowed),
               memory_of(settings_),
               memory_of(*step.ids, "the token"),
               memory_of(*step.past, "the length of the past"),
               memory_of(row_.changed),
               {sizeof(count), &count}});
  launch_pick(&pick_changed_, step, memory_of(row_.changed), false);
}

void Sampler::launch_pick(Made* made, const StepTensors& step, const KernelArgument& logits,
                          bool halves) {
  const uint32_t count = count_numbers(*step.logits);
  const std::string macros = "#define TOKEN " + token_type(*step.ids, "the token") +
                             logit_macros(halves) + "\n#define W " + std::to_string(group_);
  kernel(made, "adrenoc_pick", macros, std::string(kLogitText) + kPickText, 5)
      .launch({1, {group_, 1, 1}, {group_, 1, 1}}, {logits,
                                                    memory_of(settings_),
                                                    memory_of(*step.ids, "the token"),
                                                    memory_of(*step.past, "the length of the past"),
                                                    {sizeof(count), &count}});
}

}  // namespace adrenoc_runtime::opencl
