// The engine alone, without TensorFlow: forks the ranks of a job on this host, and measures its allreduce.
// With --ranks=0 the ranks have been started by a launcher, on one host or on several.
//
//     bazel run -c opt //benchmarks/cpp:engine_sweep -- --ranks=2 --sizes=4,1048576
//     mpirun -H host1,host2 engine_sweep --ranks=0 --sizes=4,1048576
//
// Tensors lie in the ranks' arenas. A tensor, or a gradient set, is one group, as the op makes it.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/cpp/contestant.h"
#include "benchmarks/cpp/fork_ranks.h"
#include "benchmarks/cpp/options.h"
#include "benchmarks/cpp/sweep.h"
#include "kernels/common/config.h"
#include "kernels/common/futex.h"
#include "kernels/engine/engine.h"
#include "kernels/mpi/mpi_wire.h"
#include "kernels/process/backends.h"

namespace tf_smddp::benchmarks {
namespace {

constexpr int kMaxRanks = 64;
constexpr std::uint64_t kSpareArenaBytes = 64 << 20;  // for the engine's own use of it
constexpr std::chrono::milliseconds kNap{100};

// Shared memory in which forked ranks synchronize between blocks. They do not use the engine for that, so
// that its state is that of the measurement alone.
struct Meeting {
  std::atomic<std::uint32_t> arrived{0}, round{0};
  double values[kMaxRanks] = {};
};

[[noreturn]] void Fail(const char* what, const std::string& why) {
  std::fprintf(stderr, "engine_sweep: %s: %s\n", what, why.c_str());
  std::exit(1);
}

class EngineContestant final : public Contestant {
 public:
  EngineContestant(std::unique_ptr<Engine> engine, Meeting* meeting)
      : engine_(std::move(engine)), meeting_(meeting) {}
  ~EngineContestant() override {
    const Status status = engine_->Shutdown();
    if (!status.ok()) Fail("shutdown", status.message());
  }

  const char* name() const override { return "tf_smddp"; }
  int rank() const override { return engine_->config().rank; }
  int size() const override { return engine_->config().size; }

  float* Allocate(std::size_t count) override {
    void* const data = engine_->arena()->Allocate(count * sizeof(float));
    if (data == nullptr) Fail("arena", "is full");
    return static_cast<float*>(data);
  }
  void Free(float* data, std::size_t) override { engine_->arena()->Free(data); }

  void Allreduce(const std::vector<Tensor>& tensors) override {
    // A single tensor pairs by its position in the sequence, as in MPI. Several form a group, as the op
    // submits them.
    const bool group = tensors.size() > 1;
    if (group) {
      const Status drawn = engine_->DrawTicket(kWorld, kNoStep, &ticket_);
      if (!drawn.ok()) Fail("ticket", drawn.message());
    }
    pending_.store(static_cast<std::uint32_t>(tensors.size()), std::memory_order_relaxed);
    ended_.store(false, std::memory_order_relaxed);
    engine_->SubmitAndProgress(kWorld, Caller::kBlocking, [this, &tensors] { Submit(tensors); }, ended_);
    if (!ended_.load(std::memory_order_acquire)) Sleep();
    if (group) engine_->EndGroup(kWorld, ticket_, /*failed=*/false, "");
  }

  void Sleep() {
    sleeps_.store(true, std::memory_order_seq_cst);
    while (!ended_.load(std::memory_order_seq_cst)) {
      const std::uint32_t left = pending_.load(std::memory_order_seq_cst);
      if (left != 0) FutexWait(pending_, left, kNap);
    }
    sleeps_.store(false, std::memory_order_seq_cst);
  }

  void Submit(const std::vector<Tensor>& tensors) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      Request request;
      request.shape = {static_cast<std::int64_t>(tensors[t].count)};
      request.input = tensors[t].input;
      request.output = tensors[t].output;
      if (tensors.size() > 1) {
        request.pairing.kind = Pairing::kGroup;
        request.pairing.ticket = ticket_;
        request.pairing.param_index = static_cast<std::uint32_t>(t);
        request.pairing.num_params = static_cast<std::uint32_t>(tensors.size());
      }
      request.done = [this](const Status& status) {
        if (!status.ok()) Fail("allreduce", status.message());
        // The last callback need not decrement the counter atomically.
        const bool last = pending_.load(std::memory_order_acquire) == 1;
        if (!last && pending_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
        pending_.store(0, std::memory_order_relaxed);
        ended_.store(true, std::memory_order_seq_cst);
        if (sleeps_.load(std::memory_order_seq_cst)) FutexWakeAll(pending_);
      };
      request.callback_is_trivial = request.caller_progresses = true;
      request.seals_at_once = tensors.size() == 1;
      engine_->Submit(std::move(request));
    }
  }

  void Barrier() override {
    if (meeting_ == nullptr) {
      Max(0);
      return;
    }
    const std::uint32_t round = meeting_->round.load();
    if (meeting_->arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(size())) {
      meeting_->arrived.store(0);
      meeting_->round.store(round + 1);
      FutexWakeAll(meeting_->round);
      return;
    }
    while (meeting_->round.load() == round) FutexWait(meeting_->round, round, kNap);
  }

  double Max(double value) override {
    if (meeting_ == nullptr) return MaxByEngine(value);
    meeting_->values[rank()] = value;
    Barrier();
    double largest = 0;
    for (int r = 0; r < size(); ++r) largest = std::max(largest, meeting_->values[r]);
    Barrier();
    return largest;
  }

  double MaxByEngine(double value) {
    std::atomic<std::uint32_t> running{1};
    Request request;
    request.operation.dtype = DType::kFloat64;
    request.operation.op = ReduceOp::kMax;
    request.shape = {1};
    request.input = &value;
    request.output = &value;
    request.done = [&running](const Status& status) {
      if (!status.ok()) Fail("allreduce", status.message());
      running.store(0);
      FutexWakeAll(running);
    };
    engine_->Submit(std::move(request));
    while (running.load() != 0) FutexWait(running, 1, kNap);
    return value;
  }

 private:
  const std::unique_ptr<Engine> engine_;
  Meeting* const meeting_;    // nullptr: the ranks are not forked
  std::uint64_t ticket_ = 0;  // of the group that is submitted
  std::atomic<std::uint32_t> pending_{0};
  std::atomic<bool> ended_{false};
  std::atomic<bool> sleeps_{false};
};

std::uint64_t ArenaBytes(const Options& options) {
  std::uint64_t largest = 512 << 20;  // what a gradient set takes, with spans rounded up
  for (const std::size_t bytes : options.sizes) largest = std::max<std::uint64_t>(largest, bytes);
  return (largest * (options.in_place ? 1 : 2) + kSpareArenaBytes) / 4096 * 4096;
}

void RunRank(int rank, const Options& options, const std::string& directory, Meeting* meeting) {
  Config config;
  config.rank = config.local_rank = rank;
  config.size = config.local_size = options.ranks;
  config.rendezvous = directory;
  config.arena_bytes = static_cast<std::int64_t>(ArenaBytes(options));
  std::unique_ptr<Engine> engine;
  const Status started = Engine::Start(config, std::make_shared<MappingCache>(), AllBackends(), &engine);
  if (!started.ok()) Fail("start", started.message());
  EngineContestant contestant(std::move(engine), meeting);
  RunSweep(contestant, options);
}

void RunLaunched(const Options& options) {
  ::alarm(static_cast<unsigned>(options.time_limit_seconds));
  Config config;
  Status status = ReadConfig(&config);
  if (!status.ok()) Fail("settings", status.message());
  config.arena_bytes = static_cast<std::int64_t>(ArenaBytes(options));
  std::unique_ptr<Wire> wire;
  if (config.local_size < config.size) status = mpi::MpiWire::Open(/*prefix=*/"", &config, &wire);
  if (!status.ok()) Fail("wire", status.message());
  std::unique_ptr<Engine> engine;
  status = Engine::Start(config, std::make_shared<MappingCache>(), AllBackends(), &engine, nullptr,
                         std::move(wire));
  if (!status.ok()) Fail("start", status.message());
  EngineContestant contestant(std::move(engine), /*meeting=*/nullptr);
  RunSweep(contestant, options);
}

int RunJob(const Options& options) {
  void* const page =
      ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  char directory[] = "/tmp/smddp-bench-XXXXXX";
  if (page == MAP_FAILED || ::mkdtemp(directory) == nullptr)
    Fail("set-up", "no memory, or /tmp cannot be written");
  auto* const meeting = new (page) Meeting;
  const int code =
      ForkRanks("engine_sweep", options, [&](int rank) { RunRank(rank, options, directory, meeting); });
  ::rmdir(directory);
  return code;
}

}  // namespace
}  // namespace tf_smddp::benchmarks

int main(int argc, char** argv) {
  const auto options = tf_smddp::benchmarks::ParseOptions(argc, argv);
  if (options.ranks == 0) {
    tf_smddp::benchmarks::RunLaunched(options);
    return 0;
  }
  if (options.ranks < 2 || options.ranks > tf_smddp::benchmarks::kMaxRanks) {
    std::fprintf(stderr, "engine_sweep: --ranks must be 0, or 2 to %d\n", tf_smddp::benchmarks::kMaxRanks);
    return 2;
  }
  return tf_smddp::benchmarks::RunJob(options);
}
