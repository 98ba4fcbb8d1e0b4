// Pinned host memory: allocated by us, or registered. Copies from and to it are asynchronous.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_HOST_MEMORY_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_HOST_MEMORY_H_

#include <cstddef>
#include <memory>

#include "tests/pretend_gpu/uses.h"

namespace pretend_gpu {

// All functions: any thread. Where one ends the process, it is because the program freed twice, freed what it
// never had, registered twice, or freed what a queued task uses.

// Returns poisoned memory, or nullptr if there is none.
void* AllocateHost(std::size_t bytes);
void FreeHost(void* address);

void RegisterHost(void* address, std::size_t bytes);
void UnregisterHost(void* address);

// Returns the tasks that use the pinned memory which holds [address, address + bytes), or nullptr if that is
// not pinned.
std::shared_ptr<Uses> PinnedUses(const void* address, std::size_t bytes);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_HOST_MEMORY_H_
