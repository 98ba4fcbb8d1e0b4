// Board: what the members of a communicator tell each other about their windows on a GPU, and how far they
// have come with them.
//
// Place in the stack: it lies in shared memory (kernels/control/communicator_segment.h). Zeros are an empty
// one. windows.h and ipc_transfer.h use it.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_BOARD_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_BOARD_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "kernels/common/rank_id.h"
#include "kernels/cuda/driver.h"

namespace tf_smddp::ipc {

enum class WindowState : std::uint32_t {
  kNone,
  kExported,  // process, address and handle are set
  kReady,     // and this member reaches those of all others
  kRefused,   // it has none, or cannot reach another's
};

// What one member tells.
struct alignas(64) MemberEntry {
  std::atomic<WindowState> state;
  std::uint64_t process;  // a number that no other process has
  cuda::DeviceAddress address;
  cuda::IpcHandle handle;
  // How many slots its stream has come past, for each step of the staged path (ipc_transfer.h), since the
  // start of the incarnation.
  alignas(64) std::atomic<std::uint64_t> staged;
  std::atomic<std::uint64_t> combined;
  std::atomic<std::uint64_t> copied_out;
  // How many failed incarnations its stream has come past.
  std::atomic<std::uint64_t> settled;
  // It does not touch the windows of others any more.
  std::atomic<std::uint32_t> closed;
};

using Counter = std::atomic<std::uint64_t> MemberEntry::*;

class Board {
 public:
  MemberEntry& member(int index) { return members_[index]; }

  // The lowest count of the first `num_members` members.
  std::uint64_t Slowest(Counter counter, int num_members) const {
    std::uint64_t slowest = std::numeric_limits<std::uint64_t>::max();
    for (int member = 0; member < num_members; ++member) {
      slowest = std::min(slowest, (members_[member].*counter).load(std::memory_order_acquire));
    }
    return slowest;
  }

  // Whether all members reach the windows of all. Once they do, it stays so.
  bool AllReady(int num_members) const {
    return std::all_of(members_, members_ + num_members, [](const MemberEntry& member) {
      return member.state.load(std::memory_order_acquire) == WindowState::kReady;
    });
  }

  // The next incarnation begins. Nobody else uses the counts of slots meanwhile.
  void Renew() {
    for (MemberEntry& member : members_) {
      for (const Counter counter : {&MemberEntry::staged, &MemberEntry::combined, &MemberEntry::copied_out}) {
        (member.*counter).store(0, std::memory_order_release);
      }
    }
  }

 private:
  MemberEntry members_[64];
};

}  // namespace tf_smddp::ipc

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_IPC_BOARD_H_
