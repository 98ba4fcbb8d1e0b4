// LogReader: this rank's place in the launch log of one communicator.
//
// Place in the stack: between control/launch_log.h and progress.h, which delivers what is done and runs the
// batches. One thread at a time.
//
// A reader never waits for a batch to end before it reads on: requests whose results are in place are
// complete as soon as they are read, also while a large batch runs.
#ifndef TF_SMDDP_KERNELS_ENGINE_CORE_LOG_READER_H_
#define TF_SMDDP_KERNELS_ENGINE_CORE_LOG_READER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/engine/job/communicator.h"

namespace tf_smddp {

class LogReader {
 public:
  using Batch = std::vector<Place>;  // in the log's order; never empty

  explicit LogReader(Communicator* communicator)
      : communicator_(communicator), group_(&communicator->group()) {}

  // Reads on as far as there are entries. Appends the requests whose results are in place to *done. True when
  // there was an entry.
  bool Read(Batch* done);

  // The oldest sealed batch that was not taken yet; empty when there is none.
  Batch TakeBatch();

  // The requests that have been read of the batch that is not sealed.
  std::size_t num_open() const { return open_.size(); }

  // Reads the rest of the log, which is closed: the end of an incarnation. Drops the batch that was never
  // sealed.
  void ReadRest(Batch* done);
  // Passes over the rest of the log: this rank has left, and has no part in it.
  void SkipRest();

 private:
  void Take(const LaunchLog::View& view, Batch* done);

  Communicator* const communicator_;
  LocalGroup* const group_;
  std::uint64_t position_ = 0;
  Batch open_;  // entries since the last seal
  std::deque<Batch> sealed_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_CORE_LOG_READER_H_
