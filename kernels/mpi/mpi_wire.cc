#include "kernels/mpi/mpi_wire.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>

#include "kernels/common/logging.h"
#include "kernels/common/thread.h"

namespace tf_smddp::mpi {
namespace {

// Before the bytes of each message of MPI. Its size keeps them aligned.
struct alignas(16) Frame {
  std::uint32_t communicator;
  std::uint32_t kind;
  std::uint64_t more;  // bytes in further messages
  std::uint64_t run;   // Hosts::run
  std::uint64_t padding;
};

constexpr int kTag = 1;
constexpr int kBeatTag = 2;
constexpr int kFirstStreamTag = 16;  // MPI has tags up to 32,767 at least
static_assert(kFirstStreamTag + Wire::kStreams <= 32'768);

// MPI counts in int.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

constexpr std::chrono::microseconds kShortest{50};
constexpr std::chrono::microseconds kLongest{1000};

// MPI is not asked again so soon after a look: a step of the engine receives, and polls for a transfer.
constexpr std::chrono::microseconds kFresh{1};

// For what is sent at the end.
constexpr std::chrono::seconds kLastPatience{5};
constexpr std::chrono::milliseconds kFlushPatience{100};

// MPI has so many messages of ours at most.
constexpr std::size_t kMostSends = 64;

}  // namespace

Status MpiWire::Duplicate(Runtime* runtime, Clock::time_point deadline, Handle* communicator) {
  auto duplicate = std::make_unique<Handle>();
  Handle request;
  Status status;
  {
    const Runtime::Turn turn(runtime);
    status = turn.library().DuplicateWorld(duplicate.get(), &request);
  }
  if (status.ok()) status = runtime->Await(&request, deadline, "MPI_Comm_idup");
  if (!status.ok()) {
    static_cast<void>(duplicate.release());  // MPI may still write it
    return status;
  }
  *communicator = *duplicate;
  const Runtime::Turn turn(runtime);
  return turn.library().ReturnErrors(*communicator);
}

// MPI's communicators cannot be freed after a failure, since others may have died, and MPI has some
// thousands. So there is a new one only if a rank cannot use the last one any more.
Status MpiWire::Meet(Runtime* runtime, const Config& config, Clock::time_point deadline, Met* met) {
  bool usable = true;
  const bool is_first = !runtime->Kept(&met->communicator, &usable);
  Status status;
  if (is_first) status = Duplicate(runtime, deadline, &met->communicator);
  if (status.ok()) status = MeetHosts(config, runtime, met->communicator, usable, deadline, &met->hosts);
  if (status.ok() && !met->hosts.all_keep) status = Duplicate(runtime, deadline, &met->communicator);
  if (status.ok()) runtime->Use(met->communicator);
  return status;
}

Status MpiWire::Open(const std::string& prefix, Config* config, std::unique_ptr<Wire>* wire) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(config->bootstrap_timeout_seconds);
  Runtime* runtime = nullptr;
  Status status = Runtime::Get(*config, prefix, &runtime);
  if (!status.ok()) return status;
  // In a thread of its own, since some libraries do not return from a call whose peer has died.
  const auto met = std::make_shared<Met>();
  std::future<Status> ends = met->status.get_future();
  try {
    StartThread("smddp-mpi-meet", [met, runtime, deadline, config = *config] {
      met->status.set_value(Meet(runtime, config, deadline, met.get()));
    }).detach();
  } catch (const ThreadRefused& refused) {
    return Internal(refused.what());
  }
  if (ends.wait_until(deadline + kLastPatience) != std::future_status::ready) {
    runtime->GiveUp();
    return Internal("a call of " + runtime->description() +
                    " has not returned in time (SMDDP_BOOTSTRAP_TIMEOUT): " +
                    "another rank has died during tf_smddp.init(), or the network failed");
  }
  status = ends.get();
  if (!status.ok()) return status;
  config->run_id = met->hosts.run_id;
  config->rank_variables.clear();
  config->rendezvous.clear();
  const Logger logger(static_cast<LogLevel>(config->log_level), config->rank);
  logger.Log(LogLevel::kInfo, "ranks on " + std::to_string(met->hosts.ranks.size()) + " hosts, joined by " +
                                  runtime->description());
  wire->reset(new MpiWire(runtime, met->communicator, *config, std::move(met->hosts)));
  return {};
}

MpiWire::MpiWire(Runtime* runtime, Handle communicator, const Config& config, Hosts hosts)
    : runtime_(runtime),
      communicator_(communicator),
      rank_(config.rank),
      hosts_(std::move(hosts)),
      silence_(runtime, &hosts_, config) {}

void MpiWire::Stop(bool in_order) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (stopping_) return;
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  const Clock::time_point deadline = Clock::now() + kLastPatience;
  while (Sending(Runtime::Turn(runtime_)) && Clock::now() < deadline) {
    TryPoll();
    std::this_thread::sleep_for(kShortest);
  }
  const Runtime::Turn turn(runtime_);
  if (in_order && MayCall(turn)) EndPending(turn);
  stopped_ = true;
  std::lock_guard<std::mutex> lock(mu_);
  if (in_order && pending_.empty() && queue_.empty() && lost_.reason.empty()) runtime_->Keep(communicator_);
  // MPI may still use what has not ended. So it is never freed.
  if (!pending_.empty()) new std::vector<Pending>(std::move(pending_));
}

void MpiWire::Start(std::function<void(std::uint32_t communicator)> arrived) {
  arrived_ = std::move(arrived);
  silence_.Start();
  thread_ = StartThread("smddp-mpi", [this] { Run(); });
}

void MpiWire::Send(RankId to, Channel channel, std::string bytes) {
  Queue(to, channel, std::move(bytes));
  const Runtime::Turn turn(runtime_, std::try_to_lock);
  if (MayCall(turn)) SendQueued(turn);
}

// The process may be about to end, so the wire's thread must not wait for its next time to look.
void MpiWire::Post(RankId to, Channel channel, std::string bytes) {
  Queue(to, channel, std::move(bytes));
  std::lock_guard<std::mutex> lock(mu_);
  posted_ = true;
  wake_.notify_all();
}

void MpiWire::Flush() {
  const Clock::time_point deadline = Clock::now() + kFlushPatience;
  while (Sending(Runtime::Turn(runtime_, std::try_to_lock)) && Clock::now() < deadline) {
    std::this_thread::sleep_for(kShortest);
  }
}

void MpiWire::Queue(RankId to, Channel channel, std::string bytes) {
  const Key key{channel.communicator, channel.kind};
  std::lock_guard<std::mutex> lock(mu_);
  if (to.value() == rank_) return Deliver(rank_, key, std::move(bytes), /*wake=*/true);
  for (std::uint64_t begin = 0; begin == 0 || begin < bytes.size(); begin += kMostBytes) {
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size() - begin, kMostBytes);
    const Frame frame = {channel.communicator, channel.kind, bytes.size() - begin - count, hosts_.run, 0};
    std::string framed(sizeof frame + count, '\0');
    std::memcpy(framed.data(), &frame, sizeof frame);
    std::memcpy(framed.data() + sizeof frame, bytes.data() + begin, count);
    queue_.push_back({to.value(), std::move(framed)});
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

// A movement that could not begin never ends. The job does: Lost() has the reason.
Wire::Movement MpiWire::BeginSend(RankId to, int stream, const void* data, std::uint64_t bytes,
                                  std::shared_ptr<void> owner) {
  const Runtime::Turn turn(runtime_);
  if (!MayCall(turn)) return 0;
  const Movement movement = next_movement_++;
  moving_.insert(movement);
  StartSend(turn, data, bytes, to.value(), kFirstStreamTag + stream,
            [this, movement, owner = std::move(owner)] { moving_.erase(movement); });
  return movement;
}

Wire::Movement MpiWire::BeginReceive(RankId from, int stream, void* data, std::uint64_t bytes,
                                     std::shared_ptr<void> owner) {
  const Runtime::Turn turn(runtime_);
  if (!MayCall(turn)) return 0;
  const Movement movement = next_movement_++;
  moving_.insert(movement);
  StartReceive(turn, data, bytes, from.value(), kFirstStreamTag + stream,
               [this, movement, owner = std::move(owner)] { moving_.erase(movement); });
  return movement;
}

bool MpiWire::Ended(Movement movement) {
  const Runtime::Turn turn(runtime_, std::try_to_lock);
  return MayCall(turn) && movement != 0 && moving_.count(movement) == 0;
}

void MpiWire::Poll() {
  const Runtime::Turn turn(runtime_, std::try_to_lock);
  if (MayCall(turn) && Clock::now() - looked_ > kFresh) EndPending(turn);
}

bool MpiWire::StartSend(const Runtime::Turn& turn, const void* data, std::uint64_t bytes, int to, int tag,
                        std::function<void()> ended) {
  Handle request;
  const Status status = turn.library().Send(communicator_, data, static_cast<int>(bytes), to, tag, &request);
  return Started(status, request, {to, std::move(ended)});
}

bool MpiWire::StartReceive(const Runtime::Turn& turn, void* data, std::uint64_t bytes, int from, int tag,
                           std::function<void()> ended) {
  Handle request;
  const Status status =
      turn.library().Receive(communicator_, data, static_cast<int>(bytes), from, tag, &request);
  return Started(status, request, {from, std::move(ended)});
}

bool MpiWire::Started(const Status& status, Handle request, Pending pending) {
  if (!status.ok()) {
    Lose(pending.peer, status.message());
    return false;
  }
  requests_.push_back(request);
  pending_.push_back(std::move(pending));
  return true;
}

void MpiWire::Run() {
  std::chrono::microseconds sleep = kShortest;
  for (bool posted = false;;) {
    const bool others_poll =
        !posted &&
        Clock::now().time_since_epoch() - Clock::duration(polled_.load(std::memory_order_relaxed)) < kLongest;
    const bool moved = !others_poll && TryPoll();
    std::set<std::uint32_t> to_ring;
    {
      std::unique_lock<std::mutex> lock(mu_);
      const bool soon = !others_poll && (moved || !queue_.empty());
      sleep = others_poll ? kLongest : soon ? kShortest : std::min(2 * sleep, kLongest);
      wake_.wait_for(lock, sleep, [this] { return stopping_ || posted_ || !to_ring_.empty(); });
      if (stopping_) return;
      posted = std::exchange(posted_, false) || (posted && !queue_.empty());
      to_ring.swap(to_ring_);
    }
    for (const std::uint32_t communicator : to_ring) arrived_(communicator);
  }
}

// Calls MPI, if no other thread is inside. True when something has moved. `receiver`: the communicator for
// which the caller receives.
bool MpiWire::TryPoll(const std::uint32_t* receiver) {
  const Runtime::Turn turn(runtime_, std::try_to_lock);
  if (!MayCall(turn)) return false;
  receiver_ = receiver;
  if (receiver != nullptr) polled_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  bool moved = SendQueued(turn);
  moved |= TakeIncoming(turn);
  moved |= EndPending(turn);
  moved |= DeliverIncoming();
  Beat(turn);
  return moved || !moving_.empty();
}

// True when something has ended.
bool MpiWire::EndPending(const Runtime::Turn& turn) {
  if (requests_.empty()) return false;
  const Status status = turn.library().TestSome(requests_, &ended_);
  looked_ = Clock::now();
  if (!status.ok()) Lose(-1, status.message());  // it does not say whose
  // From the back, so that the places of the others stay what they are when the last takes the place of one.
  std::sort(ended_.begin(), ended_.end(),
            [](const Library::Ended& a, const Library::Ended& b) { return a.index > b.index; });
  for (const Library::Ended& ended : ended_) {
    Pending pending = std::exchange(pending_[ended.index], std::move(pending_.back()));
    requests_[ended.index] = requests_.back();
    pending_.pop_back();
    requests_.pop_back();
    ended.status.ok() ? pending.ended() : Lose(pending.peer, ended.status.message());
  }
  return !ended_.empty();
}

// Sends a beat if it is time, and takes those that have come.
void MpiWire::Beat(const Runtime::Turn& turn) {
  const int to = silence_.NextBeat();
  if (to < 0) return;
  const auto beat = std::make_shared<std::uint64_t>(hosts_.run);
  StartSend(turn, beat.get(), sizeof *beat, to, kBeatTag, [beat] {});
  for (bool there = true; there;) {
    int from = -1, bytes = 0;
    if (!turn.library().Probe(communicator_, kBeatTag, &there, &from, &bytes).ok() || !there) return;
    const auto heard = std::make_shared<std::uint64_t>();
    const auto here = [this, heard] {
      if (*heard == hosts_.run) silence_.Hear();  // else it is late, of an earlier run
    };
    if (!StartReceive(turn, heard.get(), sizeof *heard, from, kBeatTag, here)) return;
  }
}

// Gives MPI what waits for it. True when there was something.
bool MpiWire::SendQueued(const Runtime::Turn& turn) {
  bool moved = false;
  while (sending_ < kMostSends) {
    std::shared_ptr<Outgoing> send;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (queue_.empty()) return moved;
      send = std::make_shared<Outgoing>(std::move(queue_.front()));
      queue_.pop_front();
    }
    moved = true;
    if (StartSend(turn, send->bytes.data(), send->bytes.size(), send->to, kTag,
                  [this, send] { --sending_; })) {
      ++sending_;
    }
  }
  return moved;
}

// A receiver gets one message at a time: a look for another one takes some microseconds, for which this one
// would wait.
bool MpiWire::TakeIncoming(const Runtime::Turn& turn) {
  bool moved = false;
  for (; !moved || receiver_ == nullptr; moved = true) {
    bool there = false;
    int from = -1, bytes = 0;
    const Status status = turn.library().Probe(communicator_, kTag, &there, &from, &bytes);
    if (!status.ok() || !there) return moved;
    auto incoming = std::make_shared<Incoming>();
    incoming->from = from;
    incoming->bytes.resize(static_cast<std::size_t>(bytes));
    const auto here = [incoming] { incoming->here = true; };
    if (!StartReceive(turn, incoming->bytes.data(), incoming->bytes.size(), incoming->from, kTag, here)) {
      return moved;
    }
    incoming_.push_back(std::move(incoming));
  }
  return moved;
}

// Messages are delivered in the order in which they were taken, so a sender's are in its order.
bool MpiWire::DeliverIncoming() {
  bool moved = false;
  for (; !incoming_.empty() && incoming_.front()->here; moved = true) {
    Deliver(*incoming_.front());
    incoming_.pop_front();
  }
  return moved;
}

void MpiWire::Deliver(const Incoming& incoming) {
  Frame frame;
  if (incoming.bytes.size() < sizeof frame) return;
  std::memcpy(&frame, incoming.bytes.data(), sizeof frame);
  if (frame.run != hosts_.run) return;
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
  if (!lost_.reason.empty()) return;
  lost_ = {RankId(rank), reason};
  to_ring_.insert(0);
  wake_.notify_all();
}

// Whether messages wait for MPI, or in it; true while another thread is in MPI.
bool MpiWire::Sending(const Runtime::Turn& turn) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!turn) return lost_.reason.empty();
  return lost_.reason.empty() && (!queue_.empty() || sending_ > 0);
}

}  // namespace tf_smddp::mpi
