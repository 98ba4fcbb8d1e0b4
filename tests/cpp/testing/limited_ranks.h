// Runs the ranks of a job as processes, each under limits of its own.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_LIMITED_RANKS_H_
#define TF_SMDDP_TESTS_CPP_TESTING_LIMITED_RANKS_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/common/unique_fd.h"
#include "kernels/engine/engine.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {

// The end of a rank.
struct RankEnd {
  std::string error;  // the error of init(), the body or shutdown(), or ""
  std::string log;    // what it wrote to stderr
  int wait_status = 0;
};

// A function that runs in the process of a rank before init(). It sets limits, and may change the
// configuration.
using Limit = std::function<void(int rank, Config* config)>;

// The function that a rank runs between init() and shutdown().
using LimitedBody = std::function<Status(Engine&)>;

// Some allreduces, small and large. Errors: theirs, or Internal for a wrong result.
Status RunSomeCollectives(Engine& engine);

// Allreduces until one fails. Returns its error.
Status RunUntilFailure(Engine& engine);

// A job of `size` ranks, on hosts as in RunRanks, which run `body` under `limit`. A rank's arena has 32 MiB
// by default here, and the tables are small; the log level is `warning`. Each rank ends after 20 s at the
// latest.
class LimitedRanks {
 public:
  LimitedRanks(int size, const Limit& limit, const LimitedBody& body);

  pid_t pid(int rank) const { return ranks_[static_cast<std::size_t>(rank)].pid; }
  const std::string& directory() const { return directories_[0].path(); }  // of the first host's rendezvous

  // Waits until all ranks have come through init().
  void AwaitInit();

  // Waits for the end of one rank, which stays a zombie; its `error` is in the result.
  RankEnd Await(int rank);

  // Waits for the ends of all, and takes their exit statuses.
  std::vector<RankEnd> AwaitAll();

 private:
  struct Rank {
    pid_t pid = 0;
    UniqueFd report;  // "+" once it has come through init(), then its error
    UniqueFd log;
    std::string reported;
  };

  const std::vector<PrivateDirectory> directories_;  // by host
  std::vector<Rank> ranks_;
};

// Runs such a job to its end; no rank may have died.
std::vector<RankEnd> RunLimited(int size, const Limit& limit, const LimitedBody& body = RunSomeCollectives);

// Runs such a job on `hosts` hosts, and kills `victim` after `when`. The others must end within 5 s, with an
// error that names it. Returns all ends.
std::vector<RankEnd> KillOneOnHosts(int hosts, int size, int victim, std::chrono::microseconds when,
                                    const LimitedBody& body);

// Ends the process with a message when `done` is false: a limit could not be set.
void Require(bool done, const char* what);

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_LIMITED_RANKS_H_
