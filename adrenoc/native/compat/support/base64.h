// Base64 (RFC 4648) over byte streams, by the names that TVM's runtime sources expect.
// The TVM wheel ships sources that include this file but not the file itself.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/support/io.h>

#include <cstdint>

namespace tvm::support {

constexpr char kBase64Digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Encodes what is written to it; `Finish` writes the last group, padded with '='.
class Base64OutStream : public Stream {
 public:
  using Stream::Read;
  using Stream::Write;

  explicit Base64OutStream(Stream* target) : target_(target) {}

  size_t Read(void*, size_t) final {
    TVM_FFI_THROW(RuntimeError) << "A stream to write to was read from";
    TVM_FFI_UNREACHABLE();
  }
  size_t Write(const void* source, size_t count) final {
    const auto* bytes = static_cast<const uint8_t*>(source);
    for (size_t i = 0; i < count; ++i) {
      group_ = group_ << 8 | bytes[i];
      if (++held_ == 3) put_group();
    }
    return count;
  }
  void Finish() {
    if (held_ != 0) put_group();
  }

 private:
  void put_group() {
    const uint32_t bits = group_ << 8 * (3 - held_);
    char text[4];
    for (int i = 0; i < 4; ++i)
      text[i] = i <= held_ ? kBase64Digits[bits >> 6 * (3 - i) & 63] : '=';
    target_->Write(text, sizeof(text));
    group_ = 0;
    held_ = 0;
  }

  Stream* target_;
  uint32_t group_ = 0;
  int held_ = 0;
};

// Decodes what it reads; line breaks and blanks are passed over, padding ends the data.
class Base64InStream : public Stream {
 public:
  using Stream::Read;
  using Stream::Write;

  explicit Base64InStream(Stream* source) : source_(source) {}

  void InitPosition() {
    bits_ = 0;
    held_bits_ = 0;
    ended_ = false;
  }
  size_t Read(void* target, size_t wanted) final {
    auto* bytes = static_cast<uint8_t*>(target);
    size_t done = 0;
    while (done < wanted && fill()) {
      held_bits_ -= 8;
      bytes[done++] = static_cast<uint8_t>(bits_ >> held_bits_);
    }
    return done;
  }
  size_t Write(const void*, size_t) final {
    TVM_FFI_THROW(RuntimeError) << "A stream to read from was written to";
    TVM_FFI_UNREACHABLE();
  }

 private:
  static int digit(char letter) {
    if (letter >= 'A' && letter <= 'Z') return letter - 'A';
    if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9') return letter - '0' + 52;
    if (letter == '+') return 62;
    return letter == '/' ? 63 : -1;
  }

  // Makes sure that a whole byte is held; false at the end.
  bool fill() {
    while (held_bits_ < 8) {
      char letter = 0;
      if (ended_ || source_->Read(&letter, 1) != 1 || letter == '=') {
        ended_ = true;
        return false;
      }
      if (letter == '\n' || letter == '\r' || letter == ' ' || letter == '\t') continue;
      const int value = digit(letter);
      if (value < 0) TVM_FFI_THROW(ValueError) << "Not Base64: it holds the byte " << int(letter);
      bits_ = bits_ << 6 | static_cast<uint32_t>(value);
      held_bits_ += 6;
    }
    return true;
  }

  Stream* source_;
  uint32_t bits_ = 0;
  int held_bits_ = 0;
  bool ended_ = false;
};

}  // namespace tvm::support
