// Finds the device that a caller names.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/runtime/base.h>
#include <tvm/runtime/device_api.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

#include "base/failure.h"
#include "opencl/cl_api.h"
#include "opencl/device.h"
#include "opencl/device_info.h"

namespace adrenoc_runtime {

struct ChosenDevice {
  DLDevice device;
  std::string name;
  std::string note{};  // what became of the library that was asked for; "" where it is open
};

inline int byte_of(char letter) { return static_cast<unsigned char>(letter); }

inline std::string lower(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(byte_of(letter)));
  return text;
}

constexpr size_t kMaxNumberDigits = 4;

inline bool is_number(const std::string& text) {
  return !text.empty() && text.size() <= kMaxNumberDigits &&
         text.find_first_not_of("0123456789") == text.npos;
}

inline bool fits(const std::string& wanted, int number, const opencl::DeviceInfo& info) {
  if (wanted.empty()) return info.has_images;
  if (is_number(wanted)) return std::stoi(wanted) == number;
  return lower(info.name + " (" + info.platform + ")").find(lower(wanted)) != std::string::npos;
}

inline ChosenDevice choose_opencl(const std::string& wanted) {
  std::string listed;
  int number = 0;
  for (const auto& device : opencl::all_devices()) {
    const opencl::DeviceInfo& info = device->info();
    if (fits(wanted, number, info)) return {DLDevice{kDLOpenCL, number}, info.name};
    listed += (listed.empty() ? "" : "; ") + std::to_string(number) + " = " + info.name;
    ++number;
  }
  const std::string missing =
      wanted.empty() ? "no OpenCL device with images" : "no OpenCL device \"" + wanted + "\"";
  const std::string absent = opencl::absent_devices();
  throw Failure(ADRENOC_NO_DEVICE, {missing, (listed.empty() ? "" : "; there is " + listed),
                                    (absent.empty() ? "" : "; " + absent)});
}

// `wanted` as in adrenoc_options.  `library` is the OpenCL library to open, empty for the system's;
// where another one is open already, that one is used.  Throws Failure (no device).
[[nodiscard]] inline ChosenDevice choose_device(const std::string& wanted,
                                                const std::string& library) {
  if (wanted == "cpu") return {DLDevice{kDLCPU, 0}, "cpu"};
  try {
    const std::string opened = opencl::library_path();
    const bool is_other = !library.empty() && !opened.empty() && opened != library;
    if (!library.empty() && !is_other) opencl::set_library(library);
    ChosenDevice chosen = choose_opencl(wanted);
    if (is_other) {
      chosen.note = "the OpenCL library is " + opened +
                    ", which this process opened first, and not " + library;
    }
    return chosen;
  } catch (const tvm::ffi::Error& error) {
    throw Failure(ADRENOC_NO_DEVICE, error.message());
  }
}

// "750" of "OpenCL 3.0 Adreno(TM) 750" and of Mesa's "FD750", "642l" of "Adreno 642L", "x1-85" of
// "Adreno(TM) X1-85 GPU"; "" of anything else.
inline std::string number_in(const std::string& text) {
  const std::string words = lower(text);
  const size_t at = words.find("adreno");
  if (at == words.npos && words.rfind("fd", 0) != 0) return "";
  size_t start = at == words.npos ? std::strlen("fd") : at + std::strlen("adreno");
  if (words.compare(start, 4, "(tm)") == 0) start += 4;
  start = words.find_first_not_of(' ', start);
  if (start == words.npos) return "";
  const std::string word = words.substr(start, words.find_first_of(" )", start) - start);
  const auto digit = [&word](size_t place) { return std::isdigit(byte_of(word[place])) != 0; };
  if (word.size() == 5 && word[0] == 'x' && digit(1) && word[2] == '-' && digit(3) && digit(4)) {
    return word;
  }
  const size_t end = std::min(words.find_first_not_of("0123456789", start), words.size());
  if (end - start != 3) return "";
  const bool has_letter = end != words.size() && words[end] >= 'a' && words[end] <= 'z';
  return words.substr(start, has_letter ? 4 : 3);
}

// The number of an Adreno in what its driver says of it ("750", "642l"); "" for another device.
[[nodiscard]] inline std::string adreno_number(const opencl::DeviceInfo& info) {
  const std::string number = number_in(info.name);
  return number.empty() ? number_in(info.version) : number;
}

inline std::string upper(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::toupper(byte_of(letter)));
  return text;
}

// Says that a bundle for one Adreno GPU runs on another one, with what to type; "" for the GPU that
// it was compiled for, and where one of the two is not known by its number.
[[nodiscard]] inline std::string other_gpu_note(const std::string& target,
                                                const opencl::DeviceInfo& info) {
  // "adreno:a750", as adrenoc/target/target.py names one GPU.
  constexpr const char* kOneGpu = "adreno:a";
  if (target.rfind(kOneGpu, 0) != 0) return "";
  const std::string wanted = target.substr(std::strlen(kOneGpu));
  const std::string seen = adreno_number(info);
  if (seen.empty() || seen == wanted) return "";
  return "the kernels were compiled for Adreno " + upper(wanted) + ", and this is Adreno " +
         upper(seen) +
         ": adrenoc compile MODEL --device adreno makes them for all, and for it "
         "alone where adrenoc targets lists it";
}

}  // namespace adrenoc_runtime
