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

// A host counts the parts of a piece from its own one on, and the hosts from itself on, both around. In a
// round of the reduction it sends, to the host at each distance d, its partial results of `parts` parts from
// number d on. These are the first ones of that host, which adds them to its own, and to what the others have
// sent. So each host has the result of its own part after the last round. Then the rounds run backwards, and
// results go the way back. Where a piece is one part, each host has the result after the reduction.
struct HostExchange {
  struct Round {
    std::vector<std::size_t> distances;
    std::size_t parts;
  };
  std::size_t parts;  // one for each host, or one
  std::vector<Round> rounds;

  // The number of the first part that goes to the host at this distance.
  std::size_t First(std::size_t distance) const { return distance % parts; }

  // Each host sends all of its partial result to all others.
  static HostExchange Whole(std::size_t hosts);
  // Each host sends each other one its part.
  static HostExchange Direct(std::size_t hosts);
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COLLECTIVES_BACKENDS_WIRE_PIECE_PLAN_H_
