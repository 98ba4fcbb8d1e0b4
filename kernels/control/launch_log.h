// LaunchLog: a ring in shared memory that every local rank reads in the same order.
//
// Place in the stack: in the control segment, above common/ only. The engine has two for each communicator:
// the launch log, for requests that are ready to run, in batches; and the small log, for small requests that
// are already done, each a batch of its own. kernels/fusion decides when a batch is sealed.
//
// A *batch* is a run of entries that ends with a sealing entry; until that entry is appended, the batch is
// *open*. One 64-bit tail word holds everything that must change together:
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
//   - A sealed batch ends by a compare-and-swap on its last entry (LogEntry::End), complete or aborted.
//
// Note [The ring cannot overflow]: a rank acknowledges entries in order, a request's generation is reused
// only when all ranks have acknowledged it, and a marker follows at least one request. So between the slowest
// reader and the tail lie at most two entries per generation, and the ring has four per slot.
#ifndef TF_SMDDP_KERNELS_CONTROL_LAUNCH_LOG_H_
#define TF_SMDDP_KERNELS_CONTROL_LAUNCH_LOG_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tf_smddp {

// The state of a batch, kept in its last entry.
enum class BatchEnd : std::uint32_t { kRunning = 0, kComplete = 1, kAborted = 2 };

struct alignas(64) LogEntry {
  std::atomic<std::uint64_t> word;        // written by LaunchLog alone
  std::atomic<std::uint32_t> end;         // a BatchEnd
  std::atomic<std::uint64_t> claims;      // chunks claimed from the front and from the back, see Claim
  std::atomic<std::uint64_t> done_units;  // chunks done, and ranks that have done their own part

  // Claims one of `total` chunks (below 2^32) for the caller: the next one from the front or, with
  // `from_behind`, from the back. A rank that always claims from the same side gets about the same part of a
  // tensor in each step, which is then still in its caches; a faster rank claims more chunks. Returns false
  // when all chunks are claimed.
  bool Claim(std::uint64_t total, bool from_behind, std::uint64_t* chunk) {
    constexpr int kHalf = 32;
    const std::uint64_t before =
        claims.fetch_add(from_behind ? std::uint64_t{1} << kHalf : 1, std::memory_order_relaxed);
    const std::uint64_t front = before & ((std::uint64_t{1} << kHalf) - 1), back = before >> kHalf;
    *chunk = from_behind ? total - 1 - back : front;
    return front + back < total;
  }

  // Ends the batch, unless it has ended already. Returns how it has ended: `wanted`, or the end that another
  // thread has set before.
  BatchEnd End(BatchEnd wanted) {
    auto expected = static_cast<std::uint32_t>(BatchEnd::kRunning);
    if (end.compare_exchange_strong(expected, static_cast<std::uint32_t>(wanted),
                                    std::memory_order_seq_cst)) {
      return wanted;
    }
    return static_cast<BatchEnd>(expected);
  }
  BatchEnd ended() const { return static_cast<BatchEnd>(end.load(std::memory_order_acquire)); }
};

class LaunchLog {
 public:
  static std::size_t Bytes(std::size_t capacity) { return 64 + capacity * sizeof(LogEntry); }

  // Creates a view of shared memory at `memory`, aligned to 64 bytes, which is zeroed or already a log.
  // `capacity` is a power of two.
  LaunchLog(std::byte* memory, std::size_t capacity);

  // Appends `item` (below 2^36). `weigh(open)` receives the weight of the open batch and returns its weight
  // with this entry, or 0 if this entry seals the batch; it may be called more than once. If `at` is not
  // nullptr, sets *at to the entry's position. Returns false if the log is closed; then nothing was appended,
  // and *at means nothing. Any thread of any process.
  template <typename Weigh>
  bool Append(std::uint64_t item, Weigh weigh, std::uint64_t* at = nullptr) {
    std::uint64_t tail = tail_->load(std::memory_order_acquire);
    for (;;) {
      if ((tail & kClosedBit) != 0) return false;
      const std::uint64_t open = weigh(OpenOf(tail));
      const std::uint64_t position = PositionOf(tail);
      if (tail_->compare_exchange_weak(tail, MakeTail(position + 1, open), std::memory_order_seq_cst)) {
        if (at != nullptr) *at = position;
        return Publish(position, item, open == 0 ? kSealsFlag : 0);
      }
    }
  }

  // Seals the open batch by appending a marker. Returns false when no batch is open, or the log is closed.
  // Any thread.
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
    enum State { kUnpublished, kItem, kMarker, kDropped } state;
    std::uint64_t item;  // when kItem
    bool seals;          // this entry ends its batch
  };
  View Read(std::uint64_t position) const;

  // Like Read, but after Close only: makes an unpublished entry kDropped, for good and for all ranks.
  View Resolve(std::uint64_t position);

  LogEntry& EntryAt(std::uint64_t position) { return entries_[position & (capacity_ - 1)]; }

  std::size_t capacity() const { return capacity_; }

 private:
  static constexpr int kOpenBits = 23;
  static constexpr std::uint64_t kClosedBit = 1;
  static constexpr std::uint64_t kOpenMax = (std::uint64_t{1} << kOpenBits) - 1;
  // In an entry's word: | lap + 1: 24 bits | flags: 4 bits | item: 36 bits |.
  static constexpr std::uint64_t kItemBits = 36;
  static constexpr std::uint64_t kSealsFlag = 1, kMarkerFlag = 2, kDroppedFlag = 4;

  static std::uint64_t PositionOf(std::uint64_t tail) { return tail >> (kOpenBits + 1); }
  static std::uint64_t OpenOf(std::uint64_t tail) { return (tail >> 1) & kOpenMax; }
  static std::uint64_t MakeTail(std::uint64_t position, std::uint64_t open) {
    return position << (kOpenBits + 1) | (open < kOpenMax ? open : kOpenMax) << 1;
  }
  std::uint64_t StampOf(std::uint64_t position) const {
    return (position / capacity_ + 1) & ((std::uint64_t{1} << 24) - 1);
  }

  bool Publish(std::uint64_t position, std::uint64_t item, std::uint64_t flags);
  View Decode(std::uint64_t position, std::uint64_t word) const;

  std::atomic<std::uint64_t>* const tail_;
  LogEntry* const entries_;
  const std::size_t capacity_;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_LAUNCH_LOG_H_
