// Between Java and C: texts as UTF-8 with a zero at the end, arrays, and what is thrown.
#pragma once

#include <adrenoc.h>
#include <jni.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

// The function NAME of Native.java, which gives a TYPE.
#define ADRENOC_NATIVE(type, name) extern "C" JNIEXPORT type JNICALL Java_org_adrenoc_Native_##name

// The function NAME of Native.java, which lets `model` do something and throws where that fails.
#define ADRENOC_NATIVE_DEED(name, deed)                        \
  ADRENOC_NATIVE(void, name)(JNIEnv * env, jclass, jlong at) { \
    adrenoc_model* model = model_of(at);                       \
    check(env, deed);                                          \
  }

namespace adrenoc_jni {

inline adrenoc_model* model_of(jlong handle) { return reinterpret_cast<adrenoc_model*>(handle); }

inline jlong handle_of(adrenoc_model* model) { return reinterpret_cast<jlong>(model); }

// Not a string: Java's own UTF-8 is another one, and what it does not know ends the process.
inline jbyteArray to_bytes(JNIEnv* env, const std::string& text) {
  jbyteArray made = env->NewByteArray(static_cast<jsize>(text.size()));
  if (made != nullptr) {
    env->SetByteArrayRegion(made, 0, static_cast<jsize>(text.size()),
                            reinterpret_cast<const jbyte*>(text.data()));
  }
  return made;
}

// Throws the exception of a status; in Java it is thrown once the native function returns.
inline void throw_status(JNIEnv* env, adrenoc_status status, const std::string& said) {
  jclass kind = env->FindClass("org/adrenoc/AdrenocException");
  if (kind == nullptr) return;  // Java has thrown
  const jmethodID make = env->GetStaticMethodID(kind, "of", "(I[B)Lorg/adrenoc/AdrenocException;");
  jbyteArray text = make == nullptr ? nullptr : to_bytes(env, said);
  if (text == nullptr) return;
  jobject made = env->CallStaticObjectMethod(kind, make, static_cast<jint>(status), text);
  if (!env->ExceptionCheck() && made != nullptr) env->Throw(static_cast<jthrowable>(made));
}

// Whether it went well; else throws what the runtime says.
inline bool check(JNIEnv* env, adrenoc_status status) {
  if (status == ADRENOC_OK) return true;
  const std::string more = adrenoc_last_error();
  throw_status(env, status, more.empty() ? adrenoc_status_text(status) : more);
  return false;
}

// Whether it is there; else throws.  JNI's own functions end the process where they are given null.
inline bool require(JNIEnv* env, jobject object, const char* what) {
  if (object != nullptr) return true;
  throw_status(env, ADRENOC_BAD_ARGUMENT, std::string(what) + " is null");
  return false;
}

// A text of Java's class Text, or none for null.
class Chars {
 public:
  Chars(JNIEnv* env, jbyteArray bytes) : is_null_(bytes == nullptr) {
    if (is_null_) return;
    text_.resize(static_cast<size_t>(env->GetArrayLength(bytes)));
    env->GetByteArrayRegion(bytes, 0, static_cast<jsize>(text_.size()),
                            reinterpret_cast<jbyte*>(&text_[0]));
  }
  const char* get() const { return is_null_ ? nullptr : text_.c_str(); }

 private:
  bool is_null_;
  std::string text_;
};

inline jlongArray to_longs(JNIEnv* env, const std::vector<int64_t>& numbers) {
  const auto count = static_cast<jsize>(numbers.size());
  jlongArray made = env->NewLongArray(count);
  if (made != nullptr) {
    env->SetLongArrayRegion(made, 0, count, reinterpret_cast<const jlong*>(numbers.data()));
  }
  return made;
}

inline std::vector<int64_t> to_numbers(JNIEnv* env, jlongArray array) {
  static_assert(sizeof(jlong) == sizeof(int64_t), "a long of Java has 64 bits");
  std::vector<int64_t> numbers(static_cast<size_t>(env->GetArrayLength(array)));
  env->GetLongArrayRegion(array, 0, static_cast<jsize>(numbers.size()),
                          reinterpret_cast<jlong*>(numbers.data()));
  return numbers;
}

// Memory of a direct buffer, from its position on; null, and thrown, for one of the heap.
inline void* address_of(JNIEnv* env, jobject buffer, jint from) {
  if (!require(env, buffer, "the buffer")) return nullptr;
  void* data = env->GetDirectBufferAddress(buffer);
  if (data == nullptr) {
    throw_status(env, ADRENOC_BAD_ARGUMENT,
                 "the buffer is not direct: Tensor.allocate() makes one");
    return nullptr;
  }
  return static_cast<char*>(data) + from;
}

}  // namespace adrenoc_jni
