#include "base/sha256.h"

#include <cstring>

namespace adrenoc_runtime {
namespace {

// The first 32 bits of the fractional parts of the square roots of the first 8 primes.
constexpr Sha256State kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr size_t kBlockBytes = kSha256BlockBytes;

uint32_t rotated(uint32_t value, int bits) { return value >> bits | value << (32 - bits); }

uint32_t big_endian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void mix_block(Sha256State* state, const unsigned char* block) {
  std::array<uint32_t, 64> words;
  for (size_t i = 0; i < 16; ++i) words[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = words[i - 15];
    const uint32_t b = words[i - 2];
    words[i] = words[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + words[i - 7] +
               (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = *state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                           ((e & f) ^ (~e & g)) + kSha256Rounds[i] + words[i];
    const uint32_t second =
        (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) (*state)[i] += added[i];
}

void mix(Sha256State* state, const unsigned char* bytes, size_t blocks) {
  static const bool has_instructions = has_sha256_instructions();
  if (has_instructions) {
    mix_by_instructions(state, bytes, blocks);
    return;
  }
  for (size_t i = 0; i < blocks; ++i) mix_block(state, bytes + i * kBlockBytes);
}

}  // namespace

std::string sha256_hex(std::string_view data) {
  Sha256State state = kStart;
  const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
  const size_t whole = data.size() / kBlockBytes * kBlockBytes;
  mix(&state, bytes, whole / kBlockBytes);

  // The rest, one bit, zeros, and the length in bits: one block or two.
  std::array<unsigned char, 2 * kBlockBytes> tail{};
  const size_t rest = data.size() - whole;
  if (rest != 0) std::memcpy(tail.data(), bytes + whole, rest);
  tail[rest] = 0x80;
  const size_t tail_bytes = rest + 9 <= kBlockBytes ? kBlockBytes : 2 * kBlockBytes;
  const uint64_t bits = uint64_t{data.size()} * 8;
  for (size_t i = 0; i < 8; ++i) {
    tail[tail_bytes - 1 - i] = static_cast<unsigned char>(bits >> 8 * i);
  }
  mix(&state, tail.data(), tail_bytes / kBlockBytes);

  std::string text;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  }
  return text;
}

}  // namespace adrenoc_runtime
