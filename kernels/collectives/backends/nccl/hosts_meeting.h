// HostsMeeting: what the ranks of several hosts tell each other about the communicator that they make with
// NCCL: that they are there, its unique id, how far its start has come, and that their streams have come past
// all its calls.
//
// Place in the stack: above nccl_meeting.h, which does this in the memory of one host, and below
// nccl_start.h. The first rank hears the others, and answers when it has heard all. So it takes two messages
// for each rank and milestone. The first rank decides, too, whether the communicator is refused.
//
// Between hosts, a communicator of ours has one of NCCL for as long as it lives: a failed step waits for the
// batches that were launched before it (kernels/engine/hosts/relay.h), so no rank has calls on its stream
// that others will never make.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_HOSTS_MEETING_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_HOSTS_MEETING_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/collectives/backends/nccl/nccl_library.h"
#include "kernels/collectives/backends/nccl/nccl_meeting.h"
#include "kernels/common/rank_id.h"
#include "kernels/common/status.h"
#include "kernels/common/wire.h"

namespace tf_smddp::nccl {

// All methods: any thread.
class HostsMeeting {
 public:
  // For the `ranks` of the job, in ascending order, that are in `communicator`. `self` is among them. `wire`
  // outlives it.
  HostsMeeting(Wire* wire, std::uint32_t communicator, const std::vector<int>& ranks, RankId self);

  // As NCCL counts them.
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  int rank() const { return rank_; }

  // The agreement of the ranks.
  struct Agreed {
    UniqueId id = {};
    bool all_pack = false;  // all ranks pack small tensors (nccl_packing.h)
  };

  // Sets *met to whether all ranks have called this, and then *agreed. It never waits, so it is called again
  // until then. `packs`: this rank does. `id`: the first rank's counts. Errors: Internal, if a message makes
  // no sense.
  Status Meet(bool packs, const UniqueId& id, bool* met, Agreed* agreed);

  // Whether all ranks have called this, for this milestone; they come to the milestones in order. It never
  // waits, so it is called again until then. All ranks have proven the communicator only if it was not
  // refused before.
  bool AllHaveCome(Milestone milestone);

  // Asks that the communicator be refused, because of `text`.
  void Refuse(const std::string& text);
  // Whether it was, and no rank uses it. It never waits.
  bool refused();
  // On the first rank, sets *text to why, once, when it was refused.
  bool TakeRefusal(std::string* text);

  // On the first rank: those that have not come to the milestone, as far as is known.
  std::vector<RankId> Missing(Milestone milestone);

 private:
  enum Kind : std::uint32_t { kHere, kBegin, kCome, kAllHaveCome, kRefuse, kRefused };
  struct Message {
    Kind kind;
    std::uint32_t packs;
    Milestone milestone;
    UniqueId id;
  };

  bool IsFirst() const { return rank_ == 0; }
  Status Receive();
  void Hear(RankId rank, Milestone milestone);
  void DecideToRefuse(const std::string& text);
  void Tell(RankId rank, const Message& message, const std::string& text = "");
  void TellAll(const Message& message);

  Wire* const wire_;
  const Wire::Channel channel_;
  std::vector<RankId> ranks_;
  int rank_ = 0;

  // Guards everything below.
  std::mutex mu_;
  bool is_here_ = false;                   // the first rank knows
  std::size_t here_ = 0;                   // the ranks that the first one knows of
  bool all_are_here_ = false;              // this rank knows
  Milestone said_ = Milestone::kNone;      // this rank's; the first rank knows
  Milestone all_said_ = Milestone::kNone;  // this rank knows
  std::vector<Milestone> heard_;           // of all ranks; on the first one
  bool asked_ = false, refused_ = false;   // that it be refused; this rank knows that it was
  std::string refusal_;                    // why; on the first rank, until it was taken
  Agreed agreed_ = {{}, true};
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_HOSTS_MEETING_H_
