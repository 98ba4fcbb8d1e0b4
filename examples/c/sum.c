/* Sums a vector over the ranks, in C: the engine without a framework. In the root of the sources:
 *
 *     python3 tools/run_bazel.py build //kernels/process:libsmddp.so
 *     gcc -std=c11 -Ikernels/process examples/c/sum.c -o sum -Lbazel-bin/kernels/process -lsmddp \
 *         -Wl,-rpath,$PWD/bazel-bin/kernels/process
 *     python3 -m smddprun -np 2 ./sum
 */
#include <stdio.h>
#include <stdlib.h>

#include "smddp.h"

enum { COUNT = 1000000 };

static void check(smddp_result result, const char* what) {
  if (result == SMDDP_SUCCESS) return;
  fprintf(stderr, "%s failed: %s\n", what, smddp_last_error());
  exit(1); /* the other ranks get an error, too */
}

int main(void) {
  check(smddp_init(NULL, NULL), "smddp_init");
  const int rank = smddp_rank(), size = smddp_size();

  /* In memory that the ranks of a host share, so that nothing is copied. */
  float* vector = smddp_allocate(COUNT * sizeof *vector);
  if (vector == NULL) {
    fprintf(stderr, "no memory\n");
    return 1;
  }
  for (int i = 0; i < COUNT; ++i) vector[i] = (float)(rank + i % 10);

  const int64_t shape[] = {COUNT};
  smddp_request request;
  smddp_request_init(&request, sizeof request);
  request.collective = SMDDP_ALLREDUCE;
  request.dtype = SMDDP_FLOAT32;
  request.op = SMDDP_SUM;
  request.shape = shape;
  request.num_dims = 1;
  request.output.data = vector; /* in place: there is no input.data */
  request.output.bytes = COUNT * sizeof *vector;
  request.label = "vector";
  check(smddp_run(&request), "the sum");

  int wrong = 0;
  for (int i = 0; i < COUNT; ++i) wrong += vector[i] != (float)(size * (i % 10) + size * (size - 1) / 2);
  printf("rank %d of %d: the sum of element 0 is %g, %d elements are wrong\n", rank, size, vector[0], wrong);

  smddp_free(vector);
  check(smddp_shutdown(), "smddp_shutdown");
  return wrong == 0 ? 0 : 1;
}
