// What an encoder makes stays on the device: buffers that its decoder reads as it makes tokens.
//
//   given_program ENCODER DECODER OPENCL FEATURES TOKENS ID... ; prints tokens after those of the prompt
#include <dlfcn.h>

#include <iterator>

#include "held_model.h"

namespace {

void* create_buffer(void* library, void* context, size_t bytes) {
  using Create = void* (*)(void*, uint64_t, size_t, const void*, int32_t*);
  int32_t code = 0;
  const auto create = reinterpret_cast<Create>(dlsym(library, "clCreateBuffer"));
  void* buffer = create(context, 1, bytes, nullptr, &code);  // to be read and written
  expect(code == 0, "a buffer is made");
  return buffer;
}

// Behind its first part the decoder's name for what the encoder made is the same.
std::string input_of(const std::string& output) {
  return "past_key_values" + output.substr(output.find('.'));
}

}  // namespace

int main(int count, char** values) {
  if (count < 7) return 2;
  adrenoc::Options options;
  options.opencl_library = values[3];
  try {
    adrenoc::Model encoder(values[1], options);
    adrenoc::Model decoder(values[2], options);
    std::ifstream file(values[4], std::ios::binary);
    const std::vector<char> features{std::istreambuf_iterator<char>(file), {}};
    encoder.bind_input(0, features);
    void* library = dlopen(values[3], RTLD_NOW);
    const std::vector<adrenoc::Tensor> made = encoder.outputs();
    const std::vector<adrenoc::Tensor> read = decoder.inputs();
    size_t bound = 0;
    for (size_t i = 0; i < made.size(); ++i) {
      for (size_t j = 0; j < read.size(); ++j) {
        if (read[j].name != input_of(made[i].name)) continue;
        void* buffer = create_buffer(library, encoder.opencl_context(), made[i].bytes);
        encoder.bind_output_opencl(i, buffer);
        decoder.bind_input_opencl(j, buffer);
        ++bound;
      }
    }
    expect(bound == made.size(), "the decoder reads all that the encoder makes");
    encoder.run();
    adrenoc::Generation how;
    how.max_tokens = static_cast<uint32_t>(std::atoi(values[5]));
    std::vector<int64_t> prompt;
    for (int i = 6; i < count; ++i) prompt.push_back(std::atoll(values[i]));
    decoder.generate(prompt, how, [](int64_t token) {
      std::printf("%lld ", static_cast<long long>(token));
      return true;
    });
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
