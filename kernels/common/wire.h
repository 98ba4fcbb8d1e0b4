// Wire: carries messages between the ranks of a job that has several hosts.
//
// Place in the stack: an interface, below everything that uses it. The engine's relay
// (kernels/engine/hosts/relay.h) sends what the hosts must agree on, and transfers of
// kernels/collectives/backends/wire send tensors. On one host there is no wire. There is one over MPI
// (kernels/mpi/mpi_wire.h); tests also have one of socket pairs.
#ifndef TF_SMDDP_KERNELS_COMMON_WIRE_H_
#define TF_SMDDP_KERNELS_COMMON_WIRE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/rank_id.h"

namespace tf_smddp {

class Wire {
 public:
  // The stream of messages to which a message belongs.
  struct Channel {
    enum Kind : std::uint32_t { kOrder, kNccl };
    std::uint32_t communicator;
    Kind kind;
  };

  struct Message {
    RankId from;
    std::string bytes;
  };

  virtual ~Wire() = default;

  // Returns the ranks of the job by host, each in ascending order. It does not change.
  virtual const std::vector<std::vector<int>>& hosts() const = 0;

  // Starts to deliver. After a message for a communicator has arrived, a thread of the wire calls `arrived`
  // with that communicator; after a connection was lost it calls `arrived` with communicator 0. Throws
  // ThreadRefused (thread.h). Once.
  virtual void Start(std::function<void(std::uint32_t communicator)> arrived) = 0;

  // Ends it, when what was sent is on its way: nothing more comes, and what is sent is dropped. `in_order`:
  // this rank waits for nothing any more that others may have sent or will send. Once.
  virtual void Stop(bool in_order) = 0;

  // Sends `bytes` to a rank of any host, this rank included. Messages of one sender arrive in the order of
  // the calls. It never waits. A message to a rank that has ended is dropped. Any thread.
  virtual void Send(RankId to, Channel channel, std::string bytes) = 0;

  // Does what Send does, but only queues the message: a thread of the wire sends it within some milliseconds.
  // For threads that must not be held up by a network that has failed. Any thread.
  virtual void Post(RankId to, Channel channel, std::string bytes) = 0;

  // Waits until the network has what was sent and posted, for a tenth of a second at most. Any thread.
  virtual void Flush() = 0;

  // Takes the next message of `channel`. It never waits; false when there is none. Any thread.
  virtual bool Receive(Channel channel, Message* message) = 0;

  // Returns the first loss of a connection, if there was one. Any thread.
  struct Loss {
    RankId rank;         // no rank if it is not known which one
    std::string reason;  // "the rank on host2 has said nothing for 30 s"; empty: none was lost
  };
  virtual Loss Lost() = 0;

  // Returns why the network is thought to have failed without a word: a host has been silent for longer than
  // SMDDP_HOST_TIMEOUT, or a call of the network's library has not returned; "" while all is well. It never
  // waits, not for a call that does not return either. One thread, about every second.
  virtual std::string Silent() = 0;

  // Returns for how long the thread that calls the network's library has been in that call; 0 while none is.
  // Any thread.
  virtual Clock::duration CallLasts() const = 0;

  // Memory that moves between two ranks, in no message. The n-th send of a rank to another
  // one in a stream meets the n-th receive there from it, and has as many bytes. BeginSend and BeginReceive
  // wait for no other rank; they may wait for another thread of this process that is in the network's
  // library. `owner` keeps the memory alive until the movement has ended, also when nobody asks any more. Any
  // thread; one at a time for each stream.
  static constexpr int kStreams = 32'000;
  // The stream of a communicator for one use. Communicators whose numbers are far apart share streams, which
  // is right as long as they have no work at the same time.
  enum StreamUse { kExchange, kDistribute, kGather, kStreamUses };
  static constexpr int StreamOf(std::uint32_t communicator, StreamUse use) {
    return static_cast<int>(communicator % (kStreams / kStreamUses)) * kStreamUses + use;
  }
  using Movement = std::uint64_t;
  virtual Movement BeginSend(RankId to, int stream, const void* data, std::uint64_t bytes,
                             std::shared_ptr<void> owner) = 0;
  virtual Movement BeginReceive(RankId from, int stream, void* data, std::uint64_t bytes,
                                std::shared_ptr<void> owner) = 0;

  // Moves what can be moved now, unless another thread is doing that. It never waits. Any thread.
  virtual void Poll() = 0;

  // Returns whether a movement has ended, as Poll found out. When it has, it is not asked again. It never
  // waits. Any thread.
  virtual bool Ended(Movement movement) = 0;
};

// The text of the error that ends a job when the connection to a rank was lost.
inline std::string DescribeLoss(const Wire::Loss& loss) {
  const std::string rank = loss.rank.valid() ? "rank " + std::to_string(loss.rank.value()) : "a rank";
  return "the connection to " + rank + " on another host was lost (" + loss.reason +
         "): the rank or its host has died, or the network failed";
}

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_WIRE_H_
