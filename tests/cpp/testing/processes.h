// Ranks as processes, of which one is killed.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_PROCESSES_H_
#define TF_SMDDP_TESTS_CPP_TESTING_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "kernels/common/unique_fd.h"
#include "kernels/engine/engine.h"

namespace tf_smddp::testing {

// A rank in a process of its own. Its reports come through a pipe: one byte once it has met the others,
// then what its body returned.
struct Child {
  pid_t pid = 0;
  UniqueFd report;
};

// The part of a rank that uses its engine; the message of its status is reported.
using ProcessBody = std::function<Status(Engine& engine)>;

// The process ends with code 7 after its report, without a shutdown; after a minute in any case.
Child StartRank(int rank, int size, const std::string& directory, const ProcessBody& body);

// Waits until the rank has met the others.
void AwaitMet(const Child& child);

// Waits until the other end is closed.
std::string ReadAll(int fd);

// Runs `body`, which returns its first error, in `size` processes; kills `victim` with `signal`, and expects
// every other rank to name it within two seconds. Before that, `victim` is stopped for so long, which is no
// error.
void KillOneRank(int size, int victim, int signal, std::chrono::microseconds when, const ProcessBody& body,
                 std::chrono::microseconds stopped = {});

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_PROCESSES_H_
