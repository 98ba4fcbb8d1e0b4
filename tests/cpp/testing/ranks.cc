#include "tests/cpp/testing/ranks.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "gtest/gtest.h"
#include "tests/cpp/testing/socket_wire.h"

namespace tf_smddp::testing {

PrivateDirectory::PrivateDirectory() {
  char path[] = "/tmp/smddp-test-XXXXXX";
  if (::mkdtemp(path) == nullptr) ADD_FAILURE() << "mkdtemp failed";
  path_ = path;
}

PrivateDirectory::~PrivateDirectory() { ::rmdir(path_.c_str()); }

TimeLimit::TimeLimit(std::chrono::seconds limit, const std::string& advice)
    : watchdog_([limit, advice, over = over_.get_future()] {
        if (over.wait_for(limit) == std::future_status::ready) return;
        std::fprintf(stderr, "the test took longer than its limit of %lld s%s\n",
                     static_cast<long long>(limit.count()), advice.c_str());
        ::abort();
      }) {}

TimeLimit::~TimeLimit() {
  over_.set_value();
  watchdog_.join();
}

Config RankConfig(int rank, int size, const std::string& rendezvous) {
  Config config;
  config.rank = config.local_rank = rank;
  config.size = config.local_size = size;
  config.rendezvous = rendezvous;
  config.arena_bytes = 32 << 20;
  config.bootstrap_timeout_seconds = 30;
  config.log_level = 4;  // failures made on purpose need no log
  config.test_strict = true;
  config.test_own_gpu = std::getenv("SMDDP_TEST_OWN_GPU") != nullptr;
  config.test_grouped_hosts = std::getenv("TF_SMDDP_TEST_GROUPS") == nullptr ? 0 : 2;
  return config;
}

bool HostsGroup(std::uint64_t bytes) {
  return std::getenv("TF_SMDDP_TEST_GROUPS") != nullptr &&
         bytes > static_cast<std::uint64_t>(Config().small_bytes);
}

std::vector<int> RanksOnHosts(int size) {
  const char* text = std::getenv("TF_SMDDP_TEST_HOSTS");
  const int wanted = text == nullptr ? 1 : std::atoi(text);
  std::vector<int> ranks_on(static_cast<std::size_t>(std::clamp(wanted, 1, size)), 0);
  for (int rank = 0; rank < size; ++rank) ++ranks_on[static_cast<std::size_t>(rank) % ranks_on.size()];
  return ranks_on;
}

void RunRanks(int size, const RankBody& body, const Tweak& tweak, bool orderly,
              const std::function<Backends()>& backends) {
  const TimeLimit limit(std::chrono::seconds(100));
  SocketMesh mesh(RanksOnHosts(size));
  const std::vector<PrivateDirectory> directories(mesh.hosts().size());
  std::vector<std::shared_ptr<MappingCache>> mappings(mesh.hosts().size());
  for (auto& each : mappings) each = std::make_shared<MappingCache>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank, wire = mesh.MakeWire(rank)]() mutable {
      const std::size_t host = mesh.HostOf(rank);
      Config config = RankConfig(rank, size, directories[host].path());
      mesh.SetLocal(&config);
      if (tweak) tweak(rank, &config);
      std::unique_ptr<Engine> engine;
      const Status started =
          Engine::Start(config, mappings[host], backends(), &engine, /*arena=*/nullptr, std::move(wire));
      ASSERT_TRUE(started.ok()) << started.message();
      body(rank, *engine);
      const Status stopped = engine->Shutdown();
      if (orderly) {
        EXPECT_TRUE(stopped.ok()) << "rank " << rank << ": " << stopped.message();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

std::vector<Status> AwaitAll(Engine& engine, std::vector<Request> requests) {
  std::vector<std::promise<Status>> outcomes(requests.size());
  // Half of all calls on all ranks make progress themselves: as callers that only wait, or as non-blocking
  // callers.
  static std::atomic<unsigned> calls{0};
  const unsigned call = calls++ % 4;
  const bool assists = call % 2 == 1;
  const Caller caller = call == 1 ? Caller::kBlocking : Caller::kNonBlocking;
  const CommunicatorId communicator = requests.empty() ? kWorld : requests[0].communicator;
  std::atomic<std::size_t> left{requests.size()};
  std::atomic<bool> ended{requests.empty()};
  const auto submit = [&] {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].caller_progresses = assists;
      requests[i].callback_is_trivial = assists && caller == Caller::kBlocking;
      requests[i].done = [&outcome = outcomes[i], &left, &ended](const Status& status) {
        if (--left == 0) ended = true;
        outcome.set_value(status);
      };
      engine.Submit(std::move(requests[i]));
    }
  };
  assists ? engine.SubmitAndProgress(communicator, caller, submit, ended) : submit();
  std::vector<Status> statuses;
  for (auto& outcome : outcomes) statuses.push_back(outcome.get_future().get());
  return statuses;
}

Status Await(Engine& engine, Request request) {
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  return AwaitAll(engine, std::move(requests))[0];
}

std::uint64_t DrawTicket(Engine& engine, CommunicatorId communicator) {
  std::uint64_t ticket = 0;
  const Status status = engine.DrawTicket(communicator, kNoStep, &ticket);
  EXPECT_TRUE(status.ok()) << status.message();
  return ticket;
}

Request MakeRequest(CollectiveKind kind, DType dtype, ReduceOp op, const void* input, void* output,
                    std::int64_t count) {
  Request request;
  request.operation.kind = kind;
  request.operation.dtype = dtype;
  request.operation.op = op;
  request.operation.root = RankId(kind == CollectiveKind::kBroadcast ? 0 : -1);
  if (kind != CollectiveKind::kBarrier) request.shape = {count};
  if (kind == CollectiveKind::kBarrier) request.shape = {0};
  request.input = input;
  request.output = output;
  request.label = "test";
  return request;
}

Request AllreduceFloats(const std::vector<float>& input, std::vector<float>* output, ReduceOp op) {
  return MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, op, input.data(), output->data(),
                     static_cast<std::int64_t>(input.size()));
}

Request AllreduceIn(CommunicatorId communicator, std::vector<float>* data, ReduceOp op) {
  Request request = AllreduceFloats(*data, data, op);
  request.communicator = communicator;
  return request;
}

Request InGroup(Request request, std::uint64_t ticket, std::uint32_t index, std::uint32_t num_params) {
  request.pairing.kind = Pairing::kGroup;
  request.pairing.ticket = ticket;
  request.pairing.param_index = index;
  request.pairing.num_params = num_params;
  return request;
}

Request Named(Request request, const std::string& name) {
  request.pairing.kind = Pairing::kName;
  request.pairing.name = name;
  return request;
}

}  // namespace tf_smddp::testing
