// The binary form of the types that TVM's runtime saves: numbers in little endian, and a 64-bit
// count before the items of every sequence.  It must agree byte for byte with the form that the
// TVM libraries write, since modules saved by them are read here.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/endian.h>
#include <tvm/ffi/string.h>
#include <tvm/support/io.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tvm::support {

template <typename T>
struct Serializer<T, std::enable_if_t<std::is_arithmetic_v<T>>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, T value) {
    if (!TVM_FFI_IO_NO_ENDIAN_SWAP) ffi::ByteSwap(&value, sizeof(T), 1);
    stream->Write(static_cast<const void*>(&value), sizeof(T));
  }
  static bool Read(Stream* stream, T* value) {
    if (stream->Read(static_cast<void*>(value), sizeof(T)) != sizeof(T)) return false;
    if (!TVM_FFI_IO_NO_ENDIAN_SWAP) ffi::ByteSwap(value, sizeof(T), 1);
    return true;
  }
};

template <typename T>
struct Serializer<T, std::enable_if_t<std::is_enum_v<T>>> {
  using Number = std::underlying_type_t<T>;
  static constexpr bool enabled = true;
  static void Write(Stream* stream, T value) { stream->Write(static_cast<Number>(value)); }
  static bool Read(Stream* stream, T* value) {
    Number number{};
    if (!stream->Read(&number)) return false;
    *value = static_cast<T>(number);
    return true;
  }
};

namespace detail {

// Text and raw bytes of any class that has data() and size().
template <typename T>
struct TextSerializer {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const T& text) {
    stream->Write(static_cast<uint64_t>(text.size()));
    stream->Write(static_cast<const void*>(text.data()), text.size());
  }
  static bool Read(Stream* stream, T* text) {
    uint64_t left = 0;
    if (!stream->Read(&left)) return false;
    // In pieces, so that a damaged count meets the end of the data before the end of the memory.
    std::string read;
    while (left > 0) {
      const size_t piece = static_cast<size_t>(std::min<uint64_t>(left, 1 << 20));
      const size_t start = read.size();
      read.resize(start + piece);
      if (stream->Read(static_cast<void*>(&read[start]), piece) != piece) return false;
      left -= piece;
    }
    *text = T(std::move(read));
    return true;
  }
};

template <typename Items, typename Item>
struct ItemsSerializer {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const Items& items) {
    stream->Write(static_cast<uint64_t>(items.size()));
    for (const Item& item : items) stream->Write(item);
  }
  static bool Read(Stream* stream, Items* items) {
    *items = {};
    uint64_t count = 0;
    if (!stream->Read(&count)) return false;
    for (uint64_t i = 0; i < count; ++i) {
      Item item{};
      if (!stream->Read(&item)) return false;
      items->push_back(std::move(item));
    }
    return true;
  }
};

}  // namespace detail

template <>
struct Serializer<std::string> : detail::TextSerializer<std::string> {};
template <>
struct Serializer<ffi::String> : detail::TextSerializer<ffi::String> {};
template <>
struct Serializer<ffi::Bytes> : detail::TextSerializer<ffi::Bytes> {};

template <typename T>
struct Serializer<std::vector<T>> : detail::ItemsSerializer<std::vector<T>, T> {};
template <typename T>
struct Serializer<ffi::Array<T>> : detail::ItemsSerializer<ffi::Array<T>, T> {};

template <typename K, typename V>
struct Serializer<ffi::Map<K, V>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const ffi::Map<K, V>& map) {
    stream->Write(static_cast<uint64_t>(map.size()));
    for (const auto& [key, value] : map) {
      stream->template Write<K>(key);
      stream->template Write<V>(value);
    }
  }
  static bool Read(Stream* stream, ffi::Map<K, V>* map) {
    *map = {};
    uint64_t count = 0;
    if (!stream->Read(&count)) return false;
    for (uint64_t i = 0; i < count; ++i) {
      K key;
      V value;
      if (!stream->Read(&key) || !stream->Read(&value)) return false;
      map->Set(std::move(key), std::move(value));
    }
    return true;
  }
};

template <>
struct Serializer<DLDataType> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const DLDataType& type) {
    stream->Write(type.code);
    stream->Write(type.bits);
    stream->Write(type.lanes);
  }
  static bool Read(Stream* stream, DLDataType* type) {
    return stream->Read(&type->code) && stream->Read(&type->bits) && stream->Read(&type->lanes);
  }
};

template <>
struct Serializer<DLDevice> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const DLDevice& device) {
    stream->Write(static_cast<int32_t>(device.device_type));
    stream->Write(static_cast<int32_t>(device.device_id));
  }
  static bool Read(Stream* stream, DLDevice* device) {
    int32_t type = 0;
    if (!stream->Read(&type) || !stream->Read(&device->device_id)) return false;
    device->device_type = static_cast<DLDeviceType>(type);
    return true;
  }
};

}  // namespace tvm::support
