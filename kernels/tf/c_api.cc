// The C entry points that the Python package calls through ctypes.
//
// Place in the stack: beside the kernels. Each returns at once or blocks as its engine call does; ctypes lets
// other Python threads run meanwhile. Those that can fail return 0, or 1 and a text, cut to fit.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/logging.h"
#include "kernels/common/utf8.h"
#include "kernels/engine/statistics.h"
#include "kernels/process/found_libraries.h"
#include "kernels/process/global_engine.h"
#include "kernels/process/interrupt.h"
#include "kernels/tf/arena_allocator.h"
#include "kernels/tf/eager_ops.h"
#include "kernels/tf/gpu_tensors.h"
#include "kernels/tf/step.h"
#include "kernels/tf/tensorflow_private.h"

namespace {

using ::tf_smddp::Config;
using ::tf_smddp::Engine;
using ::tf_smddp::Status;

int Report(const Status& status, char* error, std::size_t error_bytes) {
  if (status.ok()) return 0;
  if (error_bytes > 0) ::tf_smddp::CopyUtf8(::tf_smddp::ValidUtf8(status.message()), error, error_bytes);
  return 1;
}

// Says why tensors do not come from the arena, where they do not: one line for the job.
void WarnOfTensorsOutside(Engine& engine) {
  if (engine.arena() == nullptr || ::tf_smddp::CanUseArena() == ::tf_smddp::ArenaUse::kPossible) return;
  const Config& config = engine.config();
  ::tf_smddp::Logger(static_cast<::tf_smddp::LogLevel>(config.log_level), config.rank)
      .Log(config.rank == 0 ? ::tf_smddp::LogLevel::kWarning : ::tf_smddp::LogLevel::kInfo,
           ::tf_smddp::CanUseArena() == ::tf_smddp::ArenaUse::kTooLate
               ? "tensors were made before tf_smddp was imported, so tensors lie outside of the memory that "
                 "the ranks share, and are copied through it; import tf_smddp before the first tensor, "
                 "variable or dataset"
               : "TensorFlow's own pool is in use for CPU memory (TF_CPU_ALLOCATOR_USE_BFC), so tensors are "
                 "copied through the memory that the ranks share");
}

// -1 before init().
int ConfigValue(int Config::* member) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  return engine == nullptr ? -1 : engine->config().*member;
}

}  // namespace

extern "C" {

#define TF_SMDDP_EXPORT __attribute__((visibility("default")))

// `nccl_library` and `prefix`: as for StartGlobalEngine.
TF_SMDDP_EXPORT int tf_smddp_init(const char* nccl_library, const char* prefix, char* error,
                                  std::size_t error_bytes) {
  const Status status = ::tf_smddp::StartGlobalEngine(nccl_library, prefix);
  if (status.ok()) WarnOfTensorsOutside(*::tf_smddp::GlobalEngine());
  return Report(status, error, error_bytes);
}

// Writes what rank 0's process manager for MPI, and the ranks that look for it, must know (see Launch), as
// lines: host, port, rank, size, SMDDP_BOOTSTRAP_TIMEOUT, the run's id. An empty text if none is needed; on
// an error its message. Before init().
TF_SMDDP_EXPORT int tf_smddp_process_manager(char* text, std::size_t text_bytes) {
  Config config;
  const Status status = ::tf_smddp::ReadConfig(&config);
  if (!status.ok()) return Report(status, text, text_bytes);
  const ::tf_smddp::ProcessManagerAddress& address = config.process_manager;
  std::string lines;
  if (!address.host.empty()) {
    lines = address.host + "\n" + std::to_string(address.port) + "\n" + std::to_string(config.rank) + "\n" +
            std::to_string(config.size) + "\n" + std::to_string(config.bootstrap_timeout_seconds) + "\n" +
            config.run_id;
  }
  if (text_bytes > 0) ::tf_smddp::CopyUtf8(::tf_smddp::ValidUtf8(lines), text, text_bytes);
  return 0;
}

TF_SMDDP_EXPORT int tf_smddp_shutdown(char* error, std::size_t error_bytes) {
  const Status status = ::tf_smddp::StopGlobalEngine();
  if (::tf_smddp::GlobalEngine() == nullptr) ::tf_smddp::Step::ForgetAll();
  return Report(status, error, error_bytes);
}

// As Engine::NoteScriptEnd.
TF_SMDDP_EXPORT void tf_smddp_note_script_end() {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  if (engine != nullptr && !engine->InForkedChild()) engine->NoteScriptEnd();
}

// Ends the job for all ranks with `text`, whose cause this process has written; nothing without an engine, or
// in a forked child.
TF_SMDDP_EXPORT void tf_smddp_abort(const char* text) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  if (engine != nullptr && !engine->InForkedChild()) engine->AbortAfterWriting(text);
}

// Writes why the job has ended for all ranks, cut to fit; an empty text if it has not.
TF_SMDDP_EXPORT void tf_smddp_abort_text(char* text, std::size_t text_bytes) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  const std::string found = engine == nullptr ? "" : engine->AbortText();
  if (text_bytes > 0) ::tf_smddp::CopyUtf8(::tf_smddp::ValidUtf8(found), text, text_bytes);
}

// SIGINT ends the collectives that this process waits in; see kernels/process/interrupt.h. Without it the job
// still works: 1, and a line in the log.
TF_SMDDP_EXPORT int tf_smddp_watch_interrupts() {
  const Status status = ::tf_smddp::WatchInterrupts();
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  if (status.ok() || engine == nullptr) return status.ok() ? 0 : 1;
  const Config& config = engine->config();
  ::tf_smddp::Logger(static_cast<::tf_smddp::LogLevel>(config.log_level), config.rank)
      .Log(::tf_smddp::LogLevel::kWarning,
           "Ctrl-C will not end a collective that waits for other ranks: " + status.message());
  return 1;
}
TF_SMDDP_EXPORT void tf_smddp_stop_watching_interrupts() { ::tf_smddp::StopWatchingInterrupts(); }

// Collective, as Engine::CreateCommunicator. `ranks`: `num_ranks` of the job.
TF_SMDDP_EXPORT int tf_smddp_create_communicator(const int* ranks, int num_ranks, std::uint32_t* communicator,
                                                 char* error, std::size_t error_bytes) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  if (engine == nullptr) return Report(::tf_smddp::NotInitialized(), error, error_bytes);
  return Report(engine->CreateCommunicator(std::vector<int>(ranks, ranks + num_ranks), communicator), error,
                error_bytes);
}

// Collective, as Engine::RemoveCommunicator.
TF_SMDDP_EXPORT int tf_smddp_remove_communicator(std::uint32_t communicator, char* error,
                                                 std::size_t error_bytes) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  if (engine == nullptr) return Report(::tf_smddp::NotInitialized(), error, error_bytes);
  return Report(engine->RemoveCommunicator(communicator), error, error_bytes);
}

// As Engine::Leave.
TF_SMDDP_EXPORT int tf_smddp_leave(std::uint32_t communicator, char* error, std::size_t error_bytes) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  if (engine == nullptr) return Report(::tf_smddp::NotInitialized(), error, error_bytes);
  return Report(engine->Leave(communicator), error, error_bytes);
}

// As Engine::Return. Sets *last to the rank that was the last to leave.
TF_SMDDP_EXPORT int tf_smddp_return(std::uint32_t communicator, int* last, char* error,
                                    std::size_t error_bytes) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  if (engine == nullptr) return Report(::tf_smddp::NotInitialized(), error, error_bytes);
  ::tf_smddp::RankId rank;
  const Status status = engine->Return(communicator, &rank);
  *last = rank.value();
  return Report(status, error, error_bytes);
}

// Writes the statistics of this rank's collectives as JSON (ToJson in kernels/engine/statistics.h). With
// `reset` it counts from 0 again. On an error `text` has its message.
TF_SMDDP_EXPORT int tf_smddp_stats(int reset, char* text, std::size_t text_bytes) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  if (engine == nullptr) return Report(::tf_smddp::NotInitialized(), text, text_bytes);
  ::tf_smddp::EngineStats stats;
  Status status = engine->Stats(reset != 0, &stats);
  const std::string json = status.ok() ? ::tf_smddp::ToJson(stats) : "";
  if (status.ok() && json.size() >= text_bytes) {
    status =
        ::tf_smddp::Internal("the figures take " + std::to_string(json.size() + 1) +
                             " bytes, more than the " + std::to_string(text_bytes) + " there is room for");
  }
  if (!status.ok()) return Report(status, text, text_bytes);
  std::memcpy(text, json.c_str(), json.size() + 1);
  return 0;
}

// As Engine::StartTimeline.
TF_SMDDP_EXPORT int tf_smddp_start_timeline(const char* path, char* error, std::size_t error_bytes) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  if (engine == nullptr) return Report(::tf_smddp::NotInitialized(), error, error_bytes);
  return Report(engine->StartTimeline(path), error, error_bytes);
}

// As Engine::StopTimeline. After shutdown() there is none.
TF_SMDDP_EXPORT int tf_smddp_stop_timeline(char* error, std::size_t error_bytes) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  return engine == nullptr ? 0 : Report(engine->StopTimeline(), error, error_bytes);
}

// Writes what FindLibraries finds, cut to fit; on an error its message. Also before init().
TF_SMDDP_EXPORT int tf_smddp_find_libraries(const char* nccl_library, const char* prefix, char* text,
                                            std::size_t text_bytes) {
  std::string lines;
  const Status status = ::tf_smddp::FindLibraries(nccl_library, prefix, &lines);
  if (!status.ok()) return Report(status, text, text_bytes);
  if (text_bytes > 0) ::tf_smddp::CopyUtf8(::tf_smddp::ValidUtf8(lines), text, text_bytes);
  return 0;
}

// 1 if the ops have kernels for GPUs, which they have where a driver for GPUs is.
TF_SMDDP_EXPORT int tf_smddp_has_gpu_kernels() { return ::tf_smddp::HasGpuKernels() ? 1 : 0; }

// The eager ops of whose end the engine knows; see kernels/tf/eager_ops.h.
TF_SMDDP_EXPORT std::uint64_t tf_smddp_eager_ops(std::uint32_t communicator) {
  return ::tf_smddp::EagerOps(communicator);
}
// Tells the other ranks of an eager op that TensorFlow has failed, and that they would wait for.
TF_SMDDP_EXPORT void tf_smddp_fail_eager_op(std::uint32_t communicator, const char* reason) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::GlobalEngine();
  if (engine == nullptr || engine->InForkedChild()) return;
  engine->FailStep(communicator, ::tf_smddp::kNoStep,
                   "rank " + std::to_string(engine->config().rank) +
                       " could not begin a collective: " + ::tf_smddp::ValidUtf8(reason));
}

TF_SMDDP_EXPORT int tf_smddp_is_initialized() { return ::tf_smddp::GlobalEngine() != nullptr ? 1 : 0; }

TF_SMDDP_EXPORT int tf_smddp_rank() { return ConfigValue(&Config::rank); }
TF_SMDDP_EXPORT int tf_smddp_size() { return ConfigValue(&Config::size); }
TF_SMDDP_EXPORT int tf_smddp_local_rank() { return ConfigValue(&Config::local_rank); }
TF_SMDDP_EXPORT int tf_smddp_local_size() { return ConfigValue(&Config::local_size); }

}  // extern "C"
