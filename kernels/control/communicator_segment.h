// CommunicatorSegment: the shared memory of one communicator, namely its readiness table, its launch log and
// its staging windows.
//
// Place in the stack: above the data structures of control/ and below job_segment.h, which assigns its place
// in the control segment.
//
//   [ header | member records | launch log | readiness table | windows | ready log ]
//
// Members are the communicator's ranks on this host, numbered from 0 to num_ranks - 1. Each member's windows
// are used by its own progress thread alone (doorbell.h), so no rank ever waits for another to free a window.
// When the communicator has ranks on other hosts, one more place in the table, behind the members, arrives
// for all of them, and the ready log names the requests at which all members have arrived. The relay
// (kernels/engine/relay.h) reads the one and fills the other.
#ifndef TF_SMDDP_KERNELS_CONTROL_COMMUNICATOR_SEGMENT_H_
#define TF_SMDDP_KERNELS_CONTROL_COMMUNICATOR_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/collectives/backends/nccl/nccl_meeting.h"
#include "kernels/common/rank_mask.h"
#include "kernels/control/abort_record.h"
#include "kernels/control/failure_record.h"
#include "kernels/control/launch_log.h"
#include "kernels/control/readiness_table.h"
#include "kernels/memory/shared_memory.h"

namespace tf_smddp {

// The values of MemberRecord::gpu besides the id of a GPU (kernels/cuda/device.h).
inline constexpr std::uint64_t kUnknownGpu = 0;
inline constexpr std::uint64_t kNoGpu = ~std::uint64_t{0};

// The state that one member publishes to the others.
struct alignas(64) MemberRecord {
  // 1 while this member has deferred requests; whoever retires a generation of the table then rings its bell.
  std::atomic<std::uint32_t> deferring;
  // The GPU whose tensors this member gives to NCCL; kUnknownGpu before its first request with tensors on a
  // GPU, kNoGpu if it does not use NCCL.
  std::atomic<std::uint64_t> gpu;
  std::atomic<std::uint32_t> nccl_version;  // of this member's NCCL, as ncclGetVersion has it; before `gpu`
  // Progress of its staged transfers, in chunks since the start of the incarnation
  // (kernels/collectives/backends).
  alignas(64) std::atomic<std::uint64_t> staged;
  std::atomic<std::uint64_t> combined;
  std::atomic<std::uint64_t> copied_out;
};

class CommunicatorSegment {
 public:
  struct Layout {
    std::size_t slots;  // in the readiness table; a power of two
    int num_ranks;
    std::size_t window_bytes;  // for each member; a multiple of 64
    bool wired;                // there are ranks on other hosts

    TableShape Table() const;

    std::size_t Bytes() const;  // a multiple of the page size
  };

  // Creates a view of `mapping`, which has layout.Bytes() bytes: zeros, or the state that other members have
  // written there since.
  CommunicatorSegment(std::shared_ptr<Mapping> mapping, const Layout& layout, const AbortRecord* abort);

  // Marks all members as active, unless another member has done so already. Each member calls it before it
  // uses the segment.
  void Begin() {
    std::uint64_t expected = 0;
    fixed_->active.compare_exchange_strong(expected, All().bits(), std::memory_order_seq_cst);
  }

  // All members that have left return. Nobody else uses the segment meanwhile (Note [Restart] in
  // failure_record.h).
  void ReturnAll() {
    fixed_->last_to_leave.store(0, std::memory_order_seq_cst);
    fixed_->active.store(All().bits(), std::memory_order_seq_cst);
    fixed_->outside_left.store(0, std::memory_order_seq_cst);
  }

  // The place that arrives for the ranks of other hosts; no member when there are none.
  MemberId outside() const { return layout_.Table().outside; }

  FailureRecord& failure() { return fixed_->failure; }
  // Mask of the members that have not left, and outside(): the ones that requests wait for.
  std::atomic<std::uint64_t>& active() { return fixed_->active; }
  // 1 + the rank of the job that was the last member of this host to leave. 0 until that member, which is no
  // longer active, has said so.
  std::atomic<int>& last_to_leave() { return fixed_->last_to_leave; }
  // The knowledge that all hosts share; the relay writes it. Only when there are ranks on other hosts.
  // The number of the ranks of all hosts that have shut down.
  std::atomic<std::uint64_t>& num_shut_down() { return fixed_->num_shut_down; }
  // 1 when a rank of another host has shut down that had not left the communicator.
  std::atomic<std::uint64_t>& outside_shut_down() { return fixed_->outside_shut_down; }
  // 1 + a rank of another host that has left the communicator; 0 when none has.
  std::atomic<std::uint64_t>& outside_left() { return fixed_->outside_left; }
  // 1 + a rank of any host because of which the ranks of all hosts together cannot use NCCL; 0 when none is
  // known.
  std::atomic<std::uint64_t>& without_nccl() { return fixed_->without_nccl; }
  // 1 while the relay waits for generations of the table to be retired; whoever retires one then rings it.
  std::atomic<std::uint32_t>& relay_waits() { return fixed_->relay_waits; }
  MemberRecord& member(int index) { return fixed_->members[index]; }
  nccl::Meeting& nccl_meeting() { return fixed_->nccl_meeting; }
  LaunchLog& launch_log() { return launch_log_; }
  // Only when there are ranks on other hosts.
  LaunchLog& ready_log() { return ready_log_; }
  ReadinessTable& table() { return table_; }
  std::byte* windows(int index) { return windows_ + static_cast<std::size_t>(index) * layout_.window_bytes; }

 private:
  MemberMask All() const { return MemberMask::FirstN(layout_.Table().num_ranks); }

  struct Fixed {
    FailureRecord failure;
    alignas(64) std::atomic<std::uint64_t> active;
    std::atomic<int> last_to_leave;
    std::atomic<std::uint64_t> num_shut_down;
    std::atomic<std::uint64_t> outside_shut_down;
    std::atomic<std::uint64_t> outside_left;
    std::atomic<std::uint64_t> without_nccl;
    std::atomic<std::uint32_t> relay_waits;
    nccl::Meeting nccl_meeting;
    MemberRecord members[64];
  };
  static_assert(sizeof(Fixed) % 64 == 0, "the parts behind it start at a cache line");

  const std::shared_ptr<Mapping> mapping_;
  const Layout layout_;
  Fixed* const fixed_;
  LaunchLog launch_log_;
  std::byte* const table_memory_;
  ReadinessTable table_;
  std::byte* const windows_;
  LaunchLog ready_log_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_COMMUNICATOR_SEGMENT_H_
