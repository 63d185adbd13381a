// How Native.java loads, describes, runs and frees models, and what it tells and asks over all of
// them.
#include <dlfcn.h>

#include "convert.h"

using namespace adrenoc_jni;

namespace {

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
  return require(env, texts, "the options") && require(env, numbers, "the options");
}

// The model that `load` made with the options.
template <typename Load>
jlong loaded(JNIEnv* env, jobjectArray texts, jintArray numbers, jlong cancellation, Load load) {
  if (!has_options(env, texts, numbers)) return 0;
  const Options options(env, texts, numbers, cancellation);
  adrenoc_model* model = nullptr;
  return check(env, load(options.get(), &model)) ? handle_of(model) : 0;
}

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

ADRENOC_NATIVE(jlong, loadFile)
(JNIEnv* env, jclass, jbyteArray path, jobjectArray texts, jintArray numbers, jlong cancellation) {
  const Chars place(env, path);
  return loaded(env, texts, numbers, cancellation, [&](auto* options, auto** made) {
    return adrenoc_load(place.get(), options, made);
  });
}

ADRENOC_NATIVE(jlong, loadDescriptor)
(JNIEnv* env, jclass, jint descriptor, jlong offset, jlong bytes, jobjectArray texts,
 jintArray numbers, jlong cancellation) {
  return loaded(env, texts, numbers, cancellation, [&](auto* options, auto** made) {
    return adrenoc_load_fd(descriptor, offset, bytes, options, made);
  });
}

ADRENOC_NATIVE(jlong, loadBuffer)
(JNIEnv* env, jclass, jobject data, jint from, jint bytes, jobjectArray texts, jintArray numbers,
 jlong cancellation) {
  const void* place = address_of(env, data, from);
  if (place == nullptr) return 0;
  return loaded(env, texts, numbers, cancellation, [&](auto* options, auto** made) {
    return adrenoc_load_memory(place, static_cast<size_t>(bytes), options, made);
  });
}

ADRENOC_NATIVE(jbyteArray, describeDevice)
(JNIEnv* env, jclass, jobjectArray texts, jintArray numbers) {
  if (!has_options(env, texts, numbers)) return nullptr;
  const Options options(env, texts, numbers, 0);
  const char* facts = nullptr;
  if (!check(env, adrenoc_describe_device(options.get(), &facts))) return nullptr;
  return to_bytes(env, facts);
}

ADRENOC_NATIVE(jlong, makeCancellation)(JNIEnv* env, jclass) {
  adrenoc_cancellation* made = nullptr;
  if (!check(env, adrenoc_cancellation_create(&made))) return 0;
  return static_cast<jlong>(reinterpret_cast<intptr_t>(made));
}

ADRENOC_NATIVE(void, cancelLoad)(JNIEnv* env, jclass, jlong handle) {
  (void)check(env, adrenoc_cancellation_cancel(cancellation_of(handle)));
}

ADRENOC_NATIVE(void, freeCancellation)(JNIEnv*, jclass, jlong handle) {
  adrenoc_cancellation_free(cancellation_of(handle));
}

ADRENOC_NATIVE(void, free)(JNIEnv*, jclass, jlong model) { adrenoc_free(model_of(model)); }

ADRENOC_NATIVE(jbyteArray, text)(JNIEnv* env, jclass, jlong model, jint what) {
  switch (what) {
    case kName: return to_bytes(env, adrenoc_model_name(model_of(model)));
    case kDevice: return to_bytes(env, adrenoc_device_name(model_of(model)));
    case kNotes: return to_bytes(env, adrenoc_notes(model_of(model)));
    default: return to_bytes(env, adrenoc_runtime_version());
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
  const Chars text(env, name);
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

ADRENOC_NATIVE(void, chooseShapes)(JNIEnv* env, jclass, jlong model, jobjectArray shapes) {
  if (!require(env, shapes, "the array of shapes")) return;
  const jsize count = env->GetArrayLength(shapes);
  std::vector<std::vector<int64_t>> extents(static_cast<size_t>(count));
  std::vector<adrenoc_shape> all(extents.size());
  for (jsize i = 0; i < count; ++i) {
    const auto place = static_cast<size_t>(i);
    auto* shape = static_cast<jlongArray>(env->GetObjectArrayElement(shapes, i));
    if (shape == nullptr) continue;
    extents[place] = to_numbers(env, shape);
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
  void* data = buffer == nullptr ? nullptr : address_of(env, buffer, from);
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
    throw_status(env, ADRENOC_UNSUPPORTED,
                 "there are no hardware buffers here, expected Android 8 or newer");
    return;
  }
  const auto place = static_cast<size_t>(index);
  check(env, is_input ? adrenoc_bind_input_hardware_buffer(model_of(model), place, found)
                      : adrenoc_bind_output_hardware_buffer(model_of(model), place, found));
}

ADRENOC_NATIVE_DEED(run, adrenoc_run(model))
ADRENOC_NATIVE_DEED(start, adrenoc_run_async(model))
ADRENOC_NATIVE_DEED(finish, adrenoc_wait(model, -1))
ADRENOC_NATIVE_DEED(cancel, adrenoc_cancel(model))
ADRENOC_NATIVE_DEED(verify, adrenoc_verify(model, nullptr))
ADRENOC_NATIVE_DEED(trim, adrenoc_trim(model))

ADRENOC_NATIVE(jdouble, runRepeatedly)(JNIEnv* env, jclass, jlong model, jint runs) {
  double run_ms = 0;
  const auto count = static_cast<uint32_t>(runs < 0 ? 0 : runs);
  check(env, adrenoc_run_repeatedly(model_of(model), count, &run_ms, nullptr));
  return run_ms;
}

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
  std::vector<int64_t> told;
  for (const uint64_t one :
       {uint64_t{memory.models}, uint64_t{memory.evicted}, memory.budget_bytes, memory.used_bytes,
        memory.pooled_bytes, memory.evictions, memory.returns}) {
    told.push_back(static_cast<int64_t>(one));
  }
  return to_longs(env, told);
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
