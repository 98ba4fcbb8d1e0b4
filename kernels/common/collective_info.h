// The table of the collectives: what distinguishes one from another, apart from what it does to memory
// (kernels/collectives) and the shapes of its tensors. The lookup of the data plane, manifests, the checks of
// requests, statistics and XLA's refusals read it.
//
// Place in the stack: the bottom. To add a collective: append a line to TF_SMDDP_COLLECTIVES. CONTRIBUTING.md
// has the files.
#ifndef TF_SMDDP_KERNELS_COMMON_COLLECTIVE_INFO_H_
#define TF_SMDDP_KERNELS_COMMON_COLLECTIVE_INFO_H_

#include <cstdint>

namespace tf_smddp {

// Calls X once for each collective. The columns are:
//
//   enumerator   of CollectiveKind, without the k. The position in this table is the enumerator's value,
//   which
//                is part of the shared-memory manifest: append lines, and never reorder them.
//   name         for messages, statistics and timelines
//   data plane   the function in kernels/collectives/collective.h that returns it, without "Collective"
//   traits       of enum CollectiveTrait, combined with |
//   ops          TensorFlow's ops that run it, at most CollectiveInfo::kMaxOps
// clang-format off
#define TF_SMDDP_COLLECTIVES(X)                                                                       \
  X(Allreduce, "allreduce", Allreduce, kReduces,                                                      \
    "SmddpAllreduce", "SmddpGroupedAllreduce", "SmddpOobAllreduce")                                   \
  X(Broadcast, "broadcast", Broadcast, kHasRoot, "SmddpBroadcast")                                    \
  X(Barrier, "barrier", Barrier, kHasNoTensor, "SmddpBarrier")                                        \
  X(Allgather, "allgather", Allgather, kRowsDiffer, "SmddpAllgather")                                 \
  X(Reducescatter, "reducescatter", Reducescatter, kReduces, "SmddpReducescatter")                    \
  X(Alltoall, "alltoall", Alltoall, kRowsDiffer | kHasSplits, "SmddpAlltoall")                        \
  /* The ranks agree on a group of them. */                                                           \
  X(Communicator, "process set", Barrier, kHasNoTensor | kIsInternal, nullptr)
// clang-format on

enum CollectiveTrait : unsigned {
  kReduces = 1,       // combines the elements of several ranks, so that the op and the factors count
  kHasRoot = 2,       // one rank's tensor is the source of the result
  kRowsDiffer = 4,    // ranks may bring tensors that differ in their first dimension
  kHasSplits = 8,     // each rank says how many of its rows go to each rank
  kHasNoTensor = 16,  // nothing is moved: the shape is for the manifest only
  kIsInternal = 32,   // not called by users, and left out of statistics
};

enum class CollectiveKind : std::uint8_t {
#define TF_SMDDP_ENUMERATOR(enumerator, ...) k##enumerator,
  TF_SMDDP_COLLECTIVES(TF_SMDDP_ENUMERATOR)
#undef TF_SMDDP_ENUMERATOR
};

struct CollectiveInfo {
  static constexpr int kMaxOps = 4;

  const char* name;
  unsigned traits;
  const char* ops[kMaxOps];  // nullptr from the first one that there is not

  constexpr bool Is(CollectiveTrait trait) const { return (traits & trait) != 0; }
};

// Indexed by CollectiveKind.
inline constexpr CollectiveInfo kCollectives[] = {
#define TF_SMDDP_INFO(enumerator, name, data_plane, traits, ...) {name, traits, {__VA_ARGS__}},
    TF_SMDDP_COLLECTIVES(TF_SMDDP_INFO)
#undef TF_SMDDP_INFO
};
inline constexpr int kNumCollectiveKinds = sizeof kCollectives / sizeof kCollectives[0];

constexpr const CollectiveInfo& InfoOf(CollectiveKind kind) { return kCollectives[static_cast<int>(kind)]; }
constexpr const char* CollectiveKindName(CollectiveKind kind) { return InfoOf(kind).name; }
constexpr bool IsReduction(CollectiveKind kind) { return InfoOf(kind).Is(kReduces); }
constexpr bool RowsMayDiffer(CollectiveKind kind) { return InfoOf(kind).Is(kRowsDiffer); }

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_COLLECTIVE_INFO_H_
