// Runs a bundle inside of onnxruntime: once from files, or as a decoder from tokens.
//
//   inside LIBRARY MODEL_ctx.onnx [OPTION=VALUE...] run INPUT... OUTPUT...
//   inside LIBRARY MODEL_ctx.onnx [OPTION=VALUE...] generate COUNT TOKEN...
//
// LIBRARY is libadrenoc_ep.so with its whole path; files hold raw numbers, in the model's order.
//
//   c++ -std=c++17 -O2 inside.cc -Ionnxruntime/include -Lonnxruntime/lib -lonnxruntime
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using Words = std::vector<std::string>;

std::vector<Ort::ConstEpDevice> find_devices(const Ort::Env& environment) {
  std::vector<Ort::ConstEpDevice> found;
  for (const Ort::ConstEpDevice& device : environment.GetEpDevices()) {
    if (std::string(device.EpName()) == "AdrenocExecutionProvider") found.push_back(device);
  }
  return found;
}

std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return std::vector<char>(std::istreambuf_iterator<char>(file), {});
}

std::vector<const char*> pointers_to(const Words& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return pointers;
}

void run(Ort::Session* session, const Words& files) {
  const Words inputs = session->GetInputNames(), outputs = session->GetOutputNames();
  if (files.size() != inputs.size() + outputs.size()) {
    throw std::runtime_error("needs a file of each of " + std::to_string(inputs.size()) +
                             " inputs and " + std::to_string(outputs.size()) + " outputs");
  }
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  std::vector<std::vector<char>> bytes;
  std::vector<Ort::Value> given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    bytes.push_back(read_file(files[i]));
    const Ort::TypeInfo type = session->GetInputTypeInfo(i);
    const auto tensor = type.GetTensorTypeAndShapeInfo();
    const std::vector<int64_t> shape = tensor.GetShape();
    given.push_back(Ort::Value::CreateTensor(memory, bytes[i].data(), bytes[i].size(),
                                             shape.data(), shape.size(),
                                             tensor.GetElementType()));
  }
  const auto made =
      session->Run(Ort::RunOptions(), pointers_to(inputs).data(), given.data(), given.size(),
                   pointers_to(outputs).data(), outputs.size());
  for (size_t i = 0; i < made.size(); ++i) {
    std::ofstream file(files[inputs.size() + i], std::ios::binary);
    file.write(made[i].GetTensorData<char>(),
               static_cast<std::streamsize>(made[i].GetTensorSizeInBytes()));
    if (!file.flush()) throw std::runtime_error("cannot write " + files[inputs.size() + i]);
  }
}

// The likeliest token after `tokens`, the last of `so_far`: the session keeps the others.
int64_t step(Ort::Session* session, std::vector<int64_t> tokens, size_t so_far) {
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  std::vector<int64_t> mask(so_far, 1);
  const int64_t shapes[2][2] = {{1, static_cast<int64_t>(tokens.size())},
                                {1, static_cast<int64_t>(so_far)}};
  const Ort::Value given[] = {
      Ort::Value::CreateTensor(memory, tokens.data(), tokens.size(), shapes[0], 2),
      Ort::Value::CreateTensor(memory, mask.data(), mask.size(), shapes[1], 2)};
  const char* inputs[] = {"input_ids", "attention_mask"};
  const char* output = "logits";
  const auto made = session->Run(Ort::RunOptions(), inputs, given, 2, &output, 1);
  const float* logits = made[0].GetTensorData<float>();
  const size_t count = made[0].GetTensorTypeAndShapeInfo().GetElementCount();
  return std::max_element(logits, logits + count) - logits;
}

void generate(Ort::Session* session, const Words& words) {
  std::vector<int64_t> tokens;
  for (size_t i = 1; i < words.size(); ++i) tokens.push_back(std::stoll(words[i]));
  std::vector<int64_t> added = tokens;
  for (int left = std::stoi(words.at(0)); left > 0; --left) {
    added = {step(session, added, tokens.size())};
    tokens.push_back(added[0]);
    std::printf("%s%lld", tokens.size() == words.size() ? "" : " ",
                static_cast<long long>(added[0]));
    std::fflush(stdout);
  }
  std::printf("\n");
}

void work(const Words& words) {
  if (words.size() < 3) throw std::runtime_error("usage: see the head of inside.cc");
  Ort::Env environment(ORT_LOGGING_LEVEL_WARNING, "inside");
  environment.RegisterExecutionProviderLibrary("adrenoc", words[0]);
  std::unordered_map<std::string, std::string> own;
  size_t next = 2;
  for (; next < words.size() && words[next].find('=') != std::string::npos; ++next) {
    const size_t sign = words[next].find('=');
    own[words[next].substr(0, sign)] = words[next].substr(sign + 1);
  }
  const std::string deed = next < words.size() ? words[next++] : "";
  const Words rest(words.begin() + static_cast<std::ptrdiff_t>(next), words.end());
  Ort::SessionOptions options;
  options.AppendExecutionProvider_V2(environment, find_devices(environment), own);
  Ort::Session session(environment, words[1].c_str(), options);
  if (deed == "run") {
    run(&session, rest);
  } else if (deed == "generate") {
    generate(&session, rest);
  } else {
    throw std::runtime_error("knows run and generate, and is told '" + deed + "'");
  }
}

}  // namespace

int main(int count, char** values) {
  try {
    work(Words(values + 1, values + count));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
