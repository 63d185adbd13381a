// How Native.java loads models and frees them.
#include "convert.h"

namespace {

using adrenoc_jni::Chars;

adrenoc_cancellation* cancellation_of(jlong handle) {
  return reinterpret_cast<adrenoc_cancellation*>(static_cast<intptr_t>(handle));
}

// The arrays of Options.java, as the C API takes them.
class Options {
 public:
  Options(JNIEnv* env, jobjectArray texts, jintArray numbers, jlong cancellation)
      : device_(text(env, texts, 0)), opencl_(text(env, texts, 1)), cache_(text(env, texts, 2)) {
    jint all[6] = {};
    env->GetIntArrayRegion(numbers, 0, 6, all);
    options_.struct_bytes = sizeof(options_);
    options_.device = device_.get();
    options_.opencl_library = opencl_.get();
    options_.cache_folder = cache_.get();
    options_.trust_files = static_cast<uint32_t>(all[0]);
    options_.qualcomm_programs = static_cast<uint32_t>(all[1]);
    options_.no_record = static_cast<uint32_t>(all[2]);
    options_.performance = static_cast<uint32_t>(all[3]);
    options_.priority = static_cast<uint32_t>(all[4]);
    options_.cancel_within_ms = all[5];
    options_.cancellation = cancellation_of(cancellation);
  }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  const adrenoc_options* get() const { return &options_; }

 private:
  static Chars text(JNIEnv* env, jobjectArray texts, jsize index) {
    return Chars(env, static_cast<jbyteArray>(env->GetObjectArrayElement(texts, index)));
  }

  Chars device_;
  Chars opencl_;
  Chars cache_;
  adrenoc_options options_{};
};

bool has_options(JNIEnv* env, jobjectArray texts, jintArray numbers) {
  return adrenoc_jni::require(env, texts, "the options") &&
         adrenoc_jni::require(env, numbers, "the options");
}

jlong finish(JNIEnv* env, adrenoc_status status, adrenoc_model* model) {
  return adrenoc_jni::check(env, status) ? adrenoc_jni::handle_of(model) : 0;
}

}  // namespace

ADRENOC_NATIVE(jlong, loadFile)
(JNIEnv* env, jclass, jbyteArray path, jobjectArray texts, jintArray numbers, jlong cancellation) {
  if (!has_options(env, texts, numbers)) return 0;
  const Options options(env, texts, numbers, cancellation);
  const Chars place(env, path);
  adrenoc_model* model = nullptr;
  const adrenoc_status status = adrenoc_load(place.get(), options.get(), &model);
  return finish(env, status, model);
}

ADRENOC_NATIVE(jlong, loadDescriptor)
(JNIEnv* env, jclass, jint descriptor, jlong offset, jlong bytes, jobjectArray texts,
 jintArray numbers, jlong cancellation) {
  if (!has_options(env, texts, numbers)) return 0;
  const Options options(env, texts, numbers, cancellation);
  adrenoc_model* model = nullptr;
  const adrenoc_status status = adrenoc_load_fd(descriptor, offset, bytes, options.get(), &model);
  return finish(env, status, model);
}

ADRENOC_NATIVE(jlong, loadBuffer)
(JNIEnv* env, jclass, jobject data, jint from, jint bytes, jobjectArray texts, jintArray numbers,
 jlong cancellation) {
  if (!has_options(env, texts, numbers)) return 0;
  const Options options(env, texts, numbers, cancellation);
  const void* place = adrenoc_jni::address_of(env, data, from);
  if (place == nullptr) return 0;
  adrenoc_model* model = nullptr;
  const auto size = static_cast<size_t>(bytes);
  const adrenoc_status status = adrenoc_load_memory(place, size, options.get(), &model);
  return finish(env, status, model);
}

ADRENOC_NATIVE(jbyteArray, describeDevice)
(JNIEnv* env, jclass, jobjectArray texts, jintArray numbers) {
  if (!has_options(env, texts, numbers)) return nullptr;
  const Options options(env, texts, numbers, 0);
  const char* facts = nullptr;
  if (!adrenoc_jni::check(env, adrenoc_describe_device(options.get(), &facts))) return nullptr;
  return adrenoc_jni::to_bytes(env, facts);
}

ADRENOC_NATIVE(jlong, makeCancellation)(JNIEnv* env, jclass) {
  adrenoc_cancellation* made = nullptr;
  if (!adrenoc_jni::check(env, adrenoc_cancellation_create(&made))) return 0;
  return static_cast<jlong>(reinterpret_cast<intptr_t>(made));
}

ADRENOC_NATIVE(void, cancelLoad)(JNIEnv* env, jclass, jlong handle) {
  (void)adrenoc_jni::check(env, adrenoc_cancellation_cancel(cancellation_of(handle)));
}

ADRENOC_NATIVE(void, freeCancellation)(JNIEnv*, jclass, jlong handle) {
  adrenoc_cancellation_free(cancellation_of(handle));
}

ADRENOC_NATIVE(void, free)(JNIEnv*, jclass, jlong model) {
  adrenoc_free(adrenoc_jni::model_of(model));
}
