// CommunicatorSegment: the shared memory of one communicator, namely its readiness table, its launch log and
// what its backends share.
//
// Place in the stack: above the data structures of control/ and below job_segment.h, which assigns its place
// in the control segment.
//
//   [ header | member records | launch log | readiness table | backends | ready log ]
//
// Members are the communicator's ranks on this host, numbered from 0 to num_ranks - 1.
// When the communicator has ranks on other hosts, one more place in the table, behind the members, arrives
// for all of them, and the ready log names the requests at which all members have arrived. The relay
// (kernels/engine/hosts/relay.h) reads the one and fills the other.
#ifndef TF_SMDDP_KERNELS_CONTROL_COMMUNICATOR_SEGMENT_H_
#define TF_SMDDP_KERNELS_CONTROL_COMMUNICATOR_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/common/rank_mask.h"
#include "kernels/control/abort_record.h"
#include "kernels/control/failure_record.h"
#include "kernels/control/launch_log.h"
#include "kernels/control/readiness_table.h"
#include "kernels/memory/shared_memory.h"

namespace tf_smddp {

// The state that one member publishes to the others.
struct alignas(64) MemberRecord {
  // 1 while this member has deferred requests; whoever retires a generation of the table then rings its bell.
  std::atomic<std::uint32_t> deferring;
};

class CommunicatorSegment {
 public:
  struct Layout {
    std::size_t slots;  // in the readiness table; a power of two
    int num_ranks;
    std::size_t backend_bytes;  // a multiple of 64
    bool wired;                 // there are ranks on other hosts

    TableShape Table() const;

    std::size_t Bytes() const;  // a multiple of kLargestPage
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
  // 1 + a rank of any host because of which the ranks of all hosts together cannot keep tensors on devices; 0
  // when none is known.
  std::atomic<std::uint64_t>& cannot_keep() { return fixed_->cannot_keep; }
  // 1 while the relay waits for generations of the table to be retired; whoever retires one then rings it.
  std::atomic<std::uint32_t>& relay_waits() { return fixed_->relay_waits; }
  MemberRecord& member(int index) { return fixed_->members[index]; }
  LaunchLog& launch_log() { return launch_log_; }
  // Only when there are ranks on other hosts.
  LaunchLog& ready_log() { return ready_log_; }
  ReadinessTable& table() { return table_; }
  std::byte* backends() { return backends_; }

 private:
  MemberMask All() const { return MemberMask::FirstN(layout_.Table().num_ranks); }

  struct Fixed {
    FailureRecord failure;
    alignas(64) std::atomic<std::uint64_t> active;
    std::atomic<int> last_to_leave;
    std::atomic<std::uint64_t> num_shut_down;
    std::atomic<std::uint64_t> outside_shut_down;
    std::atomic<std::uint64_t> outside_left;
    std::atomic<std::uint64_t> cannot_keep;
    std::atomic<std::uint32_t> relay_waits;
    MemberRecord members[64];
  };
  static_assert(sizeof(Fixed) % 64 == 0, "the parts behind it start at a cache line");

  const std::shared_ptr<Mapping> mapping_;
  const Layout layout_;
  Fixed* const fixed_;
  LaunchLog launch_log_;
  std::byte* const table_memory_;
  ReadinessTable table_;
  std::byte* const backends_;
  LaunchLog ready_log_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_COMMUNICATOR_SEGMENT_H_
