// The means of a rank on the pretend GPU: its device, its stream, and floats there.
#ifndef TF_SMDDP_TESTS_CPP_CUDA_COMPUTE_H_
#define TF_SMDDP_TESTS_CPP_CUDA_COMPUTE_H_

#include <cstddef>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/engine/engine.h"
#include "tests/pretend_gpu/api/driver.h"

namespace tf_smddp::testing {

// The device of a rank: that of its number, where there are so many.
CUdevice DeviceOfRank(int rank);

// A stream with the role "compute" on a rank's device, whose context is current in this thread from then on.
class Compute {
 public:
  explicit Compute(int rank = 0);
  ~Compute();
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  // The engine's streams wait for all that is on the stream now. Ops have an order each.
  void Mark() { Mark(&order); }
  void Mark(cuda::Order* order) const;

  // Waits as an op does before what follows it is started, and returns what it is told.
  Status AwaitWritten() { return AwaitWritten(order); }
  static Status AwaitWritten(const cuda::Order& order);

  CUstream stream() const { return stream_; }

  cuda::Device* device = nullptr;
  cuda::Order order;

 private:
  CUstream stream_ = nullptr;
};

// Floats on the device; all calls are in the order of the computing stream.
class Floats {
 public:
  Floats(Compute* compute, std::size_t count);
  ~Floats();
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  void Set(float value);
  void CopyTo(Floats* other) const;
  std::vector<float> Read() const;

  InputBuffer Input() const { return {Address(), compute_->device, &compute_->order}; }
  Buffer Output() const { return {Address(), compute_->device, &compute_->order}; }
  void* Address() const { return reinterpret_cast<void*>(data_); }
  std::size_t count() const { return count_; }

 private:
  std::size_t Bytes() const { return count_ * sizeof(float); }

  Compute* const compute_;
  const std::size_t count_;
  CUdeviceptr data_ = 0;
};

// A sum over the ranks.
Request Allreduce(const Floats& input, const Floats& output);

// As above, called `label`, whose input and output wait for different points of the stream.
Request Allreduce(const Floats& data, const char* label, cuda::Order* input, cuda::Order* output);

// Runs sums until they are made on GPUs, which the ranks find at the same step.
Status UseGpus(Engine& engine, Compute* compute, const Floats& data);

// Work that is put on a stream from its making to LetGo does not begin.
class Hold {
 public:
  explicit Hold(CUstream stream);
  void LetGo() { let_go_.set_value(); }

 private:
  std::promise<void> let_go_;
};

// A thread that frees memory of the device. Under PRETEND_GPU_CONTEXT_LOCK it waits until all streams have
// come to their ends, and calls of other threads wait for it; it does so when the constructor returns, if
// something on a stream does not end.
class Freeing {
 public:
  explicit Freeing(const Compute& compute);
  // Waits for its end.
  ~Freeing();
  Freeing(const Freeing&) = delete;
  Freeing& operator=(const Freeing&) = delete;

 private:
  std::thread Start(std::function<void()> call);

  CUcontext context_ = nullptr;
  std::thread frees_, asks_;
};

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_CUDA_COMPUTE_H_
