// Gloo's allreduce over its TCP transport on the loopback interface, measured like the engine. The ranks are
// forked processes, and find each other through a directory.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/cpp/contestant.h"
#include "benchmarks/cpp/fork_ranks.h"
#include "benchmarks/cpp/options.h"
#include "benchmarks/cpp/sweep.h"

namespace tf_smddp::benchmarks {
namespace {

class Gloo final : public Contestant {
 public:
  Gloo(int rank, int size, const std::string& directory, std::chrono::seconds limit)
      : context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    context_->setTimeout(limit);
    gloo::transport::tcp::attr address("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore store(directory);
    context_->connectFullMesh(store, device);
  }
  const char* name() const override { return "Gloo"; }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  float* Allocate(std::size_t count) override {
    return static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64));
  }
  void Free(float* data, std::size_t) override { std::free(data); }
  void Allreduce(const std::vector<Tensor>& tensors) override {
    for (const Tensor& tensor : tensors) {
      gloo::AllreduceOptions options(context_);
      if (tensor.input != tensor.output) options.setInput(const_cast<float*>(tensor.input), tensor.count);
      options.setOutput(tensor.output, tensor.count);
      options.setReduceFunction(
          [](void* to, const void* a, const void* b, std::size_t n) { gloo::sum<float>(to, a, b, n); });
      gloo::allreduce(options);
    }
  }
  void Barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  double Max(double value) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(&value, 1);
    options.setReduceFunction(
        [](void* to, const void* a, const void* b, std::size_t n) { gloo::max<double>(to, a, b, n); });
    gloo::allreduce(options);
    return value;
  }

 private:
  const std::shared_ptr<gloo::rendezvous::Context> context_;
};

void RunRank(int rank, const Options& options, const std::string& directory) {
  Gloo contestant(rank, options.ranks, directory, std::chrono::seconds(options.time_limit_seconds));
  RunSweep(contestant, options);
  contestant.Barrier();
}

int RunJob(const Options& options) {
  char directory[] = "/tmp/smddp-bench-gloo-XXXXXX";
  if (::mkdtemp(directory) == nullptr) return 1;
  const int code = ForkRanks("gloo_sweep", options, [&](int rank) { RunRank(rank, options, directory); });
  std::filesystem::remove_all(directory);
  return code;
}

}  // namespace
}  // namespace tf_smddp::benchmarks

int main(int argc, char** argv) {
  return tf_smddp::benchmarks::RunJob(tf_smddp::benchmarks::ParseOptions(argc, argv));
}
