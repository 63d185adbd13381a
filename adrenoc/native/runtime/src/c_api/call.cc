// The last error of each thread, statuses in words, and what a caller wants of a load, in the C
// API's struct or as texts.
#include "c_api/call.h"

#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <variant>

namespace adrenoc_runtime {
namespace {

opencl::Level read_level(uint32_t given, const char* what) {
  if (given <= ADRENOC_LEVEL_HIGH) return static_cast<opencl::Level>(given);
  refuse_argument({what, " is ", given, ", expected an adrenoc_level"});
}

double read_ms(double given, const char* what) {
  if (given >= 0) return given;
  refuse_argument({what, " is ", given, ", expected 0 or more"});
}

[[noreturn]] void refuse(const std::string& key, const char* value, const char* expected) {
  refuse_argument({"the option ", key, " is \"", value, "\", expected ", expected});
}

uint32_t flag_of(const std::string& key, const char* value) {
  const std::string_view text = value;
  if (text != "0" && text != "1") refuse(key, value, "0 or 1");
  return text == "1" ? 1 : 0;
}

uint32_t level_of(const std::string& key, const char* value) {
  const std::string_view text = value;
  if (text == "low") return ADRENOC_LEVEL_LOW;
  if (text == "normal") return ADRENOC_LEVEL_NORMAL;
  if (text == "high") return ADRENOC_LEVEL_HIGH;
  refuse(key, value, "low, normal or high");
}

double ms_of(const std::string& key, const char* value) {
  char* end = nullptr;
  const double number = std::strtod(value, &end);
  const bool is_whole = end != value && *end == 0;
  if (is_whole && std::isfinite(number) && number >= 0) return number;
  refuse(key, value, "0 or more milliseconds");
}

// A field of adrenoc_options, and how its text is read where it is a whole number.
using Options = adrenoc_options;
struct Key {
  std::string_view name;
  std::variant<const char* Options::*, uint32_t Options::*, double Options::*> field;
  uint32_t (*read)(const std::string& key, const char* value) = nullptr;
};

constexpr Key kKeys[] = {
    {"trust_files", &Options::trust_files, flag_of},
    {"device", &Options::device},
    {"opencl_library", &Options::opencl_library},
    {"cache_folder", &Options::cache_folder},
    {"qualcomm_programs", &Options::qualcomm_programs, flag_of},
    {"no_record", &Options::no_record, flag_of},
    {"performance", &Options::performance, level_of},
    {"priority", &Options::priority, level_of},
    {"cancel_within_ms", &Options::cancel_within_ms},
};

void set(Options* options, const Key& one, const std::string& key, const char* value) {
  if (const auto* text = std::get_if<0>(&one.field)) options->*(*text) = value;
  if (const auto* number = std::get_if<1>(&one.field)) options->*(*number) = one.read(key, value);
  if (const auto* ms = std::get_if<2>(&one.field)) options->*(*ms) = ms_of(key, value);
}

}  // namespace

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

adrenoc_status failed(adrenoc_status status, const char* message) noexcept {
  try {
    last_error() = message;
  } catch (const std::bad_alloc&) {
    last_error().clear();
  }
  return status;
}

void require(const void* pointer, const char* what) {
  if (pointer == nullptr) refuse_argument({what, " is a null pointer"});
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

LoadOptions read_options(const adrenoc_options& plain) {
  return {plain.trust_files != 0,
          text_or_empty(plain.device),
          text_or_empty(plain.opencl_library),
          text_or_empty(plain.cache_folder),
          plain.qualcomm_programs != 0,
          plain.no_record != 0,
          {read_level(plain.performance, "performance"), read_level(plain.priority, "priority")},
          read_ms(plain.cancel_within_ms, "cancel_within_ms")};
}

}  // namespace adrenoc_runtime

using namespace adrenoc_runtime;

const char* adrenoc_last_error(void) { return last_error().c_str(); }

int adrenoc_status_is_permanent(adrenoc_status status) {
  switch (status) {
    case ADRENOC_NOT_FOUND:
    case ADRENOC_BAD_BUNDLE:
    case ADRENOC_NO_DEVICE:
    case ADRENOC_UNSUPPORTED:
    case ADRENOC_WRONG_RESULTS: return 1;
    default: return 0;
  }
}

const char* adrenoc_status_text(adrenoc_status status) {
  static constexpr const char* texts[] = {
      "all is well", "bad argument",      "not found",     "bad bundle",
      "no device",   "the device failed", "out of memory", "a defect of the runtime",
      "not ready",   "not supported",     "wrong results", "the context is full",
      "cancelled"};
  const auto place = static_cast<size_t>(status);
  return place < std::size(texts) ? texts[place] : "unknown status";
}

adrenoc_status adrenoc_set_option(adrenoc_options* options, const char* text) {
  return guarded([&] {
    require(options, "options");
    require(text, "text");
    if (options->struct_bytes < sizeof(adrenoc_options)) {
      refuse_argument({"struct_bytes of the options is ", options->struct_bytes,
                       ", expected at least ", sizeof(adrenoc_options)});
    }
    const std::string_view whole = text;
    const size_t equals = whole.find('=');
    const std::string key(whole.substr(0, equals));
    std::string known;
    for (const Key& one : kKeys) {
      if (one.name == key && equals != whole.npos) return set(options, one, key, text + equals + 1);
      known += (known.empty() ? "" : ", ") + std::string(one.name);
    }
    refuse_argument({"there is no option \"", whole, "\", expected KEY=VALUE with one of ", known});
  });
}
