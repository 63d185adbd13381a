#include "program_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "failure.h"
#include "mapped_file.h"
#include "sha256.h"

namespace adrenoc {
namespace {

// Then the digest of the key, the digest of what follows, and a line break.
constexpr std::string_view kMagic = "adrenoc-programs-1 ";
constexpr size_t kDigestLetters = 64;
constexpr size_t kHeaderBytes = kMagic.size() + 2 * kDigestLetters + 2;

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(file) == 0;
}

}  // namespace

ProgramCacheEntry::ProgramCacheEntry(const std::string& folder, const std::string& key)
    : folder_(folder),
      key_digest_(sha256_hex(key)),
      path_(folder + "/" + key_digest_ + ".programs") {}

std::optional<std::string> ProgramCacheEntry::find() const {
  std::string whole;
  try {
    whole = MappedFile(path_).content();
  } catch (const Failure&) {
    return std::nullopt;  // not there, or not readable: both mean to build
  }
  if (whole.size() < kHeaderBytes) return std::nullopt;
  std::string binaries = whole.substr(kHeaderBytes);
  const std::string header = std::string(kMagic) + key_digest_ + " " + sha256_hex(binaries) + "\n";
  if (whole.compare(0, kHeaderBytes, header) != 0) return std::nullopt;
  return binaries;
}

void ProgramCacheEntry::store(std::string_view binaries) const {
  mkdir(folder_.c_str(), 0700);  // what it says does not matter: opening tells
  std::string aside = path_ + ".XXXXXX";
  const Descriptor file(mkstemp(aside.data()));
  if (file.get() < 0) return;
  const std::string header = std::string(kMagic) + key_digest_ + " " + sha256_hex(binaries) + "\n";
  const bool written = write_all(file.get(), header) && write_all(file.get(), binaries);
  if (!written || std::rename(aside.c_str(), path_.c_str()) != 0) unlink(aside.c_str());
}

void ProgramCacheEntry::drop() const { unlink(path_.c_str()); }

}  // namespace adrenoc
