// What Native.java tells and asks over all models: of the device's memory, and of pauses.
#include "convert.h"

using adrenoc_jni::check;

ADRENOC_NATIVE(void, setBudget)(JNIEnv* env, jclass, jlong bytes) {
  check(env, adrenoc_set_memory_budget(static_cast<uint64_t>(bytes)));
}

ADRENOC_NATIVE(void, trimPart)(JNIEnv* env, jclass, jint part) {
  check(env, adrenoc_trim_memory(static_cast<uint32_t>(part)));
}

ADRENOC_NATIVE(jlongArray, memory)(JNIEnv* env, jclass) {
  adrenoc_memory memory{};
  memory.struct_bytes = sizeof(memory);
  if (!check(env, adrenoc_get_memory(&memory))) return nullptr;
  const uint64_t told[] = {memory.models,     memory.evicted,      memory.budget_bytes,
                           memory.used_bytes, memory.pooled_bytes, memory.evictions,
                           memory.returns};
  constexpr jsize count = sizeof(told) / sizeof(told[0]);
  jlongArray made = env->NewLongArray(count);
  if (made != nullptr) {
    env->SetLongArrayRegion(made, 0, count, reinterpret_cast<const jlong*>(told));
  }
  return made;
}

ADRENOC_NATIVE(jboolean, pause)(JNIEnv* env, jclass, jlong timeout_ms) {
  const adrenoc_status status = adrenoc_pause(timeout_ms);
  if (status == ADRENOC_NOT_READY) return JNI_FALSE;
  return check(env, status) ? JNI_TRUE : JNI_FALSE;
}

ADRENOC_NATIVE(void, resume)(JNIEnv* env, jclass) { check(env, adrenoc_resume()); }

ADRENOC_NATIVE(void, setSubmissionLimit)(JNIEnv* env, jclass, jdouble ms) {
  check(env, adrenoc_set_submission_limit(ms));
}
