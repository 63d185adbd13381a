/* A layer of the ICD loader (OPENCL_LAYERS): every program begins with the text of $DRIVER_WORDS, a
 * file that gives built-ins which the driver does not have a meaning.
 *
 * The places of functions in the loader's table never change (Khronos, cl_icd.h). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kFromSource = 26, kMostFunctions = 256, kMostParts = 4096 };
enum { kLayerVersion = 0x4240, kLayerName = 0x4241, kBadValue = -30 };

typedef void* FromSource(void* context, uint32_t count, const char** texts, const size_t* lengths,
                         int32_t* code);

static void* next[kMostFunctions];
static void* table[kMostFunctions];
static char words[1 << 16];

static void* from_source(void* context, uint32_t count, const char** texts, const size_t* lengths,
                         int32_t* code) {
  const char* parts[kMostParts] = {words};
  size_t sizes[kMostParts] = {strlen(words)};
  if (count >= kMostParts) {
    if (code != NULL) *code = kBadValue;
    return NULL;
  }
  for (uint32_t i = 0; i < count; ++i) {
    parts[i + 1] = texts[i];
    sizes[i + 1] = lengths == NULL || lengths[i] == 0 ? strlen(texts[i]) : lengths[i];
  }
  return ((FromSource*)next[kFromSource])(context, count + 1, parts, sizes, code);
}

__attribute__((visibility("default"))) int32_t clGetLayerInfo(uint32_t what, size_t room, void* out,
                                                              size_t* size) {
  static const uint32_t kVersion = 100;
  static const char kName[] = "driver words";
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
  const char* path = getenv("DRIVER_WORDS");
  FILE* file = path == NULL ? NULL : fopen(path, "r");
  if (count <= kFromSource || count > kMostFunctions || file == NULL) return kBadValue;
  const size_t length = fread(words, 1, sizeof(words), file);
  fclose(file);
  if (length == sizeof(words)) return kBadValue;
  memcpy(next, target, count * sizeof(*table));
  memcpy(table, target, count * sizeof(*table));
  table[kFromSource] = (void*)from_source;
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
