#include "base/sha256.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define ADRENOC_SHA256 [[gnu::target("sha,sse4.1")]]
#elif defined(__aarch64__) && (defined(__ARM_FEATURE_SHA2) || defined(__ARM_FEATURE_CRYPTO))
// The build has this file alone compiled for such processors.
#include <arm_neon.h>
#include <sys/auxv.h>
#define ADRENOC_SHA256
#endif

namespace adrenoc_runtime {

#ifdef ADRENOC_SHA256
namespace {

// Four of the numbers that rounds take, and the state as the instructions hold it.
#if defined(__x86_64__)
using FourWords = __m128i;

struct HeldState {
  FourWords abef;
  FourWords cdgh;
};

ADRENOC_SHA256 inline FourWords load(const void* from) {
  return _mm_loadu_si128(static_cast<const FourWords*>(from));
}

ADRENOC_SHA256 inline FourWords load_big_endian(const unsigned char* bytes) {
  return _mm_shuffle_epi8(load(bytes), _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
}

ADRENOC_SHA256 inline HeldState hold(const Sha256State& state) {
  const FourWords badc = _mm_shuffle_epi32(load(&state[0]), 0xb1);
  const FourWords hgfe = _mm_shuffle_epi32(load(&state[4]), 0x1b);
  return {_mm_alignr_epi8(badc, hgfe, 8), _mm_blend_epi16(hgfe, badc, 0xf0)};
}

ADRENOC_SHA256 inline void let_go(const HeldState& held, Sha256State* state) {
  const FourWords feba = _mm_shuffle_epi32(held.abef, 0x1b);
  const FourWords dchg = _mm_shuffle_epi32(held.cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<FourWords*>(&(*state)[0]), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<FourWords*>(&(*state)[4]), _mm_alignr_epi8(dchg, feba, 8));
}

ADRENOC_SHA256 inline HeldState sum(const HeldState& one, const HeldState& other) {
  return {_mm_add_epi32(one.abef, other.abef), _mm_add_epi32(one.cdgh, other.cdgh)};
}

// The four words that come sixteen behind the first of these.
ADRENOC_SHA256 inline FourWords next(FourWords first, FourWords second, FourWords third,
                                     FourWords fourth) {
  const FourWords sevenths = _mm_alignr_epi8(fourth, third, 4);
  return _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(first, second), sevenths), fourth);
}

ADRENOC_SHA256 inline void four_rounds(HeldState* held, FourWords words, size_t round) {
  const FourWords added = _mm_add_epi32(words, load(&kSha256Rounds[round]));
  held->cdgh = _mm_sha256rnds2_epu32(held->cdgh, held->abef, added);
  held->abef = _mm_sha256rnds2_epu32(held->abef, held->cdgh, _mm_shuffle_epi32(added, 0x0e));
}
#else
using FourWords = uint32x4_t;

struct HeldState {
  FourWords abcd;
  FourWords efgh;
};

inline FourWords load_big_endian(const unsigned char* bytes) {
  return vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(bytes)));
}

inline HeldState hold(const Sha256State& state) {
  return {vld1q_u32(&state[0]), vld1q_u32(&state[4])};
}

inline void let_go(const HeldState& held, Sha256State* state) {
  vst1q_u32(&(*state)[0], held.abcd);
  vst1q_u32(&(*state)[4], held.efgh);
}

inline HeldState sum(const HeldState& one, const HeldState& other) {
  return {vaddq_u32(one.abcd, other.abcd), vaddq_u32(one.efgh, other.efgh)};
}

// The four words that come sixteen behind the first of these.
inline FourWords next(FourWords first, FourWords second, FourWords third, FourWords fourth) {
  return vsha256su1q_u32(vsha256su0q_u32(first, second), third, fourth);
}

inline void four_rounds(HeldState* held, FourWords words, size_t round) {
  const FourWords added = vaddq_u32(words, vld1q_u32(&kSha256Rounds[round]));
  const FourWords abcd = held->abcd;
  held->abcd = vsha256hq_u32(abcd, held->efgh, added);
  held->efgh = vsha256h2q_u32(held->efgh, abcd, added);
}
#endif

}  // namespace

bool has_sha256_instructions() {
#if defined(__x86_64__)
  constexpr unsigned sse41 = 1U << 19;
  constexpr unsigned sha = 1U << 29;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool has_vectors = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & sse41) != 0;
  return has_vectors && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & sha) != 0;
#else
  constexpr unsigned long sha2 = 1UL << 6;  // HWCAP_SHA2, which old C libraries do not name
  return (getauxval(AT_HWCAP) & sha2) != 0;
#endif
}

ADRENOC_SHA256 void mix_by_instructions(Sha256State* state, const unsigned char* bytes,
                                        size_t blocks) {
  HeldState held = hold(*state);
  for (size_t block = 0; block < blocks; ++block, bytes += kSha256BlockBytes) {
    const HeldState before = held;
    FourWords first = load_big_endian(bytes);
    FourWords second = load_big_endian(bytes + 16);
    FourWords third = load_big_endian(bytes + 32);
    FourWords fourth = load_big_endian(bytes + 48);
    for (size_t round = 0;;) {
      four_rounds(&held, first, round);
      four_rounds(&held, second, round + 4);
      four_rounds(&held, third, round + 8);
      four_rounds(&held, fourth, round + 12);
      round += 16;
      if (round == kSha256Rounds.size()) break;
      first = next(first, second, third, fourth);
      second = next(second, third, fourth, first);
      third = next(third, fourth, first, second);
      fourth = next(fourth, first, second, third);
    }
    held = sum(held, before);
  }
  let_go(held, state);
}
#else
bool has_sha256_instructions() { return false; }

void mix_by_instructions(Sha256State*, const unsigned char*, size_t) {}
#endif

}  // namespace adrenoc_runtime
