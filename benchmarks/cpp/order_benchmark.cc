// Measures the order between hosts: what the head does for the gradients of a step, with made-up reports of
// many hosts. The head's thread does everything but calls of the network's library: a message of each host is
// decoded and taken, and one for each host is made. Each host has 8 ranks.
//
// Arguments: hosts; tensors of the group (214: ResNet50, 199: BERT-base); tensors that a host reports in one
// message. Counters: bytes that the head gets and sends in a step. In the first step no description is known.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/control/host_order.h"
#include "kernels/control/relay_message.h"
#include "kernels/control/ticket.h"

namespace tf_smddp {
namespace {

constexpr int kRanksOnHost = 8;

std::vector<std::vector<int>> Hosts(int num_hosts) {
  std::vector<std::vector<int>> hosts(static_cast<std::size_t>(num_hosts));
  for (int rank = 0; rank < num_hosts * kRanksOnHost; ++rank) {
    hosts[static_cast<std::size_t>(rank / kRanksOnHost)].push_back(rank);
  }
  return hosts;
}

// The messages of any host's relay for the steps of a training: all hosts run the same program, so all of
// them send the same bytes.
class Reporter {
 public:
  Reporter(std::uint32_t tensors, std::uint32_t at_a_time) : at_a_time_(at_a_time) {
    for (std::uint32_t i = 0; i < tensors; ++i) {
      Description description;
      description.key = "group/" + std::to_string(i);
      Meaning meaning;
      meaning.gradient = meaning.variable = i + 1;
      description.manifest = MakeManifest({CollectiveKind::kAllreduce}, i, tensors, {64, i + 1},
                                          "model/layer_" + std::to_string(i) + "/kernel", meaning);
      known_.push_back(descriptions_.Share(description));
    }
  }

  std::vector<std::string> Step(std::uint64_t step) {
    std::vector<std::string> messages;
    std::vector<RelayMessage> reports;
    for (const SharedDescription& description : known_) {
      RelayMessage& report = reports.emplace_back();
      report.ticket = TicketOf(0, step);
      report.description = description;
      if (reports.size() < at_a_time_ && description != known_.back()) continue;
      Number(&reports, &numbers_);
      messages.push_back(Encode(reports));
      reports.clear();
    }
    return messages;
  }

 private:
  const std::size_t at_a_time_;
  Descriptions descriptions_;
  std::vector<SharedDescription> known_;
  SentNumbers numbers_;
};

class Head {
 public:
  explicit Head(int num_hosts) : order_(Hosts(num_hosts)), known_(static_cast<std::size_t>(num_hosts)) {}

  // Takes what all hosts send, and returns the bytes that it sends.
  std::size_t Run(const std::vector<std::string>& messages) {
    std::size_t sent = 0;
    for (const std::string& message : messages) {
      std::vector<RelayMessage> launches;
      for (std::size_t host = 0; host < known_.size(); ++host) {
        const auto take = [&](const RelayMessage& report) { order_.Take(host, report, &launches); };
        if (!Decode(message, &descriptions_, &known_[host], take)) return 0;
      }
      for (RelayMessage& launch : launches) launch.description = descriptions_.KeyOf(*launch.description);
      Number(&launches, &numbers_);
      const std::string bytes = Encode(launches);
      for (std::size_t host = 1; host < known_.size(); ++host) {
        const std::string for_host = bytes;
        benchmark::DoNotOptimize(for_host.data());
        sent += for_host.size();
      }
    }
    return sent;
  }

 private:
  HostOrder order_;
  Descriptions descriptions_;
  std::vector<KnownNumbers> known_;  // by host
  SentNumbers numbers_;
};

void Count(benchmark::State& state, const std::vector<std::string>& messages, std::size_t sent) {
  std::size_t bytes = 0;
  for (const std::string& message : messages) bytes += message.size();
  state.counters["in"] = static_cast<double>(bytes) * static_cast<double>(state.range(0) - 1);
  state.counters["out"] = static_cast<double>(sent);
  if (sent == 0) state.SkipWithError("nothing was launched");
}

void BM_FirstStep(benchmark::State& state) {
  const std::vector<std::string> messages =
      Reporter(static_cast<std::uint32_t>(state.range(1)), static_cast<std::uint32_t>(state.range(2)))
          .Step(0);
  std::size_t sent = 0;
  for (auto _ : state) sent = Head(static_cast<int>(state.range(0))).Run(messages);
  Count(state, messages, sent);
}

void BM_LaterStep(benchmark::State& state) {
  Reporter reporter(static_cast<std::uint32_t>(state.range(1)), static_cast<std::uint32_t>(state.range(2)));
  Head head(static_cast<int>(state.range(0)));
  head.Run(reporter.Step(0));
  std::uint64_t step = 1'000'000;
  std::vector<std::string> messages;
  std::size_t sent = 0;
  for (auto _ : state) {
    messages = reporter.Step(step++);
    sent = head.Run(messages);
  }
  Count(state, messages, sent);
}

void Arguments(benchmark::internal::Benchmark* each) {
  each->ArgNames({"hosts", "tensors", "at_a_time"})->Unit(benchmark::kMillisecond);
  for (const int hosts : {32, 128, 512, 2048}) {
    for (const int tensors : {214, 199}) each->Args({hosts, tensors, tensors});
    each->Args({hosts, 214, 1});
  }
}
BENCHMARK(BM_FirstStep)->Apply(Arguments);
BENCHMARK(BM_LaterStep)->Apply(Arguments);

}  // namespace
}  // namespace tf_smddp
