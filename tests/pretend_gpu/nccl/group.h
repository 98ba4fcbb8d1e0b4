// Groups: a thread's calls between ncclGroupStart and ncclGroupEnd. A call outside is a group of its own.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_NCCL_GROUP_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_NCCL_GROUP_H_

#include <memory>
#include <vector>

#include "tests/pretend_gpu/nccl/communicator.h"
#include "tests/pretend_gpu/nccl/making.h"
#include "tests/pretend_gpu/nccl/transfer.h"

namespace pretend_gpu::nccl {

// All methods: its own thread.
class Group {
 public:
  // That of this thread.
  static Group& Current();

  // Ends the process if the thread ends while the group is open.
  ~Group();

  void Start() { depth_++; }

  // Does what the group has, if this is the outermost end. Ends the process if there is no group.
  ncclResult_t End();

  bool open() const { return depth_ > 0; }

  // Returns whether calls with the communicator are in the group.
  bool Has(const Communicator& communicator) const;

  // These do it at once if no group is open.
  ncclResult_t Add(const std::shared_ptr<Communicator>& communicator, Part part, CUstream stream);
  ncclResult_t Add(std::unique_ptr<Making> making);

 private:
  // The calls with one communicator, which this thread alone uses until the group ends.
  struct Calls {
    std::shared_ptr<Communicator> communicator;
    Communicator::Using use;
    std::vector<Part> parts;
    std::vector<CUstream> streams;
  };

  ncclResult_t Run();

  int depth_ = 0;
  std::vector<Calls> calls_;
  std::vector<std::unique_ptr<Making>> makings_;
};

}  // namespace pretend_gpu::nccl

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_NCCL_GROUP_H_
