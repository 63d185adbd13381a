// The methods of Adrenoc.kt: a model from the assets, direct buffers (nothing is copied in Java).
#include <adrenoc.h>
#include <android/asset_manager_jni.h>
#include <jni.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

// As in Adrenoc.kt.
enum What { kName, kDevice, kInput, kOutput };

adrenoc_model* model_of(jlong handle) { return reinterpret_cast<adrenoc_model*>(handle); }

void throw_java(JNIEnv* env, const std::string& said) {
  if (jclass kind = env->FindClass("java/lang/IllegalStateException")) {
    env->ThrowNew(kind, said.c_str());
  }
}

bool check(JNIEnv* env, adrenoc_status status) {
  if (status == ADRENOC_OK) return true;
  throw_java(env, std::string(adrenoc_status_text(status)) + ": " + adrenoc_last_error());
  return false;
}

std::string shape_text(const adrenoc_tensor_info& info) {
  std::string text;
  for (uint32_t axis = 0; axis < info.rank; ++axis) {
    text += (axis == 0 ? "" : "x") + std::to_string(info.shape[axis]);
  }
  return text.empty() ? "scalar" : text;
}

// Who is told each token, in the thread that asked for them.
struct Listener {
  JNIEnv* env;
  jobject object;
  jmethodID hear;
};

int hear_token(int64_t token, void* user) {
  const auto* told = static_cast<const Listener*>(user);
  const jboolean goes_on = told->env->CallBooleanMethod(told->object, told->hear,
                                                        static_cast<jlong>(token));
  return goes_on == JNI_FALSE || told->env->ExceptionCheck() ? 1 : 0;
}

}  // namespace

extern "C" {

JNIEXPORT jlong JNICALL Java_org_adrenoc_sample_Adrenoc_load(JNIEnv* env, jclass, jobject assets,
                                                             jstring name, jstring cache) {
  const char* path = env->GetStringUTFChars(name, nullptr);
  AAsset* asset = AAssetManager_open(AAssetManager_fromJava(env, assets), path, AASSET_MODE_UNKNOWN);
  env->ReleaseStringUTFChars(name, path);
  off64_t offset = 0;
  off64_t bytes = 0;
  // Works for assets that lie uncompressed in the APK: `noCompress` in build.gradle.kts.
  const int file = asset == nullptr ? -1 : AAsset_openFileDescriptor64(asset, &offset, &bytes);
  if (asset != nullptr) AAsset_close(asset);
  if (file < 0) {
    throw_java(env, asset == nullptr ? "there is no such asset"
                                     : "the asset is compressed: androidResources { noCompress += "
                                       "\"tar\" } in build.gradle.kts");
    return 0;
  }
  const char* folder = env->GetStringUTFChars(cache, nullptr);
  adrenoc_options options{};
  options.struct_bytes = sizeof(options);
  options.cache_folder = folder;
  adrenoc_model* model = nullptr;
  const adrenoc_status status = adrenoc_load_fd(file, offset, bytes, &options, &model);
  env->ReleaseStringUTFChars(cache, folder);
  close(file);
  return check(env, status) ? reinterpret_cast<jlong>(model) : 0;
}

JNIEXPORT jint JNICALL Java_org_adrenoc_sample_Adrenoc_count(JNIEnv*, jclass, jlong handle,
                                                             jboolean of_inputs) {
  const adrenoc_model* model = model_of(handle);
  return static_cast<jint>(of_inputs ? adrenoc_input_count(model) : adrenoc_output_count(model));
}

JNIEXPORT jstring JNICALL Java_org_adrenoc_sample_Adrenoc_describe(JNIEnv* env, jclass,
                                                                   jlong handle, jint what,
                                                                   jint index) {
  const adrenoc_model* model = model_of(handle);
  if (what == kName) return env->NewStringUTF(adrenoc_model_name(model));
  if (what == kDevice) return env->NewStringUTF(adrenoc_device_name(model));
  const auto place = static_cast<size_t>(index);
  adrenoc_tensor_info info{};
  const adrenoc_status status = what == kInput ? adrenoc_input_info(model, place, &info)
                                               : adrenoc_output_info(model, place, &info);
  if (!check(env, status)) return nullptr;
  const std::string line = std::string(info.dtype) + "\t" + shape_text(info) + "\t" +
                           std::to_string(info.bytes) + "\t" + info.name;
  return env->NewStringUTF(line.c_str());
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_bind(JNIEnv* env, jclass, jlong handle,
                                                            jboolean is_input, jint index,
                                                            jobject buffer) {
  void* data = env->GetDirectBufferAddress(buffer);
  if (data == nullptr) {
    throw_java(env, "the buffer is not direct: make it with Adrenoc.buffer");
    return;
  }
  const auto bytes = static_cast<size_t>(env->GetDirectBufferCapacity(buffer));
  const auto place = static_cast<size_t>(index);
  check(env, is_input ? adrenoc_bind_input(model_of(handle), place, data, bytes)
                      : adrenoc_bind_output(model_of(handle), place, data, bytes));
}

JNIEXPORT jstring JNICALL Java_org_adrenoc_sample_Adrenoc_verify(JNIEnv* env, jclass,
                                                                 jlong handle) {
  const adrenoc_status status = adrenoc_verify(model_of(handle), nullptr);
  if (status == ADRENOC_WRONG_RESULTS) return env->NewStringUTF(adrenoc_last_error());
  check(env, status);
  return nullptr;
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_run(JNIEnv* env, jclass, jlong handle) {
  check(env, adrenoc_run(model_of(handle)));
}

JNIEXPORT jdouble JNICALL Java_org_adrenoc_sample_Adrenoc_runRepeatedly(JNIEnv* env, jclass,
                                                                        jlong handle, jint runs) {
  double run_ms = 0;
  check(env, adrenoc_run_repeatedly(model_of(handle), static_cast<uint32_t>(runs), &run_ms,
                                    nullptr));
  return run_ms;
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_generate(
    JNIEnv* env, jclass, jlong handle, jlongArray prompt, jint most, jfloat temperature, jint top_k,
    jfloat top_p, jlong seed, jobject listener) {
  const jmethodID hear = env->GetMethodID(env->GetObjectClass(listener), "onToken", "(J)Z");
  if (hear == nullptr) return;  // Java has thrown
  const auto count = static_cast<size_t>(env->GetArrayLength(prompt));
  std::vector<int64_t> tokens(count);
  static_assert(sizeof(jlong) == sizeof(int64_t));
  env->GetLongArrayRegion(prompt, 0, static_cast<jsize>(count),
                          reinterpret_cast<jlong*>(tokens.data()));
  adrenoc_generation how{};
  how.struct_bytes = sizeof(how);
  how.max_tokens = static_cast<uint32_t>(most);
  how.temperature = temperature;
  how.top_k = static_cast<uint32_t>(top_k);
  how.top_p = top_p;
  how.seed = static_cast<uint64_t>(seed);
  Listener told{env, listener, hear};
  const adrenoc_status status = adrenoc_generate(model_of(handle), tokens.data(), count, &how,
                                                 hear_token, &told);
  // What the listener has thrown goes on.
  if (!env->ExceptionCheck()) check(env, status);
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_stop(JNIEnv* env, jclass, jlong handle) {
  check(env, adrenoc_stop(model_of(handle)));
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_rewind(JNIEnv* env, jclass, jlong handle,
                                                              jlong tokens) {
  check(env, adrenoc_rewind(model_of(handle), static_cast<uint64_t>(tokens)));
}

JNIEXPORT jlong JNICALL Java_org_adrenoc_sample_Adrenoc_context(JNIEnv* env, jclass, jlong handle,
                                                                jboolean of_rows) {
  uint64_t tokens = 0;
  uint64_t rows = 0;
  check(env, adrenoc_context(model_of(handle), &tokens, &rows));
  return static_cast<jlong>(of_rows ? rows : tokens);
}

JNIEXPORT jbyteArray JNICALL Java_org_adrenoc_sample_Adrenoc_save(JNIEnv* env, jclass,
                                                                  jlong handle) {
  size_t bytes = 0;
  if (!check(env, adrenoc_save_context(model_of(handle), nullptr, 0, &bytes))) return nullptr;
  std::vector<jbyte> saved(bytes);
  if (!check(env, adrenoc_save_context(model_of(handle), saved.data(), bytes, &bytes))) {
    return nullptr;
  }
  jbyteArray made = env->NewByteArray(static_cast<jsize>(bytes));
  if (made != nullptr) env->SetByteArrayRegion(made, 0, static_cast<jsize>(bytes), saved.data());
  return made;
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_restore(JNIEnv* env, jclass, jlong handle,
                                                               jbyteArray saved) {
  std::vector<jbyte> bytes(static_cast<size_t>(env->GetArrayLength(saved)));
  env->GetByteArrayRegion(saved, 0, static_cast<jsize>(bytes.size()), bytes.data());
  check(env, adrenoc_restore_context(model_of(handle), bytes.data(), bytes.size()));
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_trim(JNIEnv* env, jclass, jlong handle) {
  check(env, adrenoc_trim(model_of(handle)));
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_free(JNIEnv*, jclass, jlong handle) {
  adrenoc_free(model_of(handle));
}

}  // extern "C"
