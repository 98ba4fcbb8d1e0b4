#include "kernels/engine/core/sequencer.h"

namespace tf_smddp {

Status Sequencer::CheckOwed(StepId step) {
  while (!owed_.empty() && memory_->WasDelivered(owed_.front().origin))
    owed_.pop_front();  // in another communicator
  if (owed_.empty()) return {};
  const Failure failure = owed_.front();
  TakeOwed();
  memory_->RememberStep(step, failure.origin, failure.text);
  return Internal(failure.text);
}

void Sequencer::TakeOwed() {
  memory_->Delivered(owed_.front().origin);
  owed_.pop_front();
}

void Sequencer::AwaitTurn(std::unique_lock<std::mutex>* lock) {
  turned_.wait(*lock, [this] {
    if (closed_) return true;
    return settled_ && !excused_[incarnation_ % 2] && !record_->IsBroken(incarnation_);
  });
}

void Sequencer::AwaitSettled() {
  std::unique_lock<std::mutex> lock(mu_);
  AwaitTurn(&lock);
}

Status Sequencer::DrawTicket(StepId step, std::uint64_t* ticket) {
  std::unique_lock<std::mutex> lock(mu_);
  AwaitTurn(&lock);
  std::uint64_t origin;
  std::string text;
  if (memory_->HasFailed(step, &origin, &text)) return Internal(text);
  Status status = CheckOwed(step);
  if (!status.ok()) return status;
  *ticket = Number(&next_ticket_);
  if (step != kNoStep) groups_[*ticket].step = step;
  return {};
}

std::uint64_t Sequencer::NextTicket() {
  std::unique_lock<std::mutex> lock(mu_);
  AwaitTurn(&lock);
  return TicketOf(incarnation_, next_ticket_);
}

bool Sequencer::StartFailing(StepId step, std::uint64_t* incarnation) {
  std::unique_lock<std::mutex> lock(mu_);
  AwaitTurn(&lock);
  std::uint64_t origin;
  std::string text;
  if (memory_->HasFailed(step, &origin, &text) && record_->Knows(origin)) return false;
  if (!CheckOwed(step).ok()) return false;
  *incarnation = incarnation_;
  return true;
}

bool Sequencer::StartFailingGroup(std::uint64_t ticket) {
  std::unique_lock<std::mutex> lock(mu_);
  AwaitTurn(&lock);
  const bool is_current = IncarnationOf(ticket) == incarnation_;
  if (!is_current) ExcuseNow(IncarnationOf(ticket));
  return is_current;
}

Status Sequencer::Enter(const Request& request, Position* position, bool* tell) {
  const Pairing& pairing = request.pairing;
  *position = {};
  std::unique_lock<std::mutex> lock(mu_);
  AwaitTurn(&lock);
  std::uint64_t origin;
  std::string text;
  *tell = true;
  if (memory_->HasFailed(request.step, &origin, &text)) return Internal(text);
  *tell = false;
  // The group of an incarnation that is over is of the step that this rank is owed that incarnation's failure
  // for, if any.
  const bool over = pairing.kind == Pairing::kGroup && IncarnationOf(pairing.ticket) != incarnation_;
  const bool other = over && !owed_.empty() && owed_.front().incarnation != IncarnationOf(pairing.ticket);
  Status status = other || owed_.empty() ? Status() : CheckOwed(request.step);
  if (!status.ok()) return status;
  switch (pairing.kind) {
    case Pairing::kGroup: {
      if (over) {
        memory_->RememberStep(request.step, last_.origin, last_.text);
        return Internal(last_.text);
      }
      position->ticket = pairing.ticket;
      const auto found = groups_.find(pairing.ticket);
      if (found != groups_.end()) {
        Group& group = found->second;
        group.num_params = pairing.num_params;
        if (group.indices.size() <= pairing.param_index) group.indices.resize(pairing.param_index + 1);
        if (group.indices[pairing.param_index]) {
          *tell = true;
          return InvalidArgument(
              "parameter " + std::to_string(pairing.param_index) + " of " +
              std::to_string(pairing.num_params) +
              " was submitted twice in one execution of its group; give each tensor its own "
              "param_index below num_params");
        }
        group.indices[pairing.param_index] = true;
        position->group = StateOf(pairing, ++group.submitted);
      } else {
        if (stepless_ticket_ != pairing.ticket) stepless_submitted_ = 0;
        stepless_ticket_ = pairing.ticket;
        position->group = StateOf(pairing, ++stepless_submitted_);
      }
      break;
    }
    case Pairing::kSequence:
      position->ticket = Number(&next_sequence_);
      break;
    case Pairing::kOutOfBand:
      position->ticket = Number(&next_out_of_band_);
      break;
    case Pairing::kName: {
      Name& name = names_[pairing.name];
      if (name.under_way) {
        *tell = true;
        return InvalidArgument("two collectives with the name '" + pairing.name +
                               "' are pending at once on this rank; in a graph without a program order, "
                               "collectives pair by name, so give each its own name=");
      }
      name.under_way = true;
      position->ticket = Number(&name.ordinal);
      break;
    }
  }
  position->incarnation = incarnation_;
  position->open = open_;
  ++inside_[incarnation_ % 2];
  return {};
}

Sequencer::GroupState Sequencer::StateOf(const Pairing& pairing, std::uint32_t submitted) {
  if (pairing.num_params < 2) return GroupState::kNoGroup;
  return submitted < pairing.num_params ? GroupState::kOpen : GroupState::kWhole;
}

std::string Sequencer::KeyOf(const Pairing& pairing, bool wired) {
  switch (pairing.kind) {
    case Pairing::kGroup: {
      const std::string key = "group/" + std::to_string(pairing.param_index);
      const std::uint64_t keys = Place::NumOfGroups(pairing.param_index) / Place::kMostGenerations;
      if (!wired || keys < 2) return key;
      return key + '/' + std::to_string(NumberOf(pairing.ticket) / Place::kMostGenerations % keys);
    }
    case Pairing::kSequence:
      return "sequence";
    case Pairing::kOutOfBand:
      return "out of band";
    case Pairing::kName:
      return "name/" + pairing.name;
  }
  __builtin_unreachable();
}

std::string Sequencer::KeyBetweenHosts(const std::string& key) {
  const std::string group = "group/";
  if (key.compare(0, group.size(), group) != 0) return key;
  return key.substr(0, key.find('/', group.size()));
}

void Sequencer::NameEnded(const std::string& name, std::uint64_t incarnation) {
  std::lock_guard<std::mutex> lock(mu_);
  if (incarnation != incarnation_) return;
  const auto found = names_.find(name);
  if (found != names_.end()) found->second.under_way = false;
}

bool Sequencer::EndGroup(std::uint64_t ticket, bool failed, StepId* step) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = groups_.find(ticket);
  if (found == groups_.end()) return false;  // told before
  const Group group = found->second;
  groups_.erase(found);
  *step = group.step;
  const bool whole = group.submitted > 0 && group.submitted >= group.num_params;
  // A group of which nothing was used ran on no rank: TensorFlow pruned it.
  const bool broken = !whole && (failed || group.submitted > 0);
  if (IncarnationOf(ticket) == incarnation_) return broken;
  if (!failed && !broken) return false;
  // The step is known by the failure of that incarnation, or FailStep would fail another one for it.
  const std::uint64_t incarnation = IncarnationOf(ticket);
  if (incarnation + 1 == incarnation_ && !settled_) {
    memory_->RememberStep(group.step, last_.origin, last_.text);
  } else if (!owed_.empty() && owed_.front().incarnation == incarnation) {
    memory_->RememberStep(group.step, owed_.front().origin, owed_.front().text);
  }
  ExcuseNow(incarnation);
  return false;
}

void Sequencer::Excuse(std::uint64_t incarnation, std::uint64_t origin) {
  std::lock_guard<std::mutex> lock(mu_);
  ExcuseNow(incarnation);
  if (incarnation == incarnation_) {
    own_origins_[incarnation % 2].push_back(origin);
  } else if (incarnation + 1 == incarnation_) {
    memory_->Rename(origin, last_.origin);
  }
}

void Sequencer::ExcuseNow(std::uint64_t incarnation) {
  if (incarnation == incarnation_ || (incarnation + 1 == incarnation_ && !settled_)) {
    excused_[incarnation % 2] = true;
  } else if (!owed_.empty() && owed_.front().incarnation == incarnation) {
    TakeOwed();
  }
}

bool Sequencer::Postpone(std::uint64_t incarnation, std::uint64_t origin, const std::string& text) {
  std::lock_guard<std::mutex> lock(mu_);
  if (incarnation != incarnation_ || open_) return false;
  if (postponed_.origin == 0) postponed_ = {incarnation, origin, text};
  return true;
}

std::uint64_t Sequencer::incarnation() {
  std::lock_guard<std::mutex> lock(mu_);
  return incarnation_;
}

void Sequencer::Advance(std::uint64_t origin, const std::string& text) {
  std::lock_guard<std::mutex> lock(mu_);
  for (const std::uint64_t own : own_origins_[incarnation_ % 2]) memory_->Rename(own, origin);
  own_origins_[incarnation_ % 2].clear();
  last_ = {incarnation_, origin, text};
  ++incarnation_;
  open_ = false;
  next_ticket_ = next_sequence_ = next_out_of_band_ = 0;
  names_.clear();
  settled_ = false;
}

bool Sequencer::has_postponed() {
  std::lock_guard<std::mutex> lock(mu_);
  return postponed_.origin != 0;
}

void Sequencer::Close() {
  std::lock_guard<std::mutex> lock(mu_);
  closed_ = true;
  turned_.notify_all();
}

bool Sequencer::AllOut(std::uint64_t incarnation) {
  return inside_[incarnation % 2].load(std::memory_order_seq_cst) == 0;
}

void Sequencer::Settle(bool delivered) {
  std::lock_guard<std::mutex> lock(mu_);
  bool& excused = excused_[(incarnation_ + 1) % 2];  // in the incarnation before
  if (delivered || excused) {
    memory_->Delivered(last_.origin);
  } else {
    owed_.push_back(last_);
  }
  excused = false;
  settled_ = true;
  turned_.notify_all();
}

void Sequencer::ForgetOwed() {
  std::lock_guard<std::mutex> lock(mu_);
  while (!owed_.empty()) TakeOwed();
}

bool Sequencer::Open(std::uint64_t* origin, std::string* text) {
  std::lock_guard<std::mutex> lock(mu_);
  open_ = true;
  *origin = postponed_.origin;
  *text = postponed_.text;
  postponed_ = {};
  return *origin != 0;
}

}  // namespace tf_smddp
