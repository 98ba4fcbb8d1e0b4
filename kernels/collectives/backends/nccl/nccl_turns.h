// Turns: the order in which the ranks of a host make NCCL's calls for all communicators of ours.
//
// Place in the stack: below nccl_transfer.h, above turn_record.h. Each rank has one, which its transfers
// share. The common state of the ranks lies in each communicator's TurnRecord, and in a counter of the host.
//
// Calls of two of NCCL's communicators that two ranks make in different orders can wait for each other for
// ever: a GPU may have no room for the second one before the first has ended. So each batch has a *turn*, a
// number that is drawn from the counter. Each rank makes the calls of its batches in the order of their
// turns, of whichever communicator, and its streams do them in that order. It is the same for all ranks of
// the host. If the communicator has no others, the first member to come to the batch draws its turn.
//
// Note [Turns between hosts]: two communicators with ranks on the same hosts need the same order on each of
// these hosts. So the turns of their batches are drawn in one order on all hosts. The first rank of the
// communicator *asks* for a turn when it comes to a batch. It asks the relay of the job's first host, which
// tells the relays of all hosts; messages between two ranks keep their order. Each relay draws the turn on
// its host (kernels/engine/hosts/relay.h). Turns that a host draws alone may come anywhere in between, since
// no other host waits for them.
//
// Note [Turns]: a rank that knows turn n must know all lower ones, too. Whoever draws a turn first marks the
// record (an odd count), then draws, then publishes the number (an even count). A rank that knows turn n
// looks at the counts of its other communicators. If one is even, whoever draws a turn there later marks the
// record after that look, and so after n was drawn: that turn is higher than n.
//
// Note [No circle of turns]: the lowest turn whose calls some rank has still to make waits for no other, and
// nor does anything else hold it up: all members have submitted its batch, and are done with the batches
// before, whose turns are lower. Between hosts, it is the lowest in the order of the asking. A communicator
// whose step has failed is not waited for. The making of a communicator of NCCL belongs to the turn of the
// batch that needs it first. To end one needs no turn: that waits for batches that are complete, whose turns
// are lower than those of all calls that might be in the way.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_TURNS_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_TURNS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>

#include "kernels/collectives/turn_record.h"
#include "kernels/common/status.h"
#include "kernels/cuda/own_stream.h"

namespace tf_smddp::nccl {

class Turns {
 public:
  // One communicator of ours. One thread at a time calls its methods.
  class Line {
   public:
    // Asks that the turn of a batch be drawn on all hosts, in the same order as all others.
    using Ask = std::function<void(std::uint64_t batch)>;

    // Both outlive it. All members have one before the first batch of any. `ask`: only between hosts, and
    // then it does nothing on all ranks but the first one.
    Line(Turns* turns, TurnRecord* record, Ask ask = nullptr);
    ~Line();
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;

    // Sets *come to whether the next batch may make its calls. If so, `stream` waits for the calls of all
    // batches before; it outlives this. Errors: Internal, what the driver says.
    Status Come(cuda::OwnStream* stream, bool* come);

    // The batch that has come has all its calls on the stream.
    void Made();

    // All members have made the calls of that batch.
    void Complete() { record_->CountDone(made_.load(std::memory_order_relaxed)); }

    // The incarnation has failed, or the job has ended: this rank makes no calls any more.
    void Skip();

    // As Skip, and no other communicator waits for this rank's stream, which may hang.
    void Leave();

    // The next incarnation begins; the record was renewed.
    void Restart() {
      asked_ = 0;
      made_.store(0, std::memory_order_release);
    }

   private:
    friend class Turns;

    Turns* const turns_;
    TurnRecord* const record_;
    const Ask ask_;
    std::uint64_t asked_ = 0;             // for the turns of so many batches of the incarnation
    cuda::OwnStream* stream_ = nullptr;   // of the last batch that has come
    bool has_come_ = false;               // and that has not made its calls
    std::atomic<std::uint64_t> made_{0};  // so many batches of the incarnation have
  };

  // `counter` lies in memory that the ranks of the host share, and outlives it.
  explicit Turns(std::atomic<std::uint64_t>* counter) : counter_(counter) {}

 private:
  bool IsFirst(const Line& line, std::uint64_t turn) const;

  std::atomic<std::uint64_t>* const counter_;
  std::mutex mu_;
  std::set<Line*> lines_;  // guarded by mu_
  Line* last_ = nullptr;   // that has come; guarded by mu_
};

}  // namespace tf_smddp::nccl

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_NCCL_NCCL_TURNS_H_
