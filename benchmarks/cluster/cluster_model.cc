// cluster_model: the time of a training step's allreduces on a cluster, under SimGrid's smpirun or a real
// MPI. One process is one rank; docs/cluster-model.md says what it models. Rank 0 prints one line of JSON.
//
//   cluster_model set=FILE algorithm=NAME [NAME=VALUE ...]
//
// The algorithms: ours (HierarchicalTransfer as it ships), ring, hosts_ring, halving, doubling,
// horovod, server. ring and horovod run over all ranks. In the others, the ranks of a host share its bytes,
// and its inputs have been added before.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/cluster/exchanges.h"
#include "benchmarks/cluster/port.h"
#include "benchmarks/cluster/port_wire.h"
#include "benchmarks/cluster/step.h"
#include "kernels/collectives/backends/wire/hierarchical_transfer.h"

namespace tf_smddp::cluster {
namespace {

constexpr double kAllReady = 1e9;  // when all gradients are ready, in seconds

// NAME=VALUE words, with the defaults of what is not given.
class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const std::size_t equal = word.find('=');
      if (equal == std::string::npos) Fail("not NAME=VALUE: " + word);
      if (values_.find(word.substr(0, equal)) == values_.end()) Fail("there is no option " + word);
      values_[word.substr(0, equal)] = word.substr(equal + 1);
    }
  }
  std::string Text(const std::string& name) const { return values_.at(name); }
  double Number(const std::string& name) const { return std::strtod(values_.at(name).c_str(), nullptr); }
  std::uint64_t Whole(const std::string& name) const {
    return std::strtoull(values_.at(name).c_str(), nullptr, 10);
  }

  [[noreturn]] static void Fail(const std::string& why) {
    std::cerr << "cluster_model: " << why << std::endl;
    MPI_Abort(MPI_COMM_WORLD, 2);
    std::abort();
  }

 private:
  std::map<std::string, std::string> values_ = {
      {"set", ""},
      {"algorithm", "ours"},
      {"per_host", "1"},             // ranks of a host
      {"servers", "0"},              // for server: the last hosts are servers, with one rank each
      {"cap_bytes", "26214400"},     // SMDDP_BUCKET_CAP_BYTES
      {"fusion_bytes", "67108864"},  // HOROVOD_FUSION_THRESHOLD
      {"cycle_ms", "1"},             // HOROVOD_CYCLE_TIME
      {"grouped_hosts", "0"},        // for ours: SMDDP_TEST_GROUPED_HOSTS
      {"piece_bytes", "262144"},     // for server
      {"slots", "16"},               // likewise: pieces under way
      {"compute_ms", "0"},
      {"message_us", "0"},  // Costs
      {"byte_ns", "0"},
      {"window_bytes", "262144"},
      {"check", "0"},  // 1: each rank has memory of its own, and the sums are checked
      {"repeats", "1"},
  };
};

// The memory of all ranks: in small runs each has its own, so that sums can be checked. Else all use that of
// rank 0, which is possible as SimGrid's ranks are threads of one process. It holds zeros.
struct Memory {
  std::vector<float> own_input, own_output;
  float* input = nullptr;
  float* output = nullptr;
};

// An element of a rank's input. Sums of 16,384 ranks' are exact in float32.
float InputAt(int rank, std::uint64_t index) { return static_cast<float>((rank * 7 + index * 3) % 11); }

class Model {
 public:
  explicit Model(const Options& options)
      : options_(options),
        algorithm_(options.Text("algorithm")),
        step_(options.Text("set"), options.Number("compute_ms") * 1e-3),
        port_({options.Number("message_us") * 1e-6, options.Number("byte_ns") * 1e-9,
               options.Whole("window_bytes")}) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    const int per_host = static_cast<int>(options.Whole("per_host"));
    if (per_host < 1 || size_ % per_host != 0) Options::Fail("per_host does not divide the ranks");
    if (step_.counts().empty()) Options::Fail("no tensors in the file set=" + options.Text("set"));
    host_ = rank_ / per_host;
    local_ = rank_ % per_host;
    hosts_.resize(size_ / per_host);
    for (int rank = 0; rank < size_; ++rank) hosts_[rank / per_host].push_back(rank);
    const bool flat = algorithm_ == "ring" || algorithm_ == "horovod";
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) group_.self = group_.ranks.size();
      if (flat || rank % per_host == local_) group_.ranks.push_back(rank);
    }
    const std::size_t n = group_.ranks.size();
    if ((algorithm_ == "halving" || algorithm_ == "doubling") && (n & (n - 1)) != 0) {
      Options::Fail(algorithm_ + " needs a power of two hosts");
    }
    MPI_Comm_split(MPI_COMM_WORLD, host_, local_, &here_);
    TakeMemory();
    if (algorithm_ == "ours") {
      wire_ = std::make_unique<PortWire>(&port_, hosts_);
      transfer_ = std::make_unique<HierarchicalTransfer>(wire_.get(), 0, hosts_, rank_, nullptr,
                                                         options.Whole("grouped_hosts"));
    }
  }

  int Run() {
    std::string times;
    bool right = true;
    for (std::uint64_t i = 0; i < options_.Whole("repeats"); ++i) {
      if (options_.Whole("check") != 0) Fill();
      MPI_Barrier(MPI_COMM_WORLD);
      begin_ = MPI_Wtime();
      if (algorithm_ == "horovod") {
        Horovod();
      } else {
        for (std::size_t done = 0; done < step_.counts().size();) {
          const Batch batch = NextBatch(done);
          RunBatch(batch);
          done = batch.last;
        }
      }
      double seconds = MPI_Wtime() - begin_, longest = 0;
      MPI_Allreduce(&seconds, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      times += (i > 0 ? ", " : "") + std::to_string(longest * 1e3);
      if (options_.Whole("check") != 0) right &= Check();
    }
    int mine = right ? 1 : 0, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank_ == 0) {
      std::printf(
          "{\"algorithm\": \"%s\", \"hosts\": %zu, \"ranks\": %d, \"bytes\": %llu, \"ms\": [%s], "
          "\"right\": %s}\n",
          algorithm_.c_str(), hosts_.size(), size_,
          static_cast<unsigned long long>(step_.elements() * sizeof(float)), times.c_str(),
          options_.Whole("check") == 0 ? "null"
          : all != 0                   ? "true"
                                       : "false");
      std::fflush(stdout);
    }
    return all != 0 ? 0 : 1;
  }

 private:
  void TakeMemory() {
    bool own = options_.Whole("check") != 0 || rank_ == 0;
#ifndef TF_SMDDP_SIMULATED
    own = true;
#endif
    if (own) {
      memory_.own_input.resize(step_.elements());
      memory_.own_output.resize(step_.elements());
      memory_.input = memory_.own_input.data();
      memory_.output = memory_.own_output.data();
    }
#ifdef TF_SMDDP_SIMULATED
    float* of_rank_0[2] = {memory_.input, memory_.output};
    MPI_Bcast(of_rank_0, sizeof of_rank_0, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (!own) {
      memory_.input = of_rank_0[0];
      memory_.output = of_rank_0[1];
    }
#endif
    inputs_.resize(size_);
    outputs_.resize(size_);
    if (hosts_[host_].size() > 1 && options_.Whole("check") != 0) {
#ifndef TF_SMDDP_SIMULATED
      Options::Fail("ranks of one host can share memory under SimGrid only");
#endif
      const std::size_t here = hosts_[host_].size();
      std::vector<float*> all(2 * here);
      float* mine[2] = {memory_.input, memory_.output};
      MPI_Allgather(mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, here_);
      for (std::size_t i = 0; i < here; ++i) {
        inputs_[hosts_[host_][i]] = all[2 * i];
        outputs_[hosts_[host_][i]] = all[2 * i + 1];
      }
    } else {
      inputs_[rank_] = memory_.input;
      outputs_[rank_] = memory_.output;
    }
  }

  void Fill() {
    for (std::uint64_t i = 0; i < step_.elements(); ++i) memory_.own_input[i] = InputAt(rank_, i);
    std::fill(memory_.own_output.begin(), memory_.own_output.end(), -1.0f);
  }

  // Whether this rank's output is right: the sum of all ranks that take part with inputs of their own.
  bool Check() const {
    const bool ours = algorithm_ == "ours";
    const std::size_t inputs = group_.ranks.size() - options_.Whole("servers");
    if (group_.self >= inputs) return true;  // a server has no output
    for (std::uint64_t i = 0; i < step_.elements(); ++i) {
      if (!ours && !OwnShareHas(i)) continue;
      float sum = 0;
      if (ours) {
        for (int rank = 0; rank < size_; ++rank) sum += InputAt(rank, i);
      } else {
        for (std::size_t each = 0; each < inputs; ++each) sum += InputAt(group_.ranks[each], i);
      }
      if (memory_.own_output[i] == sum) continue;
      std::cerr << "rank " << rank_ << ": element " << i << " is " << memory_.own_output[i] << ", not " << sum
                << std::endl;
      return false;
    }
    return true;
  }

  // The part of a batch that this rank moves.
  Batch Share(const Batch& batch) const {
    if (group_.ranks.size() == static_cast<std::size_t>(size_)) return batch;
    const std::uint64_t n = hosts_[host_].size();
    const std::uint64_t begin = batch.count * local_ / n, end = batch.count * (local_ + 1) / n;
    return {batch.first, batch.last, batch.begin + begin, end - begin};
  }
  bool OwnShareHas(std::uint64_t index) const {
    if (algorithm_ == "horovod") return true;
    for (std::size_t done = 0; done < step_.counts().size();) {
      const Batch batch = step_.BatchFrom(done, kAllReady, options_.Whole("cap_bytes"));
      const Batch share = Share(batch);
      if (index >= share.begin && index < share.begin + share.count) return true;
      done = batch.last;
    }
    return false;
  }

  double Now() const { return MPI_Wtime() - begin_; }

  // Rank 0 decides what the batch is, as the engine's head does.
  Batch NextBatch(std::size_t first) {
    const std::uint64_t cap = options_.Whole("cap_bytes");
    if (step_.compute_seconds() == 0) return step_.BatchFrom(first, kAllReady, cap);
    Port::Compute(step_.ReadyAt(first) - Now());
    unsigned long long last = step_.BatchFrom(first, Now(), cap).last;
    MPI_Bcast(&last, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
    return step_.Range(first, last);
  }

  void RunBatch(const Batch& batch) {
    if (algorithm_ == "ours") {
      Ours(batch);
    } else {
      Exchange(Share(batch));
    }
    // The engine of a host ends a batch when all its ranks have.
    if (hosts_[host_].size() > 1) MPI_Barrier(here_);
  }

  void Exchange(const Batch& share) {
    const float* const input = memory_.input + share.begin;
    float* const output = memory_.output + share.begin;
    const std::uint64_t piece = options_.Whole("piece_bytes");
    if (algorithm_ == "server") {
      return ParameterServer(&port_, group_, options_.Whole("servers"), input, output, share.count, piece,
                             options_.Whole("slots"));
    }
    std::memcpy(output, input, share.count * sizeof(float));
    if (algorithm_ == "ring" || algorithm_ == "hosts_ring" || algorithm_ == "horovod") {
      return Ring(&port_, group_, output, share.count);
    }
    if (algorithm_ == "halving") return HalvingDoubling(&port_, group_, output, share.count);
    if (algorithm_ == "doubling") return RecursiveDoubling(&port_, group_, output, share.count);
    Options::Fail("there is no algorithm " + algorithm_);
  }

  void Ours(const Batch& batch) {
    std::vector<ResolvedRequest> requests(batch.last - batch.first);
    std::vector<const ResolvedRequest*> pointers;
    std::uint64_t begin = batch.begin;
    for (std::size_t i = batch.first; i < batch.last; ++i) {
      ResolvedRequest& request = requests[i - batch.first];
      request.call.num_ranks = size_;
      request.call.num_rows = step_.counts()[i];
      for (int rank = 0; rank < size_; ++rank) {
        if (options_.Whole("check") != 0) request.ranks.emplace_back(rank);
        const bool here = inputs_[rank] != nullptr;
        if (!here) continue;
        request.inputs.push_back(inputs_[rank] + begin);
        request.outputs.push_back(outputs_[rank] + begin);
      }
      begin += step_.counts()[i];
      pointers.push_back(&request);
      if (options_.Whole("check") != 0 && !transfer_->Takes(request)) Options::Fail("Takes() is false");
    }
    transfer_->Plan(std::move(pointers), nullptr);
    while (!transfer_->done()) {
      if (!transfer_->Step().moved && !transfer_->done()) port_.Wait();
    }
    transfer_->Complete();
    port_.WaitForAll();
  }

  // The controller of Horovod's MPI: in each cycle rank 0 learns which tensors each rank has ready, and tells
  // all what to fuse. Then the tensors are copied into the fusion buffer and out of it, and reduced in a
  // ring.
  void Horovod() {
    std::size_t done = 0;
    while (done < step_.counts().size()) {
      std::size_t last =
          step_.Fused(done, step_.compute_seconds() > 0 ? Now() : kAllReady, options_.Whole("fusion_bytes"));
      Negotiate(last - done);
      unsigned long long agreed = last;
      MPI_Bcast(&agreed, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
      last = agreed;
      if (last == done) {
        Port::Compute(options_.Number("cycle_ms") * 1e-3);
        continue;
      }
      const Batch batch = step_.Range(done, last);
      const double copy =
          options_.Number("byte_ns") * 1e-9 * static_cast<double>(batch.count * sizeof(float));
      Port::Compute(copy);
      Exchange(batch);
      Port::Compute(copy);
      done = last;
    }
  }

  // The bytes that go to rank 0 and from it: a name and some numbers for each tensor.
  void Negotiate(std::size_t tensors) {
    constexpr std::size_t kTensorBytes = 64;
    int mine = static_cast<int>(tensors * kTensorBytes);
    std::vector<int> counts(size_), places(size_);
    MPI_Gather(&mine, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
    std::size_t sum = 0;
    for (int rank = 0; rank < size_; ++rank) {
      places[rank] = static_cast<int>(sum);
      sum += counts[rank];
    }
    const std::vector<char> request(mine);
    std::vector<char> all(rank_ == 0 ? sum : 0);
    MPI_Gatherv(request.data(), mine, MPI_CHAR, all.data(), counts.data(), places.data(), MPI_CHAR, 0,
                MPI_COMM_WORLD);
    MPI_Bcast(&mine, 1, MPI_INT, 0, MPI_COMM_WORLD);
    std::vector<char> response(mine);
    MPI_Bcast(response.data(), mine, MPI_CHAR, 0, MPI_COMM_WORLD);
  }

  const Options& options_;
  const std::string algorithm_;
  const Step step_;
  Port port_;
  int rank_ = 0, size_ = 1, host_ = 0, local_ = 0;
  std::vector<std::vector<int>> hosts_;
  Group group_;
  MPI_Comm here_ = MPI_COMM_NULL;
  Memory memory_;
  std::vector<float*> inputs_, outputs_;  // by rank; of this host only
  std::unique_ptr<PortWire> wire_;
  std::unique_ptr<HierarchicalTransfer> transfer_;
  double begin_ = 0;
};

}  // namespace
}  // namespace tf_smddp::cluster

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 0;
  {
    const tf_smddp::cluster::Options options(argc, argv);
    code = tf_smddp::cluster::Model(options).Run();
  }
  MPI_Finalize();
  return code;
}
