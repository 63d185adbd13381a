/* A layer of the ICD loader (OPENCL_LAYERS): drivers build kernels without optimising them while
 * `plain_builds(1)` holds, or in a process that has PLAIN_BUILDS.  To optimise a kernel takes longer
 * than to run it once.
 *
 * The places of functions in the loader's table never change (Khronos, cl_icd.h). */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kBuildProgram = 30, kMostFunctions = 256 };
enum { kLayerVersion = 0x4240, kLayerName = 0x4241, kNoMemory = -6, kBadValue = -30 };

typedef int32_t Build(void* program, uint32_t devices, const void* ids, const char* options,
                      void* notify, void* user);

static Build* next_build;
static void* table[kMostFunctions];
static int is_plain;

__attribute__((visibility("default"))) void plain_builds(int wanted) { is_plain = wanted; }

static int32_t build(void* program, uint32_t devices, const void* ids, const char* options,
                     void* notify, void* user) {
  if (!is_plain) return next_build(program, devices, ids, options, notify, user);
  static const char kOption[] = " -cl-opt-disable";
  const char* given = options == NULL ? "" : options;
  char* all = malloc(strlen(given) + sizeof(kOption));
  if (all == NULL) return kNoMemory;
  strcat(strcpy(all, given), kOption);
  const int32_t code = next_build(program, devices, ids, all, notify, user);
  free(all);
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
  if (count <= kBuildProgram || count > kMostFunctions) return kBadValue;
  if (getenv("PLAIN_BUILDS") != NULL) is_plain = 1;
  memcpy(table, target, count * sizeof(*table));
  next_build = (Build*)target[kBuildProgram];
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
