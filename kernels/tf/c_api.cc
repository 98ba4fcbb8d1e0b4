// Functions that the Python package calls through ctypes, and that only TensorFlow's op library has. All
// others are the C API, kernels/process/smddp.h.
#include <cstdint>
#include <memory>

#include "kernels/common/logging.h"
#include "kernels/process/global_engine.h"
#include "kernels/tf/arena_allocator.h"
#include "kernels/tf/eager_ops.h"
#include "kernels/tf/gpu_tensors.h"
#include "kernels/tf/step.h"

extern "C" {

#define TF_SMDDP_EXPORT __attribute__((visibility("default")))

// After smddp_init: says why tensors do not come from the arena, where they do not. One line for the job.
TF_SMDDP_EXPORT void tf_smddp_after_init() {
  const std::shared_ptr<::tf_smddp::Engine> engine = ::tf_smddp::GlobalEngine();
  const ::tf_smddp::ArenaUse use = ::tf_smddp::CanUseArena();
  if (engine == nullptr || engine->arena() == nullptr || use == ::tf_smddp::ArenaUse::kPossible) return;
  const ::tf_smddp::Config& config = engine->config();
  ::tf_smddp::Logger(static_cast<::tf_smddp::LogLevel>(config.log_level), config.rank)
      .Log(config.rank == 0 ? ::tf_smddp::LogLevel::kWarning : ::tf_smddp::LogLevel::kInfo,
           use == ::tf_smddp::ArenaUse::kTooLate
               ? "tensors were made before tf_smddp was imported, so tensors lie outside of the memory that "
                 "the ranks share, and are copied through it; import tf_smddp before the first tensor, "
                 "variable or dataset"
               : "TensorFlow's own pool is in use for CPU memory (TF_CPU_ALLOCATOR_USE_BFC), so tensors are "
                 "copied through the memory that the ranks share");
}

// After smddp_shutdown: releases what steps still hold of an engine that has ended.
TF_SMDDP_EXPORT void tf_smddp_after_shutdown() {
  if (::tf_smddp::GlobalEngine() == nullptr) ::tf_smddp::Step::ForgetAll();
}

// 1 if the ops have kernels for GPUs, which they have where a driver for GPUs is.
TF_SMDDP_EXPORT int tf_smddp_has_gpu_kernels() { return ::tf_smddp::HasGpuKernels() ? 1 : 0; }

// As Engine::NextTicket.
TF_SMDDP_EXPORT std::uint64_t tf_smddp_next_ticket() {
  const std::shared_ptr<::tf_smddp::Engine> engine = ::tf_smddp::GlobalEngine();
  return engine == nullptr || engine->InForkedChild() ? 0 : engine->NextTicket();
}

// The eager ops of whose end the engine knows; see kernels/tf/eager_ops.h.
TF_SMDDP_EXPORT std::uint64_t tf_smddp_eager_ops(std::uint32_t communicator) {
  return ::tf_smddp::EagerOps(communicator);
}

}  // extern "C"
