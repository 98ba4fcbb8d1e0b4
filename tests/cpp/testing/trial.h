// Trial: one collective of a test: what each member brings, and what each must get.
//
// The expected outcome comes from plain code of its own: a byte-by-byte rearrangement, and for reductions
// tests/cpp/reduce/reference.h. Nothing of kernels/collectives or kernels/reduce computes it.
//
// Elements repeat after kPeriod of them, a prime, so that what is expected of a large tensor is cheap to
// compute, and still no chunk, shard or row can be taken for another.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_TRIAL_H_
#define TF_SMDDP_TESTS_CPP_TESTING_TRIAL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/engine/engine.h"
#include "tests/cpp/testing/test_device.h"

namespace tf_smddp::testing {

inline constexpr std::int64_t kPeriod = 251;

// The location of one member's tensors.
struct Placement {
  bool input_in_arena = false;
  bool output_in_arena = false;
  bool in_place = false;  // kAllreduce, kBroadcast: the output is the input
  // In memory that the CPU may not touch (test_device.h); these count before the others.
  bool input_on_device = false;
  bool output_on_device = false;
};

// Members are counted within the communicator.
struct Trial {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;                                   // a member, where HasRoot()
  bool to_root = false;                           // kReducescatter: the root gets all rows
  std::int64_t rows = 0;                          // of each input, where they are equal
  std::vector<std::int64_t> rows_of;              // kAllgather: by member
  std::vector<std::vector<std::int64_t>> splits;  // kAlltoall: by sender, then by receiver
  std::int64_t row_count = 1;                     // elements of a row
  unsigned salt = 0;                              // trials of different salts have different elements
  std::vector<Placement> placements;              // by member; empty: all in private memory

  std::int64_t RowsOf(int member) const;  // of its input
  bool HasRoot() const {
    return kind == CollectiveKind::kBroadcast || (kind == CollectiveKind::kReducescatter && to_root);
  }
};

// Describes a trial for messages.
std::string DescribeTrial(const Trial& trial);

// The content of a member's input.
std::vector<std::byte> InputOf(const Trial& trial, int member);

// The output of a member, and the rows that its AllocateOutput gets, for given `participants` (members,
// ascending). `host_of`: the host of each member, if the inputs of each host are reduced first, and the
// results after that.
struct Outcome {
  std::vector<std::byte> output;
  std::vector<std::int64_t> rows;  // empty where there is no AllocateOutput
};
Outcome ExpectedOf(const Trial& trial, const std::vector<int>& participants, int member,
                   const std::vector<int>& host_of = {});

// This rank's part in a trial: its tensors, which it holds until it is destroyed.
class Attempt {
 public:
  // The engine's rank must be a member of `communicator`.
  Attempt(Engine& engine, CommunicatorId communicator, const Trial& trial);
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Returns the request, which may be submitted once. It pairs by the sequence unless the caller changes
  // that. `alone`: it is a batch by itself, as those of eager calls are.
  Request MakeRequest(bool alone = false);

  // Expects success and the right outcome for `participants` (default: all members), and an input that is as
  // it was. Returns whether all is well.
  bool Check(const Status& status, std::vector<int> participants = {});

 private:
  struct Tensor {
    std::shared_ptr<Arena> arena;  // nullptr: private memory, or
    TestDevice* device = nullptr;  // that of this device
    std::size_t bytes = 0;
    std::vector<std::byte> own;
    std::byte* data = nullptr;
  };
  Tensor Place(std::vector<std::byte> content, bool in_arena, bool on_device);
  std::vector<std::byte> ContentOf(const Tensor& tensor);
  void Free(Tensor* tensor);

  Engine& engine_;
  const CommunicatorId communicator_;
  const Trial trial_;
  const std::vector<int> ranks_;
  const int member_;
  Placement placement_;
  TestDevice::Stream* const stream_;
  Tensor input_, output_;
  std::vector<std::int64_t> told_rows_;
  int allocations_ = 0;
};

// Runs trials at once as one group; the order of submission is `seed`'s and this rank's own. Checks all.
void RunAsGroup(Engine& engine, CommunicatorId communicator, const std::vector<Trial>& trials, unsigned seed);

// Runs trials one after the other, each by itself. Those with odd salts are batches by themselves. Checks
// all.
void RunAlone(Engine& engine, CommunicatorId communicator, const std::vector<Trial>& trials);

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_TRIAL_H_
