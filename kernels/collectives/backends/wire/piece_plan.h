// PiecePlan: cuts the tensors of a batch into pieces of equal size, in which many small tensors lie together.
// HostExchange: which hosts send each other which parts of a piece, in which rounds. Both are pure
// arithmetic, and the same on all ranks.
//
// Place in the stack: below hierarchical_transfer.h.
#ifndef TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_PIECE_PLAN_H_
#define TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_PIECE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tf_smddp {

class PiecePlan {
 public:
  // A piece's share of a tensor, and each part of a piece, begin at a multiple of this, in bytes.
  static constexpr std::uint64_t kGranule = 64;

  struct Segment {
    std::size_t item;      // the number of its Add, from 0
    std::uint64_t begin;   // its first element in the tensor
    std::uint64_t count;   // of elements
    std::uint64_t offset;  // where it begins in the piece, in bytes
  };

  // A range of a piece, in bytes.
  struct Part {
    std::uint64_t begin;
    std::uint64_t bytes;
  };

  void Clear();

  // Adds `count` elements of a tensor, from element `begin` on.
  void Add(std::uint64_t count, std::uint64_t element_bytes, std::uint64_t begin = 0);

  // The bytes of all tensors, with the gaps between them.
  std::uint64_t bytes() const { return bytes_; }

  // Cuts what was added into pieces of `piece_bytes`, a multiple of kGranule.
  void Cut(std::uint64_t piece_bytes) { piece_bytes_ = piece_bytes; }
  std::uint64_t pieces() const { return (bytes_ + piece_bytes_ - 1) / piece_bytes_; }

  // The bytes of a piece, without a gap at its end.
  std::uint64_t BytesOf(std::uint64_t piece) const;

  // The segments of range `part` of a piece.
  std::vector<Segment> SegmentsOf(std::uint64_t piece, Part part) const;

  // Part number `index` of `parts`, which are as equal as their granule lets them be, of `bytes`.
  static Part PartOf(std::uint64_t bytes, std::size_t parts, std::size_t index);

 private:
  struct Item {
    std::uint64_t first_byte;
    std::uint64_t count;
    std::uint64_t element_bytes;
    std::uint64_t begin;
  };
  std::vector<Item> items_;
  std::uint64_t bytes_ = 0;
  std::uint64_t piece_bytes_ = kGranule;
};

// A host's part in moving a piece. In the rounds of the reduction partial results move, and a host adds what
// comes, in the order of the hosts, to its own. Then results move: in an allreduce to all hosts, and in a
// reduce-scatter no further, since each host has that of its own part.
struct HostExchange {
  struct Parts {
    std::size_t first, count;
  };
  struct Move {
    std::size_t peer;
    Parts send, receive;
  };
  using Round = std::vector<Move>;

  std::vector<std::size_t> parts;  // as they lie in memory: the host whose part it is
  std::vector<Round> reduction, distribution;
  bool lends;  // parts are sent one by one, so they may lie apart

  // The piece is one part. Each host sends all of its partial result to all others.
  static HostExchange Whole(std::size_t hosts, std::size_t host);
  // Each host sends each other one its part, and then its result: 2 (H - 1) messages.
  static HostExchange Direct(std::size_t hosts, std::size_t host);
  // With about sqrt(H) groups of neighbours, of sizes that differ by one at most. The members of a group
  // first exchange slices, of which each has one part for each group, so that each member has the group's sum
  // of its slice. Then each part goes to its host, from one member of each group; and so it goes back. These
  // are about 4 sqrt(H) messages, of as many bytes as in a direct exchange. Every element is added in the
  // same order: in the groups, and then the groups.
  static HostExchange Grouped(std::size_t hosts, std::size_t host);
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_PIECE_PLAN_H_
