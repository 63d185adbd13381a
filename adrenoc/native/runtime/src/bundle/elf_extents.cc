#include "bundle/formats.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "base/failure.h"

namespace adrenoc_runtime {
namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);

constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

}  // namespace

void check_extents(std::string_view content, const std::string& name) {
  Header header;
  if (content.size() < sizeof header || std::memcmp(content.data(), ELFMAG, SELFMAG) != 0 ||
      static_cast<unsigned char>(content[EI_CLASS]) != kClass) {
    refuse_bundle(name + " is no library for this machine, or is cut off: it has " +
                  std::to_string(content.size()) + " bytes");
  }
  std::memcpy(&header, content.data(), sizeof header);
  if (header.e_phnum != 0 && header.e_phentsize != sizeof(Segment)) {
    refuse_bundle(name + " is damaged: its segments have headers of " +
                  std::to_string(header.e_phentsize) + " bytes, expected " +
                  std::to_string(sizeof(Segment)));
  }
  const auto hold = [size = uint64_t{content.size()}, &name](uint64_t offset, uint64_t bytes) {
    // Sizes and offsets are whatever a file says: their sum may exceed 64 bits.
    if (offset <= size && bytes <= size - offset) return;
    refuse_bundle(name + " is cut off: it has " + std::to_string(size) +
                  " bytes, and its headers name " + std::to_string(bytes) + " at " +
                  std::to_string(offset));
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
