#include "kernels/engine/job/communicator_checks.h"

#include <cstddef>
#include <string>

namespace tf_smddp {

Status CheckRanks(const std::vector<int>& ranks, int size) {
  if (ranks.empty()) return InvalidArgument("a process set needs at least one rank");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size) {
      return InvalidArgument("a process set with rank " + std::to_string(ranks[i]) +
                             ", but the ranks are 0 to " + std::to_string(size - 1));
    }
    if (i > 0 && ranks[i] == ranks[i - 1]) {
      return InvalidArgument("a process set that names rank " + std::to_string(ranks[i]) + " twice");
    }
  }
  return {};
}

Status CheckKey(std::uint64_t key) {
  if (key < kFirstOfMembers) return {};
  return InvalidArgument("a process set with key " + std::to_string(key) + ", but keys are 0 to " +
                         std::to_string(kFirstOfMembers - 1) + "; use a number that counts up");
}

Status KeyWasUsed(std::uint64_t key, int rank) {
  return InvalidArgument("rank " + std::to_string(rank) + " has used key " + std::to_string(key) +
                         " for a process set before; each one needs a key of its own");
}

Status NoSuchCommunicator(CommunicatorId id) {
  return InvalidArgument("there is no process set " + std::to_string(id));
}

Status CannotRemoveWorld() { return InvalidArgument("the process set of all ranks cannot be removed"); }

Status NoRoomForCommunicator(int capacity) {
  return Internal(
      "no room for another process set: this host has " + std::to_string(capacity) +
      ", the world's included; remove one, or, if the file size is limited, raise that (ulimit -f)");
}

}  // namespace tf_smddp
