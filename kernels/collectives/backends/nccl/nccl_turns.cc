#include "kernels/collectives/backends/nccl/nccl_turns.h"

#include <algorithm>
#include <utility>

namespace tf_smddp::nccl {

Turns::Line::Line(Turns* turns, TurnRecord* record, Ask ask)
    : turns_(turns), record_(record), ask_(std::move(ask)) {
  std::lock_guard<std::mutex> lock(turns_->mu_);
  turns_->lines_.insert(this);
}

Turns::Line::~Line() {
  std::lock_guard<std::mutex> lock(turns_->mu_);
  turns_->lines_.erase(this);
  if (turns_->last_ == this) turns_->last_ = nullptr;
}

Status Turns::Line::Come(cuda::OwnStream* stream, bool* come) {
  *come = has_come_;
  if (has_come_) return {};
  const std::uint64_t batch = made_.load(std::memory_order_relaxed);
  if (ask_ == nullptr) {
    if (record_->BeginToDraw(batch)) record_->Draw(turns_->counter_);
  } else if (asked_ == batch) {
    ++asked_;
    ask_(batch);
  }
  std::uint64_t turn = 0;
  if (!record_->TurnOf(batch, &turn)) return {};
  std::lock_guard<std::mutex> lock(turns_->mu_);
  if (!turns_->IsFirst(*this, turn)) return {};
  if (turns_->last_ != nullptr && turns_->last_ != this) {
    cuda::Event reached;
    Status status = turns_->last_->stream_->Mark(&reached);
    if (status.ok()) status = stream->WaitFor(reached);
    if (!status.ok()) return status;
  }
  stream_ = stream;
  turns_->last_ = this;
  *come = has_come_ = true;
  return {};
}

void Turns::Line::Made() {
  has_come_ = false;
  made_.fetch_add(1, std::memory_order_release);
}

void Turns::Line::Skip() {
  has_come_ = false;
  made_.store(~std::uint64_t{0}, std::memory_order_release);
}

void Turns::Line::Leave() {
  Skip();
  std::lock_guard<std::mutex> lock(turns_->mu_);
  if (turns_->last_ == this) turns_->last_ = nullptr;
}

bool Turns::IsFirst(const Line& line, std::uint64_t turn) const {
  return std::none_of(lines_.begin(), lines_.end(), [&](const Line* other) {
    return other != &line &&
           other->record_->MayHaveBefore(turn, other->made_.load(std::memory_order_acquire));
  });
}

}  // namespace tf_smddp::nccl
