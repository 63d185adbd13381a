// How Native.java runs a model.
#include <dlfcn.h>

#include "convert.h"

using adrenoc_jni::check;
using adrenoc_jni::model_of;
using adrenoc_jni::require;

namespace {

// The hardware buffer of a Java object, by a function of libandroid.so that came with API level 26;
// null where the system has none.
AHardwareBuffer* hardware_buffer_of(JNIEnv* env, jobject buffer) {
  using FromJava = AHardwareBuffer* (*)(JNIEnv*, jobject);
  static const auto from_java = [] {
    void* library = dlopen("libandroid.so", RTLD_NOW | RTLD_LOCAL);
    void* found =
        library == nullptr ? nullptr : dlsym(library, "AHardwareBuffer_fromHardwareBuffer");
    return reinterpret_cast<FromJava>(found);
  }();
  return from_java == nullptr ? nullptr : from_java(env, buffer);
}

}  // namespace

ADRENOC_NATIVE(void, chooseShapes)(JNIEnv* env, jclass, jlong model, jobjectArray shapes) {
  if (!require(env, shapes, "the array of shapes")) return;
  const jsize count = env->GetArrayLength(shapes);
  std::vector<std::vector<int64_t>> extents(static_cast<size_t>(count));
  std::vector<adrenoc_shape> all(extents.size());
  for (jsize i = 0; i < count; ++i) {
    const auto place = static_cast<size_t>(i);
    auto* shape = static_cast<jlongArray>(env->GetObjectArrayElement(shapes, i));
    if (shape == nullptr) continue;
    extents[place] = adrenoc_jni::to_numbers(env, shape);
    // A scalar has no extents, and is not left open.
    static const int64_t none = 0;
    all[place].extents = extents[place].empty() ? &none : extents[place].data();
    all[place].rank = static_cast<uint32_t>(extents[place].size());
    env->DeleteLocalRef(shape);
  }
  check(env, adrenoc_set_input_shapes(model_of(model), all.data(), all.size()));
}

ADRENOC_NATIVE(void, bind)
(JNIEnv* env, jclass, jlong model, jboolean is_input, jint index, jobject buffer, jint from,
 jint bytes) {
  void* data = buffer == nullptr ? nullptr : adrenoc_jni::address_of(env, buffer, from);
  if (buffer != nullptr && data == nullptr) return;
  const auto place = static_cast<size_t>(index);
  const auto size = static_cast<size_t>(bytes);
  check(env, is_input ? adrenoc_bind_input(model_of(model), place, data, size)
                      : adrenoc_bind_output(model_of(model), place, data, size));
}

ADRENOC_NATIVE(void, bindHardware)
(JNIEnv* env, jclass, jlong model, jboolean is_input, jint index, jobject buffer) {
  if (!require(env, buffer, "the hardware buffer")) return;
  AHardwareBuffer* found = hardware_buffer_of(env, buffer);
  if (found == nullptr) {
    adrenoc_jni::throw_status(env, ADRENOC_UNSUPPORTED,
                              "there are no hardware buffers here, expected Android 8 or newer");
    return;
  }
  const auto place = static_cast<size_t>(index);
  check(env, is_input ? adrenoc_bind_input_hardware_buffer(model_of(model), place, found)
                      : adrenoc_bind_output_hardware_buffer(model_of(model), place, found));
}

ADRENOC_NATIVE(void, run)(JNIEnv* env, jclass, jlong model) {
  check(env, adrenoc_run(model_of(model)));
}

ADRENOC_NATIVE(void, start)(JNIEnv* env, jclass, jlong model) {
  check(env, adrenoc_run_async(model_of(model)));
}

ADRENOC_NATIVE(void, finish)(JNIEnv* env, jclass, jlong model) {
  check(env, adrenoc_wait(model_of(model), -1));
}

ADRENOC_NATIVE(void, cancel)(JNIEnv* env, jclass, jlong model) {
  check(env, adrenoc_cancel(model_of(model)));
}

ADRENOC_NATIVE(jdouble, runRepeatedly)(JNIEnv* env, jclass, jlong model, jint runs) {
  double run_ms = 0;
  const auto count = static_cast<uint32_t>(runs < 0 ? 0 : runs);
  check(env, adrenoc_run_repeatedly(model_of(model), count, &run_ms, nullptr));
  return run_ms;
}

ADRENOC_NATIVE(void, verify)(JNIEnv* env, jclass, jlong model) {
  check(env, adrenoc_verify(model_of(model), nullptr));
}

ADRENOC_NATIVE(void, trim)(JNIEnv* env, jclass, jlong model) {
  check(env, adrenoc_trim(model_of(model)));
}
