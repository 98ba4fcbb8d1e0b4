// LaunchLog: a ring in shared memory that every rank of a communicator reads in the same order.
//
// Place in the stack: in the control segment, above common/ only. Not here: when a batch is sealed
// (kernels/fusion), and the state of a running batch (batch_state.h).
//
// An entry names a request that is ready. There are two kinds: a request whose results are already in place
// (*done*), which a reader completes when it reads the entry; and a request that is launched with its
// *batch*. A batch is a run of launched requests that ends with a sealing entry; until that entry is
// appended, the batch is *open*. One 64-bit tail word holds everything that must change together:
//
//   | position of the next entry: 40 bits | weight of the open batch: 23 bits | closed: 1 bit |
//
// The caller chooses the unit of the weight. An append is one compare-and-swap of the tail word, which claims
// a position and decides at the same time whether the entry seals the batch. So all ranks see the same
// entries, and the same batches.
//
// Note [One end]: all ranks see the same end for each request, also after a failure:
//   - Close stops all appends, so the set of claimed entries is final.
//   - An entry that was claimed but not yet published is settled by a compare-and-swap on the entry, which
//     either Publish or Resolve wins.
//   - A sealed batch ends by a compare-and-swap on its state (BatchState::End), complete or aborted.
//
// Note [The ring cannot overflow]: a rank acknowledges a request only after it has read the request's entry,
// a request's generation is reused only when all ranks have acknowledged it, and a marker follows at least
// one request that is not acknowledged yet. So between the slowest reader and the tail lie at most two
// entries per generation, and the ring has room for so many. A rank that has left the communicator does not
// read: it goes to the tail when the log is closed.
#ifndef TF_SMDDP_KERNELS_CONTROL_LAUNCH_LOG_H_
#define TF_SMDDP_KERNELS_CONTROL_LAUNCH_LOG_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tf_smddp {

class LaunchLog {
 public:
  static std::size_t Bytes(std::size_t capacity) { return 64 + capacity * sizeof(std::uint64_t); }

  // Creates a view of shared memory at `memory`, aligned to 64 bytes, which is zeroed or already a log.
  // `capacity` is a power of two.
  LaunchLog(std::byte* memory, std::size_t capacity);

  // Appends `item` (below 2^36) to the open batch. `weigh(open)` gets the weight of the open batch and
  // returns the weight after this entry: 0 seals the batch with it. It may be called more than once. False
  // when the log is closed: nothing was appended. Any thread of any process.
  template <typename Weigh>
  bool Append(std::uint64_t item, Weigh weigh) {
    std::uint64_t tail = tail_->load(std::memory_order_acquire);
    while ((tail & kClosedBit) == 0) {
      const std::uint64_t open = weigh(OpenOf(tail));
      if (Claim(&tail, open)) return Publish(PositionOf(tail), item, open == 0 ? kSealsFlag : 0);
    }
    return false;
  }

  // Appends `item`, whose results are in place; it joins no batch. False and thread as Append.
  bool AppendDone(std::uint64_t item);

  // Seals the open batch by appending a marker. False when nothing is open, or the log is closed. Any thread.
  bool SealOpen();

  // Refuses appends until Reopen. Any thread.
  void Close() { tail_->fetch_or(kClosedBit, std::memory_order_seq_cst); }

  // Accepts appends again after Close, with no batch open. Every rank must have read all entries (Note
  // [Restart] in failure_record.h).
  void Reopen() {
    tail_->store(MakeTail(PositionOf(tail_->load(std::memory_order_acquire)), 0), std::memory_order_seq_cst);
  }

  // Returns the position behind the last claimed entry.
  std::uint64_t Tail() const { return PositionOf(tail_->load(std::memory_order_acquire)); }
  // Returns the same for a reader at `position`, but never more than one lap ahead of it, so that corrupt
  // memory cannot make the reader loop without end.
  std::uint64_t TailFrom(std::uint64_t position) const { return std::min(Tail(), position + capacity_); }
  bool HasOpenBatch() const { return OpenOf(tail_->load(std::memory_order_acquire)) != 0; }

  struct View {
    enum State { kUnpublished, kLaunched, kDone, kMarker, kDropped } state;
    std::uint64_t item;  // when kLaunched or kDone
    bool seals;          // this entry ends its batch
  };
  View Read(std::uint64_t position) const;

  // Like Read, but after Close only: makes an unpublished entry kDropped, for good and for all ranks.
  View Resolve(std::uint64_t position);

  std::size_t capacity() const { return capacity_; }

 private:
  static constexpr int kOpenBits = 23;
  static constexpr std::uint64_t kClosedBit = 1;
  static constexpr std::uint64_t kOpenMax = (std::uint64_t{1} << kOpenBits) - 1;
  // In an entry's word: | lap + 1: 24 bits | flags: 4 bits | item: 36 bits |.
  static constexpr std::uint64_t kItemBits = 36;
  static constexpr std::uint64_t kSealsFlag = 1, kMarkerFlag = 2, kDroppedFlag = 4, kDoneFlag = 8;

  static std::uint64_t PositionOf(std::uint64_t tail) { return tail >> (kOpenBits + 1); }
  static std::uint64_t OpenOf(std::uint64_t tail) { return (tail >> 1) & kOpenMax; }
  static std::uint64_t MakeTail(std::uint64_t position, std::uint64_t open) {
    return position << (kOpenBits + 1) | (open < kOpenMax ? open : kOpenMax) << 1;
  }
  std::uint64_t StampOf(std::uint64_t position) const {
    return (position / capacity_ + 1) & ((std::uint64_t{1} << 24) - 1);
  }

  // Claims the position of *tail, and leaves `open` open. False when the tail has changed: *tail is the new
  // one.
  bool Claim(std::uint64_t* tail, std::uint64_t open) {
    return tail_->compare_exchange_weak(*tail, MakeTail(PositionOf(*tail) + 1, open),
                                        std::memory_order_seq_cst);
  }
  std::atomic<std::uint64_t>& EntryAt(std::uint64_t position) const {
    return entries_[position & (capacity_ - 1)];
  }
  bool Publish(std::uint64_t position, std::uint64_t item, std::uint64_t flags);
  View Decode(std::uint64_t position, std::uint64_t word) const;

  std::atomic<std::uint64_t>* const tail_;
  std::atomic<std::uint64_t>* const entries_;
  const std::size_t capacity_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_LAUNCH_LOG_H_
