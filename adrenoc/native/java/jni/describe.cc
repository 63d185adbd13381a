// What Native.java asks of a model: texts, tensors, times.
#include "convert.h"

using adrenoc_jni::check;
using adrenoc_jni::model_of;
using adrenoc_jni::to_bytes;

namespace {

// As in Native.java.
enum What { kName, kDevice, kNotes, kVersion };

adrenoc_status find_info(adrenoc_model* model, jint bucket, bool is_input, size_t index,
                         adrenoc_tensor_info* info) {
  if (bucket < 0) {
    return is_input ? adrenoc_input_info(model, index, info)
                    : adrenoc_output_info(model, index, info);
  }
  const auto place = static_cast<size_t>(bucket);
  return is_input ? adrenoc_bucket_input_info(model, place, index, info)
                  : adrenoc_bucket_output_info(model, place, index, info);
}

jobject make_tensor(JNIEnv* env, const adrenoc_tensor_info& info) {
  jclass kind = env->FindClass("org/adrenoc/Tensor");
  const jmethodID make = kind == nullptr ? nullptr : env->GetMethodID(kind, "<init>", "([B[B[JJ)V");
  if (make == nullptr) return nullptr;
  const auto rank = static_cast<jsize>(info.rank);
  jlongArray shape = env->NewLongArray(rank);
  jbyteArray name = shape == nullptr ? nullptr : to_bytes(env, info.name);
  jbyteArray type = name == nullptr ? nullptr : to_bytes(env, info.dtype);
  if (type == nullptr) return nullptr;
  env->SetLongArrayRegion(shape, 0, rank, reinterpret_cast<const jlong*>(info.shape));
  return env->NewObject(kind, make, name, type, shape, static_cast<jlong>(info.bytes));
}

}  // namespace

ADRENOC_NATIVE(jbyteArray, text)(JNIEnv* env, jclass, jlong model, jint what) {
  switch (what) {
    case kName:
      return to_bytes(env, adrenoc_model_name(model_of(model)));
    case kDevice:
      return to_bytes(env, adrenoc_device_name(model_of(model)));
    case kNotes:
      return to_bytes(env, adrenoc_notes(model_of(model)));
    default:
      return to_bytes(env, adrenoc_runtime_version());
  }
}

ADRENOC_NATIVE(jint, buckets)(JNIEnv*, jclass, jlong model) {
  return static_cast<jint>(adrenoc_bucket_count(model_of(model)));
}

ADRENOC_NATIVE(jint, signatures)(JNIEnv*, jclass, jlong model) {
  return static_cast<jint>(adrenoc_signature_count(model_of(model)));
}

ADRENOC_NATIVE(jbyteArray, signature)(JNIEnv* env, jclass, jlong model, jint index) {
  return to_bytes(env, adrenoc_signature_name(model_of(model), static_cast<size_t>(index)));
}

ADRENOC_NATIVE(void, setSignature)(JNIEnv* env, jclass, jlong model, jbyteArray name) {
  const adrenoc_jni::Chars text(env, name);
  (void)check(env, adrenoc_set_signature(model_of(model), text.get()));
}

ADRENOC_NATIVE(jint, count)(JNIEnv*, jclass, jlong model, jboolean is_input) {
  return static_cast<jint>(is_input ? adrenoc_input_count(model_of(model))
                                    : adrenoc_output_count(model_of(model)));
}

ADRENOC_NATIVE(jobject, tensor)
(JNIEnv* env, jclass, jlong model, jint bucket, jboolean is_input, jint index) {
  adrenoc_tensor_info info{};
  const auto place = static_cast<size_t>(index);
  if (!check(env, find_info(model_of(model), bucket, is_input, place, &info))) return nullptr;
  return make_tensor(env, info);
}

ADRENOC_NATIVE(jdoubleArray, times)(JNIEnv* env, jclass, jlong model) {
  adrenoc_times times{};
  if (!check(env, adrenoc_get_times(model_of(model), &times))) return nullptr;
  // As the constructor of Times.java reads them.
  const jdouble all[] = {times.open_ms,
                         times.constants_ms,
                         times.build_ms,
                         times.upload_ms,
                         times.compute_ms,
                         times.download_ms,
                         static_cast<jdouble>(times.runs)};
  constexpr jsize count = sizeof(all) / sizeof(all[0]);
  jdoubleArray made = env->NewDoubleArray(count);
  if (made != nullptr) env->SetDoubleArrayRegion(made, 0, count, all);
  return made;
}
