#include "tests/cpp/testing/socket_wire.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "gtest/gtest.h"
#include "kernels/common/thread.h"

namespace tf_smddp::testing {
namespace {

std::atomic<bool> block_sends{false};
std::atomic<int> broken_peer{-1};
std::atomic<std::uint64_t> order_bytes{0};
std::atomic<Clock::rep> blocked_since{0};  // 0: no call is

// Before the bytes of each message on a socket.
struct Frame {
  std::uint64_t bytes;
  std::uint32_t communicator;
  std::uint32_t kind;
};

// The kind of frames that hold what moves in a stream; its number stands in the place of the communicator's.
constexpr std::uint32_t kInStream = 1000;

constexpr std::chrono::microseconds kLongestDelay{300};

// A lost connection is reported after the abort that explains it has had the time to come.
constexpr std::chrono::milliseconds kGrace{300};

constexpr std::chrono::seconds kLongestCall{5};

bool WriteAll(int fd, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (written <= 0) return false;
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

bool ReadAll(int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

SocketMesh::SocketMesh(const std::vector<int>& ranks_on) : hosts_(ranks_on.size()) {
  const int size = std::accumulate(ranks_on.begin(), ranks_on.end(), 0);
  std::size_t host = 0;
  for (int rank = 0; rank < size; host = (host + 1) % hosts_.size()) {
    if (hosts_[host].size() < static_cast<std::size_t>(ranks_on[host])) hosts_[host].push_back(rank++);
  }
  ends_.resize(static_cast<std::size_t>(size));
  if (hosts_.size() == 1) return;
  for (auto& each : ends_) each.resize(ends_.size());
  for (std::size_t a = 0; a < ends_.size(); ++a) {
    for (std::size_t b = a + 1; b < ends_.size(); ++b) {
      int pair[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
      ends_[a][b] = UniqueFd(pair[0]);
      ends_[b][a] = UniqueFd(pair[1]);
    }
  }
}

std::size_t SocketMesh::HostOf(int rank) const {
  std::size_t host = 0;
  while (!std::binary_search(hosts_[host].begin(), hosts_[host].end(), rank)) ++host;
  return host;
}

void SocketMesh::SetLocal(Config* config) const {
  const std::vector<int>& ranks = hosts_[HostOf(config->rank)];
  const auto place = std::lower_bound(ranks.begin(), ranks.end(), config->rank);
  config->local_rank = static_cast<int>(place - ranks.begin());
  config->local_size = static_cast<int>(ranks.size());
}

std::unique_ptr<Wire> SocketMesh::MakeWire(int rank) {
  if (hosts_.size() == 1) return nullptr;
  return std::make_unique<SocketWire>(this, rank, kLongestDelay);
}

void SocketMesh::KeepOnly(int rank) {
  for (std::size_t each = 0; each < ends_.size(); ++each) {
    if (static_cast<int>(each) != rank) ends_[each].clear();
  }
}

SocketWire::SocketWire(SocketMesh* mesh, int rank, std::chrono::microseconds longest_delay)
    : rank_(rank),
      hosts_(mesh->hosts()),
      longest_delay_(longest_delay),
      ends_(mesh->Take(rank)),
      random_(static_cast<unsigned>(rank) + 1),
      outgoing_(ends_.size()) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  stop_read_ = UniqueFd(ends[0]);
  stop_write_ = UniqueFd(ends[1]);
}

void SocketWire::Stop(bool) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (sender_.joinable()) sender_.join();  // it sends what is left first
  if (!receiver_.joinable()) return;
  EXPECT_EQ(::write(stop_write_.get(), "", 1), 1);
  receiver_.join();
}

void SocketWire::Start(std::function<void(std::uint32_t communicator)> arrived) {
  arrived_ = std::move(arrived);
  sender_ = StartThread("test-sender", [this] { RunSender(); });
  receiver_ = StartThread("test-receiver", [this] { RunReceiver(); });
}

void SocketWire::BlockSends() { block_sends.store(true); }
std::uint64_t SocketWire::OrderBytes() { return order_bytes.load(); }
void SocketWire::BreakConnectionTo(int peer) { broken_peer.store(peer); }

void SocketWire::Send(RankId to, Channel channel, std::string bytes) {
  if (block_sends.load()) {
    blocked_since.store(Clock::now().time_since_epoch().count());
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  Post(to, channel, std::move(bytes));
}

Clock::duration SocketWire::CallLasts() const {
  const Clock::rep since = blocked_since.load();
  return since == 0 ? Clock::duration() : Clock::now().time_since_epoch() - Clock::duration(since);
}

std::string SocketWire::Silent() {
  return CallLasts() > kLongestCall ? "a call has not returned for 5 s" : "";
}

void SocketWire::Post(RankId to, Channel channel, std::string bytes) {
  if (channel.kind == Channel::kOrder) order_bytes.fetch_add(bytes.size());
  if (to.value() == broken_peer.load()) ::shutdown(ends_[to.index()].get(), SHUT_RDWR);
  std::lock_guard<std::mutex> lock(mu_);
  const auto most = static_cast<unsigned>(longest_delay_.count());
  const std::chrono::microseconds delay(most == 0 ? 0 : random_() % most);
  outgoing_[to.index()].push_back(
      {Clock::now() + delay, to.value(), {channel.communicator, channel.kind}, std::move(bytes)});
  wake_.notify_all();
}

bool SocketWire::Receive(Channel channel, Message* message) {
  std::lock_guard<std::mutex> lock(mu_);
  std::deque<Message>& queue = arrived_messages_[{channel.communicator, channel.kind}];
  if (queue.empty()) return false;
  *message = std::move(queue.front());
  queue.pop_front();
  return true;
}

Wire::Movement SocketWire::BeginSend(RankId to, int stream, const void* data, std::uint64_t bytes,
                                     std::shared_ptr<void>) {
  const Channel channel{static_cast<std::uint32_t>(stream), static_cast<Channel::Kind>(kInStream)};
  Send(to, channel, std::string(static_cast<const char*>(data), bytes));
  return 0;  // it has ended: the bytes were copied
}

Wire::Movement SocketWire::BeginReceive(RankId from, int stream, void* data, std::uint64_t bytes,
                                        std::shared_ptr<void> owner) {
  std::lock_guard<std::mutex> lock(mu_);
  const Movement movement = next_movement_++;
  moving_.insert(movement);
  Stream& wanted = streams_[{from.value(), static_cast<std::uint32_t>(stream)}];
  wanted.wanted.push_back({movement, data, bytes, std::move(owner)});
  Match(&wanted);
  return movement;
}

bool SocketWire::Ended(Movement movement) {
  std::lock_guard<std::mutex> lock(mu_);
  return moving_.count(movement) == 0;
}

// With mu_ held.
void SocketWire::Match(Stream* stream) {
  while (!stream->wanted.empty() && !stream->come.empty()) {
    const Wanted& wanted = stream->wanted.front();
    const std::string& come = stream->come.front();
    EXPECT_EQ(come.size(), wanted.bytes) << "a send and a receive of different sizes met in a stream";
    std::memcpy(wanted.data, come.data(), std::min<std::size_t>(come.size(), wanted.bytes));
    moving_.erase(wanted.movement);
    stream->wanted.pop_front();
    stream->come.pop_front();
  }
}

Wire::Loss SocketWire::Lost() {
  std::lock_guard<std::mutex> lock(mu_);
  return {lost_, lost_.valid() ? "it was closed" : ""};
}

// Messages to one peer go in their order; those to different peers overtake each other.
void SocketWire::RunSender() {
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    std::deque<Outgoing>* next = nullptr;
    for (auto& queue : outgoing_) {
      if (!queue.empty() && (next == nullptr || queue.front().due < next->front().due)) next = &queue;
    }
    if (next == nullptr) {
      if (stopping_) return;
      wake_.wait(lock);
      continue;
    }
    if (const Clock::time_point due = next->front().due; due > Clock::now()) {
      wake_.wait_until(lock, due);
      continue;
    }
    const Outgoing message = std::move(next->front());
    next->pop_front();
    lock.unlock();
    if (message.to == rank_) {
      Deliver(rank_, message.channel, message.bytes);
    } else {
      const Frame frame = {message.bytes.size(), message.channel.first, message.channel.second};
      const int fd = ends_[static_cast<std::size_t>(message.to)].get();
      // A peer that has ended gets nothing more.
      if (WriteAll(fd, &frame, sizeof frame)) WriteAll(fd, message.bytes.data(), message.bytes.size());
    }
    lock.lock();
  }
}

void SocketWire::Deliver(int from, Key channel, std::string bytes) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (channel.second == kInStream) {
      Stream& stream = streams_[{from, channel.first}];
      stream.come.push_back(std::move(bytes));
      return Match(&stream);
    }
    arrived_messages_[channel].push_back({RankId(from), std::move(bytes)});
  }
  arrived_(channel.first);
}

bool SocketWire::ReceiveFrom(int peer) {
  const int fd = ends_[static_cast<std::size_t>(peer)].get();
  Frame frame;
  if (!ReadAll(fd, &frame, sizeof frame)) return false;
  std::string bytes(frame.bytes, '\0');
  if (!ReadAll(fd, bytes.data(), bytes.size())) return false;
  Deliver(peer, {frame.communicator, frame.kind}, std::move(bytes));
  return true;
}

void SocketWire::RunReceiver() {
  std::vector<pollfd> polled = {{stop_read_.get(), POLLIN, 0}};
  std::vector<int> peers = {-1};
  for (std::size_t peer = 0; peer < ends_.size(); ++peer) {
    if (!ends_[peer].valid()) continue;
    polled.push_back({ends_[peer].get(), POLLIN, 0});
    peers.push_back(static_cast<int>(peer));
  }
  int lost = -1;
  Clock::time_point lost_at;
  for (;;) {
    ::poll(polled.data(), polled.size(), lost < 0 ? -1 : 20);
    if (polled[0].revents != 0) return;
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0 || ReceiveFrom(peers[i])) continue;
      polled[i].fd = -1;
      if (lost >= 0) continue;
      lost = peers[i];
      lost_at = Clock::now();
    }
    if (lost < 0 || Clock::now() < lost_at + kGrace) continue;
    {
      std::lock_guard<std::mutex> lock(mu_);
      lost_ = RankId(lost);
    }
    arrived_(0);
    lost_at = Clock::time_point::max() - kGrace;  // once
  }
}

}  // namespace tf_smddp::testing
