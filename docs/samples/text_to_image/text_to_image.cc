// Makes an image of a prompt by three bundles, as text_to_image.py does.
//
//   text_to_image FOLDER 49406,736,3240,2268,49407 OUT.png [steps=20] [guidance=7.5] [seed=0]
//       [noise=FILE] [budget=MB] [cache_folder=DIR] [opencl_library=FILE]
//
// FOLDER holds text_encoder.adrenoc, step.adrenoc, whose state is the latents, and
// vae_decoder.adrenoc; then come the tokens of the prompt.  `noise` are first latents, raw floats.
//
//   adrenoc runtime build -o rt
//   c++ -std=c++17 -O2 text_to_image.cc -Irt -Lrt -ladrenoc_runtime -Wl,-rpath,$PWD/rt
#include <adrenoc.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Floats = std::vector<float>;
using Words = std::map<std::string, std::string>;

// Timesteps of Stable Diffusion 1.5, and the last one that a schedule has.
constexpr int64_t kTrainedSteps = 1000;
constexpr int64_t kOffset = 1;

std::string word_of(const Words& words, const std::string& name, const std::string& usual) {
  const auto found = words.find(name);
  return found == words.end() ? usual : found->second;
}

adrenoc::Model load(const std::string& folder, const std::string& name, const Words& words) {
  adrenoc::Options options;
  options.opencl_library = word_of(words, "opencl_library", "");
  options.cache_folder = word_of(words, "cache_folder", "");
  return adrenoc::Model(folder + "/" + name + ".adrenoc", options);
}

size_t place_of(const std::vector<adrenoc::Tensor>& tensors, const std::string& name) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return i;
  }
  throw std::runtime_error("a bundle has no tensor " + name);
}

Floats room_for(const adrenoc::Tensor& tensor) {
  if (tensor.dtype != "float32") throw std::runtime_error(tensor.name + " is no float32");
  return Floats(tensor.bytes / sizeof(float));
}

// Hidden states of two rows: without the prompt, and with it.
Floats encode(adrenoc::Model* model, const std::vector<int64_t>& prompt) {
  const size_t length = static_cast<size_t>(model->inputs()[0].shape[1]);
  std::vector<int64_t> ids(2 * length, prompt.back());
  ids[0] = prompt.front();
  std::copy_n(prompt.begin(), std::min(length, prompt.size()), ids.begin() + length);
  const size_t made = place_of(model->outputs(), "last_hidden_state");
  Floats text = room_for(model->outputs()[made]);
  model->bind_input(0, ids);
  model->bind_output(made, text);
  model->run();
  return text;
}

// What the decoder takes, after so many steps from `noise` on.  Latents are a state: what is bound
// for the first run stays on the device as each run leaves it.
Floats denoise(adrenoc::Model* model, const Floats& text, const Floats& noise, int64_t steps,
               float guidance) {
  const std::vector<adrenoc::Tensor> inputs = model->inputs();
  const size_t latents = place_of(inputs, "latents");
  std::vector<int64_t> from(1);
  std::vector<int64_t> to(1);
  const Floats strength{guidance};
  model->bind_input(place_of(inputs, "encoder_hidden_states"), text);
  model->bind_input(place_of(inputs, "guidance"), strength);
  model->bind_input(place_of(inputs, "from_timestep"), from);
  model->bind_input(place_of(inputs, "to_timestep"), to);
  model->bind_input(latents, noise);
  const size_t made = place_of(model->outputs(), "latent_sample");
  Floats sample = room_for(model->outputs()[made]);
  const int64_t stride = kTrainedSteps / steps;
  for (int64_t step = steps - 1; step >= 0; --step) {
    from[0] = step * stride + kOffset;
    to[0] = std::max<int64_t>(from[0] - stride, -1);
    if (step == 0) model->bind_output(made, sample);
    model->run();
    model->bind_input(latents, nullptr, 0);
  }
  model->bind_output(made, nullptr, 0);
  return sample;
}

Floats decode(adrenoc::Model* model, const Floats& sample) {
  Floats pixels = room_for(model->outputs()[0]);
  model->bind_input(0, sample);
  model->bind_output(0, pixels);
  model->run();
  return pixels;
}

void append_number(std::string* text, uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) *text += static_cast<char>(number >> shift);
}

void write_chunk(std::ofstream* file, const std::string& content) {
  uint32_t check = ~0U;
  for (const char byte : content) {
    check ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) check = (check >> 1) ^ (0xEDB88320U & -(check & 1));
  }
  std::string size;
  std::string end;
  append_number(&size, static_cast<uint32_t>(content.size() - 4));
  append_number(&end, ~check);
  *file << size << content << end;
}

// A PNG whose rows are not compressed: a block of a deflated stream for each.
void write_png(const std::string& path, const Floats& pixels, uint32_t height, uint32_t width) {
  std::string head = "IHDR";
  append_number(&head, width);
  append_number(&head, height);
  head += {8, 2, 0, 0, 0};
  std::string data = "IDAT\x78\x01";
  uint32_t low = 1;
  uint32_t high = 0;
  const size_t plane = size_t{height} * width;
  for (uint32_t y = 0; y < height; ++y) {
    std::string row(1, '\0');
    for (size_t at = size_t{y} * width; at < size_t{y + 1} * width; ++at) {
      for (size_t channel = 0; channel < 3; ++channel) {
        const float bright = pixels[channel * plane + at] / 2 + 0.5F;
        row += static_cast<char>(std::lround(255 * std::min(1.0F, std::max(0.0F, bright))));
      }
    }
    for (const char byte : row) {
      low = (low + static_cast<unsigned char>(byte)) % 65521;
      high = (high + low) % 65521;
    }
    const auto size = static_cast<uint16_t>(row.size());
    data += static_cast<char>(y + 1 == height);
    for (const int part : {size & 255, size >> 8, ~size & 255, (~size >> 8) & 255}) {
      data += static_cast<char>(part);
    }
    data += row;
  }
  append_number(&data, high << 16 | low);
  std::ofstream file(path, std::ios::binary);
  file << "\x89PNG\r\n\x1a\n";
  write_chunk(&file, head);
  write_chunk(&file, data);
  write_chunk(&file, "IEND");
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void make(const std::string& folder, const std::string& ids, const std::string& output,
          const Words& words) {
  std::vector<int64_t> prompt;
  std::istringstream rest(ids);
  for (std::string token; std::getline(rest, token, ',');) prompt.push_back(std::stoll(token));
  const int64_t steps = std::stoll(word_of(words, "steps", "20"));
  if (prompt.size() < 2) throw std::runtime_error("IDS: expected tokens between commas");
  if (steps < 1 || steps > kTrainedSteps) throw std::runtime_error("steps: expected 1 to 1000");
  adrenoc::set_memory_budget(std::stoull(word_of(words, "budget", "0")) * 1000 * 1000);
  adrenoc::Model text_encoder = load(folder, "text_encoder", words);
  adrenoc::Model step = load(folder, "step", words);
  adrenoc::Model vae_decoder = load(folder, "vae_decoder", words);

  const std::vector<adrenoc::Tensor> inputs = step.inputs();
  Floats noise = room_for(inputs[place_of(inputs, "latents")]);
  std::mt19937_64 random(std::stoull(word_of(words, "seed", "0")));
  std::normal_distribution<float> normal;
  for (float& number : noise) number = normal(random);
  if (words.count("noise") != 0) {
    std::ifstream file(words.at("noise"), std::ios::binary);
    file.read(reinterpret_cast<char*>(noise.data()),
              static_cast<std::streamsize>(noise.size() * sizeof(float)));
    if (!file) throw std::runtime_error("cannot read " + words.at("noise"));
  }
  const Floats text = encode(&text_encoder, prompt);
  const float guidance = std::stof(word_of(words, "guidance", "7.5"));
  const Floats sample = denoise(&step, text, noise, steps, guidance);
  const Floats pixels = decode(&vae_decoder, sample);
  const std::vector<int64_t> shape = vae_decoder.outputs()[0].shape;
  write_png(output, pixels, static_cast<uint32_t>(shape[2]), static_cast<uint32_t>(shape[3]));
  std::printf("%s: by %s, in steps of %.1f ms\n", output.c_str(), step.device().c_str(),
              step.times().compute_ms);
}

}  // namespace

int main(int count, char** values) {
  Words words;
  for (int i = 4; i < count; ++i) {
    const std::string word = values[i];
    const size_t between = std::min(word.find('='), word.size());
    words[word.substr(0, between)] = word.substr(std::min(between + 1, word.size()));
  }
  try {
    if (count < 4) throw std::runtime_error("expected FOLDER IDS OUT.png [name=value ...]");
    make(values[1], values[2], values[3], words);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
