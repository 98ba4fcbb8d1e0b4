// Libraries that are no use as NCCL: one that is too old, and one that lacks functions.
#ifndef OLD_NCCL_VERSION
#define OLD_NCCL_VERSION 0
#endif

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = OLD_NCCL_VERSION;
  return 0;
}
