// ProgressRecord: publishes how many requests a rank has submitted and ended, and its last ones, so that a
// rank that waits for it can report its state.
//
// Place in the stack: above manifest.h; in the rank's record in the control segment (job_segment.h). The
// record is used for messages, and to decide that a rank makes no progress; nothing else depends on it.
//
// Note [Last submission]: several threads of a rank may submit at once, and a reader must never wait for one
// of them. So the last few submissions lie in a ring.
//   - A writer takes a number, clears the stamp of that entry, writes the words, and sets the stamp to its
//     number.
//   - A reader whose stamp has changed while it read the words tries the entry before.
//   - If a writer is suspended while others go once around the ring, a reader may see a mix of two
//     submissions. It must therefore not trust the bytes; nothing worse follows.
#ifndef TF_SMDDP_KERNELS_CONTROL_PROGRESS_RECORD_H_
#define TF_SMDDP_KERNELS_CONTROL_PROGRESS_RECORD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/control/manifest.h"

namespace tf_smddp {

class ProgressRecord {
 public:
  struct Submission {
    std::uint64_t communicator;
    std::int64_t when_ns;  // on CLOCK_MONOTONIC, which all processes of a host share
    Manifest manifest;     // the last member, so that the end of its label need not be copied
  };

  // Submitted counts and publishes a request; Ended counts `count` requests that have succeeded or failed.
  // Any thread of the record's rank.
  void Submitted(const Submission& submission) {
    const std::uint64_t number = submitted_.fetch_add(1, std::memory_order_seq_cst) + 1;
    Entry& entry = entries_[number % kEntries];
    // The bytes behind the end of the label keep their old value.
    const Manifest& manifest = submission.manifest;
    const std::size_t label_bytes = ::strnlen(manifest.label, Manifest::kLabelBytes - 1) + 1;
    const std::size_t bytes = offsetof(Submission, manifest) + offsetof(Manifest, label) + label_bytes;
    const auto* from = reinterpret_cast<const std::byte*>(&submission);
    entry.stamp.store(0, std::memory_order_relaxed);
    for (std::size_t i = 0; i * sizeof(std::uint64_t) < bytes; ++i) {
      std::uint64_t word;
      std::memcpy(&word, from + i * sizeof word, sizeof word);
      // Release, so that a reader which sees this word also sees that the stamp was cleared.
      entry.words[i].store(word, std::memory_order_release);
    }
    entry.stamp.store(number, std::memory_order_release);
  }
  void Ended(std::uint64_t count) { ended_.fetch_add(count, std::memory_order_seq_cst); }

  // Return the number of requests since init(). Any process.
  std::uint64_t submitted() const { return submitted_.load(std::memory_order_seq_cst); }
  std::uint64_t ended() const { return ended_.load(std::memory_order_seq_cst); }

  // Reads the newest submission that is complete. Returns false when there is none. The bytes come from
  // another process, and no field of it may be trusted to be in range. Any process.
  bool Last(Submission* last) const {
    const std::uint64_t newest = submitted();
    for (std::uint64_t back = 0; back < kEntries && back < newest; ++back) {
      const Entry& entry = entries_[(newest - back) % kEntries];
      if (entry.stamp.load(std::memory_order_acquire) != newest - back) continue;
      std::uint64_t words[kWords];
      for (std::size_t i = 0; i < kWords; ++i) words[i] = entry.words[i].load(std::memory_order_acquire);
      if (entry.stamp.load(std::memory_order_relaxed) != newest - back) continue;
      std::memcpy(last, words, sizeof *last);
      return true;
    }
    return false;
  }

  // Mask of the local ranks that this rank has waited for so long that its stall watch will report it, or is
  // about to; 0 when there are none. waits_outside: 1 when that is so of a rank of another host. Only the
  // rank's stall watch writes them (kernels/engine/watch/stall_watch.h).
  std::atomic<std::uint64_t>& waits_for() { return waits_for_; }
  std::atomic<std::uint64_t>& waits_outside() { return waits_outside_; }

 private:
  static_assert(std::is_trivially_copyable_v<Submission> && sizeof(Submission) % sizeof(std::uint64_t) == 0,
                "a submission is copied word by word");
  static constexpr std::size_t kWords = sizeof(Submission) / sizeof(std::uint64_t);
  static constexpr std::uint64_t kEntries = 4;

  struct Entry {
    std::atomic<std::uint64_t> stamp;  // the submission's number, from 1; 0 while it is being written
    std::atomic<std::uint64_t> words[kWords];
  };

  std::atomic<std::uint64_t> submitted_;
  std::atomic<std::uint64_t> ended_;
  std::atomic<std::uint64_t> waits_for_;
  std::atomic<std::uint64_t> waits_outside_;
  Entry entries_[kEntries];
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_PROGRESS_RECORD_H_
