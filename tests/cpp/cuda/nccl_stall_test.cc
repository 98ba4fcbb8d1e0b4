// Warnings about requests whose calls of NCCL, or copies, are on a stream that does not go on: ranks as
// processes with a device each, on the pretend GPU and the pretend NCCL.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/cuda/compute.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kHeldFloats = 5000;
constexpr std::chrono::milliseconds kWarning(400);

Limit Warns(std::chrono::milliseconds timeout = {}) {
  return [timeout](int, Config* config) {
    config->stall_warning_ms = kWarning.count();
    config->stall_timeout_ms = timeout.count();
  };
}

void ExpectParts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' has no '" << part << "'";
  }
}

std::vector<std::string> Errors(const std::vector<RankEnd>& ends) {
  std::vector<std::string> errors;
  for (const RankEnd& end : ends) errors.push_back(end.error);
  return errors;
}

constexpr char kOnStream[] = "[5000], whose calls of NCCL or copies are on a stream there.";

TEST(NcclStall, ARankThatIsStoppedWhenTheCallsOfAllAreOnTheirStreams) {
  LimitedRanks ranks(2, Warns(), [](Engine& engine) {
    const int rank = engine.config().rank;
    Compute compute(rank);
    Floats data(&compute, kHeldFloats);
    Status status = UseGpus(engine, &compute, data);
    if (!status.ok()) return status;
    Hold hold(compute.stream());
    data.Set(1.0f);
    cuda::Order order;
    compute.Mark(&order);
    if (rank == 0) hold.LetGo();
    status = Await(engine, Allreduce(data, "held", &order, &order));
    if (!status.ok()) return status;
    if (rank == 1) {
      ::raise(SIGSTOP);
      hold.LetGo();
    }
    status = Compute::AwaitWritten(order);
    std::this_thread::sleep_for(kWarning);  // rank 0 says that it goes on
    if (status.ok() && data.Read() != std::vector<float>(kHeldFloats, 2.0f)) return Internal("a wrong sum");
    return status;
  });
  int stopped = 0;
  ASSERT_EQ(::waitpid(ranks.pid(1), &stopped, WUNTRACED), ranks.pid(1));
  std::this_thread::sleep_for(3 * kWarning);
  ::kill(ranks.pid(1), SIGCONT);
  const std::vector<RankEnd> ends = ranks.AwaitAll();
  EXPECT_EQ(Errors(ends), std::vector<std::string>(2));
  ExpectParts(ends[0].log, {"rank 0 has waited", "for GPU 0, and perhaps for rank 1, at allreduce 'held'",
                            kOnStream, "Likely cause: rank 1 is stopped", "rank 0 continues after a wait"});
}

// The calls that rank 0 alone has made end when the others have come past those that all have made.
TEST(NcclStall, AStepThatHasFailedWhileAStreamDoesNotGoOn) {
  const Limit limit = [](int rank, Config* config) {
    Warns()(rank, config);
    if (rank == 1) config->test_transfer_delay_ms = 300;  // so it has not made the second call
  };
  const std::vector<RankEnd> ends = RunLimited(2, limit, [](Engine& engine) {
    const int rank = engine.config().rank;
    Compute compute(rank);
    const Floats first(&compute, kHeldFloats), second(&compute, kHeldFloats);
    Status status = UseGpus(engine, &compute, first);
    if (!status.ok()) return status;
    cuda::Order orders[2];
    Hold hold(compute.stream());
    if (rank == 0) hold.LetGo();
    for (cuda::Order& order : orders) compute.Mark(&order);
    status = Await(engine, Allreduce(first, "first", &orders[0], &orders[0]));
    if (!status.ok()) return status;
    std::thread fails([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      if (rank == 0) engine.FailStep(kWorld, kNoStep, "on purpose");
    });
    const Status failed = Await(engine, Allreduce(second, "second", &orders[1], &orders[1]));
    fails.join();
    if (rank == 1) std::this_thread::sleep_for(3 * kWarning);
    if (rank == 1) hold.LetGo();
    status = Compute::AwaitWritten(orders[0]);
    const Status ended = Compute::AwaitWritten(orders[1]);
    if (!status.ok()) return status;
    return Internal(failed.message() + "; " + ended.message());
  });
  ExpectParts(ends[0].error, {"on purpose; NCCL's calls were ended"});
  ExpectParts(ends[1].error, {"on purpose; "});
  ExpectParts(ends[0].log, {"for GPU 0, and perhaps for rank 1, at allreduce 'first'", "allreduce 'second'",
                            "Likely cause: GPU 0, or that of another rank, still computes"});
}

// Tensors that go through the host. A copy to rank 1's device does not end, and nobody waits for rank 1.
TEST(NcclStall, ACopyToADeviceThatDoesNotGoOn) {
  const Limit limit = [](int rank, Config* config) {
    Warns()(rank, config);
    config->nccl = false;
  };
  const std::vector<RankEnd> ends = RunLimited(2, limit, [](Engine& engine) {
    const int rank = engine.config().rank;
    Compute compute(rank);
    const Floats data(&compute, kHeldFloats);
    cuda::Order input, output;
    compute.Mark(&input);
    Hold hold(compute.stream());
    compute.Mark(&output);
    if (rank == 0) hold.LetGo();
    Status status = Await(engine, Allreduce(data, "held", &input, &output));
    if (rank == 1) std::this_thread::sleep_for(3 * kWarning);
    if (rank == 1) hold.LetGo();
    if (status.ok()) status = Compute::AwaitWritten(output);
    std::this_thread::sleep_for(kWarning);
    return status;
  });
  EXPECT_EQ(Errors(ends), std::vector<std::string>(2));
  EXPECT_EQ(ends[0].log.find("has waited"), std::string::npos) << ends[0].log;
  ExpectParts(ends[1].log, {"rank 1 has waited", "for GPU 1 at allreduce 'held'", kOnStream,
                            "Likely cause: GPU 1 still computes", "rank 1 continues after a wait"});
}

// The call is a copy from the device. Rank 0 waits for rank 1, and in the end the job ends.
TEST(NcclStall, ACopyFromADeviceThatDoesNotGoOn) {
  const Limit limit = [](int rank, Config* config) {
    Warns(std::chrono::milliseconds(2500))(rank, config);
    config->nccl = false;
  };
  const std::vector<RankEnd> ends = RunLimited(2, limit, [](Engine& engine) {
    const int rank = engine.config().rank;
    Compute compute(rank);
    const Floats data(&compute, kHeldFloats);
    Hold hold(compute.stream());
    if (rank == 0) hold.LetGo();
    compute.Mark();
    const Status status = Await(engine, Allreduce(data, "held", &compute.order, &compute.order));
    if (rank == 1) hold.LetGo();
    Require(cuCtxSynchronize() == CUDA_SUCCESS, "cuCtxSynchronize");  // the copy reads the tensor
    return status;
  });
  for (const RankEnd& end : ends) ExpectParts(end.error, {"no progress for 2.5 s (SMDDP_STALL_TIMEOUT)"});
  ExpectParts(ends[0].log, {"rank 0 has waited", "for rank 1 at allreduce 'held'", "waits for its device.",
                            "Likely cause: rank 1 waits for its device; its own warning says more"});
  ExpectParts(ends[1].log, {"rank 1 has waited", "for GPU 1 at allreduce 'held'", kOnStream});
}

}  // namespace
}  // namespace tf_smddp::testing
