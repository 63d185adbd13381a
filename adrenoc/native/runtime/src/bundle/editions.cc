#include "bundle/editions.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/failure.h"
#include "base/json.h"
#include "bundle/manifest.h"

namespace adrenoc_runtime {
namespace {

constexpr const char* kEditionsFile = "devices.json";
constexpr const char* kCommon = ".";
constexpr const char* kFolder = "devices/";
constexpr size_t kMostEditions = 1024;

// The number as it stands on the box: "642L".
std::string title_of(std::string gpu) {
  std::transform(gpu.begin(), gpu.end(), gpu.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return gpu;
}

// Kernels of which GPUs there are: "660, 750".
std::string list_gpus(const std::vector<Edition>& editions) {
  std::string listed;
  std::vector<std::string> seen;
  for (const Edition& edition : editions) {
    const bool is_new = std::find(seen.begin(), seen.end(), edition.gpu) == seen.end();
    if (edition.gpu.empty() || !is_new) continue;
    seen.push_back(edition.gpu);
    listed += (listed.empty() ? "" : ", ") + title_of(edition.gpu);
  }
  return listed;
}

}  // namespace

std::string Edition::title() const {
  if (gpu.empty()) return "any Adreno";
  return "Adreno " + title_of(gpu) + (driver.empty() ? "" : " with driver " + driver);
}

std::vector<Edition> read_editions(std::string_view text) {
  const Json json = Json::parse(text, kEditionsFile);
  std::vector<Edition> editions;
  for (const Json& entry : json.at("editions").list()) {
    Edition edition{entry.at("folder").text(), entry.at("gpu").text(), entry.at("driver").text()};
    const Json& folder = entry.at("folder");
    if (edition.folder != kCommon) {
      check_path(edition.folder, folder.where());
      if (edition.folder.rfind(kFolder, 0) != 0 || edition.gpu.empty()) {
        refuse_bundle(folder.where() + " is none of devices/NAME");
      }
    }
    editions.push_back(std::move(edition));
  }
  const auto is_common = [](const Edition& edition) { return edition.gpu.empty(); };
  const auto commons = std::count_if(editions.begin(), editions.end(), is_common);
  if (commons != 1 || !is_common(editions.back()) || editions.size() > kMostEditions) {
    refuse_bundle(std::string(kEditionsFile) + " lists " + std::to_string(editions.size()) +
                  " editions, expected one for any Adreno as the last");
  }
  return editions;
}

RankedEditions rank_editions(const std::vector<Edition>& editions, const std::string& gpu,
                             const std::string& driver) {
  std::vector<Edition> own;
  std::vector<Edition> of_any_driver;
  bool has_gpu = false;
  for (const Edition& edition : editions) {
    if (gpu.empty() || edition.gpu != gpu) continue;
    has_gpu = true;
    if (edition.driver.empty()) of_any_driver.push_back(edition);
    if (!edition.driver.empty() && edition.driver == driver) own.push_back(edition);
  }
  RankedEditions ranked;
  const std::string says = "the driver says Adreno " + title_of(gpu);
  if (!own.empty()) {
    ranked.reason = says + " and is the one that it was made for";
  } else if (!of_any_driver.empty()) {
    ranked.reason = says;
  } else if (has_gpu) {
    ranked.reason = "the kernels for Adreno " + title_of(gpu) + " are for other drivers than " + driver;
  } else {
    ranked.reason = (gpu.empty() ? "the driver names no Adreno" : says) +
                    ", and the bundle has kernels for " + list_gpus(editions);
  }
  ranked.editions = std::move(own);
  std::move(of_any_driver.begin(), of_any_driver.end(), std::back_inserter(ranked.editions));
  ranked.editions.push_back(editions.back());
  return ranked;
}

}  // namespace adrenoc_runtime
