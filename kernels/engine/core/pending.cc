#include "kernels/engine/core/pending.h"

#include <algorithm>
#include <utility>

#include "kernels/control/ticket.h"

namespace tf_smddp {

Status FillError(const PendingRequest& pending) {
  const Status& cause = pending.input_bounce->fill_status();
  return ErrorOfStep(cause, "could not copy the input of " + DescribeManifest(pending.manifest) + " from " +
                                pending.request.input.kind->name() + ": " + cause.message());
}

PendingTable::Added PendingTable::Add(const Shared& pending, bool ready) {
  std::lock_guard<std::mutex> lock(mu_);
  if (refusing_) return Added::kClosed;
  const Place place = pending->place();
  const auto in_place = entered_.find(place.index());
  const auto same_place = [&](const Shared& other) { return other->place().index() == place.index(); };
  const auto twin = [&](const Shared& other) {
    return same_place(other) && other->ticket == pending->ticket;
  };
  if (in_place != entered_.end() && twin(in_place->second)) return Added::kTwin;
  if (std::any_of(deferred_.begin(), deferred_.end(), twin)) return Added::kTwin;
  CountBytes(*pending);
  if (!ready || in_place != entered_.end() || std::any_of(deferred_.begin(), deferred_.end(), same_place) ||
      !IsNext(*pending)) {
    deferred_.push_back(pending);
    CountDeferred();
    return Added::kDeferred;
  }
  entered_[place.index()] = pending;
  MarkEntered(*pending);
  return Added::kEntered;
}

// Whether nothing of its key must enter before it (Note [Places between hosts]).
bool PendingTable::IsNext(const PendingRequest& pending) const {
  if (!InTurn(pending)) return true;
  const auto found = next_.find(pending.slot);
  // A ticket that cannot follow is the first one of an incarnation, or was deferred after it had entered.
  const std::uint64_t first = TicketOf(pending.incarnation, 0);
  return pending.ticket <= (found == next_.end() ? first : std::max(found->second, first));
}

void PendingTable::MarkEntered(const PendingRequest& pending) {
  if (!InTurn(pending)) return;
  std::uint64_t& next = next_[pending.slot];
  next = std::max(next, pending.ticket + 1);
}

void PendingTable::Defer(Place place) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = entered_.find(place.index());
  if (found == entered_.end()) return;  // Close took it meanwhile
  deferred_.push_back(std::move(found->second));
  CountDeferred();
  entered_.erase(found);
}

PendingTable::Shared PendingTable::Take(Place place) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = entered_.find(place.index());
  return found == entered_.end() ? nullptr : Remove(found);
}

PendingTable::Shared PendingTable::Remove(Entered::iterator entry) {
  Shared pending = std::move(entry->second);
  entered_.erase(entry);
  DiscountBytes(*pending);
  if (entered_.empty() && deferred_.empty()) emptied_.notify_all();
  return pending;
}

PendingTable::Shared PendingTable::Find(Place place) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = entered_.find(place.index());
  return found == entered_.end() ? nullptr : found->second;
}

PendingTable::Shared PendingTable::EnterDeferred(std::size_t* cursor) {
  std::lock_guard<std::mutex> lock(mu_);
  for (std::size_t i = *cursor; i < deferred_.size(); ++i) {
    if (!deferred_[i]->placed()) continue;
    const std::uint64_t place = deferred_[i]->place().index();
    const auto same_place = [&](const Shared& other) { return other->place().index() == place; };
    const auto earlier = [&](const Shared& other) {
      return same_place(other) && other->ticket < deferred_[i]->ticket;
    };
    if (entered_.count(place) != 0 || !IsNext(*deferred_[i])) continue;
    if (InTurn(*deferred_[i])
            ? std::any_of(deferred_.begin(), deferred_.end(), earlier)
            : std::any_of(deferred_.begin(), deferred_.begin() + static_cast<std::ptrdiff_t>(i), same_place))
      continue;
    Shared entering = deferred_[i];
    entered_[place] = entering;
    MarkEntered(*entering);
    deferred_.erase(deferred_.begin() + static_cast<std::ptrdiff_t>(i));
    CountDeferred();
    *cursor = i;
    return entering;
  }
  return nullptr;
}

std::vector<PendingTable::Shared> PendingTable::TakeIncarnation(std::uint64_t incarnation) {
  std::vector<Shared> taken;
  std::lock_guard<std::mutex> lock(mu_);
  for (auto entry = entered_.begin(); entry != entered_.end();) {
    if (entry->second->incarnation != incarnation) {
      ++entry;
      continue;
    }
    taken.push_back(std::move(entry->second));
    entry = entered_.erase(entry);
  }
  std::deque<Shared> kept;
  for (Shared& pending : deferred_)
    (pending->incarnation == incarnation ? taken.emplace_back() : kept.emplace_back()) = pending;
  deferred_ = std::move(kept);
  for (const Shared& pending : taken) DiscountBytes(*pending);
  CountDeferred();
  if (entered_.empty() && deferred_.empty()) emptied_.notify_all();
  return taken;
}

PendingTable::Shared PendingTable::FindForBatch(Place place) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = entered_.find(place.index());
  if (found == entered_.end()) return nullptr;
  found->second->under_way = true;
  return found->second;
}

std::vector<PendingTable::Shared> PendingTable::Close(const Status& reason, bool but_under_way) {
  std::vector<Shared> all;
  Entered kept;
  std::lock_guard<std::mutex> lock(mu_);
  refusing_ = true;
  refusal_ = reason;
  for (auto& [place, pending] : entered_) {
    if (but_under_way && pending->under_way) {
      kept[place] = std::move(pending);
    } else {
      all.push_back(std::move(pending));
    }
  }
  for (Shared& pending : deferred_) all.push_back(std::move(pending));
  for (const Shared& pending : all) DiscountBytes(*pending);
  entered_ = std::move(kept);
  deferred_.clear();
  CountDeferred();
  if (entered_.empty()) emptied_.notify_all();
  return all;
}

void PendingTable::Refuse(const Status& reason) {
  std::lock_guard<std::mutex> lock(mu_);
  if (refusing_) return;
  refusing_ = true;
  refusal_ = reason;
}

void PendingTable::Admit() {
  std::lock_guard<std::mutex> lock(mu_);
  refusing_ = false;
}

Status PendingTable::refusal() {
  std::lock_guard<std::mutex> lock(mu_);
  return refusal_;
}

bool PendingTable::WaitEmpty(std::chrono::milliseconds patience) {
  std::unique_lock<std::mutex> lock(mu_);
  return emptied_.wait_for(lock, patience, [this] { return entered_.empty() && deferred_.empty(); });
}

}  // namespace tf_smddp
