// The functions of the pretend GPU that tests call, for runs on a real one: a GPU's streams have no roles and
// no policies, and it does not break when it is told to.
#include <cstdint>

#include "tests/pretend_gpu/pretend_gpu.h"

void pretend_gpu_set_stream_role(void*, const char*) {}
void pretend_gpu_set_policy(const char*) {}
void pretend_gpu_break_device(int, int) {}
// Nobody counts; tests that ask are left out (lease.sh).
std::uint64_t pretend_gpu_launches(const char*) { return 0; }
