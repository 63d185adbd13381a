// Runs that bring their own memory and shapes: numbers, threads, deadlines, and what the other ways to
// bind keep; the tests compile this file.
//
//   run_with_program numbers BUNDLE OPENCL CACHE INPUT... ; outputs go to stdout as raw bytes
//   run_with_program shapes BUNDLE OPENCL CACHE
//   run_with_program ends LONG OPENCL CACHE
//   run_with_program options BUNDLE OPENCL CACHE
//   run_with_program describe BUNDLE MODEL - ; prints what the bundle says, and the model's SHA-256
#include <dlfcn.h>

#include <chrono>
#include <iterator>
#include <thread>

#include "held_model.h"

namespace {

using Shape = std::vector<int64_t>;
using Tensors = std::vector<adrenoc_tensor>;

adrenoc_tensor in_host(std::vector<char>* memory, const Shape* shape = nullptr) {
  adrenoc_tensor tensor{};
  tensor.memory = memory->data();
  tensor.bytes = memory->size();
  if (shape != nullptr) tensor.shape = {shape->data(), static_cast<uint32_t>(shape->size())};
  return tensor;
}

Tensors in_host(Bytes* memory) {
  Tensors tensors;
  for (std::vector<char>& one : *memory) tensors.push_back(in_host(&one));
  return tensors;
}

Bytes empty_outputs(const adrenoc::Model& model) {
  Bytes outputs;
  for (const adrenoc::Tensor& tensor : model.outputs()) outputs.emplace_back(tensor.bytes);
  return outputs;
}

void expect_refused(const Answer& answer, const std::string& part) {
  expect(answer.status == ADRENOC_BAD_ARGUMENT && answer.text.find(part) != std::string::npos,
         part + ": " + answer.text);
}

void* create_buffer(const char* library, void* context, size_t bytes) {
  using Create = void* (*)(void*, uint64_t, size_t, const void*, int32_t*);
  auto create = reinterpret_cast<Create>(dlsym(dlopen(library, RTLD_NOW), "clCreateBuffer"));
  int32_t code = 0;
  void* buffer = create(context, 1, bytes, nullptr, &code);
  expect(code == 0, "a buffer is made");
  return buffer;
}

// An output goes to a buffer that was made before any model was loaded, and is an input from there.
void use_part_of_a_buffer(adrenoc::Model* model, void* buffer, Bytes inputs, const Bytes& expected) {
  constexpr uint64_t kOffset = 4096;
  Bytes outputs = empty_outputs(*model);
  Tensors read = in_host(&inputs);
  Tensors written = in_host(&outputs);
  written[0] = {buffer, ADRENOC_OPENCL, 0, 0, kOffset, {}};
  model->run_with(read, written);
  // `bias` is as large as `sum`: (r + b) + r of the same image is (r + b) with b = r + b.
  expect(inputs[1].size() == outputs[0].size(), "the two are of one size");
  read[1] = {buffer, ADRENOC_OPENCL, 0, 0, kOffset, {}};
  written = in_host(&outputs);
  model->run_with(read, written);
  const Bytes from_device = outputs;
  inputs[1] = expected[0];
  read = in_host(&inputs);
  model->run_with(read, written);
  expect(from_device == outputs, "a part of a buffer has what was written there");
  read[1] = {buffer, ADRENOC_OPENCL, 0, 0, 1, {}};
  expect_refused(answer_of([&] { model->run_with(read, written); }), "CL_DEVICE_MEM_BASE_ADDR_ALIGN");
  read[1].offset = 1 << 20;
  expect_refused(answer_of([&] { model->run_with(read, written); }), "from byte 1048576 on");
  read[1] = in_host(&inputs[1]);
  read[1].offset = 64;
  expect_refused(answer_of([&] { model->run_with(read, written); }), "expected 0 but in an OpenCL");
  read[1].offset = 0;
  read[1].kind = 7;
  expect_refused(answer_of([&] { model->run_with(read, written); }), "expected an adrenoc_memory_kind");
}

void numbers(adrenoc::Options options, const char* path, int count, char** files) {
  adrenoc_options plain{};
  plain.struct_bytes = sizeof(plain);
  plain.opencl_library = options.opencl_library.c_str();
  void* context = nullptr;
  void* device = nullptr;
  expect(adrenoc_open_device(&plain, &context, &device) == ADRENOC_OK, "a device is opened");
  void* buffer = create_buffer(options.opencl_library.c_str(), context, 1 << 16);

  adrenoc::Model model(path, options);
  expect(model.opencl_context() == context && model.opencl_device() == device, "it is the model's");
  Bytes inputs;
  for (int i = 0; i < count; ++i) {
    std::ifstream stream(files[i], std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  // What is bound stays bound, and is not touched.
  Bytes bound = empty_outputs(model);
  const Bytes untouched = bound;
  for (size_t i = 0; i < inputs.size(); ++i) model.bind_input(i, inputs[i]);
  for (size_t i = 0; i < bound.size(); ++i) model.bind_output(i, bound[i]);
  Bytes outputs = empty_outputs(model);
  const Tensors read = in_host(&inputs);
  for (int i = 0; i < 3; ++i) model.run_with(read, in_host(&outputs));
  expect(bound == untouched, "what was bound is not written");
  model.run();
  expect(bound == outputs, "a run on what was bound gives the same bits");
  for (const std::vector<char>& output : outputs) std::fwrite(output.data(), 1, output.size(), stdout);

  // An output that nobody asks for, and inputs that are not there.
  Bytes some = empty_outputs(model);
  Tensors written = in_host(&some);
  written[0].memory = nullptr;
  model.run_with(read, written);
  expect(some[1] == outputs[1] && some[0] == untouched[0], "one output is left out");
  Tensors wrong = read;
  wrong[0].memory = nullptr;
  expect_refused(answer_of([&] { model.run_with(wrong, written); }), "is not bound");
  wrong = read;
  wrong[0].bytes -= 4;
  expect_refused(answer_of([&] { model.run_with(wrong, written); }), "bytes, got");
  wrong.pop_back();
  expect_refused(answer_of([&] { model.run_with(wrong, written); }), "1 shapes for 2 inputs");
  expect_refused(answer_of([&] { model.run_with(read, {}); }), "0 tensors for 2 outputs");

  // Threads that share the model, each with memory of its own.
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Bytes own = inputs;
      Bytes made = empty_outputs(model);
      for (int run = 0; run < 25; ++run) {
        for (std::vector<char>& output : made) std::memset(output.data(), 0x5a, output.size());
        model.run_with(in_host(&own), in_host(&made));
        expect(made == outputs, "threads that share a model are right");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  use_part_of_a_buffer(&model, buffer, inputs, outputs);
}

std::vector<char> sines(const Shape& shape) {
  size_t count = 1;
  for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 17) / 17 - 0.5F;
  std::vector<char> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The same numbers as by set_input_shapes, and the choice of others stays.
void shapes(const adrenoc::Options& options, const char* path) {
  adrenoc::Model model(path, options);
  adrenoc::Model other(path, options);
  const Shape chosen = model.inputs()[0].shape;
  for (const Shape& shape : {Shape{1, 3, 8, 9}, Shape{3, 3, 12, 9}, Shape{2, 3, 8, 9}}) {
    std::vector<char> x = sines(shape);
    other.set_input_shapes({shape});
    other.bind_input(0, x);
    Bytes expected = empty_outputs(other);
    for (size_t i = 0; i < expected.size(); ++i) {
      expect(model.output_shape_for({shape}, i) == other.outputs()[i].shape, "shapes are told");
      other.bind_output(i, expected[i]);
    }
    other.run();
    Bytes made = empty_outputs(other);
    model.run_with({in_host(&x, &shape)}, in_host(&made));
    expect(made == expected, "a run in a shape of its own is right");
    expect(model.inputs()[0].shape == chosen, "and chooses nothing");
  }
  const Shape wrong{1, 3, 10, 9};
  expect_refused(answer_of([&] { (void)model.output_shape_for({wrong}, 0); }), "no bucket takes 1x3x10x9");
  expect_refused(answer_of([&] { (void)model.output_shape_for({chosen}, 2); }), "there is no output 2");
  const adrenoc_shape plain = {chosen.data(), 4};
  int64_t extents[4];
  uint32_t rank = 1;
  adrenoc_model* none = nullptr;
  expect(adrenoc_output_shape_for(none, &plain, 1, 0, extents, &rank) == ADRENOC_BAD_ARGUMENT,
         "a null model is refused");
}

double ms_of(const std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Runs that their deadline ends, or one cancellation of several; the next is right.
void ends(adrenoc::Options options, const char* path) {
  const std::vector<Bytes> alone = run_alone(path, options, 2);
  options.cancel_within_ms = 0.5;
  HeldModel held(path, options);
  (void)held.run(1);
  const auto start = std::chrono::steady_clock::now();
  (void)held.run(1);
  const double whole_ms = ms_of(start);
  Bytes inputs = held.inputs();
  Bytes outputs = empty_outputs(held.model);
  const Tensors read = in_host(&inputs);
  const Tensors written = in_host(&outputs);
  int late = 0;
  for (int i = 0; i < 64 && late == 0; ++i) {
    const Answer answer =
        answer_of([&] { held.model.run_with(read, written, whole_ms * (1 + i % 8) / 16); });
    if (answer.status == ADRENOC_CANCELLED) {
      expect(answer.text.find("the deadline of the run has passed") != std::string::npos,
             "the deadline is told: " + answer.text);
      ++late;
    }
  }
  expect(late == 1, "a deadline ends a run");
  held.model.run_with(read, written, 3600e3);
  expect(outputs == alone[1], "the next run is right");

  const adrenoc::Cancellation mine;
  const adrenoc::Cancellation other;
  mine.cancel();
  const Answer answer = answer_of([&] { held.model.run_with(read, written, 0, &mine); });
  expect(answer.status == ADRENOC_CANCELLED && answer.text.find("deadline") == std::string::npos,
         "a cancelled run ends: " + answer.text);
  held.model.run_with(read, written, 0, &other);
  expect(outputs == alone[1], "another's goes on");
  expect_refused(answer_of([&] { held.model.run_with(read, written, -1); }), "deadline_ms");
}

adrenoc_status set(adrenoc_options* options, const char* text) {
  return adrenoc_set_option(options, text);
}

void texts(const char* path, const std::string& library, const std::string& cache) {
  adrenoc_options plain{};
  expect(set(&plain, "no_record=1") == ADRENOC_BAD_ARGUMENT, "struct_bytes is 0");
  plain.struct_bytes = sizeof(plain);
  const std::string opencl = "opencl_library=" + library;
  const std::string folder = "cache_folder=" + cache;
  for (const char* text : {"trust_files=1", "device=0", opencl.c_str(), folder.c_str(),
                           "qualcomm_programs=1", "no_record=0", "performance=high", "priority=low",
                           "cancel_within_ms=2.5"}) {
    expect(set(&plain, text) == ADRENOC_OK, text);
  }
  expect(plain.trust_files == 1 && plain.qualcomm_programs == 1 && plain.no_record == 0, "flags");
  expect(plain.performance == ADRENOC_LEVEL_HIGH && plain.priority == ADRENOC_LEVEL_LOW, "levels");
  expect(plain.cancel_within_ms == 2.5 && std::string(plain.device) == "0", "numbers and texts");
  for (const char* text : {"trust_files=yes", "performance=3", "cancel_within_ms=", "cancel_within_ms=-1",
                           "cancel_within_ms=1s", "speed=1", "device", ""}) {
    expect(set(&plain, text) == ADRENOC_BAD_ARGUMENT, text);
  }
  expect(std::string(adrenoc_last_error()).find("one of trust_files, device, ") != std::string::npos,
         "the keys are told");
  adrenoc_model* model = nullptr;
  plain.performance = plain.priority = ADRENOC_LEVEL_UNSET;
  expect(adrenoc_load(path, &plain, &model) == ADRENOC_OK, "a model is loaded by them");
  expect(*adrenoc_notes(model) == 0, "nothing is to be noted");
  adrenoc_free(model);
  // The library that is open stays, and a note tells.
  plain.opencl_library = "libnone.so";
  expect(adrenoc_load(path, &plain, &model) == ADRENOC_OK, "another library is not opened");
  expect(std::string(adrenoc_notes(model)).find("and not libnone.so") != std::string::npos, "noted");
  adrenoc_free(model);
  // Kernels do not run on the CPU.
  plain.device = "cpu";
  expect(adrenoc_load(path, &plain, &model) == ADRENOC_UNSUPPORTED, "no code for the CPU");
  expect(std::string(adrenoc_last_error()).find("no code for the CPU") != std::string::npos, "told");

  expect(adrenoc_dtype_of("float32") == ADRENOC_FLOAT32 && adrenoc_dtype_of("bool") == ADRENOC_BOOL &&
             adrenoc_dtype_of("int4") == ADRENOC_DTYPE_UNKNOWN &&
             adrenoc_dtype_of(nullptr) == ADRENOC_DTYPE_UNKNOWN,
         "dtypes have numbers");
  expect(adrenoc_status_is_permanent(ADRENOC_NO_DEVICE) == 1 &&
             adrenoc_status_is_permanent(ADRENOC_BAD_BUNDLE) == 1 &&
             adrenoc_status_is_permanent(ADRENOC_NOT_READY) == 0 &&
             adrenoc_status_is_permanent(ADRENOC_CANCELLED) == 0 &&
             adrenoc_status_is_permanent(ADRENOC_OK) == 0,
         "some statuses pass");
}

void describe(const char* bundle, const char* model) {
  expect(adrenoc_describe(nullptr) == nullptr, "a null path is refused");
  expect(adrenoc_describe("/none/such.adrenoc") == nullptr, "and one where nothing is");
  char digest[65];
  expect(adrenoc_file_sha256("/none/such.onnx", digest) == ADRENOC_NOT_FOUND, "nor a file");
  expect(adrenoc_file_sha256(model, digest) == ADRENOC_OK, "a file has a digest");
  std::printf("[%s, \"%s\"]", adrenoc::describe(bundle).c_str(), digest);
}

}  // namespace

int main(int count, char** values) {
  if (count < 5) return 2;
  const std::string mode = values[1];
  adrenoc::Options options;
  options.opencl_library = values[3];
  options.cache_folder = values[4];
  try {
    if (mode == "numbers") numbers(options, values[2], count - 5, values + 5);
    if (mode == "shapes") shapes(options, values[2]);
    if (mode == "ends") ends(options, values[2]);
    if (mode == "describe") describe(values[2], values[3]);
    if (mode == "options") texts(values[2], values[3], values[4]);
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
