// ProgressRecord: what a rank publishes about its requests, so that a rank that waits for it can say what it
// does.
//
// Place in the stack: above manifest.h; in the rank's record of the job segment (job_segment.h). For messages
// and for the decision that a rank makes no progress; nothing else follows from it.
//
// Note [Last submission]: several threads of a rank may submit at once, and a reader must never wait for one
// of them. So the last few submissions lie in a ring. A writer takes a number, clears the stamp of that
// place, writes the words, and sets the stamp to its number; a reader that finds another stamp after the
// words than before them tries the place before. A writer that is held up for a whole turn of the ring can
// make a reader see a mixed text, no more.
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
    std::int64_t when_ns;  // of CLOCK_MONOTONIC, which the processes of a host share
    Manifest manifest;     // last, since its label is last
  };

  // The rank has submitted a request, or `count` of its requests have ended, well or not. Any thread of that
  // rank.
  void Submitted(const Submission& submission) {
    const std::uint64_t number = submitted_.fetch_add(1, std::memory_order_seq_cst) + 1;
    Entry& entry = entries_[number % kEntries];
    // What follows the end of the label stays as it was.
    const Manifest& manifest = submission.manifest;
    const std::size_t label_bytes = ::strnlen(manifest.label, Manifest::kLabelBytes - 1) + 1;
    const std::size_t bytes = offsetof(Submission, manifest) + offsetof(Manifest, label) + label_bytes;
    const auto* from = reinterpret_cast<const std::byte*>(&submission);
    entry.stamp.store(0, std::memory_order_relaxed);
    for (std::size_t i = 0; i * sizeof(std::uint64_t) < bytes; ++i) {
      std::uint64_t word;
      std::memcpy(&word, from + i * sizeof word, sizeof word);
      // A reader that sees one of these sees the stamp's change as well.
      entry.words[i].store(word, std::memory_order_release);
    }
    entry.stamp.store(number, std::memory_order_release);
  }
  void Ended(std::uint64_t count) { ended_.fetch_add(count, std::memory_order_seq_cst); }

  // How many, since init(). Any process.
  std::uint64_t submitted() const { return submitted_.load(std::memory_order_seq_cst); }
  std::uint64_t ended() const { return ended_.load(std::memory_order_seq_cst); }

  // The newest submission that can be read; false when there is none. Its bytes are another process's: not
  // trusted to be in range. Any process.
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

  // Bits of the ranks that this rank has waited for nearly as long as its stall watch allows, or longer
  // (kernels/engine/stall_watch.h); 0 when there is no such wait. Set by its stall watch.
  std::atomic<std::uint64_t>& waits_for() { return waits_for_; }

 private:
  static_assert(std::is_trivially_copyable_v<Submission> && sizeof(Submission) % sizeof(std::uint64_t) == 0,
                "it is copied word by word");
  static constexpr std::size_t kWords = sizeof(Submission) / sizeof(std::uint64_t);
  static constexpr std::uint64_t kEntries = 4;

  struct Entry {
    std::atomic<std::uint64_t> stamp;  // the submission's number, from 1; 0 while it is written
    std::atomic<std::uint64_t> words[kWords];
  };

  std::atomic<std::uint64_t> submitted_;
  std::atomic<std::uint64_t> ended_;
  std::atomic<std::uint64_t> waits_for_;
  Entry entries_[kEntries];
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_PROGRESS_RECORD_H_
