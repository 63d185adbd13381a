// How Native.java makes a picture a tensor: pixels of a camera or a picture are cut out, resized,
// turned and scaled to numbers.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "convert.h"

using namespace adrenoc_jni;

namespace {

// A picture in memory: one plane of RGBA, or three of luma and two chromas at half the size
// (Android's YUV_420_888), each with its strides in bytes.
struct Picture {
  struct Plane {
    const uint8_t* data;
    size_t row_stride;
    size_t pixel_stride;
  };
  Plane planes[3];
  int width;
  int height;
  bool is_yuv;
};

// What is made of it.
struct Wanted {
  enum Type { kFloat, kUnsigned, kSigned };

  int width;  // after turning
  int height;
  int quarter_turns;  // clockwise
  bool crops;         // the middle of the wanted proportions; else all, stretched
  bool is_planar;     // channels one behind the other; else beside each other
  bool is_bgr;
  Type type;  // kFloat: (value / 255 - mean) / deviation; kUnsigned: value; kSigned: value - 128
  float mean[3];  // of red, green, blue
  float deviation[3];
};

// `output` has room for 3 * width * height elements.  Each pixel is the mean of those that it
// covers, weighted by a triangle: what is made smaller does not flicker.
void write_pixels(const Picture& picture, const Wanted& wanted, void* output);

constexpr int kChannels = 3;

// Which source pixels one pixel of the result is the mean of, and by which weights.
struct Taps {
  int first;
  std::vector<float> weights;
};

// Along one axis: `count` results of the pixels from `from` on, `length` of them, of `size`.
std::vector<Taps> make_taps(double from, double length, int size, int count) {
  const double scale = length / count;
  const double support = std::max(scale, 1.0);
  std::vector<Taps> all(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const double center = from + (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(std::floor(center - support + 0.5)));
    const int end = std::min(size, static_cast<int>(std::floor(center + support + 0.5)));
    Taps& taps = all[static_cast<size_t>(i)];
    taps.first = first;
    double sum = 0;
    for (int x = first; x < end; ++x) {
      const double weight = std::max(0.0, 1.0 - std::abs((x + 0.5 - center) / support));
      taps.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : taps.weights) weight = static_cast<float>(weight / sum);
  }
  return all;
}

float clamp(float value) { return std::min(255.0f, std::max(0.0f, value)); }

// One row as red, green, blue.
void read_row(const Picture& picture, int y, std::vector<float>* row) {
  const Picture::Plane* planes = picture.planes;
  const uint8_t* luma = planes[0].data + static_cast<size_t>(y) * planes[0].row_stride;
  for (int x = 0; x < picture.width; ++x) {
    float* rgb = row->data() + static_cast<size_t>(x) * kChannels;
    const uint8_t* pixel = luma + static_cast<size_t>(x) * planes[0].pixel_stride;
    if (!picture.is_yuv) {
      std::copy(pixel, pixel + kChannels, rgb);
      continue;
    }
    const auto chroma = [&](int plane) {
      const Picture::Plane& p = planes[plane];
      const size_t at =
          static_cast<size_t>(y / 2) * p.row_stride + static_cast<size_t>(x / 2) * p.pixel_stride;
      return static_cast<float>(p.data[at]) - 128.0f;
    };
    // BT.601 over the full range, as cameras of Android give it.
    const float bright = pixel[0], blue = chroma(1), red = chroma(2);
    rgb[0] = clamp(bright + 1.402f * red);
    rgb[1] = clamp(bright - 0.344136f * blue - 0.714136f * red);
    rgb[2] = clamp(bright + 1.772f * blue);
  }
}

// The picture at `width` x `height`, not turned, as red, green, blue.
std::vector<float> resize(const Picture& picture, const Wanted& wanted, int width, int height) {
  double from_x = 0, from_y = 0, length_x = picture.width, length_y = picture.height;
  if (wanted.crops) {
    const double scale = std::min(length_x / width, length_y / height);
    from_x = (length_x - scale * width) / 2;
    from_y = (length_y - scale * height) / 2;
    length_x = scale * width;
    length_y = scale * height;
  }
  const std::vector<Taps> across = make_taps(from_x, length_x, picture.width, width);
  const std::vector<Taps> down = make_taps(from_y, length_y, picture.height, height);
  const size_t result_row = static_cast<size_t>(width) * kChannels;
  std::vector<float> result(result_row * static_cast<size_t>(height));
  std::vector<float> row(static_cast<size_t>(picture.width) * kChannels);
  std::vector<float> narrow(result_row);
  for (int y = down.front().first;
       y < down.back().first + static_cast<int>(down.back().weights.size()); ++y) {
    read_row(picture, y, &row);
    std::fill(narrow.begin(), narrow.end(), 0.0f);
    for (size_t x = 0; x < across.size(); ++x) {
      const float* from = row.data() + static_cast<size_t>(across[x].first) * kChannels;
      for (const float weight : across[x].weights) {
        for (int c = 0; c < kChannels; ++c) narrow[x * kChannels + c] += weight * *from++;
      }
    }
    for (size_t i = 0; i < down.size(); ++i) {
      const int tap = y - down[i].first;
      if (tap < 0 || tap >= static_cast<int>(down[i].weights.size())) continue;
      const float weight = down[i].weights[static_cast<size_t>(tap)];
      float* to = result.data() + i * result_row;
      for (size_t x = 0; x < result_row; ++x) to[x] += weight * narrow[x];
    }
  }
  return result;
}

void store(const Wanted& wanted, float value, int channel, size_t at, void* output) {
  switch (wanted.type) {
    case Wanted::kFloat:
      static_cast<float*>(output)[at] =
          (value / 255.0f - wanted.mean[channel]) / wanted.deviation[channel];
      return;
    case Wanted::kUnsigned:
      static_cast<uint8_t*>(output)[at] = static_cast<uint8_t>(std::lround(clamp(value)));
      return;
    case Wanted::kSigned:
      static_cast<int8_t*>(output)[at] = static_cast<int8_t>(std::lround(clamp(value)) - 128);
      return;
  }
}

size_t reach_of(const Picture& picture, int plane) {
  const bool is_half = plane > 0;
  const auto width = static_cast<size_t>(is_half ? (picture.width + 1) / 2 : picture.width);
  const auto height = static_cast<size_t>(is_half ? (picture.height + 1) / 2 : picture.height);
  const Picture::Plane& p = picture.planes[plane];
  const size_t bytes = picture.is_yuv ? 1 : 4;
  return (height - 1) * p.row_stride + (width - 1) * p.pixel_stride + bytes;
}

void write_pixels(const Picture& picture, const Wanted& wanted, void* output) {
  const bool is_across = wanted.quarter_turns % 2 != 0;
  const int width = is_across ? wanted.height : wanted.width;
  const int height = is_across ? wanted.width : wanted.height;
  const std::vector<float> pixels = resize(picture, wanted, width, height);
  const size_t plane = static_cast<size_t>(width) * static_cast<size_t>(height);
  for (int y = 0; y < wanted.height; ++y) {
    for (int x = 0; x < wanted.width; ++x) {
      // Where the pixel lies before the picture is turned clockwise.
      const int turns = wanted.quarter_turns;
      const int columns[] = {x, y, width - 1 - x, width - 1 - y};
      const int rows[] = {y, height - 1 - x, height - 1 - y, x};
      const int from_x = columns[turns], from_y = rows[turns];
      const float* rgb = pixels.data() + (static_cast<size_t>(from_y) * static_cast<size_t>(width) +
                                          static_cast<size_t>(from_x)) *
                                             kChannels;
      const size_t to =
          static_cast<size_t>(y) * static_cast<size_t>(wanted.width) + static_cast<size_t>(x);
      for (int c = 0; c < kChannels; ++c) {
        const auto slot = static_cast<size_t>(wanted.is_bgr ? kChannels - 1 - c : c);
        store(wanted, rgb[c], c, wanted.is_planar ? slot * plane + to : to * kChannels + slot,
              output);
      }
    }
  }
}

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
    if (!require(env, one, "an array of the picture's facts")) return;
  }
  const jsize count = env->GetArrayLength(planes);
  if (count != 1 && count != 3) {
    throw_status(
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
    const void* data = address_of(env, plane, starts[i]);
    if (data == nullptr) return;
    picture.planes[i].data = static_cast<const uint8_t*>(data);
    const size_t reach = reach_of(picture, i);
    if (reach > static_cast<size_t>(sizes[i])) {
      throw_status(env, ADRENOC_BAD_ARGUMENT,
                   "plane " + std::to_string(i) + " has " + std::to_string(sizes[i]) +
                       " bytes, expected " + std::to_string(reach));
      return;
    }
  }
  void* made = address_of(env, output, to);
  if (made != nullptr) write_pixels(picture, read_wanted(asked, scaled), made);
}
