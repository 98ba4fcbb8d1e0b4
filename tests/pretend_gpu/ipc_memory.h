// Device memory of one process in another one.
//
// A handle names the exporting process, its memfd and the allocation. Behind the memory in the memfd lies a
// ledger, in which importers note that they have an allocation open: so the exporter finds that it frees too
// early.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_IPC_MEMORY_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_IPC_MEMORY_H_

#include <cstddef>

namespace pretend_gpu {

inline constexpr std::size_t kIpcHandleBytes = 64;
inline constexpr std::size_t kLedgerBytes = 64 * 1024;

// All functions: any thread.

// Writes the handle of the allocation that holds `address`. Returns false if this process has exported too
// many.
bool ExportMemory(const void* address, void* handle);

// Called before an allocation is freed. Ends the process if another process that lives has it open.
void EndExport(const void* address);

// Returns the address of the whole allocation in this process, also where `address` of ExportMemory was
// within it; nullptr if the exporter has ended. Ends the process if this process is the exporter, or if the
// allocation was freed.
void* ImportMemory(const void* handle);

// Ends one ImportMemory; the last one ends the use of the address.
void EndImport(void* address);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_IPC_MEMORY_H_
