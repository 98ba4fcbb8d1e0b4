#include "kernels/engine/core/log_reader.h"

#include <utility>

namespace tf_smddp {

bool LogReader::Read(Batch* done) {
  LaunchLog& log = group_->segment().launch_log();
  bool moved = false;
  for (;; ++position_) {
    const LaunchLog::View view = log.Read(position_);
    // An entry is dropped only after the log was closed, at the end of an incarnation.
    if (view.state == LaunchLog::View::kUnpublished || view.state == LaunchLog::View::kDropped) return moved;
    Take(view, done);
    moved = true;
  }
}

void LogReader::Take(const LaunchLog::View& view, Batch* done) {
  if (view.state == LaunchLog::View::kLaunched || view.state == LaunchLog::View::kDone) {
    const Place place = Place::FromIndex(view.item);
    if (!group_->table().Has(place)) {
      communicator_->job().Abort("shared memory is corrupt: the launch log names slot " +
                                 std::to_string(place.slot) + ", but the table has " +
                                 std::to_string(group_->table().slots()));
      return;
    }
    (view.state == LaunchLog::View::kDone ? *done : open_).push_back(place);
  }
  if (!view.seals || open_.empty()) return;
  sealed_.push_back(std::move(open_));
  open_.clear();
}

LogReader::Batch LogReader::TakeBatch() {
  if (sealed_.empty()) return {};
  Batch batch = std::move(sealed_.front());
  sealed_.pop_front();
  return batch;
}

void LogReader::ReadRest(Batch* done) {
  LaunchLog& log = group_->segment().launch_log();
  for (const std::uint64_t end = log.TailFrom(position_); position_ < end; ++position_) {
    Take(log.Resolve(position_), done);
  }
  open_.clear();
}

void LogReader::SkipRest() {
  position_ = group_->segment().launch_log().Tail();
  open_.clear();
}

}  // namespace tf_smddp
