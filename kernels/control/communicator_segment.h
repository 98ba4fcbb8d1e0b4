// CommunicatorSegment: the shared memory of one communicator: its table, its logs, its staging windows.
//
// Place in the stack: above control/'s data structures and below job_segment.h, which says where it lies.
//
//   [ header | group counter | member records | express lane | small log | launch log | readiness table
//   | windows ]
//
// Members are counted within the communicator, 0 to num_ranks - 1. The windows of each belong to its comm
// thread alone, so ranks can never wait for each other about space.
#ifndef TF_SMDDP_KERNELS_CONTROL_COMMUNICATOR_SEGMENT_H_
#define TF_SMDDP_KERNELS_CONTROL_COMMUNICATOR_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/control/abort_record.h"
#include "kernels/control/express_lane.h"
#include "kernels/control/failure_record.h"
#include "kernels/control/group_counter.h"
#include "kernels/control/launch_log.h"
#include "kernels/control/readiness_table.h"
#include "kernels/memory/shared_memory.h"

namespace tf_smddp {

// What one member publishes about itself.
struct alignas(64) MemberRecord {
  std::atomic<std::uint32_t> deferring;  // 1 while it waits for a generation to retire
  // Progress of its staged transfers, in chunks since the start of the epoch (kernels/collectives/backends).
  alignas(64) std::atomic<std::uint64_t> staged;
  std::atomic<std::uint64_t> combined;
  std::atomic<std::uint64_t> copied_out;
};

class CommunicatorSegment {
 public:
  struct Layout {
    std::size_t slots;  // of the table; a power of two
    int num_ranks;
    std::size_t window_bytes;  // of one member; a multiple of 64

    std::size_t Bytes() const;  // a multiple of the page size
  };

  // A view of `mapping`, which has layout.Bytes() bytes: zeros, or what other members have made of them.
  CommunicatorSegment(std::shared_ptr<Mapping> mapping, const Layout& layout, const AbortRecord* abort);

  // Sets who takes part, unless another member has. Each member calls it before its first use.
  void Begin(std::uint64_t active) {
    std::uint64_t expected = 0;
    fixed_->active.compare_exchange_strong(expected, active, std::memory_order_seq_cst);
    expected = 0;
    fixed_->draining.compare_exchange_strong(expected, active, std::memory_order_seq_cst);
  }

  FailureRecord& failure() { return fixed_->failure; }
  // Bits of the members that requests wait for.
  std::atomic<std::uint64_t>& active() { return fixed_->active; }
  // Bits of the members that the end of an epoch waits for: the same, and one that is about to leave and
  // still works on the table.
  std::atomic<std::uint64_t>& draining() { return fixed_->draining; }
  GroupCounter& groups() { return fixed_->groups; }
  MemberRecord& member(int index) { return fixed_->members[index]; }
  // Member `index`'s end of the lane; to be called once by each member.
  ExpressLane OpenLane(int index) { return {lane_, layout_.num_ranks, index, abort_}; }
  LaunchLog& small_log() { return small_log_; }
  LaunchLog& launch_log() { return launch_log_; }
  ReadinessTable& table() { return table_; }
  std::byte* windows(int index) { return windows_ + static_cast<std::size_t>(index) * layout_.window_bytes; }

 private:
  struct Fixed {
    FailureRecord failure;
    alignas(64) std::atomic<std::uint64_t> active;
    std::atomic<std::uint64_t> draining;
    alignas(64) GroupCounter groups;
    MemberRecord members[64];
  };
  static_assert(sizeof(Fixed) % 64 == 0, "what follows is aligned to a cache line");

  const std::shared_ptr<Mapping> mapping_;
  const Layout layout_;
  const AbortRecord* const abort_;
  Fixed* const fixed_;
  std::byte* const lane_;
  std::byte* const small_memory_;
  std::byte* const launch_memory_;
  std::byte* const table_memory_;
  LaunchLog small_log_;
  LaunchLog launch_log_;
  ReadinessTable table_;
  std::byte* const windows_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_COMMUNICATOR_SEGMENT_H_
