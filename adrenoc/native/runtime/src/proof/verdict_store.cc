#include "proof/verdict_store.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "base/failure.h"
#include "base/sha256.h"
#include "base/stamp.h"
#include "files/mapped_file.h"
#include "files/private_files.h"

namespace adrenoc_runtime {
namespace {

constexpr const char* kMagic = "adrenoc-verdict-1";
constexpr char kBegun = 'b';
constexpr char kEnded = 'e';

}  // namespace

std::string VerdictKey::file_name() const {
  return sha256_hex(std::string(kMagic) + "\n" + device + "\n" + bundle) + ".verdict";
}

VerdictStore::VerdictStore(std::string folder, VerdictKey key)
    : folder_(std::move(folder)), key_(std::move(key)) {}

std::optional<std::string> VerdictStore::find() const { return read(kEnded); }

int VerdictStore::begin() const {
  const int before = std::atoi(read(kBegun).value_or("0").c_str());
  write(kBegun, std::to_string(before + 1));
  return before;
}

void VerdictStore::keep(const std::string& wrong) const { write(kEnded, wrong); }

void VerdictStore::forget() const {
  if (!folder_.empty()) unlink(path().c_str());
}

std::string VerdictStore::path() const { return folder_ + "/" + key_.file_name(); }

// Of what a verdict depends on and of what it says.
std::string VerdictStore::digest(const std::string& said) const {
  return sha256_hex(key_.file_name() + "\n" + key_.driver + "\n" + stamp() + "\n" + said);
}

// A file holds that digest, and behind it a letter for the kind and the text.
std::optional<std::string> VerdictStore::read(char kind) const {
  if (folder_.empty() || !why_not_private(folder_).empty()) return std::nullopt;
  try {
    const Descriptor file = open_private_file(path());
    const MappedFile mapped(file.get(), path());
    const std::string content(mapped.content());
    const size_t digest_end = content.find('\n');
    if (digest_end == content.npos || digest_end + 1 == content.size()) return std::nullopt;
    const std::string said = content.substr(digest_end + 1);
    if (content.substr(0, digest_end) != digest(said)) return std::nullopt;
    if (said[0] != kind) return std::nullopt;
    return said.substr(1);
  } catch (const Failure&) {
    return std::nullopt;  // not there, not readable, or not to be trusted: all mean to try
  }
}

void VerdictStore::write(char kind, const std::string& text) const {
  // Where nothing can be kept, each start proves anew, which is right and takes longer.
  if (folder_.empty() || !make_private_folder(folder_).empty()) return;
  const std::string said = kind + text;
  (void)write_private_file(path(), digest(said) + "\n" + said);
}

}  // namespace adrenoc_runtime
