// SocketWire: a wire of socket pairs, with random delays, between ranks that are threads or processes.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_SOCKET_WIRE_H_
#define TF_SMDDP_TESTS_CPP_TESTING_SOCKET_WIRE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/common/config.h"
#include "kernels/common/unique_fd.h"
#include "kernels/common/wire.h"

namespace tf_smddp::testing {

// The socket pairs between all ranks of a job. It is made before the ranks are started.
class SocketMesh {
 public:
  // `ranks_on`: the number of ranks on each host. Ranks are dealt to the hosts in turn, so that hosts have no
  // contiguous ranges.
  explicit SocketMesh(const std::vector<int>& ranks_on);

  const std::vector<std::vector<int>>& hosts() const { return hosts_; }
  std::size_t HostOf(int rank) const;

  // Sets the local rank and size of config->rank.
  void SetLocal(Config* config) const;

  // Makes the wire of one rank, once for each; nullptr when there is one host.
  std::unique_ptr<Wire> MakeWire(int rank);

  // Takes the ends of one rank, by peer.
  std::vector<UniqueFd> Take(int rank) { return std::move(ends_[static_cast<std::size_t>(rank)]); }

  // In a process that is one rank: closes the ends of all others, so that a death closes its connections.
  void KeepOnly(int rank);

 private:
  std::vector<std::vector<int>> hosts_;
  std::vector<std::vector<UniqueFd>> ends_;  // by rank, then by peer
};

class SocketWire : public Wire {
 public:
  // Each message is held back for up to `longest_delay` before it is sent.
  SocketWire(SocketMesh* mesh, int rank, std::chrono::microseconds longest_delay);
  ~SocketWire() override { Stop(false); }

  // From now on, no call of Send in this process returns, as of a network's library whose peer has died.
  // After five seconds of that, Silent says so.
  static void BlockSends();

  // The bytes of the messages about the order that this process has sent.
  static std::uint64_t OrderBytes();

  // From now on, this process has no connection to `peer`; the next message to it breaks it.
  static void BreakConnectionTo(int peer);

  const std::vector<std::vector<int>>& hosts() const override { return hosts_; }
  void Start(std::function<void(std::uint32_t communicator)> arrived) override;
  void Stop(bool in_order) override;
  void Send(RankId to, Channel channel, std::string bytes) override;
  void Post(RankId to, Channel channel, std::string bytes) override;
  void Flush() override {}  // no process of a test ends before its sender has
  bool Receive(Channel channel, Message* message) override;
  Loss Lost() override;
  // A connection that ends says so, and no call but those of BlockSends lasts.
  std::string Silent() override;
  Clock::duration CallLasts() const override;
  Movement BeginSend(RankId to, int stream, const void* data, std::uint64_t bytes,
                     std::shared_ptr<void> owner) override;
  Movement BeginReceive(RankId from, int stream, void* data, std::uint64_t bytes,
                        std::shared_ptr<void> owner) override;
  void Poll() override {}  // its threads move everything
  bool Ended(Movement movement) override;

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // communicator, kind
  struct Outgoing {
    Clock::time_point due;
    int to;
    Key channel;
    std::string bytes;
  };

  // A receive that has begun.
  struct Wanted {
    Movement movement;
    void* data;
    std::uint64_t bytes;
    std::shared_ptr<void> owner;
  };
  struct Stream {
    std::deque<Wanted> wanted;
    std::deque<std::string> come;
  };

  void Match(Stream* stream);
  void RunSender();
  void RunReceiver();
  bool ReceiveFrom(int peer);
  void Deliver(int from, Key channel, std::string bytes);

  const int rank_;
  const std::vector<std::vector<int>> hosts_;
  const std::chrono::microseconds longest_delay_;
  std::vector<UniqueFd> ends_;  // by peer
  UniqueFd stop_read_, stop_write_;
  std::function<void(std::uint32_t)> arrived_;

  std::mutex mu_;  // guards everything below
  std::condition_variable wake_;
  std::mt19937 random_;
  std::map<Key, std::deque<Message>> arrived_messages_;
  std::vector<std::deque<Outgoing>> outgoing_;               // by peer
  std::map<std::pair<int, std::uint32_t>, Stream> streams_;  // by sender and number
  std::set<Movement> moving_;                                // receives that have not ended
  Movement next_movement_ = 1;
  RankId lost_;
  bool stopping_ = false;
  std::thread sender_, receiver_;  // last: they use the others
};

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_SOCKET_WIRE_H_
