// Wire: carries messages between the ranks of a job that has several hosts.
//
// Place in the stack: an interface, below everything that uses it. The engine's relay
// (kernels/engine/relay.h) sends what the hosts must agree on, and transfers of
// kernels/collectives/backends/wire send tensors. On one host there is no wire. A wire over MPI is not built
// yet; tests have one of socket pairs.
#ifndef TF_SMDDP_KERNELS_COMMON_WIRE_H_
#define TF_SMDDP_KERNELS_COMMON_WIRE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/rank_id.h"

namespace tf_smddp {

class Wire {
 public:
  // The stream of messages to which a message belongs.
  struct Channel {
    enum Kind : std::uint32_t { kOrder, kData };
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
  // with that communicator; after a connection was lost it calls `arrived` with communicator 0. Once.
  virtual void Start(std::function<void(std::uint32_t communicator)> arrived) = 0;

  // Sends `bytes` to a rank of any host, this rank included. Messages of one sender arrive in the order of
  // the calls. It never waits. A message to a rank that has ended is dropped. Any thread.
  virtual void Send(RankId to, Channel channel, std::string bytes) = 0;

  // Takes the next message of `channel`. It never waits; false when there is none. Any thread.
  virtual bool Receive(Channel channel, Message* message) = 0;

  // Returns a rank to which the connection was lost, or no rank. Any thread.
  virtual RankId Lost() = 0;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_WIRE_H_
