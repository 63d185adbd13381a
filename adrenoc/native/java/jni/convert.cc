#include "convert.h"

#include <cstring>

namespace adrenoc_jni {

void throw_status(JNIEnv* env, adrenoc_status status, const std::string& said) {
  jclass kind = env->FindClass("org/adrenoc/AdrenocException");
  if (kind == nullptr) return;  // Java has thrown
  const jmethodID make = env->GetStaticMethodID(kind, "of", "(I[B)Lorg/adrenoc/AdrenocException;");
  jbyteArray text = make == nullptr ? nullptr : to_bytes(env, said);
  if (text == nullptr) return;
  jobject made = env->CallStaticObjectMethod(kind, make, static_cast<jint>(status), text);
  if (!env->ExceptionCheck() && made != nullptr) env->Throw(static_cast<jthrowable>(made));
}

bool check(JNIEnv* env, adrenoc_status status) {
  if (status == ADRENOC_OK) return true;
  const std::string more = adrenoc_last_error();
  throw_status(env, status, more.empty() ? adrenoc_status_text(status) : more);
  return false;
}

bool require(JNIEnv* env, jobject object, const char* what) {
  if (object != nullptr) return true;
  throw_status(env, ADRENOC_BAD_ARGUMENT, std::string(what) + " is null");
  return false;
}

Chars::Chars(JNIEnv* env, jbyteArray bytes) : is_null_(bytes == nullptr) {
  if (is_null_) return;
  text_.resize(static_cast<size_t>(env->GetArrayLength(bytes)));
  env->GetByteArrayRegion(bytes, 0, static_cast<jsize>(text_.size()),
                          reinterpret_cast<jbyte*>(&text_[0]));
}

jbyteArray to_bytes(JNIEnv* env, const std::string& text) {
  jbyteArray made = env->NewByteArray(static_cast<jsize>(text.size()));
  if (made != nullptr) {
    env->SetByteArrayRegion(made, 0, static_cast<jsize>(text.size()),
                            reinterpret_cast<const jbyte*>(text.data()));
  }
  return made;
}

jlongArray to_longs(JNIEnv* env, const std::vector<int64_t>& numbers) {
  const auto count = static_cast<jsize>(numbers.size());
  jlongArray made = env->NewLongArray(count);
  if (made != nullptr) {
    env->SetLongArrayRegion(made, 0, count, reinterpret_cast<const jlong*>(numbers.data()));
  }
  return made;
}

std::vector<int64_t> to_numbers(JNIEnv* env, jlongArray array) {
  static_assert(sizeof(jlong) == sizeof(int64_t), "a long of Java has 64 bits");
  std::vector<int64_t> numbers(static_cast<size_t>(env->GetArrayLength(array)));
  env->GetLongArrayRegion(array, 0, static_cast<jsize>(numbers.size()),
                          reinterpret_cast<jlong*>(numbers.data()));
  return numbers;
}

void* address_of(JNIEnv* env, jobject buffer, jint from) {
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
