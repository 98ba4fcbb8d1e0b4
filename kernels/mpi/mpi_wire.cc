#include "kernels/mpi/mpi_wire.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/common/logging.h"
#include "kernels/common/thread.h"

namespace tf_smddp::mpi {
namespace {

// Before the bytes of each message of MPI. Its size keeps them aligned.
struct alignas(16) Frame {
  std::uint32_t communicator;
  std::uint32_t kind;
  std::uint64_t more;  // bytes in further messages
};

constexpr int kTag = 1;
constexpr int kBeatTag = 2;
constexpr int kFirstStreamTag = 16;  // MPI has tags up to 32,767 at least
static_assert(kFirstStreamTag + Wire::kStreams <= 32'768);

// MPI counts in int.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

constexpr std::chrono::microseconds kShortest{50};
constexpr std::chrono::microseconds kLongest{1000};

// For what is sent at the end.
constexpr std::chrono::seconds kFlushPatience{5};

constexpr std::chrono::seconds kBeat{1};

// A thread that did not run for so long was stopped, with the whole job perhaps.
constexpr std::chrono::seconds kWasStopped{2};

// MPI has so many messages of ours at most; testing each of them takes time.
constexpr std::size_t kMostSends = 64;

}  // namespace

Status MpiWire::Open(const std::string& prefix, Config* config, std::unique_ptr<Wire>* wire) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(config->bootstrap_timeout_seconds);
  Runtime* runtime = nullptr;
  Status status = Runtime::Get(*config, prefix, &runtime);
  if (!status.ok()) return status;
  auto communicator = std::make_unique<Handle>();
  Handle request;
  {
    const Runtime::Turn turn(runtime);
    status = runtime->library().DuplicateWorld(communicator.get(), &request);
  }
  if (status.ok()) status = runtime->Await(&request, deadline, "MPI_Comm_idup");
  if (!status.ok()) {
    static_cast<void>(communicator.release());  // MPI may still write it
    return status;
  }
  Hosts hosts;
  status = MeetHosts(*config, runtime, *communicator, deadline, &hosts);
  if (status.ok()) {
    const Runtime::Turn turn(runtime);
    status = runtime->library().ReturnErrors(*communicator);
  }
  if (!status.ok()) return status;
  config->run_id = hosts.run_id;
  config->rank_variables.clear();
  config->rendezvous.clear();
  const Logger logger(static_cast<LogLevel>(config->log_level), config->rank);
  logger.Log(LogLevel::kInfo, "ranks on " + std::to_string(hosts.ranks.size()) + " hosts, joined by " +
                                  runtime->library().description());
  wire->reset(new MpiWire(runtime, *communicator, *config, std::move(hosts)));
  return {};
}

MpiWire::MpiWire(Runtime* runtime, Handle communicator, const Config& config, Hosts hosts)
    : runtime_(runtime),
      communicator_(communicator),
      rank_(config.rank),
      hosts_(std::move(hosts)),
      host_timeout_(std::chrono::milliseconds(config.host_timeout_ms)),
      first_beat_timeout_(
          std::max<Clock::duration>(host_timeout_, std::chrono::seconds(config.bootstrap_timeout_seconds))) {
  const std::vector<std::vector<int>>& ranks = hosts_.ranks;
  for (std::size_t host = 0; host < ranks.size(); ++host) {
    if (ranks[host].front() != rank_) continue;
    beats_to_ = ranks[(host + 1) % ranks.size()].front();
    beats_from_ = ranks[(host + ranks.size() - 1) % ranks.size()].front();
  }
}

void MpiWire::Stop() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (stopping_) return;
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  const Clock::time_point deadline = Clock::now() + kFlushPatience;
  while (Sending() && Clock::now() < deadline) {
    TryPoll();
    std::this_thread::sleep_for(kShortest);
  }
  // MPI may still use what has not ended. So it is never freed.
  const Runtime::Turn turn(runtime_);
  stopped_ = true;
  if (!sends_.empty()) new std::list<Outgoing>(std::move(sends_));
  if (!receives_.empty()) new std::deque<Incoming>(std::move(receives_));
  if (!moving_.empty()) new std::map<Movement, Moving>(std::move(moving_));
}

void MpiWire::Start(std::function<void(std::uint32_t communicator)> arrived) {
  arrived_ = std::move(arrived);
  next_beat_ = looked_ = Clock::now();
  heard_.store(next_beat_.time_since_epoch().count());
  thread_ = StartThread("smddp-mpi", [this] { Run(); });
}

void MpiWire::Send(RankId to, Channel channel, std::string bytes) {
  Post(to, channel, std::move(bytes));
  const Runtime::Turn turn(runtime_, std::try_to_lock);
  if (turn && !stopped_ && !runtime_->closed()) PostSends();
}

void MpiWire::Post(RankId to, Channel channel, std::string bytes) {
  const Key key{channel.communicator, channel.kind};
  std::lock_guard<std::mutex> lock(mu_);
  if (to.value() == rank_) return Deliver(rank_, key, std::move(bytes), /*wake=*/true);
  for (std::uint64_t begin = 0; begin == 0 || begin < bytes.size(); begin += kMostBytes) {
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size() - begin, kMostBytes);
    const Frame frame = {channel.communicator, channel.kind, bytes.size() - begin - count};
    std::string framed(sizeof frame + count, '\0');
    std::memcpy(framed.data(), &frame, sizeof frame);
    std::memcpy(framed.data() + sizeof frame, bytes.data() + begin, count);
    queue_.push_back({to.value(), std::move(framed), {}});
  }
}

bool MpiWire::Receive(Channel channel, Message* message) {
  const Key key{channel.communicator, channel.kind};
  for (const bool polled : {false, true}) {
    if (polled) TryPoll(&channel.communicator);
    std::lock_guard<std::mutex> lock(mu_);
    std::deque<Message>& arrived = arrived_messages_[key];
    if (arrived.empty()) continue;
    *message = std::move(arrived.front());
    arrived.pop_front();
    return true;
  }
  return false;
}

Wire::Loss MpiWire::Lost() {
  std::lock_guard<std::mutex> lock(mu_);
  return lost_;
}

Wire::Movement MpiWire::BeginSend(RankId to, int stream, const void* data, std::uint64_t bytes,
                                  std::shared_ptr<void> owner) {
  const Runtime::Turn turn(runtime_);
  if (stopped_ || runtime_->closed()) return 0;
  Moving moving{to.value(), std::move(owner), {}};
  const Status status = runtime_->library().Send(communicator_, data, static_cast<int>(bytes), to.value(),
                                                 kFirstStreamTag + stream, &moving.request);
  return Begun(status, std::move(moving));
}

Wire::Movement MpiWire::BeginReceive(RankId from, int stream, void* data, std::uint64_t bytes,
                                     std::shared_ptr<void> owner) {
  const Runtime::Turn turn(runtime_);
  if (stopped_ || runtime_->closed()) return 0;
  Moving moving{from.value(), std::move(owner), {}};
  const Status status = runtime_->library().Receive(communicator_, data, static_cast<int>(bytes),
                                                    from.value(), kFirstStreamTag + stream, &moving.request);
  return Begun(status, std::move(moving));
}

// In a turn. What could not begin never ends: the job does, since its peer is lost.
Wire::Movement MpiWire::Begun(const Status& status, Moving moving) {
  if (!status.ok()) {
    Lose(moving.peer, status.message());
    return 0;
  }
  moving_.emplace(next_movement_, std::move(moving));
  return next_movement_++;
}

bool MpiWire::Ended(Movement movement) {
  const Runtime::Turn turn(runtime_, std::try_to_lock);
  if (!turn || stopped_ || runtime_->closed()) return false;
  asked_ = Clock::now();
  if (movement == 0) return false;
  const auto found = moving_.find(movement);
  if (found == moving_.end()) return true;
  bool done = false;
  const Status status = runtime_->library().Test(&found->second.request, &done);
  if (!status.ok()) Lose(found->second.peer, status.message());
  if (!status.ok() || !done) return false;
  moving_.erase(found);
  return true;
}

void MpiWire::Run() {
  std::chrono::microseconds sleep = kShortest;
  for (;;) {
    const bool others_poll =
        Clock::now().time_since_epoch() - Clock::duration(polled_.load(std::memory_order_relaxed)) < kLongest;
    const bool moved = !others_poll && TryPoll();
    std::set<std::uint32_t> to_ring;
    {
      std::unique_lock<std::mutex> lock(mu_);
      const bool soon = !others_poll && (moved || !queue_.empty());
      sleep = others_poll ? kLongest : soon ? kShortest : std::min(2 * sleep, kLongest);
      wake_.wait_for(lock, sleep, [this] { return stopping_ || !to_ring_.empty(); });
      if (stopping_) return;
      to_ring.swap(to_ring_);
    }
    for (const std::uint32_t communicator : to_ring) arrived_(communicator);
  }
}

// Calls MPI, if no other thread is inside. True when something has moved. `receiver`: the communicator for
// which the caller receives.
bool MpiWire::TryPoll(const std::uint32_t* receiver) {
  const Runtime::Turn turn(runtime_, std::try_to_lock);
  if (!turn || stopped_ || runtime_->closed()) return false;
  receiver_ = receiver;
  if (receiver != nullptr) polled_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  bool moved = PostSends();
  moved |= EndSends();
  moved |= TakeIncoming();
  moved |= EndReceives();
  Beat();
  EndForgotten();
  return moved || !moving_.empty();
}

// Nobody asks for the last sends of a batch, which others may wait for: ends them.
void MpiWire::EndForgotten() {
  if (moving_.empty() || Clock::now() - asked_ < kLongest) return;
  for (auto each = moving_.begin(); each != moving_.end();) {
    bool done = false;
    const Status status = runtime_->library().Test(&each->second.request, &done);
    if (!status.ok()) Lose(each->second.peer, status.message());
    each = done ? moving_.erase(each) : std::next(each);
  }
}

// Sends a beat if it is time, and takes those that have come.
void MpiWire::Beat() {
  const Clock::time_point now = Clock::now();
  if (beats_to_ < 0 || now < next_beat_) return;
  next_beat_ = now + kBeat;
  sends_.push_back({beats_to_, std::string(), {}});
  Outgoing& beat = sends_.back();
  const Status status =
      runtime_->library().Send(communicator_, beat.bytes.data(), 0, beats_to_, kBeatTag, &beat.request);
  if (!status.ok()) {
    Lose(beats_to_, status.message());
    sends_.pop_back();
  }
  for (bool there = true; there;) {
    int from = -1, bytes = 0;
    if (!runtime_->library().Probe(communicator_, kBeatTag, &there, &from, &bytes).ok() || !there) return;
    heard_.store(now.time_since_epoch().count());
    heard_any_.store(true);
    receives_.push_back({from, std::string(), {}});
    Incoming& taken = receives_.back();
    if (!runtime_->library().Receive(communicator_, nullptr, 0, from, kBeatTag, &taken.request).ok()) {
      receives_.pop_back();
      return;
    }
  }
}

std::string MpiWire::Silent() {
  const Clock::time_point now = Clock::now();
  const bool was_stopped = now - std::exchange(looked_, now) > kWasStopped;
  if (was_stopped) heard_.store(now.time_since_epoch().count());
  if (was_stopped || host_timeout_ == Clock::duration::zero()) return "";
  const auto seconds = [](Clock::duration time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) +
           " s, SMDDP_HOST_TIMEOUT";
  };
  const Clock::duration turn = runtime_->TurnLasts();
  if (turn > host_timeout_) {
    std::size_t other = 0;
    while (std::binary_search(hosts_.ranks[other].begin(), hosts_.ranks[other].end(), rank_)) ++other;
    return "a call of MPI on rank " + std::to_string(rank_) + " has not returned for " +
           seconds(host_timeout_) + ": " + (hosts_.names.size() == 2 ? hosts_.names[other] : "another host") +
           " or a rank there has died, or the network failed";
  }
  if (turn > kBeat) return "";  // no beats are taken meanwhile
  const Clock::duration limit = heard_any_.load() ? host_timeout_ : first_beat_timeout_;
  if (beats_from_ < 0 || now.time_since_epoch() - Clock::duration(heard_.load()) <= limit) return "";
  std::size_t host = 0;
  while (hosts_.ranks[host].front() != beats_from_) ++host;
  return DescribeLoss({RankId(beats_from_), hosts_.names[host] + " has been silent for " + seconds(limit)});
}

bool MpiWire::PostSends() {
  bool moved = false;
  while (sends_.size() < kMostSends) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (queue_.empty()) return moved;
      sends_.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    moved = true;
    Outgoing& send = sends_.back();
    const Status status = runtime_->library().Send(
        communicator_, send.bytes.data(), static_cast<int>(send.bytes.size()), send.to, kTag, &send.request);
    if (status.ok()) continue;
    Lose(send.to, status.message());
    sends_.pop_back();
  }
  return moved;
}

bool MpiWire::EndSends() {
  const std::size_t before = sends_.size();
  for (auto send = sends_.begin(); send != sends_.end();) {
    bool done = false;
    const Status status = runtime_->library().Test(&send->request, &done);
    if (!status.ok()) Lose(send->to, status.message());
    send = done || !status.ok() ? sends_.erase(send) : std::next(send);
  }
  return sends_.size() < before;
}

bool MpiWire::TakeIncoming() {
  bool moved = false;
  for (;; moved = true) {
    bool there = false;
    Incoming incoming;
    int bytes = 0;
    Status status = runtime_->library().Probe(communicator_, kTag, &there, &incoming.from, &bytes);
    if (!status.ok() || !there) return moved;
    incoming.bytes.resize(static_cast<std::size_t>(bytes));
    receives_.push_back(std::move(incoming));
    Incoming& taken = receives_.back();
    status = runtime_->library().Receive(communicator_, taken.bytes.data(), bytes, taken.from, kTag,
                                         &taken.request);
    if (status.ok()) continue;
    Lose(taken.from, status.message());
    receives_.pop_back();
    return moved;
  }
}

// Messages are delivered in the order in which they were taken, so a sender's are in its order.
bool MpiWire::EndReceives() {
  bool moved = false;
  while (!receives_.empty()) {
    bool done = false;
    const Status status = runtime_->library().Test(&receives_.front().request, &done);
    if (!status.ok()) Lose(receives_.front().from, status.message());
    if (status.ok() && !done) return moved;
    if (done) Take(std::move(receives_.front()));
    receives_.pop_front();
    moved = true;
  }
  return moved;
}

void MpiWire::Take(Incoming incoming) {
  Frame frame;
  if (incoming.bytes.size() < sizeof frame) return;
  std::memcpy(&frame, incoming.bytes.data(), sizeof frame);
  std::string& bytes = parts_[incoming.from];
  bytes.append(incoming.bytes, sizeof frame);
  if (frame.more > 0) return;
  std::lock_guard<std::mutex> lock(mu_);
  const bool wake = receiver_ == nullptr || *receiver_ != frame.communicator;
  Deliver(incoming.from, {frame.communicator, frame.kind}, std::exchange(bytes, {}), wake);
}

// With mu_ held.
void MpiWire::Deliver(int from, Key channel, std::string bytes, bool wake) {
  arrived_messages_[channel].push_back({RankId(from), std::move(bytes)});
  if (!wake) return;
  to_ring_.insert(channel.first);
  wake_.notify_all();
}

void MpiWire::Lose(int rank, const std::string& reason) {
  std::lock_guard<std::mutex> lock(mu_);
  if (lost_.rank.valid()) return;
  lost_ = {RankId(rank), reason};
  to_ring_.insert(0);
  wake_.notify_all();
}

// Whether messages wait for MPI, or in it.
bool MpiWire::Sending() {
  const Runtime::Turn turn(runtime_);
  std::lock_guard<std::mutex> lock(mu_);
  return !lost_.rank.valid() && (!queue_.empty() || !sends_.empty());
}

}  // namespace tf_smddp::mpi
