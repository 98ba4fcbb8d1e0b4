// Gloo's allreduce over its TCP transport on the loopback, measured like the engine. The ranks are forked, as
// the engine's are, and meet in a directory.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/cpp/contestant.h"
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
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid < 0) return 1;
    if (pid == 0) {
      ::alarm(static_cast<unsigned>(options.time_limit_seconds));
      try {
        RunRank(rank, options, directory);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "gloo_sweep, rank %d: %s\n", rank, error.what());
        std::exit(1);
      }
      std::exit(0);
    }
    ranks.push_back(pid);
  }
  bool failed = false;
  for (std::size_t ended = 0; ended < ranks.size(); ++ended) {
    int status = 0;
    const pid_t pid = ::wait(&status);
    if (!failed && status != 0) {
      failed = true;
      std::fprintf(stderr, "gloo_sweep: process %d ended with status %d\n", static_cast<int>(pid), status);
      for (const pid_t rank : ranks) {
        if (rank != pid) ::kill(rank, SIGTERM);
      }
    }
  }
  std::filesystem::remove_all(directory);
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace tf_smddp::benchmarks

int main(int argc, char** argv) {
  return tf_smddp::benchmarks::RunJob(tf_smddp::benchmarks::ParseOptions(argc, argv));
}
