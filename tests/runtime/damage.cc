// Damages a bundle in many ways and reads it; only refusals may come out.  Built with sanitizers.
//
//   damage TAR SEED COUNT CACHE_FOLDER ; prints how many of the damaged bundles were accepted.
//   damage MANIFEST                    ; prints the most memory that reading it took in KiB, and why
//                                        it was refused, or "accepted".
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>

#include "base/failure.h"
#include "base/json.h"
#include "base/sha256.h"
#include "bundle/bundle.h"
#include "bundle/manifest.h"
#include "bundle/formats.h"
#include "files/safetensors.h"
#include "programs/program_cache.h"

namespace {

using Random = std::mt19937_64;
using Files = std::map<std::string, std::string>;

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The most memory of this process alone: getrusage() counts what it was forked from, too.
long peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::strtol(line.c_str() + 6, nullptr, 10);
  }
  return -1;
}

size_t below(Random* random, size_t limit) { return limit == 0 ? 0 : (*random)() % limit; }

// Characters and numbers that readers stumble over.
std::string nasty(Random* random) {
  static const std::string pieces[] = {
      "\"", "{", "}", "[", "]", ",", ":", "\\", "\\u", "\\ud800", "-", "0", "1e999", "null", "true",
      "9223372036854775807", "-9223372036854775808", "18446744073709551616", "4294967296", "-1",
      "\xff\xff\xff\xff\xff\xff\xff\x7f", std::string(8, '\0'), std::string(40, '['),
      "\"shape\": []", "\"data_offsets\": [0, 99999999999]", "/../../x", "\")\n", "../", "\x1b[2J",
      "ustar", "77777777777"};
  return pieces[below(random, std::size(pieces))];
}

std::string damaged(std::string text, Random* random) {
  const size_t times = 1 + below(random, 3);
  for (size_t i = 0; i < times; ++i) {
    // Half of the damage goes where headers are.
    const size_t reach = below(random, 2) == 0 ? std::min<size_t>(text.size(), 2048) : text.size();
    const size_t at = below(random, reach);
    switch (below(random, 6)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ 1 << below(random, 8));
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.insert(at, nasty(random));
        break;
      case 3:
        text.erase(at, below(random, 64));
        break;
      case 4: {
        const std::string piece = nasty(random);
        text.replace(at, std::min(piece.size(), text.size() - at), piece);
        break;
      }
      default:
        text.insert(at, text.substr(below(random, text.size()), below(random, 600)));
    }
  }
  return text;
}

// A header block of a plain file, with the right sum.
std::string tar_header(const std::string& path, size_t bytes) {
  std::string header(512, '\0');
  path.copy(header.data(), 99);
  std::snprintf(&header[124], 12, "%011zo", bytes);
  header[156] = '0';
  std::memcpy(&header[257], "ustar\00000", 8);
  std::memset(&header[148], ' ', 8);
  unsigned sum = 0;
  for (const char letter : header) sum += static_cast<unsigned char>(letter);
  std::snprintf(&header[148], 7, "%06o", sum);
  return header;
}

std::string pack(const Files& files) {
  std::string tar;
  for (const auto& [path, content] : files) {
    tar += tar_header("damaged.adrenoc/" + path, content.size()) + content;
    tar.append((512 - content.size() % 512) % 512, '\0');
  }
  return tar + std::string(1024, '\0');
}

void replace_all(std::string* text, const std::string& old, const std::string& fresh) {
  for (size_t at = text->find(old); at != text->npos; at = text->find(old, at + fresh.size())) {
    text->replace(at, old.size(), fresh);
  }
}

// A bundle with one file damaged; half of the time its digest and size are mended, so that the
// readers behind the digest see it.
std::string damaged_bundle(const Files& whole, Random* random) {
  // One for a single shape has neither the list of shapes nor the files of another one.
  static const char* const names[] = {"manifest.json", "params.safetensors", "model.so",
                                      "buckets.json", "/manifest.json", "/model.so"};
  Files files = whole;
  const std::string wanted = names[below(random, std::size(names))];
  const auto ends_so = [&](const Files::value_type& file) {
    const size_t at = file.first.rfind(wanted);
    return at != file.first.npos && at + wanted.size() == file.first.size();
  };
  auto found = files.find(wanted);
  if (found == files.end()) found = std::find_if(files.begin(), files.end(), ends_so);
  const std::string name = found == files.end() ? "manifest.json" : found->first;
  const std::string before = files[name];
  files[name] = damaged(before, random);
  if (name != "manifest.json" && below(random, 2) == 0) {
    std::string& manifest = files["manifest.json"];
    replace_all(&manifest, adrenoc_runtime::sha256_hex(before),
                adrenoc_runtime::sha256_hex(files[name]));
    replace_all(&manifest, "\"bytes\": " + std::to_string(before.size()),
                "\"bytes\": " + std::to_string(files[name].size()));
  }
  return pack(files);
}

// Whether the reader took it; anything but a Failure ends the program.
template <typename Read>
bool accepted(Read read) {
  try {
    read();
    return true;
  } catch (const adrenoc_runtime::Failure&) {
    return false;
  }
}

int check_cache(const std::string& folder, long rounds, Random* random) {
  const adrenoc_runtime::ProgramCache cache(folder);
  const adrenoc_runtime::ProgramKey key{"a device", "a driver", "sources"};
  const adrenoc_runtime::DriverRule same = adrenoc_runtime::DriverRule::kSame;
  const std::string programs(5000, 'p');
  cache.store(key, programs);
  if (cache.find(key, same).binaries != programs) return 1;
  const std::string whole = read_file(folder + "/" + key.file_name());
  for (long i = 0; i < rounds; ++i) {
    const std::string other = damaged(whole, random);
    const adrenoc_runtime::FoundPrograms found = adrenoc_runtime::read_programs(other, key, same);
    if (other != whole && (found.binaries.has_value() || !found.is_damaged)) return 1;
  }
  return 0;
}

int say_of_manifest(const std::string& text) {
  std::string said = "accepted";
  try {
    (void)adrenoc_runtime::read_manifest(text);
  } catch (const adrenoc_runtime::Failure& failure) {
    said = failure.what();
  }
  std::printf("%ld %s\n", peak_kib(), said.c_str());
  return 0;
}

}  // namespace

int main(int count, char** values) {
  if (count == 2) return say_of_manifest(read_file(values[1]));
  if (count != 5) return 2;
  Random random(std::strtoull(values[2], nullptr, 10));
  const std::string tar = read_file(values[1]);
  Files files;
  for (const auto& [path, content] : adrenoc_runtime::read_tar(tar)) files[path] = content;
  // What was not damaged is read, packed by us too.
  adrenoc_runtime::Bundle(std::string_view(tar), true);
  adrenoc_runtime::Bundle(std::string_view(pack(files)), true);

  long taken = 0;
  const long rounds = std::strtol(values[3], nullptr, 10);
  for (long i = 0; i < rounds; ++i) {
    const bool inner = below(&random, 4) != 0;
    const std::string other = inner ? damaged_bundle(files, &random) : damaged(tar, &random);
    taken += accepted([&] { adrenoc_runtime::Bundle(std::string_view(other), true); });
    const std::string json = damaged(files["manifest.json"], &random);
    (void)accepted([&] { (void)adrenoc_runtime::Json::parse(json, "json"); });
    const std::string tensors = damaged(files["params.safetensors"], &random);
    (void)accepted([&] { (void)adrenoc_runtime::read_safetensors(tensors, "tensors"); });
  }
  std::printf("%ld\n", taken);
  return check_cache(values[4], rounds, &random);
}
