// PortWire: a Wire over a Port, which takes HierarchicalTransfer as it ships to simulated hosts.
//
// It moves memory. It carries no messages: what the hosts agree on is no part of the model.
#ifndef TF_SMDDP_BENCHMARKS_CLUSTER_PORT_WIRE_H_
#define TF_SMDDP_BENCHMARKS_CLUSTER_PORT_WIRE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/cluster/port.h"
#include "kernels/common/wire.h"

namespace tf_smddp::cluster {

class PortWire : public Wire {
 public:
  // `port` outlives it. The owner of memory that moves must wait for the movements: nothing is abandoned
  // here.
  PortWire(Port* port, std::vector<std::vector<int>> hosts) : port_(port), hosts_(std::move(hosts)) {}

  const std::vector<std::vector<int>>& hosts() const override { return hosts_; }
  Movement BeginSend(RankId to, int stream, const void* data, std::uint64_t bytes,
                     std::shared_ptr<void>) override {
    return port_->Send(to.value(), kFirstTag + stream, data, bytes);
  }
  Movement BeginReceive(RankId from, int stream, void* data, std::uint64_t bytes,
                        std::shared_ptr<void>) override {
    return port_->Receive(from.value(), kFirstTag + stream, data, bytes);
  }
  void Poll() override {}  // Ended does
  bool Ended(Movement movement) override { return port_->Ended(movement); }

  // There are no messages, and no rank is lost.
  void Start(std::function<void(std::uint32_t communicator)>) override {}
  void Stop(bool) override {}
  void Send(RankId, Channel, std::string) override {}
  void Post(RankId, Channel, std::string) override {}
  void Flush() override {}
  bool Receive(Channel, Message*) override { return false; }
  Loss Lost() override { return {}; }
  std::string Silent() override { return ""; }
  Clock::duration CallLasts() const override { return {}; }

 private:
  static constexpr int kFirstTag = 16;

  Port* const port_;
  const std::vector<std::vector<int>> hosts_;
};

}  // namespace tf_smddp::cluster

#endif  // TF_SMDDP_BENCHMARKS_CLUSTER_PORT_WIRE_H_
