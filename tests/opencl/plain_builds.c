/* A layer of the ICD loader (OPENCL_LAYERS): drivers build kernels without optimising them while
 * `plain_builds(folder)` holds, or in a process that has PLAIN_BUILDS.  To optimise a kernel takes
 * longer than to run it once.
 *
 * Every program begins with the text of $DRIVER_WORDS, a file that gives words which the driver
 * lacks a meaning, where a process has it.
 *
 * What a driver built so lies in that folder: a program with the same text, for the same driver, is
 * made of it, also by a later run of the tests.  A file holds all that it was made from, and counts
 * only where that is the same.
 *
 * The places of functions in the loader's table never change (Khronos, cl_icd.h). */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utime.h>

enum { kDeviceInfo = 3, kFromSource = 26, kFromBinary = 27, kRelease = 29 };
enum { kBuildProgram = 30, kProgramInfo = 32, kMostFunctions = 256 };
enum { kDeviceName = 0x102B, kDriverVersion = 0x102D };
enum { kProgramDevices = 0x1163, kProgramSource, kBinarySizes, kBinaries };
enum { kLayerVersion = 0x4240, kLayerName = 0x4241, kNoMemory = -6, kBadValue = -30 };
enum { kMostWords = 256, kMostPath = 4096, kMostParts = 256, kMostText = 1 << 16 };

typedef int32_t Build(void* program, uint32_t devices, const void* ids, const char* options,
                      void* notify, void* user);
typedef int32_t Ask(void* object, uint32_t what, size_t room, void* out, size_t* size);
typedef void* FromSource(void* context, uint32_t count, const char** texts, const size_t* lengths,
                         int32_t* code);
typedef void* FromBinary(void* context, uint32_t count, void* const* devices, const size_t* lengths,
                         const uint8_t** binaries, int32_t* status, int32_t* code);
typedef int32_t Release(void* object);

static const char kOption[] = " -cl-opt-disable";
static void* next[kMostFunctions];
static void* table[kMostFunctions];
static char folder[kMostPath / 2];
static char driver_words[kMostText];

/* Kernels are not optimised from here on, and what is built lies in a folder; NULL ends it. */
__attribute__((visibility("default"))) void plain_builds(const char* wanted) {
  snprintf(folder, sizeof(folder), "%s", wanted == NULL ? "" : wanted);
}

/* The driver, what it is told and the text: what a file is found by, and begins with.  NULL of a
 * program without text or for several devices, and without memory. */
static char* make_key(void* program, void** device, size_t* size) {
  Ask *const ask = (Ask*)next[kProgramInfo], *const ask_device = (Ask*)next[kDeviceInfo];
  char name[kMostWords] = "", driver[kMostWords] = "";
  size_t length = 0;
  if (ask(program, kProgramDevices, sizeof(*device), device, NULL) != 0) return NULL;
  if (ask(program, kProgramSource, 0, NULL, &length) != 0 || length <= 1) return NULL;
  ask_device(*device, kDeviceName, sizeof(name), name, NULL);
  ask_device(*device, kDriverVersion, sizeof(driver), driver, NULL);
  char* key = malloc(3 * kMostWords + length);
  if (key == NULL) return NULL;
  const char* mode = getenv("CL_CONFIG_CPU_VECTORIZER_MODE");
  const int words = snprintf(key, 3 * kMostWords, "%s\n%s\n%.*s\n%s\n", name, driver, kMostWords,
                             mode == NULL ? "" : mode, kOption);
  *size = (size_t)words + length;
  if (ask(program, kProgramSource, length, key + words, NULL) == 0) return key;
  free(key);
  return NULL;
}

static void write_path(const char* key, size_t size, char* path) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ (uint8_t)key[i]) * 0x100000001b3;
  snprintf(path, kMostPath, "%s/%016" PRIx64, folder, hash);
}

/* What a file holds behind `key`; NULL where there is none, or it begins with something else. */
static uint8_t* read_binary(const char* key, size_t size, size_t* length) {
  char path[kMostPath];
  write_path(key, size, path);
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  const size_t whole = (size_t)ftell(file);
  uint8_t* held = whole > size ? malloc(whole) : NULL;
  rewind(file);
  if (held != NULL && (fread(held, 1, whole, file) != whole || memcmp(held, key, size) != 0)) {
    free(held);
    held = NULL;
  }
  fclose(file);
  if (held == NULL) return NULL;
  utime(path, NULL); /* files that nobody asks for are removed in time */
  *length = whole - size;
  memmove(held, held + size, *length);
  return held;
}

static void keep_binary(void* program) {
  Ask* const ask = (Ask*)next[kProgramInfo];
  void* device = NULL;
  size_t bytes = 0, size = 0;
  char* key = make_key(program, &device, &size);
  if (key == NULL || ask(program, kBinarySizes, sizeof(bytes), &bytes, NULL) != 0) bytes = 0;
  uint8_t* binary = bytes == 0 ? NULL : malloc(bytes);
  if (binary != NULL && ask(program, kBinaries, sizeof(binary), (void*)&binary, NULL) == 0) {
    char path[kMostPath], aside[kMostPath + 64];
    write_path(key, size, path);
    snprintf(aside, sizeof(aside), "%s.%d.%p", path, (int)getpid(), program);
    FILE* file = fopen(aside, "wb");
    if (file != NULL) {
      int is_whole = fwrite(key, 1, size, file) == size && fwrite(binary, 1, bytes, file) == bytes;
      is_whole = fclose(file) == 0 && is_whole;
      if (!is_whole || rename(aside, path) != 0) unlink(aside);
    }
  }
  free(binary);
  free(key);
}

static void read_words(const char* path) {
  FILE* file = path == NULL ? NULL : fopen(path, "r");
  if (file == NULL) return;
  driver_words[fread(driver_words, 1, sizeof(driver_words) - 1, file)] = '\0';
  fclose(file);
}

static void* create(void* context, uint32_t count, const char** texts, const size_t* lengths,
                    int32_t* code) {
  FromSource* const create_next = (FromSource*)next[kFromSource];
  if (driver_words[0] == '\0' || count >= kMostParts) {
    return create_next(context, count, texts, lengths, code);
  }
  const char* parts[kMostParts] = {driver_words};
  size_t sizes[kMostParts] = {strlen(driver_words)};
  for (uint32_t i = 0; i < count; ++i) {
    parts[i + 1] = texts[i];
    sizes[i + 1] = lengths == NULL || lengths[i] == 0 ? strlen(texts[i]) : lengths[i];
  }
  return create_next(context, count + 1, parts, sizes, code);
}

static void* from_source(void* context, uint32_t count, const char** texts, const size_t* lengths,
                         int32_t* code) {
  void* program = create(context, count, texts, lengths, code);
  if (program == NULL || folder[0] == '\0') return program;
  void *device = NULL, *kept = NULL;
  size_t size = 0, length = 0;
  int32_t status = 0;
  char* key = make_key(program, &device, &size);
  uint8_t* binary = key == NULL ? NULL : read_binary(key, size, &length);
  if (binary != NULL) {
    const uint8_t* one = binary;
    kept = ((FromBinary*)next[kFromBinary])(context, 1, &device, &length, &one, &status, NULL);
  }
  if (kept != NULL) ((Release*)next[kRelease])(program);
  free(binary);
  free(key);
  return kept != NULL ? kept : program;
}

static int32_t build(void* program, uint32_t devices, const void* ids, const char* options,
                     void* notify, void* user) {
  Build* const build_next = (Build*)next[kBuildProgram];
  if (folder[0] == '\0') return build_next(program, devices, ids, options, notify, user);
  const char* given = options == NULL ? "" : options;
  char* all = malloc(strlen(given) + sizeof(kOption));
  if (all == NULL) return kNoMemory;
  strcat(strcpy(all, given), kOption);
  const int32_t code = build_next(program, devices, ids, all, notify, user);
  free(all);
  if (code == 0 && notify == NULL) keep_binary(program);
  return code;
}

__attribute__((visibility("default"))) int32_t clGetLayerInfo(uint32_t what, size_t room, void* out,
                                                              size_t* size) {
  static const uint32_t kVersion = 100;
  static const char kName[] = "plain builds";
  const void* told = what == kLayerVersion ? (const void*)&kVersion : kName;
  const size_t length = what == kLayerVersion ? sizeof(kVersion) : sizeof(kName);
  if (what != kLayerVersion && what != kLayerName) return kBadValue;
  if (out != NULL && room < length) return kBadValue;
  if (out != NULL) memcpy(out, told, length);
  if (size != NULL) *size = length;
  return 0;
}

__attribute__((visibility("default"))) int32_t clInitLayer(uint32_t count, void** target,
                                                           uint32_t* told, void*** made) {
  if (count <= kProgramInfo || count > kMostFunctions) return kBadValue;
  plain_builds(getenv("PLAIN_BUILDS"));
  read_words(getenv("DRIVER_WORDS"));
  memcpy(next, target, count * sizeof(*table));
  memcpy(table, target, count * sizeof(*table));
  table[kFromSource] = (void*)from_source;
  table[kBuildProgram] = (void*)build;
  *told = count;
  *made = table;
  return 0;
}

/* What newer loaders call in place of it, and at the end. */
__attribute__((visibility("default"))) int32_t clInitLayerWithProperties(
    uint32_t count, void** target, uint32_t* told, void*** made, const void* properties) {
  (void)properties;
  return clInitLayer(count, target, told, made);
}
__attribute__((visibility("default"))) int32_t clDeinitLayer(void) { return 0; }
