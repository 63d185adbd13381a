// Between Java and C: texts as UTF-8 with a zero at the end, arrays, and what is thrown.
#pragma once

#include <adrenoc.h>
#include <jni.h>

#include <cstdint>
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

// Throws the exception of a status; in Java it is thrown once the native function returns.
void throw_status(JNIEnv* env, adrenoc_status status, const std::string& said);

// Whether it went well; else throws what the runtime says.
bool check(JNIEnv* env, adrenoc_status status);

// Whether it is there; else throws.  JNI's own functions end the process where they are given null.
bool require(JNIEnv* env, jobject object, const char* what);

// A text of Java's class Text, or none for null.
class Chars {
 public:
  Chars(JNIEnv* env, jbyteArray bytes);
  const char* get() const { return is_null_ ? nullptr : text_.c_str(); }

 private:
  bool is_null_;
  std::string text_;
};

// Not a string: Java's own UTF-8 is another one, and what it does not know ends the process.
jbyteArray to_bytes(JNIEnv* env, const std::string& text);

jlongArray to_longs(JNIEnv* env, const std::vector<int64_t>& numbers);
std::vector<int64_t> to_numbers(JNIEnv* env, jlongArray array);

// Memory of a direct buffer, from its position on; null, and thrown, for one of the heap.
void* address_of(JNIEnv* env, jobject buffer, jint from);

}  // namespace adrenoc_jni
