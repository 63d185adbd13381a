#include "bundle/formats.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "base/failure.h"

namespace adrenoc_runtime {
namespace {

constexpr size_t kBlockBytes = 512;

// A field of a header block: text up to the first NUL.
std::string_view field(std::string_view header, size_t offset, size_t bytes) {
  const std::string_view whole = header.substr(offset, bytes);
  return whole.substr(0, whole.find('\0'));
}

[[noreturn]] void refuse(size_t offset, const char* reason) {
  refuse_bundle({"the tar file is damaged at byte ", offset, ": ", reason});
}

// Octal digits with blanks around them.
uint64_t octal(std::string_view digits, size_t offset) {
  uint64_t value = 0;
  size_t seen = 0;
  for (const char letter : digits) {
    if (letter == ' ') continue;
    if (letter < '0' || letter > '7') refuse(offset, "a number that is not octal");
    value = value << 3 | static_cast<uint64_t>(letter - '0');
    ++seen;
  }
  if (seen == 0) refuse(offset, "a number without digits");
  return value;
}

void check_sum(std::string_view header, size_t offset) {
  constexpr size_t sum_at = 148;
  constexpr size_t sum_bytes = 8;
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlockBytes; ++i) {
    const bool is_sum = i >= sum_at && i < sum_at + sum_bytes;
    sum += is_sum ? ' ' : static_cast<unsigned char>(header[i]);
  }
  if (sum != octal(field(header, sum_at, sum_bytes), offset)) refuse(offset, "a wrong checksum");
}

// The value of `path` in a pax header: records "LENGTH KEY=VALUE\n"; empty if there is none.
std::string pax_path(std::string_view records, size_t offset) {
  std::string path;
  while (!records.empty()) {
    size_t length = 0;
    size_t digits = 0;
    while (digits < records.size() && digits < 8 && records[digits] >= '0' &&
           records[digits] <= '9') {
      length = length * 10 + static_cast<size_t>(records[digits++] - '0');
    }
    if (digits == 0 || length <= digits + 1 || length > records.size() || records[digits] != ' ' ||
        records[length - 1] != '\n') {
      refuse(offset, "a pax record that is cut");
    }
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    if (record.substr(0, 5) == "path=") path = record.substr(5);
    records.remove_prefix(length);
  }
  return path;
}

std::string entry_path(std::string_view header) {
  const std::string name(field(header, 0, 100));
  const std::string prefix(field(header, 345, 155));
  return prefix.empty() ? name : prefix + "/" + name;
}

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);

constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

}  // namespace

std::map<std::string, std::string_view> read_tar(std::string_view archive) {
  std::map<std::string, std::string_view> files;
  std::string long_path;
  size_t at = 0;
  while (true) {
    if (archive.size() - at < kBlockBytes) refuse(at, "it ends too early");
    const std::string_view header = archive.substr(at, kBlockBytes);
    if (header.find_first_not_of('\0') == header.npos) return files;  // the end mark
    if (header.substr(257, 5) != "ustar") refuse(at, "no tar header");
    check_sum(header, at);
    const uint64_t bytes = octal(field(header, 124, 12), at);
    const size_t content_at = at + kBlockBytes;
    if (bytes > archive.size() - content_at) refuse(at, "a file is cut");
    const std::string_view content = archive.substr(content_at, bytes);
    const char kind = header[156];
    if (kind == 'x') {
      long_path = pax_path(content, at);
    } else {
      const std::string path = long_path.empty() ? entry_path(header) : long_path;
      long_path.clear();
      const size_t slash = path.find('/');
      if ((kind == '0' || kind == '\0') && slash != path.npos) {
        files[path.substr(slash + 1)] = content;
      }
    }
    const uint64_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
    if (blocks * kBlockBytes > archive.size() - content_at) refuse(at, "a file is cut");
    at = content_at + blocks * kBlockBytes;
  }
}

void check_extents(std::string_view content, const std::string& name) {
  Header header;
  if (content.size() < sizeof header || std::memcmp(content.data(), ELFMAG, SELFMAG) != 0 ||
      static_cast<unsigned char>(content[EI_CLASS]) != kClass) {
    refuse_bundle({name, " is no library for this machine, or is cut off: it has ", content.size(),
                   " bytes"});
  }
  std::memcpy(&header, content.data(), sizeof header);
  if (header.e_phnum != 0 && header.e_phentsize != sizeof(Segment)) {
    refuse_bundle({name, " is damaged: its segments have headers of ", header.e_phentsize,
                   " bytes, expected ", sizeof(Segment)});
  }
  const auto hold = [size = uint64_t{content.size()}, &name](uint64_t offset, uint64_t bytes) {
    // Sizes and offsets are whatever a file says: their sum may exceed 64 bits.
    if (offset <= size && bytes <= size - offset) return;
    refuse_bundle({name, " is cut off: it has ", size, " bytes, and its headers name ", bytes,
                   " at ", offset});
  };
  hold(header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize);
  hold(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize);
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Segment segment;
    std::memcpy(&segment, content.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    hold(segment.p_offset, segment.p_filesz);
  }
}

}  // namespace adrenoc_runtime
