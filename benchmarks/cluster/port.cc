#include "benchmarks/cluster/port.h"

#include <algorithm>
#include <cmath>
#include <ctime>

namespace tf_smddp::cluster {

// SimGrid's nanosleep lets simulated time pass.
void Port::Compute(double seconds) {
#ifdef TF_SMDDP_SIMULATED
  if (seconds <= 0) return;
  timespec time;
  time.tv_sec = static_cast<std::time_t>(seconds);
  time.tv_nsec = std::lround((seconds - static_cast<double>(time.tv_sec)) * 1e9);
  nanosleep(&time, nullptr);
#else
  static_cast<void>(seconds);
#endif
}

Port::Movement Port::Send(int to, int tag, const void* data, std::uint64_t bytes) {
  Compute(costs_.message_seconds + costs_.byte_seconds * static_cast<double>(bytes));
  Moving& moving = moving_[next_];
  moving.is_send = true;
  moving.peer = to;
  moving.tag = tag;
  moving.data = const_cast<void*>(data);
  moving.bytes = bytes;
  queue_.push_back(next_);
  BeginSends();
  return next_++;
}

Port::Movement Port::Receive(int from, int tag, void* data, std::uint64_t bytes) {
  Moving& moving = moving_[next_];
  moving.begun = true;
  moving.peer = from;
  moving.bytes = bytes;
  MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, MPI_COMM_WORLD, &moving.request);
  return next_++;
}

void Port::BeginSends() {
  while (!queue_.empty()) {
    const Movement movement = queue_.front();
    Moving& moving = moving_[movement];
#ifdef TF_SMDDP_SIMULATED
    if (!on_network_.empty() && bytes_on_network_ + moving.bytes > costs_.window_bytes) {
      // The network goes on while the CPU is busy: what it has sent makes room.
      const Movement oldest = on_network_.front();
      if (Test(oldest, &moving_[oldest])) continue;
      return;
    }
#endif
    queue_.pop_front();
    MPI_Isend(moving.data, static_cast<int>(moving.bytes), MPI_BYTE, moving.peer, moving.tag, MPI_COMM_WORLD,
              &moving.request);
    moving.begun = true;
    bytes_on_network_ += moving.bytes;
    on_network_.push_back(movement);
  }
}

void Port::End(Movement movement, Moving* moving) {
  moving->ended = true;
  if (!moving->is_send) {
    Compute(costs_.message_seconds + costs_.byte_seconds * static_cast<double>(moving->bytes));
    return;
  }
  on_network_.erase(std::find(on_network_.begin(), on_network_.end(), movement));
  bytes_on_network_ -= moving->bytes;
}

bool Port::Test(Movement movement, Moving* moving) {
  if (moving->ended) return true;
  if (!moving->begun) return false;
  int ended = 0;
  MPI_Test(&moving->request, &ended, MPI_STATUS_IGNORE);
  if (ended != 0) End(movement, moving);
  return moving->ended;
}

bool Port::Ended(Movement movement) {
  const auto found = moving_.find(movement);
  if (found == moving_.end()) return true;  // WaitForAll has seen its end
  if (!Test(movement, &found->second)) {
    asked_.push_back(movement);
    return false;
  }
  moving_.erase(found);
  BeginSends();
  return true;
}

void Port::Wait() {
  std::vector<Movement> movements;
  for (const Movement each : asked_) {
    const auto found = moving_.find(each);
    if (found != moving_.end() && !found->second.is_send && !found->second.ended) movements.push_back(each);
  }
  asked_.clear();
  // Others wait for the sends, too.
  movements.insert(movements.end(), on_network_.begin(), on_network_.end());
  // MPI wants each request once.
  std::sort(movements.begin(), movements.end());
  movements.erase(std::unique(movements.begin(), movements.end()), movements.end());
  std::vector<MPI_Request> requests;
  requests.reserve(movements.size());
  for (const Movement each : movements) requests.push_back(moving_[each].request);
  int index = MPI_UNDEFINED;
  MPI_Waitany(static_cast<int>(requests.size()), requests.data(), &index, MPI_STATUS_IGNORE);
  if (index == MPI_UNDEFINED) return;
  Moving& moving = moving_[movements[index]];
  moving.request = MPI_REQUEST_NULL;
  End(movements[index], &moving);
  BeginSends();
}

void Port::WaitFor(std::vector<Movement> movements) {
  while (!movements.empty()) {
    if (Ended(movements.back())) {
      movements.pop_back();
    } else {
      Wait();
    }
  }
}

void Port::WaitForAll() {
  std::vector<Movement> all;
  for (const auto& [movement, moving] : moving_) all.push_back(movement);
  std::sort(all.begin(), all.end());
  WaitFor(std::move(all));
}

}  // namespace tf_smddp::cluster
