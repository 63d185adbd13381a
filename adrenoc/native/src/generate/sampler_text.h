// The OpenCL C of the kernels that pick tokens.
//
// Drawing needs no sum over all probabilities: each token has a random time, exponential with its
// weight as the rate, and the earliest wins (in logarithms, so that nothing overflows).  What top-k
// and top-p leave is found digit by digit: of the logits as integers of the same order, the highest
// eight bits of the least one that stays, then the next eight.  Weights are summed up as integers,
// so neither the order of work-items nor their number changes a result.
#pragma once

namespace adrenoc_runtime::opencl {

// Macros before it: PICKED, TOKEN.
constexpr const char* kFeedText = R"(
kernel void adrenoc_feed(global const PICKED* picked, global TOKEN* ids, global int* past) {
  ids[0] = (TOKEN)picked[0];
  past[0] += 1;
}
)";

// `how` of those below: 1 / temperature, top_k, top_p in 65536ths, the seed in two words, how far below
// the largest a logit may be; 1 / repetition_penalty and repetition_penalty, those of presence and of
// frequency, and how many tokens there were before those that are made.
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

}  // namespace adrenoc_runtime::opencl
