// Port: sends and receives of plain MPI, and what they cost the CPU of a rank.
//
// Place in the stack: the bottom of the model of a cluster; everything in this folder sends by it. It
// compiles with SimGrid's smpicxx and with the mpicxx of a real MPI.
//
// Under SimGrid no time passes but that of the simulated network. So the port adds the time that a rank's CPU
// takes: for each message that it sends or receives, and for each byte of it (copies and reductions).
//
// Under SimGrid a rank has only so many bytes on the network at a time, and sends what it was given in order,
// as the queue of a network card does. Without that, SimGrid would share each link among all messages
// that are under way, a million of them with 256 hosts, anew at each event.
#ifndef TF_SMDDP_BENCHMARKS_CLUSTER_PORT_H_
#define TF_SMDDP_BENCHMARKS_CLUSTER_PORT_H_

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace tf_smddp::cluster {

// They have no effect under a real MPI.
struct Costs {
  double message_seconds = 0;      // for each message, at each of its ends
  double byte_seconds = 0;         // for each of its bytes, likewise
  std::uint64_t window_bytes = 0;  // on the network at a time; at least one message is
};

class Port {
 public:
  explicit Port(const Costs& costs) : costs_(costs) {}

  // The memory stays as it is until the movement has ended. Messages with the same tag between two ranks meet
  // their receives in order. They never wait.
  using Movement = std::uint64_t;
  Movement Send(int to, int tag, const void* data, std::uint64_t bytes);
  Movement Receive(int from, int tag, void* data, std::uint64_t bytes);

  // Returns whether a movement has ended. When it has, it is not asked again.
  bool Ended(Movement movement);

  // Waits until one of the movements that were asked for in vain since the last call may have ended.
  void Wait();

  // Waits for these, and for all.
  void WaitFor(std::vector<Movement> movements);
  void WaitForAll();

  // Lets the CPU take this time.
  static void Compute(double seconds);

 private:
  struct Moving {
    MPI_Request request = MPI_REQUEST_NULL;
    bool begun = false;
    bool ended = false;
    bool is_send = false;
    int peer = 0, tag = 0;
    void* data = nullptr;
    std::uint64_t bytes = 0;
  };

  void BeginSends();
  bool Test(Movement movement, Moving* moving);
  void End(Movement movement, Moving* moving);

  const Costs costs_;
  Movement next_ = 1;
  std::unordered_map<Movement, Moving> moving_;
  std::deque<Movement> queue_;        // sends that have not begun
  std::vector<Movement> on_network_;  // sends
  std::uint64_t bytes_on_network_ = 0;
  std::vector<Movement> asked_;
};

}  // namespace tf_smddp::cluster

#endif  // TF_SMDDP_BENCHMARKS_CLUSTER_PORT_H_
