// How Native.java makes a picture a tensor.
#include <initializer_list>

#include "convert.h"
#include "pixels.h"

using adrenoc_jni::Picture;
using adrenoc_jni::Wanted;

namespace {

// As ImageInput.java has them: width, height and, for each plane, its strides.
Picture read_picture(const jint* facts, bool is_yuv) {
  Picture picture{};
  picture.is_yuv = is_yuv;
  picture.width = facts[0];
  picture.height = facts[1];
  for (int plane = 0; plane < (is_yuv ? 3 : 1); ++plane) {
    picture.planes[plane].row_stride = static_cast<size_t>(facts[2 + 2 * plane]);
    picture.planes[plane].pixel_stride = static_cast<size_t>(facts[3 + 2 * plane]);
  }
  return picture;
}

// As ImageInput.java has it: width, height, quarter turns, crops, is planar, is BGR, type.
Wanted read_wanted(const jint* how, const jfloat* scaling) {
  Wanted wanted{};
  wanted.width = how[0];
  wanted.height = how[1];
  wanted.quarter_turns = how[2];
  wanted.crops = how[3] != 0;
  wanted.is_planar = how[4] != 0;
  wanted.is_bgr = how[5] != 0;
  wanted.type = static_cast<Wanted::Type>(how[6]);
  for (int c = 0; c < 3; ++c) {
    wanted.mean[c] = scaling[c];
    wanted.deviation[c] = scaling[3 + c];
  }
  return wanted;
}

}  // namespace

ADRENOC_NATIVE(void, writePixels)
(JNIEnv* env, jclass, jobjectArray planes, jintArray froms, jintArray bytes, jintArray facts,
 jintArray how, jfloatArray scaling, jobject output, jint to) {
  for (jobject one : std::initializer_list<jobject>{planes, froms, bytes, facts, how, scaling}) {
    if (!adrenoc_jni::require(env, one, "an array of the picture's facts")) return;
  }
  const jsize count = env->GetArrayLength(planes);
  if (count != 1 && count != 3) {
    adrenoc_jni::throw_status(
        env, ADRENOC_BAD_ARGUMENT,
        "the picture has " + std::to_string(count) + " planes, expected 1 of RGBA or 3 of YUV");
    return;
  }
  jint starts[3] = {}, sizes[3] = {}, seen[8] = {}, asked[7] = {};
  jfloat scaled[6] = {};
  env->GetIntArrayRegion(froms, 0, count, starts);
  env->GetIntArrayRegion(bytes, 0, count, sizes);
  env->GetIntArrayRegion(facts, 0, 2 + 2 * count, seen);
  env->GetIntArrayRegion(how, 0, 7, asked);
  env->GetFloatArrayRegion(scaling, 0, 6, scaled);
  if (env->ExceptionCheck()) return;
  Picture picture = read_picture(seen, count == 3);
  for (jsize i = 0; i < count; ++i) {
    jobject plane = env->GetObjectArrayElement(planes, i);
    const void* data = adrenoc_jni::address_of(env, plane, starts[i]);
    if (data == nullptr) return;
    picture.planes[i].data = static_cast<const uint8_t*>(data);
    const size_t reach = adrenoc_jni::reach_of(picture, i);
    if (reach > static_cast<size_t>(sizes[i])) {
      adrenoc_jni::throw_status(env, ADRENOC_BAD_ARGUMENT,
                                "plane " + std::to_string(i) + " has " + std::to_string(sizes[i]) +
                                    " bytes, expected " + std::to_string(reach));
      return;
    }
  }
  void* made = adrenoc_jni::address_of(env, output, to);
  if (made != nullptr) adrenoc_jni::write_pixels(picture, read_wanted(asked, scaled), made);
}
