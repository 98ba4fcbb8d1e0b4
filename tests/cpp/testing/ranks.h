// Runs the ranks of a job as threads of one process, each with an engine of its own.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_RANKS_H_
#define TF_SMDDP_TESTS_CPP_TESTING_RANKS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/engine/engine.h"
#include "kernels/process/backends.h"

namespace tf_smddp::testing {

// A new directory of mode 0700, removed with the object if it still exists.
class PrivateDirectory {
 public:
  PrivateDirectory();
  ~PrivateDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Ends the process with a message when it lives longer than `limit`: nothing may hang a test. `advice` is a
// part of the message.
class TimeLimit {
 public:
  explicit TimeLimit(std::chrono::seconds limit, const std::string& advice = "");
  ~TimeLimit();

 private:
  std::promise<void> over_;
  std::thread watchdog_;
};

// A configuration for rank `rank` of `size` in `rendezvous`.
Config RankConfig(int rank, int size, const std::string& rendezvous);

using RankBody = std::function<void(int rank, Engine& engine)>;
using Tweak = std::function<void(int rank, Config* config)>;

// The number of ranks on each host of a job of `size` ranks. It is one host, unless TF_SMDDP_TEST_HOSTS in
// the environment says how many; each has a control segment and arenas of its own, and a SocketWire joins
// them. Rank r is on host r modulo their number.
std::vector<int> RanksOnHosts(int size);

// Whether an allreduce of so many bytes between hosts goes in groups, and not with the order: if
// TF_SMDDP_TEST_GROUPS is in the environment, all do that are not small.
bool HostsGroup(std::uint64_t bytes);

// Adds what the hosts of each group have, as HostExchange::Grouped does.
template <typename Term, typename Add>
std::vector<Term> AddInGroups(const std::vector<Term>& terms, const Add& add) {
  std::size_t groups = 1;
  while (groups * groups < terms.size()) ++groups;
  std::vector<Term> sums;
  for (std::size_t group = 0; group < groups; ++group) {
    const auto begin = terms.begin() + static_cast<std::ptrdiff_t>(group * terms.size() / groups);
    const auto end = terms.begin() + static_cast<std::ptrdiff_t>((group + 1) * terms.size() / groups);
    sums.push_back(add(std::vector<Term>(begin, end)));
  }
  return sums;
}

// Starts `size` engines in as many threads, runs `body` in each, shuts them down (expecting success if
// `orderly`), and joins them. Each engine has backends of its own. At most 100 s.
void RunRanks(int size, const RankBody& body, const Tweak& tweak = {}, bool orderly = true,
              const std::function<Backends()>& backends = AllBackends);

// Submits and waits for the outcome.
Status Await(Engine& engine, Request request);

// Submits many, and waits for all; the outcomes are in the order of the requests.
std::vector<Status> AwaitAll(Engine& engine, std::vector<Request> requests);

// The next ticket of `communicator`; the test fails when there is none.
std::uint64_t DrawTicket(Engine& engine, CommunicatorId communicator = kWorld);

// A request on `count` elements of a flat tensor.
Request MakeRequest(CollectiveKind kind, DType dtype, ReduceOp op, const void* input, void* output,
                    std::int64_t count);
Request AllreduceFloats(const std::vector<float>& input, std::vector<float>* output,
                        ReduceOp op = ReduceOp::kSum);
Request AllreduceIn(CommunicatorId communicator, std::vector<float>* data, ReduceOp op = ReduceOp::kSum);

// Pairs `request` as tensor `index` of `num_params` in the group with `ticket`.
Request InGroup(Request request, std::uint64_t ticket, std::uint32_t index, std::uint32_t num_params);

// Pairs `request` by `name`.
Request Named(Request request, const std::string& name);

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_RANKS_H_
