// MpiWire: a wire over MPI.
//
// Place in the stack: a Wire (kernels/common/wire.h), above runtime.h and hosts.h.
//
// MPI moves nothing but in calls, and tells nobody of what has come. So whoever waits calls it: Send and
// Receive do, if no other thread is inside MPI, and a thread of the wire does, for those who do not wait.
// That one calls it every 50 µs while messages come and go, and up to 1 ms apart when there are none. While
// others receive it leaves MPI to them, since it would take their cores and their turns.
//
// The first rank of each host sends a *beat* to that of the next host every second, and expects those of the
// host before. A host from which none comes for SMDDP_HOST_TIMEOUT is lost. A call of MPI that does not
// return, since what it needs has died, is found by a thread that calls no MPI (kernels/engine/watcher.h).
//
// On MPI's side there is a communicator for each wire. A message is one or more messages of MPI, each with a
// Frame before it.
#ifndef TF_SMDDP_KERNELS_MPI_MPI_WIRE_H_
#define TF_SMDDP_KERNELS_MPI_MPI_WIRE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
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
#include "kernels/mpi/runtime.h"

namespace tf_smddp::mpi {

class MpiWire : public Wire {
 public:
  // Collective: every rank must call this. Initialises MPI if need be, and finds out who is on which host.
  // Changes *config: the place where the ranks of this host meet follows from the run. `prefix`: see
  // FilesToTry. Errors: those of Runtime::Get and MeetHosts.
  static Status Open(const std::string& prefix, Config* config, std::unique_ptr<Wire>* wire);

  ~MpiWire() override { Stop(); }

  const std::vector<std::vector<int>>& hosts() const override { return hosts_.ranks; }
  void Start(std::function<void(std::uint32_t communicator)> arrived) override;
  // Waits until MPI has taken what was sent, for some seconds at most. Then MPI is not called any more.
  void Stop() override;
  void Send(RankId to, Channel channel, std::string bytes) override;
  void Post(RankId to, Channel channel, std::string bytes) override;
  bool Receive(Channel channel, Message* message) override;
  Loss Lost() override;
  std::string Silent() override;
  Clock::duration CallLasts() const override { return runtime_->TurnLasts(); }
  Movement BeginSend(RankId to, int stream, const void* data, std::uint64_t bytes,
                     std::shared_ptr<void> owner) override;
  Movement BeginReceive(RankId from, int stream, void* data, std::uint64_t bytes,
                        std::shared_ptr<void> owner) override;
  bool Ended(Movement movement) override;

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // communicator, kind
  struct Outgoing {
    int to;
    std::string bytes;
    Handle request;
  };
  struct Incoming {
    int from;
    std::string bytes;
    Handle request;
  };
  struct Moving {
    int peer;
    std::shared_ptr<void> owner;
    Handle request;
  };

  MpiWire(Runtime* runtime, Handle communicator, const Config& config, Hosts hosts);

  void Run();
  bool TryPoll(const std::uint32_t* receiver = nullptr);
  bool PostSends();
  bool EndSends();
  bool TakeIncoming();
  bool EndReceives();
  void EndForgotten();
  void Beat();
  void Take(Incoming incoming);
  void Deliver(int from, Key channel, std::string bytes, bool wake);
  void Lose(int rank, const std::string& reason);
  Movement Begun(const Status& status, Moving moving);
  bool Sending();

  Runtime* const runtime_;
  const Handle communicator_;
  const int rank_;
  const Hosts hosts_;
  const Clock::duration host_timeout_;  // 0: none
  const Clock::duration first_beat_timeout_;
  // The first ranks of the next host and of the one before; -1 unless this rank is a first one.
  int beats_to_ = -1, beats_from_ = -1;
  std::function<void(std::uint32_t)> arrived_;

  std::atomic<Clock::rep> heard_{0};  // the time of the last beat
  std::atomic<bool> heard_any_{false};
  Clock::time_point looked_;           // the last call of Silent
  std::atomic<Clock::rep> polled_{0};  // the last time that a receiver called MPI

  // Used in a turn of the runtime.
  bool stopped_ = false;
  Clock::time_point next_beat_;
  std::list<Outgoing> sends_;  // that MPI has, but has not ended; it reads their bytes where they are
  std::deque<Incoming> receives_;
  std::map<int, std::string> parts_;  // of messages whose further parts are to come, by sender
  std::map<Movement, Moving> moving_;
  Movement next_movement_ = 1;
  Clock::time_point asked_;                  // the last call of Ended
  const std::uint32_t* receiver_ = nullptr;  // the communicator whose thread polls, and need not be woken

  std::mutex mu_;  // guards everything below; may be taken in a turn of the runtime, not the other way round
  std::condition_variable wake_;
  std::deque<Outgoing> queue_;  // to be given to MPI
  std::map<Key, std::deque<Message>> arrived_messages_;
  std::set<std::uint32_t> to_ring_;  // communicators for which messages have come
  Loss lost_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tf_smddp::mpi

#endif  // TF_SMDDP_KERNELS_MPI_MPI_WIRE_H_
