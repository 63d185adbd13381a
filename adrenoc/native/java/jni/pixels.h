// From pixels of a camera or a picture to numbers of a tensor: cut out, resized, turned, scaled.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adrenoc_jni {

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
  Type type;        // kFloat: (value / 255 - mean) / deviation; kUnsigned: value; kSigned: value - 128
  float mean[3];    // of red, green, blue
  float deviation[3];
};

// How many bytes of its planes a picture reaches to, each.
size_t reach_of(const Picture& picture, int plane);

// `output` has room for 3 * width * height elements.  Each pixel is the mean of those that it covers,
// weighted by a triangle: what is made smaller does not flicker.
void write_pixels(const Picture& picture, const Wanted& wanted, void* output);

}  // namespace adrenoc_jni
