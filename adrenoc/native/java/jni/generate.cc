// How Native.java makes a decoder's tokens.
#include "convert.h"

using adrenoc_jni::check;
using adrenoc_jni::model_of;
using adrenoc_jni::require;

namespace {

// Who is told each token, in the thread that asked for them.
struct Listener {
  JNIEnv* env;
  jobject object;
  jmethodID hear;
};

int hear_token(int64_t token, void* user) {
  const auto* told = static_cast<const Listener*>(user);
  const jboolean goes_on =
      told->env->CallBooleanMethod(told->object, told->hear, static_cast<jlong>(token));
  return told->env->ExceptionCheck() || goes_on == JNI_FALSE ? 1 : 0;
}

}  // namespace

extern "C" {

JNIEXPORT void JNICALL Java_org_adrenoc_Native_generate(JNIEnv* env, jclass, jlong model,
                                                        jlongArray prompt, jint most,
                                                        jfloatArray drawing, jint top_k, jlong seed,
                                                        jlongArray ends, jlongArray biased,
                                                        jfloatArray bias, jobject listener) {
  if (!require(env, prompt, "the prompt") || !require(env, drawing, "how to draw") ||
      !require(env, biased, "the tokens of the bias") || !require(env, bias, "the bias") ||
      !require(env, listener, "the listener")) {
    return;
  }
  jclass kind = env->FindClass("org/adrenoc/OnToken");
  const jmethodID hear = kind == nullptr ? nullptr : env->GetMethodID(kind, "onToken", "(J)Z");
  if (hear == nullptr) return;  // Java has thrown
  const std::vector<int64_t> tokens = adrenoc_jni::to_numbers(env, prompt);
  // An array without elements may have no memory, and null stands for the model's own ends.
  std::vector<int64_t> last(1);
  adrenoc_generation how{};
  how.struct_bytes = sizeof(how);
  if (ends != nullptr) {
    last = adrenoc_jni::to_numbers(env, ends);
    how.end_count = last.size();
    last.push_back(0);
    how.end_tokens = last.data();
  }
  jfloat drawn[6] = {};
  env->GetFloatArrayRegion(drawing, 0, 6, drawn);
  const std::vector<int64_t> changed = adrenoc_jni::to_numbers(env, biased);
  std::vector<float> added(changed.size());
  env->GetFloatArrayRegion(bias, 0, static_cast<jsize>(added.size()), added.data());
  how.bias_tokens = changed.data();
  how.bias = added.data();
  how.bias_count = added.size();
  how.max_tokens = static_cast<uint32_t>(most);
  how.temperature = drawn[0];
  how.top_p = drawn[1];
  how.min_p = drawn[2];
  how.repetition_penalty = drawn[3];
  how.presence_penalty = drawn[4];
  how.frequency_penalty = drawn[5];
  how.top_k = static_cast<uint32_t>(top_k);
  how.seed = static_cast<uint64_t>(seed);
  Listener told{env, listener, hear};
  const adrenoc_status status =
      adrenoc_generate(model_of(model), tokens.data(), tokens.size(), &how, hear_token, &told);
  // What the listener has thrown goes on.
  if (!env->ExceptionCheck()) check(env, status);
}

JNIEXPORT void JNICALL Java_org_adrenoc_Native_stop(JNIEnv* env, jclass, jlong model) {
  check(env, adrenoc_stop(model_of(model)));
}

JNIEXPORT jlong JNICALL Java_org_adrenoc_Native_context(JNIEnv* env, jclass, jlong model,
                                                        jboolean of_rows) {
  uint64_t tokens = 0;
  uint64_t rows = 0;
  check(env, adrenoc_context(model_of(model), &tokens, &rows));
  return static_cast<jlong>(of_rows ? rows : tokens);
}

JNIEXPORT void JNICALL Java_org_adrenoc_Native_rewind(JNIEnv* env, jclass, jlong model,
                                                      jlong tokens) {
  check(env, adrenoc_rewind(model_of(model), static_cast<uint64_t>(tokens)));
}

JNIEXPORT jbyteArray JNICALL Java_org_adrenoc_Native_saveContext(JNIEnv* env, jclass,
                                                                 jlong model) {
  size_t bytes = 0;
  if (!check(env, adrenoc_save_context(model_of(model), nullptr, 0, &bytes))) return nullptr;
  if (bytes > INT32_MAX) {
    adrenoc_jni::throw_status(env, ADRENOC_OUT_OF_MEMORY, "the context is too large for an array");
    return nullptr;
  }
  jbyteArray made = env->NewByteArray(static_cast<jsize>(bytes));
  jbyte* room = made == nullptr ? nullptr : env->GetByteArrayElements(made, nullptr);
  if (room == nullptr) return nullptr;
  const adrenoc_status status = adrenoc_save_context(model_of(model), room, bytes, &bytes);
  env->ReleaseByteArrayElements(made, room, 0);
  return check(env, status) ? made : nullptr;
}

JNIEXPORT void JNICALL Java_org_adrenoc_Native_restoreContext(JNIEnv* env, jclass, jlong model,
                                                              jbyteArray saved) {
  if (!require(env, saved, "the saved context")) return;
  const auto bytes = static_cast<size_t>(env->GetArrayLength(saved));
  jbyte* data = env->GetByteArrayElements(saved, nullptr);
  if (data == nullptr) return;
  const adrenoc_status status = adrenoc_restore_context(model_of(model), data, bytes);
  env->ReleaseByteArrayElements(saved, data, JNI_ABORT);
  check(env, status);
}

}  // extern "C"
