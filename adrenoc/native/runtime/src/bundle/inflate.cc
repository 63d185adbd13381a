#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/failure.h"
#include "bundle/formats.h"

namespace adrenoc_runtime {
namespace {

// No stream of DEFLATE says more: a match of 258 bytes takes two bits.
constexpr uint64_t kMostBytesOfOne = 1032;
constexpr unsigned kMostBits = 15;  // of a code
constexpr unsigned kFastBits = 10;  // of the codes that one look at a table finds
constexpr size_t kEndOfBlock = 256;
constexpr size_t kFirstLength = 257;
constexpr size_t kLengths = 29;
constexpr size_t kDistances = 30;

// Matches have a length and a distance: a base, and as many bits as are added to it.
constexpr std::array<uint16_t, kLengths> kLengthBase = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                                        15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                                        67, 83, 99, 115, 131, 163, 195, 227, 258};
constexpr std::array<uint8_t, kLengths> kLengthBits = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                       2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr std::array<uint16_t, kDistances> kDistanceBase = {
    1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
    193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
constexpr std::array<uint8_t, kDistances> kDistanceBits = {0, 0, 0,  0,  1,  1,  2,  2,  3,  3,
                                                           4, 4, 5,  5,  6,  6,  7,  7,  8,  8,
                                                           9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
// In this order a block says how long the codes of code lengths are.
constexpr std::array<uint8_t, 19> kOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                            11, 4,  12, 3, 13, 2, 14, 1, 15};

// Bits of a stream, the lowest of each byte first.
class Bits {
 public:
  Bits(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  [[noreturn]] void refuse(const char* reason) const {
    refuse_bundle({name_, " cannot be inflated: ", reason});
  }
  // The next `count` bits, at most 32; what is beyond the end is zero.
  [[nodiscard]] uint32_t peek(unsigned count) {
    while (held_ < count && at_ < bytes_.size()) {
      word_ |= uint64_t{static_cast<unsigned char>(bytes_[at_++])} << held_;
      held_ += 8;
    }
    return static_cast<uint32_t>(word_ & ((uint64_t{1} << count) - 1));
  }
  void drop(unsigned count) {
    if (count > held_) refuse("it ends too early");
    word_ >>= count;
    held_ -= count;
  }
  [[nodiscard]] uint32_t take(unsigned count) {
    const uint32_t bits = peek(count);
    drop(count);
    return bits;
  }
  // Whole bytes, from the next one on.
  [[nodiscard]] std::string_view take_bytes(size_t count) {
    if (count > bytes_.size() - at_) refuse("it ends too early");
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  // Gives back the bytes of which no bit was taken.
  void align() {
    at_ -= held_ / 8;
    word_ = 0;
    held_ = 0;
  }
  [[nodiscard]] bool is_at_end() {
    align();
    return at_ == bytes_.size();
  }

 private:
  std::string_view bytes_;
  const std::string& name_;
  size_t at_ = 0;
  uint64_t word_ = 0;
  unsigned held_ = 0;
};

// A code by the lengths of its words: shorter ones first, of one length in the order of symbols.
class Code {
 public:
  Code(const uint8_t* lengths, size_t symbols, const Bits& bits) {
    for (size_t i = 0; i < symbols; ++i) ++counts_[lengths[i]];
    counts_[0] = 0;
    std::array<uint16_t, kMostBits + 2> starts{};
    unsigned words = 1;  // that may still begin, of each length
    for (unsigned length = 1; length <= kMostBits; ++length) {
      words <<= 1;
      if (counts_[length] > words) bits.refuse("a code has more words than there are");
      words -= counts_[length];
      starts[length + 1] = static_cast<uint16_t>(starts[length] + counts_[length]);
    }
    symbols_.resize(starts[kMostBits + 1]);
    for (size_t i = 0; i < symbols; ++i) {
      if (lengths[i] != 0) symbols_[starts[lengths[i]]++] = static_cast<uint16_t>(i);
    }
    fill_fast();
  }

  [[nodiscard]] size_t next(Bits* bits) const {
    const Word word = fast_[bits->peek(kFastBits)];
    if (word.length == 0) return next_long(bits);
    bits->drop(word.length);
    return word.symbol;
  }

 private:
  struct Word {
    uint16_t symbol;
    uint8_t length;  // 0 where no short word begins so
  };

  // Words are written from their highest bit on, and read from the lowest bit of a byte on.
  void fill_fast() {
    unsigned word = 0;
    size_t symbol = 0;
    for (unsigned length = 1; length <= kFastBits; ++length, word <<= 1) {
      for (unsigned i = 0; i < counts_[length]; ++i, ++word, ++symbol) {
        unsigned turned = 0;
        for (unsigned bit = 0; bit < length; ++bit)
          turned |= (word >> bit & 1) << (length - 1 - bit);
        for (unsigned at = turned; at < fast_.size(); at += 1U << length) {
          fast_[at] = {symbols_[symbol], static_cast<uint8_t>(length)};
        }
      }
    }
  }

  [[nodiscard]] size_t next_long(Bits* bits) const {
    const uint32_t ahead = bits->peek(kMostBits);
    unsigned word = 0;
    unsigned first = 0;
    size_t symbol = 0;
    for (unsigned length = 1; length <= kMostBits; ++length) {
      word = word << 1 | (ahead >> (length - 1) & 1);
      if (word - first < counts_[length]) {
        bits->drop(length);
        return symbols_[symbol + word - first];
      }
      symbol += counts_[length];
      first = (first + counts_[length]) << 1;
    }
    bits->refuse("a word is in no code");
  }

  std::array<uint16_t, kMostBits + 1> counts_{};
  std::vector<uint16_t> symbols_;
  std::array<Word, size_t{1} << kFastBits> fast_{};
};

class Inflater {
 public:
  Inflater(std::string_view deflated, uint64_t bytes, const std::string& name)
      : bits_(deflated, name) {
    if (bytes / kMostBytesOfOne > deflated.size()) bits_.refuse("it is said to hold too much");
    text_.resize(bytes);
  }

  [[nodiscard]] std::string run() {
    bool is_last = false;
    while (!is_last) {
      is_last = bits_.take(1) != 0;
      switch (bits_.take(2)) {
        case 0: copy_stored(); break;
        case 1: read_fixed(); break;
        case 2: read_own(); break;
        default: bits_.refuse("a block of no known kind");
      }
    }
    if (at_ != text_.size()) bits_.refuse("it holds less than is said");
    if (!bits_.is_at_end()) bits_.refuse("something follows it");
    return std::move(text_);
  }

 private:
  void copy_stored() {
    bits_.align();
    const uint32_t count = bits_.take(16);
    if ((bits_.take(16) ^ count) != 0xffff) bits_.refuse("a stored block has a wrong length");
    bits_.align();
    const std::string_view stored = bits_.take_bytes(count);
    need(count);
    stored.copy(text_.data() + at_, count);
    at_ += count;
  }

  void read_fixed() {
    std::array<uint8_t, 288> lengths{};
    std::fill(lengths.begin(), lengths.begin() + 144, uint8_t{8});
    std::fill(lengths.begin() + 144, lengths.begin() + 256, uint8_t{9});
    std::fill(lengths.begin() + 256, lengths.begin() + 280, uint8_t{7});
    std::fill(lengths.begin() + 280, lengths.end(), uint8_t{8});
    std::array<uint8_t, kDistances> distances{};
    distances.fill(5);
    read_block(Code(lengths.data(), lengths.size(), bits_),
               Code(distances.data(), distances.size(), bits_));
  }

  // A block with codes of its own, which it begins with.
  void read_own() {
    const size_t symbols = bits_.take(5) + kFirstLength;
    const size_t distances = bits_.take(5) + 1;
    const size_t given = bits_.take(4) + 4;
    std::array<uint8_t, kOrder.size()> order_lengths{};
    for (size_t i = 0; i < given; ++i)
      order_lengths[kOrder[i]] = static_cast<uint8_t>(bits_.take(3));
    const Code code(order_lengths.data(), order_lengths.size(), bits_);
    std::array<uint8_t, 320> lengths{};
    size_t at = 0;
    while (at < symbols + distances) {
      const size_t found = code.next(&bits_);
      uint8_t length = static_cast<uint8_t>(found);
      size_t times = 1;
      if (found == 16) {
        if (at == 0) bits_.refuse("it repeats a length before the first");
        length = lengths[at - 1];
        times = 3 + bits_.take(2);
      } else if (found > 16) {
        length = 0;
        times = found == 17 ? 3 + bits_.take(3) : 11 + bits_.take(7);
      }
      if (times > symbols + distances - at) bits_.refuse("it has more lengths than symbols");
      std::fill_n(lengths.begin() + at, times, length);
      at += times;
    }
    read_block(Code(lengths.data(), symbols, bits_),
               Code(lengths.data() + symbols, distances, bits_));
  }

  void read_block(const Code& symbols, const Code& distances) {
    while (true) {
      const size_t symbol = symbols.next(&bits_);
      if (symbol == kEndOfBlock) return;
      if (symbol < kEndOfBlock) {
        need(1);
        text_[at_++] = static_cast<char>(symbol);
        continue;
      }
      if (symbol - kFirstLength >= kLengths) bits_.refuse("a match of no known length");
      const size_t kind = symbol - kFirstLength;
      const size_t length = kLengthBase[kind] + bits_.take(kLengthBits[kind]);
      const size_t far = distances.next(&bits_);
      if (far >= kDistances) bits_.refuse("a match of no known distance");
      repeat(length, kDistanceBase[far] + bits_.take(kDistanceBits[far]));
    }
  }

  // Copies what was written `distance` bytes ago; it may run into what it writes.
  void repeat(size_t length, size_t distance) {
    if (distance > at_) bits_.refuse("a match before the beginning");
    need(length);
    char* const to = text_.data() + at_;
    if (distance >= length) {
      std::memcpy(to, to - distance, length);
    } else {
      for (size_t i = 0; i < length; ++i) to[i] = to[i - distance];
    }
    at_ += length;
  }

  void need(size_t count) const {
    if (count > text_.size() - at_) bits_.refuse("it holds more than is said");
  }

  Bits bits_;
  std::string text_;
  size_t at_ = 0;
};

}  // namespace

std::string inflate(std::string_view deflated, uint64_t bytes, const std::string& name) {
  return Inflater(deflated, bytes, name).run();
}

}  // namespace adrenoc_runtime
