/* Gives a model's library what it borrows, from files of that name in this folder, before main. */
#include <stdio.h>
#include <stdlib.h>

#include "model_environment.h"

extern const model_facts adrenoc_cpu_model;

__attribute__((constructor)) static void lend(void) {
  enum { MOST = 256 };
  static const void *params[MOST];
  if (adrenoc_cpu_model.params > MOST) abort();
  for (int i = 0; i < adrenoc_cpu_model.params; ++i) {
    const model_param lender = adrenoc_cpu_model.lenders[i];
    void *const room = malloc((size_t)lender.bytes);
    FILE *const file = fopen(lender.name, "rb");
    if (!file || fread(room, 1, (size_t)lender.bytes, file) != (size_t)lender.bytes) abort();
    fclose(file);
    params[i] = room;
  }
  if (adrenoc_cpu_model.params) adrenoc_cpu_model.borrow(params);
}
