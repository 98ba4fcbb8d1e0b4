// The C API but for requests and memory (c_requests.cc): the job, its communicators, statistics, and what
// bindings of other languages need. smddp.h is its reference.
//
// Place in the stack: the top of the framework-free part. Each function returns at once or blocks as its
// engine call does.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/logging.h"
#include "kernels/common/utf8.h"
#include "kernels/common/version.h"
#include "kernels/engine/watch/statistics.h"
#include "kernels/process/c_result.h"
#include "kernels/process/found_libraries.h"
#include "kernels/process/global_engine.h"
#include "kernels/process/interrupt.h"
#include "kernels/process/smddp.h"

namespace tf_smddp {
namespace {

// The error of the last call that failed in this thread.
thread_local std::string last_error;

std::string TextOf(const char* text) { return text == nullptr ? "" : text; }

// -1 outside of a job.
int ConfigValue(int Config::* member) {
  const std::shared_ptr<Engine> engine = GlobalEngine();
  return engine == nullptr ? -1 : engine->config().*member;
}

// The engine of a call that does nothing without one, or in a forked child.
std::shared_ptr<Engine> OwnEngine() {
  std::shared_ptr<Engine> engine = GlobalEngine();
  return engine != nullptr && engine->InForkedChild() ? nullptr : engine;
}

Status NegativeNumRanks(int num_ranks) {
  return InvalidArgument("num_ranks is " + std::to_string(num_ranks) + "; it is the number of ranks");
}

// Calls `method`, which returns a Status, with the engine.
template <typename Method>
smddp_result WithEngine(Method method) {
  const std::shared_ptr<Engine> engine = GlobalEngine();
  return Report(engine == nullptr ? NotInitialized() : method(*engine));
}

}  // namespace

smddp_result CResultOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return SMDDP_SUCCESS;
    case StatusCode::kInvalidArgument:
      return SMDDP_INVALID_ARGUMENT;
    case StatusCode::kFailedPrecondition:
      return SMDDP_FAILED_PRECONDITION;
    case StatusCode::kInternal:
    case StatusCode::kNoMemoryNow:
      return SMDDP_INTERNAL;
    case StatusCode::kCorrupt:
      return SMDDP_CORRUPT;
    case StatusCode::kDeviceLost:
      return SMDDP_DEVICE_LOST;
  }
  __builtin_unreachable();
}

smddp_result Report(const Status& status) {
  if (!status.ok()) last_error = ValidUtf8(status.message());
  return CResultOf(status);
}

void WriteText(const std::string& from, char* text, std::size_t text_bytes) {
  if (text_bytes > 0) CopyUtf8(ValidUtf8(from), text, text_bytes);
}

}  // namespace tf_smddp

using ::tf_smddp::Config;
using ::tf_smddp::ConfigValue;
using ::tf_smddp::Engine;
using ::tf_smddp::GlobalEngine;
using ::tf_smddp::Report;
using ::tf_smddp::Status;
using ::tf_smddp::TextOf;
using ::tf_smddp::WithEngine;

extern "C" {

int smddp_api_version() { return SMDDP_API_VERSION; }
const char* smddp_version() { return ::tf_smddp::kVersion; }

const char* smddp_last_error() { return ::tf_smddp::last_error.c_str(); }

smddp_result smddp_init(const char* nccl_library, const char* prefix) {
  return Report(::tf_smddp::StartGlobalEngine(TextOf(nccl_library), TextOf(prefix)));
}

smddp_result smddp_shutdown() { return Report(::tf_smddp::StopGlobalEngine()); }

int smddp_is_initialized() { return GlobalEngine() != nullptr ? 1 : 0; }

int smddp_rank() { return ConfigValue(&Config::rank); }
int smddp_size() { return ConfigValue(&Config::size); }
int smddp_local_rank() { return ConfigValue(&Config::local_rank); }
int smddp_local_size() { return ConfigValue(&Config::local_size); }

smddp_result smddp_create_communicator(const int* ranks, int num_ranks, smddp_communicator* communicator) {
  return WithEngine([&](Engine& engine) {
    return num_ranks < 0 ? ::tf_smddp::NegativeNumRanks(num_ranks)
                         : engine.CreateCommunicator({ranks, ranks + num_ranks}, communicator);
  });
}

smddp_result smddp_create_communicator_among(const int* ranks, int num_ranks, std::uint64_t key,
                                             smddp_communicator* communicator) {
  return WithEngine([&](Engine& engine) {
    return num_ranks < 0 ? ::tf_smddp::NegativeNumRanks(num_ranks)
                         : engine.CreateCommunicatorAmong({ranks, ranks + num_ranks}, key, communicator);
  });
}

smddp_result smddp_remove_communicator(smddp_communicator communicator) {
  return WithEngine([&](Engine& engine) { return engine.RemoveCommunicator(communicator); });
}

int smddp_communicator_rank(smddp_communicator communicator) {
  const std::shared_ptr<Engine> engine = GlobalEngine();
  if (engine == nullptr) return -1;
  const std::vector<int> ranks = engine->RanksOf(communicator);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == engine->config().rank) return static_cast<int>(i);
  }
  return -1;
}

int smddp_communicator_size(smddp_communicator communicator) {
  const std::shared_ptr<Engine> engine = GlobalEngine();
  return engine == nullptr ? 0 : static_cast<int>(engine->RanksOf(communicator).size());
}

smddp_result smddp_leave(smddp_communicator communicator) {
  return WithEngine([&](Engine& engine) { return engine.Leave(communicator); });
}

smddp_result smddp_return(smddp_communicator communicator, int* last) {
  return WithEngine([&](Engine& engine) {
    ::tf_smddp::RankId rank;
    const Status status = engine.Return(communicator, &rank);
    *last = rank.value();
    return status;
  });
}

void smddp_fail(smddp_communicator communicator, const char* reason) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::OwnEngine();
  if (engine == nullptr) return;
  engine->FailStep(communicator, ::tf_smddp::kNoStep,
                   "rank " + std::to_string(engine->config().rank) +
                       " could not begin a collective: " + ::tf_smddp::ValidUtf8(TextOf(reason)));
}

void smddp_fail_group(smddp_communicator communicator, uint64_t ticket, const char* reason) {
  const std::shared_ptr<Engine> engine = ::tf_smddp::OwnEngine();
  if (engine == nullptr) return;
  engine->FailGroup(communicator, ticket,
                    "rank " + std::to_string(engine->config().rank) +
                        " could not end a group of collectives: " + ::tf_smddp::ValidUtf8(TextOf(reason)));
}

void smddp_abort(const char* text) {
  if (const std::shared_ptr<Engine> engine = ::tf_smddp::OwnEngine()) engine->AbortAfterWriting(TextOf(text));
}

void smddp_abort_text(char* text, size_t text_bytes) {
  const std::shared_ptr<Engine> engine = GlobalEngine();
  ::tf_smddp::WriteText(engine == nullptr ? "" : engine->AbortText(), text, text_bytes);
}

smddp_result smddp_stats(int reset, char* text, size_t text_bytes) {
  return WithEngine([&](Engine& engine) {
    ::tf_smddp::EngineStats stats;
    const Status status = engine.Stats(reset != 0, &stats);
    if (!status.ok()) return status;
    const std::string json = ::tf_smddp::ToJson(stats);
    if (json.size() >= text_bytes) {
      return ::tf_smddp::Internal("the figures take " + std::to_string(json.size() + 1) +
                                  " bytes, more than the " + std::to_string(text_bytes) +
                                  " there is room for");
    }
    std::memcpy(text, json.c_str(), json.size() + 1);
    return Status();
  });
}

smddp_result smddp_start_timeline(const char* path) {
  return WithEngine([&](Engine& engine) { return engine.StartTimeline(TextOf(path)); });
}

smddp_result smddp_stop_timeline() {
  const std::shared_ptr<Engine> engine = GlobalEngine();
  return engine == nullptr ? SMDDP_SUCCESS : Report(engine->StopTimeline());
}

smddp_result smddp_watch_interrupts() {
  const Status status = ::tf_smddp::WatchInterrupts();
  const std::shared_ptr<Engine> engine = GlobalEngine();
  if (!status.ok() && engine != nullptr) {
    const Config& config = engine->config();
    ::tf_smddp::Logger(static_cast<::tf_smddp::LogLevel>(config.log_level), config.rank)
        .Log(::tf_smddp::LogLevel::kWarning,
             "Ctrl-C will not end a collective that waits for other ranks: " + status.message());
  }
  return Report(status);
}
void smddp_stop_watching_interrupts() { ::tf_smddp::StopWatchingInterrupts(); }

void smddp_note_script_end() {
  if (const std::shared_ptr<Engine> engine = ::tf_smddp::OwnEngine()) engine->NoteScriptEnd();
}

smddp_result smddp_find_libraries(const char* nccl_library, const char* prefix, char* text,
                                  size_t text_bytes) {
  std::string lines;
  const Status status = ::tf_smddp::FindLibraries(TextOf(nccl_library), TextOf(prefix), &lines);
  if (status.ok()) ::tf_smddp::WriteText(lines, text, text_bytes);
  return Report(status);
}

smddp_result smddp_process_manager(char* text, size_t text_bytes) {
  Config config;
  const Status status = ::tf_smddp::ReadConfig(&config);
  if (!status.ok()) return Report(status);
  const ::tf_smddp::ProcessManagerAddress& address = config.process_manager;
  std::string lines;
  if (!address.host.empty()) {
    lines = address.host + "\n" + std::to_string(address.port) + "\n" + std::to_string(config.rank) + "\n" +
            std::to_string(config.size) + "\n" + std::to_string(config.bootstrap_timeout_seconds) + "\n" +
            config.run_id;
  }
  ::tf_smddp::WriteText(lines, text, text_bytes);
  return SMDDP_SUCCESS;
}

}  // extern "C"
