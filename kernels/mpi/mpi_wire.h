// MpiWire: a wire over MPI.
//
// Place in the stack: a Wire (kernels/common/wire.h), above runtime.h, hosts.h and silence.h.
//
// MPI moves nothing but in calls, and tells nobody of what has come. So whoever waits calls it: Send and
// Receive do, if no other thread is inside MPI, and a thread of the wire does, for those who do not wait.
// That one calls it every 50 µs while messages come and go, and up to 1 ms apart when there are none. While
// others receive it leaves MPI to them, since it would take their cores and their turns.
//
// On MPI's side there is a communicator of ours, which the next wire of this process uses, too, if all ranks
// have ended this one in order. Each message names its run, so what comes late of an earlier one is dropped.
// A message is one or more messages of MPI, each with a Frame before it. All sends and receives that MPI has
// are in one list, for which MPI looks at the network once: it takes some microseconds, and a large allreduce
// has dozens of them under way.
#ifndef TF_SMDDP_KERNELS_MPI_MPI_WIRE_H_
#define TF_SMDDP_KERNELS_MPI_MPI_WIRE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/common/clock.h"
#include "kernels/common/config.h"
#include "kernels/common/status.h"
#include "kernels/common/wire.h"
#include "kernels/mpi/hosts.h"
#include "kernels/mpi/library.h"
#include "kernels/mpi/runtime.h"
#include "kernels/mpi/silence.h"

namespace tf_smddp::mpi {

class MpiWire : public Wire {
 public:
  // Collective: every rank must call this. Initialises MPI if need be, and finds out who is on which host.
  // Changes *config: the place where the ranks of this host meet follows from the run. `prefix`: see
  // FilesToTry. Errors: those of Runtime::Get and MeetHosts; Internal when a call of MPI does not return.
  static Status Open(const std::string& prefix, Config* config, std::unique_ptr<Wire>* wire);

  ~MpiWire() override { Stop(/*in_order=*/false); }

  const std::vector<std::vector<int>>& hosts() const override { return hosts_.ranks; }
  void Start(std::function<void(std::uint32_t communicator)> arrived) override;
  // Waits until MPI has taken what was sent, for some seconds at most. Then MPI is not called any more.
  void Stop(bool in_order) override;
  void Send(RankId to, Channel channel, std::string bytes) override;
  void Post(RankId to, Channel channel, std::string bytes) override;
  void Flush() override;
  bool Receive(Channel channel, Message* message) override;
  Loss Lost() override;
  std::string Silent() override { return silence_.Reason(); }
  Clock::duration CallLasts() const override { return runtime_->TurnLasts(); }
  Movement BeginSend(RankId to, int stream, const void* data, std::uint64_t bytes,
                     std::shared_ptr<void> owner) override;
  Movement BeginReceive(RankId from, int stream, void* data, std::uint64_t bytes,
                        std::shared_ptr<void> owner) override;
  void Poll() override;
  bool Ended(Movement movement) override;

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // communicator, kind
  struct Outgoing {
    int to;
    std::string bytes;
  };
  struct Incoming {
    int from;
    std::string bytes;
    bool here = false;
  };
  // A send or a receive that MPI has. `ended` owns the memory.
  struct Pending {
    int peer;
    std::function<void()> ended;
  };

  // The result of a meeting of the ranks.
  struct Met {
    Handle communicator;
    Hosts hosts;
    std::promise<Status> status;
  };

  MpiWire(Runtime* runtime, Handle communicator, const Config& config, Hosts hosts);

  static Status Duplicate(Runtime* runtime, Clock::time_point deadline, Handle* communicator);
  static Status Meet(Runtime* runtime, const Config& config, Clock::time_point deadline, Met* met);

  void Queue(RankId to, Channel channel, std::string bytes);
  void Run();
  bool TryPoll(const std::uint32_t* receiver = nullptr);
  bool MayCall(const Runtime::Turn& turn) const { return turn && !stopped_ && !turn.closed(); }
  bool SendQueued(const Runtime::Turn& turn);
  bool TakeIncoming(const Runtime::Turn& turn);
  bool DeliverIncoming();
  bool EndPending(const Runtime::Turn& turn);
  void Beat(const Runtime::Turn& turn);
  bool StartSend(const Runtime::Turn& turn, const void* data, std::uint64_t bytes, int to, int tag,
                 std::function<void()> ended);
  bool StartReceive(const Runtime::Turn& turn, void* data, std::uint64_t bytes, int from, int tag,
                    std::function<void()> ended);
  bool Started(const Status& status, Handle request, Pending pending);
  void Deliver(const Incoming& incoming);
  void Deliver(int from, Key channel, std::string bytes, bool wake);
  void Lose(int rank, const std::string& reason);  // -1: one that is not known
  bool Sending(const Runtime::Turn& turn);

  Runtime* const runtime_;
  const Handle communicator_;
  const int rank_;
  const Hosts hosts_;
  Silence silence_;
  std::function<void(std::uint32_t)> arrived_;

  std::atomic<Clock::rep> polled_{0};  // the last time that a receiver called MPI

  // Used in a turn of the runtime.
  bool stopped_ = false;
  std::vector<Handle> requests_;  // what MPI has; the n-th is that of the n-th of pending_
  std::vector<Pending> pending_;
  std::vector<Library::Ended> ended_;               // of EndPending
  Clock::time_point looked_;                        // the last time of TestSome
  std::size_t sending_ = 0;                         // messages that MPI has
  std::deque<std::shared_ptr<Incoming>> incoming_;  // in the order in which they were taken
  std::map<int, std::string> parts_;                // of messages whose further parts are to come, by sender
  std::set<Movement> moving_;
  Movement next_movement_ = 1;
  const std::uint32_t* receiver_ = nullptr;  // the communicator whose thread polls, and need not be woken

  std::mutex mu_;  // guards everything below; may be taken in a turn of the runtime, not the other way round
  std::condition_variable wake_;
  std::deque<Outgoing> queue_;  // to be given to MPI
  std::map<Key, std::deque<Message>> arrived_messages_;
  std::set<std::uint32_t> to_ring_;  // communicators for which messages have come
  Loss lost_;
  bool posted_ = false;  // something is in queue_ that nobody else gives to MPI
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tf_smddp::mpi

#endif  // TF_SMDDP_KERNELS_MPI_MPI_WIRE_H_
