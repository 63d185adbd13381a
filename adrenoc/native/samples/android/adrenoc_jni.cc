// The methods of Adrenoc.kt: one model, float tensors, direct buffers (nothing is copied in Java).
#include <adrenoc.h>
#include <android/asset_manager_jni.h>
#include <jni.h>
#include <unistd.h>

#include <string>

namespace {

adrenoc_model* model_of(jlong handle) { return reinterpret_cast<adrenoc_model*>(handle); }

void throw_java(JNIEnv* env, adrenoc_status status) {
  const std::string said = std::string(adrenoc_status_text(status)) + ": " + adrenoc_last_error();
  if (jclass kind = env->FindClass("java/lang/IllegalStateException")) {
    env->ThrowNew(kind, said.c_str());
  }
}

bool check(JNIEnv* env, adrenoc_status status) {
  if (status == ADRENOC_OK) return true;
  throw_java(env, status);
  return false;
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
  // Works for assets that lie uncompressed in the APK: `noCompress "tar"` in build.gradle.
  const int file = asset == nullptr ? -1 : AAsset_openFileDescriptor64(asset, &offset, &bytes);
  if (asset != nullptr) AAsset_close(asset);
  const char* folder = env->GetStringUTFChars(cache, nullptr);
  adrenoc_options options{};
  options.struct_bytes = sizeof(options);
  options.cache_folder = folder;
  adrenoc_model* model = nullptr;
  const adrenoc_status status = adrenoc_load_fd(file, offset, bytes, &options, &model);
  env->ReleaseStringUTFChars(cache, folder);
  if (file >= 0) close(file);
  return check(env, status) ? reinterpret_cast<jlong>(model) : 0;
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_bindInput(JNIEnv* env, jclass, jlong handle,
                                                                 jint index, jobject buffer) {
  const auto bytes = static_cast<size_t>(env->GetDirectBufferCapacity(buffer));
  check(env, adrenoc_bind_input(model_of(handle), static_cast<size_t>(index),
                                env->GetDirectBufferAddress(buffer), bytes));
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_bindOutput(JNIEnv* env, jclass, jlong handle,
                                                                  jint index, jobject buffer) {
  const auto bytes = static_cast<size_t>(env->GetDirectBufferCapacity(buffer));
  check(env, adrenoc_bind_output(model_of(handle), static_cast<size_t>(index),
                                 env->GetDirectBufferAddress(buffer), bytes));
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_run(JNIEnv* env, jclass, jlong handle) {
  check(env, adrenoc_run(model_of(handle)));
}

JNIEXPORT void JNICALL Java_org_adrenoc_sample_Adrenoc_free(JNIEnv*, jclass, jlong handle) {
  adrenoc_free(model_of(handle));
}

}  // extern "C"
