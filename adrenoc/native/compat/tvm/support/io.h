// A byte stream of typed values, by the names that TVM's runtime headers expect.
// The TVM wheel ships headers that include this file but not the file itself.
#pragma once

#include <cstddef>

namespace tvm::support {

// Says how a type is written to and read from a stream; serializer.h specialises it.  A
// specialisation has `enabled == true`, `Write(Stream*, const T&)` and `bool Read(Stream*, T*)`.
template <typename T, typename Enable = void>
struct Serializer {
  static constexpr bool enabled = false;
};

class Stream {
 public:
  virtual ~Stream() = default;

  // Both return how many bytes were moved.
  virtual size_t Read(void* target, size_t bytes) = 0;
  virtual size_t Write(const void* source, size_t bytes) = 0;

  template <typename T>
  void Write(const T& value) {
    static_assert(Serializer<T>::enabled, "no Serializer is known for this type");
    Serializer<T>::Write(this, value);
  }

  // False when the stream ends before the value does.
  template <typename T>
  bool Read(T* value) {
    static_assert(Serializer<T>::enabled, "no Serializer is known for this type");
    return Serializer<T>::Read(this, value);
  }

  template <typename T>
  void WriteArray(const T* values, size_t count) {
    for (const T* value = values; value != values + count; ++value) Write(*value);
  }

  template <typename T>
  bool ReadArray(T* values, size_t count) {
    bool complete = true;
    for (size_t i = 0; complete && i < count; ++i) complete = Read(&values[i]);
    return complete;
  }
};

}  // namespace tvm::support
