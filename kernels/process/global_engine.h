// The one engine of this process, which the C API owns and the kernels of a framework use.
//
// Place in the stack: between kernels/tf, whose kernels have no other way to find it, and kernels/engine,
// which has no globals.
#ifndef TF_SMDDP_KERNELS_PROCESS_GLOBAL_ENGINE_H_
#define TF_SMDDP_KERNELS_PROCESS_GLOBAL_ENGINE_H_

#include <memory>
#include <string>

#include "kernels/common/status.h"
#include "kernels/engine/engine.h"

namespace tf_smddp {

// Reads the environment and starts the engine. Collective: every rank must call this. `nccl_library`: the
// path of NCCL, if the environment has none; "" for what the system finds. `prefix`: the folder of Python's
// environment, where an MPI may be. Errors: FailedPrecondition when one is running, and what Engine::Start
// and, where the ranks are on several hosts, MpiWire::Open say.
Status StartGlobalEngine(const std::string& nccl_library, const std::string& prefix);

// Shuts the engine down; does nothing when none runs, or in a forked child, where it is the parent's.
Status StopGlobalEngine();

// The running engine, or nullptr before init() and after shutdown(). A caller keeps the pointer for as long
// as it needs the engine. Any thread.
std::shared_ptr<Engine> GlobalEngine();

// The error of a call that found no engine.
Status NotInitialized();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_PROCESS_GLOBAL_ENGINE_H_
