// The devices of this process, and what they say of themselves: that they are like an A100, but small.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_DEVICE_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_DEVICE_H_

#include <string>

#include "tests/pretend_gpu/heap.h"

namespace pretend_gpu {

// All functions: any thread.

bool IsDevice(int device);

// Returns the device's memory, which is made at the first call.
Heap& HeapOf(int device);

// Returns a CU_DEVICE_ATTRIBUTE_* of a device, or 0 for those that are not in the table.
int AttributeOf(int attribute, int device);

std::string NameOf(int device);

// Returns "0000:10:00.0".
std::string PciBusIdOf(int device);

// The same number names the same device in all processes.
void WriteUuid(int device, char (&uuid)[16]);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_DEVICE_H_
