// What a bundle's files are in: tar archives (ustar, with pax names), DEFLATE (RFC 1951), and
// libraries. No library reads them for us: programs and apps need the C library alone.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "base/failure.h"

namespace adrenoc_runtime {

constexpr size_t kTarBlockBytes = 512;

// A field of a header block: text up to the first NUL.
inline std::string_view field(std::string_view header, size_t offset, size_t bytes) {
  const std::string_view whole = header.substr(offset, bytes);
  return whole.substr(0, whole.find('\0'));
}

[[noreturn]] inline void refuse(size_t offset, const char* reason) {
  refuse_bundle({"the tar file is damaged at byte ", offset, ": ", reason});
}

// Octal digits with blanks around them.
inline uint64_t octal(std::string_view digits, size_t offset) {
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

inline void check_sum(std::string_view header, size_t offset) {
  constexpr size_t sum_at = 148;
  constexpr size_t sum_bytes = 8;
  uint64_t sum = 0;
  for (size_t i = 0; i < kTarBlockBytes; ++i) {
    const bool is_sum = i >= sum_at && i < sum_at + sum_bytes;
    sum += is_sum ? ' ' : static_cast<unsigned char>(header[i]);
  }
  if (sum != octal(field(header, sum_at, sum_bytes), offset)) refuse(offset, "a wrong checksum");
}

// The value of `path` in a pax header: records "LENGTH KEY=VALUE\n"; empty if there is none.
inline std::string pax_path(std::string_view records, size_t offset) {
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

inline std::string entry_path(std::string_view header) {
  const std::string name(field(header, 0, 100));
  const std::string prefix(field(header, 345, 155));
  return prefix.empty() ? name : prefix + "/" + name;
}

// The plain files of an archive by their path without its first folder ("manifest.json" for
// "NAME.adrenoc/manifest.json").  The contents lie in `archive`, which must outlive them.
// Throws Failure (bad bundle) for a damaged archive.
[[nodiscard]] inline std::map<std::string, std::string_view> read_tar(std::string_view archive) {
  std::map<std::string, std::string_view> files;
  std::string long_path;
  size_t at = 0;
  while (true) {
    if (archive.size() - at < kTarBlockBytes) refuse(at, "it ends too early");
    const std::string_view header = archive.substr(at, kTarBlockBytes);
    if (header.find_first_not_of('\0') == header.npos) return files;  // the end mark
    if (header.substr(257, 5) != "ustar") refuse(at, "no tar header");
    check_sum(header, at);
    const uint64_t bytes = octal(field(header, 124, 12), at);
    const size_t content_at = at + kTarBlockBytes;
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
    const uint64_t blocks = (bytes + kTarBlockBytes - 1) / kTarBlockBytes;
    if (blocks * kTarBlockBytes > archive.size() - content_at) refuse(at, "a file is cut");
    at = content_at + blocks * kTarBlockBytes;
  }
}

// The content of the file `name`, which is stored as `deflated` and has to have `bytes`.
// Throws Failure (bad bundle) where that is not so.
[[nodiscard]] std::string inflate(std::string_view deflated, uint64_t bytes,
                                  const std::string& name);

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);

constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

// The dynamic loader maps what the headers of a library promise, and a process that reads beyond
// the end of the file dies.  Throws Failure (bad bundle) that calls the library `name` if `content`
// is no ELF file of this process's word size, or lacks bytes of a header table or of a segment.
inline void check_extents(std::string_view content, const std::string& name) {
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
