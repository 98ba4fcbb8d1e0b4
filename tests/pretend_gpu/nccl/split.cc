#include "tests/pretend_gpu/nccl/split.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "tests/pretend_gpu/nccl/last_error.h"
#include "tests/pretend_gpu/nccl/launch.h"
#include "tests/pretend_gpu/nccl/order.h"
#include "tests/pretend_gpu/nccl/unique_id.h"

namespace pretend_gpu::nccl {
namespace {

// The record that each rank puts into its outbox.
struct Wish {
  int color;
  int key;
  int rank;
  ncclUniqueId id;
};

}  // namespace

MakingBySplit::MakingBySplit(std::shared_ptr<Communicator> parent, int color, int key,
                             std::shared_ptr<Communicator> communicator, ncclComm_t* handle)
    : parent_(std::move(parent)),
      color_(color),
      key_(key),
      communicator_(std::move(communicator)),
      handle_(handle),
      board_(Board::Make()) {}

ncclResult_t MakingBySplit::Begin() {
  constexpr std::uint64_t kNoStream = 0;
  seats_ = {Post(*parent_, Operation{Kind::kSplit, 0, 0, 0, 0}, NextIssue(), kNoStream)};
  CheckOrder(*parent_);
  const Wish wish{color_, key_, parent_->rank, IdOf(*board_)};
  const std::uint64_t offset = parent_->outboxes[parent_->rank]->Put(&wish, sizeof(wish));
  Arrive(*parent_, seats_[0], offset, sizeof(wish));
  parent_->board->Ring();
  return ncclSuccess;
}

ncclResult_t MakingBySplit::Join() {
  const Communicator::Waiting waiting(parent_.get());
  const bool met = Meet(*parent_, seats_, communicator_.get());
  std::vector<Wish> family;
  if (met) {
    const auto offsets = OffsetsOf(*parent_, seats_[0]);
    for (int rank = 0; rank < parent_->ranks; rank++) {
      Wish wish;
      parent_->outboxes[rank]->Take(offsets[rank], &wish, sizeof(wish));
      if (wish.color == color_) family.push_back(wish);
    }
  }
  Leave(*parent_, seats_, met);
  if (!met) return Refuse(ncclInternalError, parent_->Describe() + " was aborted while it was split");
  if (communicator_ == nullptr) return ncclSuccess;
  std::sort(family.begin(), family.end(),
            [](const Wish& a, const Wish& b) { return std::tie(a.key, a.rank) < std::tie(b.key, b.rank); });
  const auto ours = std::find_if(family.begin(), family.end(),
                                 [&](const Wish& wish) { return wish.rank == parent_->rank; });
  auto board = BoardOf(family.front().id);
  if (board == nullptr) {
    return Refuse(ncclRemoteError, parent_->Describe() + ": rank " + std::to_string(family.front().rank) +
                                       " has ended while the communicator was split");
  }
  child_ = std::make_unique<MakingByBoard>(communicator_, std::move(board),
                                           static_cast<int>(ours - family.begin()),
                                           static_cast<int>(family.size()), handle_);
  return child_->Join();
}

ncclResult_t MakingBySplit::Await() { return child_ == nullptr ? ncclSuccess : child_->Await(); }

ncclResult_t MakingBySplit::AwaitOthers() { return child_ == nullptr ? ncclSuccess : child_->AwaitOthers(); }

void MakingBySplit::Undo() {
  if (child_ != nullptr) child_->Undo();
}

}  // namespace pretend_gpu::nccl
