// LaunchLog: a ring in shared memory that every local rank reads in the same order.
//
// Place in the stack: in the control segment, above common/ only. Used twice by the engine: for requests that
// are ready to launch (with batches), and for small requests that are already done (each its own batch). Not
// here: when a batch is sealed (kernels/fusion).
//
// One 64-bit tail word holds everything that must change together:
//
//   | position of the next entry: 40 bits | open: 23 bits | closed: 1 bit |
//
// `open` is what the entries since the last sealed batch weigh, in units the caller chooses. An append is one
// compare-and-swap of this word: it claims a position, and decides in the same instant whether the entry
// seals the batch. That swap is the agreement: all ranks see the same entries with the same seals. The
// sequence of batches, each ending with a sealing entry, is the launch log.
//
// Note [One end]: Close stops all appends, so after a failure the set of entries is final. An entry
// that was claimed but not yet published is resolved by a second compare-and-swap on the entry: publish
// against Resolve. A sealed batch ends by a compare-and-swap on its last entry (`end`). So all ranks see the
// same end for each request.
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

// How a batch ended; the state of its last entry.
enum class BatchEnd : std::uint32_t { kRunning = 0, kComplete = 1, kAborted = 2 };

struct alignas(64) LogEntry {
  std::atomic<std::uint64_t> word;        // LaunchLog's
  std::atomic<std::uint32_t> end;         // BatchEnd
  std::atomic<std::uint64_t> claims;      // of chunks, see Claim
  std::atomic<std::uint64_t> done_units;  // chunks done, and ranks done with their staged part

  // Claims the next of `total` chunks (below 2^32) for the caller, from the first one on or, for others, from
  // the last one back. So of tensors that are reduced again and again a rank has the same part each time, in
  // its caches, as long as all are equally fast; and who is faster does more. False when all are claimed.
  bool Claim(std::uint64_t total, bool from_behind, std::uint64_t* chunk) {
    constexpr int kHalf = 32;
    const std::uint64_t before =
        claims.fetch_add(from_behind ? std::uint64_t{1} << kHalf : 1, std::memory_order_relaxed);
    const std::uint64_t front = before & ((std::uint64_t{1} << kHalf) - 1), back = before >> kHalf;
    *chunk = from_behind ? total - 1 - back : front;
    return front + back < total;
  }

  // The batch's one end. Returns the end it has after the call: `wanted`, or the other one if that came
  // first.
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

  // A view of zeroed or used shared memory at `memory`, aligned to 64. `capacity` is a power of two.
  LaunchLog(std::byte* memory, std::size_t capacity);

  // Appends `item` (below 2^36). `weigh(open)` is given the weight of the open batch and returns what is open
  // after this entry: 0 seals the batch with it. It may be called more than once. False: the log is closed,
  // and nothing was appended. Sets *at, unless nullptr, to the entry's position, which counts when it returns
  // true. Any thread of any process.
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

  // Seals the open batch by appending a marker. False when nothing is open, or the log is closed. Any thread.
  bool SealOpen();

  // No appends until Reopen. Any thread.
  void Close() { tail_->fetch_or(kClosedBit, std::memory_order_seq_cst); }

  // After a Close, when every rank has read all entries (Note [Restart] in failure_record.h): takes appends
  // again, with nothing open.
  void Reopen() {
    tail_->store(MakeTail(PositionOf(tail_->load(std::memory_order_acquire)), 0), std::memory_order_seq_cst);
  }

  // Position behind the last claimed entry.
  std::uint64_t Tail() const { return PositionOf(tail_->load(std::memory_order_acquire)); }
  // Likewise, for a reader that stands at `position`: at most one lap on, whatever damage says.
  std::uint64_t TailFrom(std::uint64_t position) const { return std::min(Tail(), position + capacity_); }
  bool HasOpenBatch() const { return OpenOf(tail_->load(std::memory_order_acquire)) != 0; }

  struct View {
    enum State { kUnpublished, kItem, kMarker, kDropped } state;
    std::uint64_t item;  // when kItem
    bool seals;          // this entry ends its batch
  };
  View Read(std::uint64_t position) const;

  // After Close: like Read, but settles an unpublished entry as kDropped for all ranks, for good.
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
