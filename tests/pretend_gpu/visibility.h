// The mark of what other libraries see, besides the C functions: see extension.h.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_VISIBILITY_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_VISIBILITY_H_

#define PRETEND_GPU_SHARED __attribute__((visibility("default")))

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_VISIBILITY_H_
