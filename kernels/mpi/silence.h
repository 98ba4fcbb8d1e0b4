// Silence: finds out that another host says nothing any more, or that a call of MPI does not return.
//
// Place in the stack: above runtime.h and hosts.h, below mpi_wire.h.
//
// The first rank of each host sends a *beat* to that of the next host every second, and expects those of the
// host before. A host from which none comes for SMDDP_HOST_TIMEOUT is lost. A call of MPI that does not
// return, since what it needs has died, is found by a thread that calls no MPI
// (kernels/engine/watch/watcher.h).
#ifndef TF_SMDDP_KERNELS_MPI_SILENCE_H_
#define TF_SMDDP_KERNELS_MPI_SILENCE_H_

#include <atomic>
#include <string>

#include "kernels/common/clock.h"
#include "kernels/common/config.h"
#include "kernels/mpi/hosts.h"
#include "kernels/mpi/runtime.h"

namespace tf_smddp::mpi {

class Silence {
 public:
  // All outlive it.
  Silence(const Runtime* runtime, const Hosts* hosts, const Config& config);

  // Begins to expect beats. Before any other call.
  void Start();

  // The rank to which this one sends a beat now, or -1. In a turn of the runtime.
  int NextBeat();

  // A beat has come. In a turn of the runtime.
  void Hear();

  // See Wire::Silent.
  std::string Reason();

 private:
  const Runtime* const runtime_;
  const Hosts* const hosts_;
  const int rank_;
  const Clock::duration host_timeout_;  // 0: none
  const Clock::duration call_timeout_;  // of a call of MPI; 0: none
  const Clock::duration first_beat_timeout_;
  // The first ranks of the next host and of the one before; -1 unless this rank is a first one.
  int beats_to_ = -1, beats_from_ = -1;

  Clock::time_point next_beat_;
  std::atomic<Clock::rep> heard_{0};  // the time of the last beat
  std::atomic<bool> heard_any_{false};
  Clock::time_point looked_;  // the last call of Reason
};

}  // namespace tf_smddp::mpi

#endif  // TF_SMDDP_KERNELS_MPI_SILENCE_H_
