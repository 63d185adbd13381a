// How Native.java makes a decoder's tokens.
#include "convert.h"

using namespace adrenoc_jni;

namespace {

// Who is told tokens or text, in the thread that asked for them.
struct Listener {
  JNIEnv* env;
  jobject object;
  jmethodID hear;

  // `kind` is its interface, null where Java has thrown; `hear` is null then, too.
  Listener(JNIEnv* own, jobject listener, jclass kind, const char* method, const char* takes)
      : env(own),
        object(listener),
        hear(kind == nullptr ? nullptr : own->GetMethodID(kind, method, takes)) {}
  // What C takes for "end it".
  [[nodiscard]] int ends(jboolean goes_on) const {
    return env->ExceptionCheck() || goes_on == JNI_FALSE ? 1 : 0;
  }
};

int hear_token(int64_t token, void* user) {
  const auto* told = static_cast<const Listener*>(user);
  return told->ends(
      told->env->CallBooleanMethod(told->object, told->hear, static_cast<jlong>(token)));
}

int hear_text(const char* piece, void* user) {
  const auto* told = static_cast<const Listener*>(user);
  jbyteArray bytes = to_bytes(told->env, piece);
  if (bytes == nullptr) return 1;
  const jboolean goes_on = told->env->CallBooleanMethod(told->object, told->hear, bytes);
  told->env->DeleteLocalRef(bytes);
  return told->ends(goes_on);
}

// Texts of Java's class Text.
std::vector<Chars> to_texts(JNIEnv* env, jobjectArray array) {
  std::vector<Chars> texts;
  for (jsize i = 0; i < env->GetArrayLength(array); ++i) {
    auto bytes = static_cast<jbyteArray>(env->GetObjectArrayElement(array, i));
    texts.emplace_back(env, bytes);
    env->DeleteLocalRef(bytes);
  }
  return texts;
}

// How tokens are picked, and what it points to.
class How {
 public:
  // All of it is there (`is_there`).
  How(JNIEnv* env, jint most, jfloatArray drawing, jint top_k, jlong seed, jlongArray ends,
      jlongArray biased, jfloatArray bias, jobjectArray stops)
      : ends_(1), biased_(to_numbers(env, biased)), added_(biased_.size()) {
    plain.struct_bytes = sizeof(plain);
    // An array without elements may have no memory, and null stands for the model's own ends.
    if (ends != nullptr) {
      ends_ = to_numbers(env, ends);
      plain.end_count = ends_.size();
      ends_.push_back(0);
      plain.end_tokens = ends_.data();
    }
    jfloat drawn[6] = {};
    env->GetFloatArrayRegion(drawing, 0, 6, drawn);
    env->GetFloatArrayRegion(bias, 0, static_cast<jsize>(added_.size()), added_.data());
    plain.bias_tokens = biased_.data();
    plain.bias = added_.data();
    plain.bias_count = added_.size();
    plain.max_tokens = static_cast<uint32_t>(most);
    plain.temperature = drawn[0];
    plain.top_p = drawn[1];
    plain.min_p = drawn[2];
    plain.repetition_penalty = drawn[3];
    plain.presence_penalty = drawn[4];
    plain.frequency_penalty = drawn[5];
    plain.top_k = static_cast<uint32_t>(top_k);
    plain.seed = static_cast<uint64_t>(seed);
    if (stops == nullptr) return;
    stops_ = to_texts(env, stops);
    for (const Chars& stop : stops_) stop_texts_.push_back(stop.get());
    plain.stop_texts = stop_texts_.data();
    plain.stop_count = stop_texts_.size();
  }
  How(const How&) = delete;
  How& operator=(const How&) = delete;

  [[nodiscard]] static bool is_there(JNIEnv* env, jfloatArray drawing, jlongArray biased,
                                     jfloatArray bias) {
    return require(env, drawing, "how to draw") && require(env, biased, "the tokens of the bias") &&
           require(env, bias, "the bias");
  }

  adrenoc_generation plain{};

 private:
  std::vector<int64_t> ends_;
  std::vector<int64_t> biased_;
  std::vector<float> added_;
  std::vector<Chars> stops_{};
  std::vector<const char*> stop_texts_{};
};

}  // namespace

ADRENOC_NATIVE(void, generate)
(JNIEnv* env, jclass, jlong model, jlongArray prompt, jint most, jfloatArray drawing, jint top_k,
 jlong seed, jlongArray ends, jlongArray biased, jfloatArray bias, jobject listener) {
  if (!require(env, prompt, "the prompt") || !How::is_there(env, drawing, biased, bias) ||
      !require(env, listener, "the listener")) {
    return;
  }
  Listener told(env, listener, env->FindClass("org/adrenoc/OnToken"), "onToken", "(J)Z");
  if (told.hear == nullptr) return;  // Java has thrown
  const std::vector<int64_t> tokens = to_numbers(env, prompt);
  const How how(env, most, drawing, top_k, seed, ends, biased, bias, nullptr);
  const adrenoc_status status = adrenoc_generate(model_of(model), tokens.data(), tokens.size(),
                                                 &how.plain, hear_token, &told);
  // What the listener has thrown goes on.
  if (!env->ExceptionCheck()) check(env, status);
}

ADRENOC_NATIVE(void, answer)
(JNIEnv* env, jclass, jlong model, jobjectArray roles, jobjectArray contents, jint most,
 jfloatArray drawing, jint top_k, jlong seed, jlongArray ends, jlongArray biased, jfloatArray bias,
 jobjectArray stops, jobject listener) {
  if (!require(env, contents, "the messages") || !How::is_there(env, drawing, biased, bias) ||
      !require(env, stops, "the texts that stop") || !require(env, listener, "the listener")) {
    return;
  }
  Listener told(env, listener, env->FindClass("org/adrenoc/OnPiece"), "onPiece", "([B)Z");
  if (told.hear == nullptr) return;  // Java has thrown
  const How how(env, most, drawing, top_k, seed, ends, biased, bias, stops);
  const std::vector<Chars> said = to_texts(env, contents);
  adrenoc_status status = ADRENOC_OK;
  if (roles == nullptr) {
    status = adrenoc_continue(model_of(model), said.at(0).get(), &how.plain, hear_text, &told);
  } else {
    const std::vector<Chars> who = to_texts(env, roles);
    std::vector<adrenoc_message> messages;
    for (size_t i = 0; i < said.size() && i < who.size(); ++i) {
      messages.push_back({who[i].get(), said[i].get()});
    }
    messages.reserve(1);  // no message is no null
    status = adrenoc_answer(model_of(model), messages.data(), messages.size(), &how.plain,
                            hear_text, &told);
  }
  if (!env->ExceptionCheck()) check(env, status);
}

ADRENOC_NATIVE(jfloatArray, usual)(JNIEnv* env, jclass, jlong model) {
  adrenoc_generation how{};
  how.struct_bytes = sizeof(how);
  if (!check(env, adrenoc_usual_generation(model_of(model), &how))) return nullptr;
  const jfloat numbers[] = {how.temperature,
                            how.top_p,
                            how.min_p,
                            how.repetition_penalty,
                            how.presence_penalty,
                            how.frequency_penalty,
                            static_cast<jfloat>(how.top_k)};
  jfloatArray made = env->NewFloatArray(7);
  if (made != nullptr) env->SetFloatArrayRegion(made, 0, 7, numbers);
  return made;
}

ADRENOC_NATIVE(jlongArray, encode)
(JNIEnv* env, jclass, jlong model, jbyteArray text, jboolean with_special) {
  if (!require(env, text, "the text")) return nullptr;
  const std::string said = Chars(env, text).get();
  const int special = with_special ? 1 : 0;
  size_t count = 0;
  if (!check(env, adrenoc_encode(model_of(model), said.c_str(), said.size(), special, nullptr, 0,
                                 &count))) {
    return nullptr;
  }
  std::vector<int64_t> tokens(count + 1);  // null is no array
  if (!check(env, adrenoc_encode(model_of(model), said.c_str(), said.size(), special, tokens.data(),
                                 count, &count))) {
    return nullptr;
  }
  tokens.resize(count);
  return to_longs(env, tokens);
}

ADRENOC_NATIVE(jbyteArray, decode)(JNIEnv* env, jclass, jlong model, jlongArray tokens) {
  if (!require(env, tokens, "the tokens")) return nullptr;
  const std::vector<int64_t> given = to_numbers(env, tokens);
  size_t bytes = 0;
  if (!check(env,
             adrenoc_decode(model_of(model), given.data(), given.size(), nullptr, 0, &bytes))) {
    return nullptr;
  }
  std::string text(bytes + 1, '\0');
  if (!check(env, adrenoc_decode(model_of(model), given.data(), given.size(), &text[0], bytes,
                                 &bytes))) {
    return nullptr;
  }
  text.resize(bytes);
  return to_bytes(env, text);
}

ADRENOC_NATIVE_DEED(stop, adrenoc_stop(model))

ADRENOC_NATIVE(jlong, context)(JNIEnv* env, jclass, jlong model, jboolean of_rows) {
  uint64_t tokens = 0;
  uint64_t rows = 0;
  check(env, adrenoc_context(model_of(model), &tokens, &rows));
  return static_cast<jlong>(of_rows ? rows : tokens);
}

ADRENOC_NATIVE(void, rewind)(JNIEnv* env, jclass, jlong model, jlong tokens) {
  check(env, adrenoc_rewind(model_of(model), static_cast<uint64_t>(tokens)));
}

ADRENOC_NATIVE(jbyteArray, saveContext)(JNIEnv* env, jclass, jlong model) {
  size_t bytes = 0;
  if (!check(env, adrenoc_save_context(model_of(model), nullptr, 0, &bytes))) return nullptr;
  if (bytes > INT32_MAX) {
    throw_status(env, ADRENOC_OUT_OF_MEMORY, "the context is too large for an array");
    return nullptr;
  }
  jbyteArray made = env->NewByteArray(static_cast<jsize>(bytes));
  jbyte* room = made == nullptr ? nullptr : env->GetByteArrayElements(made, nullptr);
  if (room == nullptr) return nullptr;
  const adrenoc_status status = adrenoc_save_context(model_of(model), room, bytes, &bytes);
  env->ReleaseByteArrayElements(made, room, 0);
  return check(env, status) ? made : nullptr;
}

ADRENOC_NATIVE(void, restoreContext)(JNIEnv* env, jclass, jlong model, jbyteArray saved) {
  if (!require(env, saved, "the saved context")) return;
  const auto bytes = static_cast<size_t>(env->GetArrayLength(saved));
  jbyte* data = env->GetByteArrayElements(saved, nullptr);
  if (data == nullptr) return;
  const adrenoc_status status = adrenoc_restore_context(model_of(model), data, bytes);
  env->ReleaseByteArrayElements(saved, data, JNI_ABORT);
  check(env, status);
}
