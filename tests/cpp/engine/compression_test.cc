// Compression: what crosses between hosts is rounded to 16 bits, and nothing else is.
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/reduce/reference.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

struct Case {
  std::size_t count;
  Compression compression = Compression::kNone;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
};

// The input of rank `rank`, of `count` elements.
std::vector<float> InputOf(std::size_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(count * 64) + static_cast<unsigned>(rank));
  std::uniform_real_distribution<float> values(-2.0f, 2.0f);
  std::vector<float> input(count);
  for (float& value : input) value = values(random);
  input.back() = 50'000.0f;  // the average fits float16, and the sum of two does not
  return input;
}

// The result of every rank, if the ranks bring `inputs`.
std::vector<float> ExpectedOf(const Case& each, const std::vector<std::vector<float>>& inputs) {
  const auto size = static_cast<int>(inputs.size());
  const auto hosts = static_cast<int>(RanksOnHosts(size).size());
  const auto finish = [&](float sum) {
    if (each.op == ReduceOp::kAverage) sum /= static_cast<float>(size);
    return sum * static_cast<float>(each.postscale);
  };
  const HalfFormat format = each.compression == Compression::kFloat16 ? kFloat16Format : kBFloat16Format;
  const auto round = [&](float value) {
    return static_cast<float>(DecodeHalf(format, EncodeHalf(format, static_cast<double>(value))));
  };
  const bool crosses = hosts > 1 && each.compression != Compression::kNone;
  std::vector<float> expected(each.count);
  for (std::size_t e = 0; e < each.count; ++e) {
    std::vector<float> partials;
    for (int host = 0; host < hosts; ++host) {
      float partial = 0;
      for (int rank = host; rank < size; rank += hosts) {
        partial += inputs[static_cast<std::size_t>(rank)][e] * static_cast<float>(each.prescale);
      }
      partials.push_back(crosses ? round(finish(partial)) : partial);
    }
    if (HostsGroup(crosses ? ~std::uint64_t{0} : each.count * sizeof(float))) {
      partials = AddInGroups(partials, [&](const std::vector<float>& of_group) {
        const float sum = std::accumulate(of_group.begin(), of_group.end(), 0.0f);
        return crosses ? round(sum) : sum;
      });
    }
    const float total = std::accumulate(partials.begin(), partials.end(), 0.0f);
    expected[e] = crosses ? round(total) : finish(total);
  }
  return expected;
}

TEST(Compression, RoundsWhatCrossesBetweenHostsAndNothingElse) {
  std::vector<Case> cases;
  for (const std::size_t count : {1, 7, 5'000, 200'003}) {
    for (const Compression compression :
         {Compression::kNone, Compression::kFloat16, Compression::kBFloat16}) {
      cases.push_back({count, compression});
      cases.push_back({count, compression, ReduceOp::kAverage});
      cases.push_back({count, compression, ReduceOp::kAverage, 0.25, 3.0});
    }
  }
  for (const int size : {2, 3, 5}) {
    // Once for all ranks and cases: under sanitizers this takes longer than the reductions.
    std::map<std::size_t, std::vector<std::vector<float>>> inputs;  // by count and rank
    std::vector<std::vector<float>> expected;                       // by case
    for (const Case& each : cases) {
      std::vector<std::vector<float>>& of_ranks = inputs[each.count];
      for (auto rank = static_cast<int>(of_ranks.size()); rank < size; ++rank)
        of_ranks.push_back(InputOf(each.count, rank));
      expected.push_back(ExpectedOf(each, of_ranks));
    }
    RunRanks(size, [&](int rank, Engine& engine) {
      std::vector<std::vector<float>> data;
      for (const Case& each : cases) data.push_back(inputs.at(each.count)[static_cast<std::size_t>(rank)]);
      std::vector<Request> requests;
      const std::uint64_t ticket = DrawTicket(engine);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        Request request = AllreduceFloats(data[i], &data[i], cases[i].op);
        request.operation.compression = cases[i].compression;
        request.operation.prescale = cases[i].prescale;
        request.operation.postscale = cases[i].postscale;
        requests.push_back(InGroup(std::move(request), ticket, static_cast<std::uint32_t>(i),
                                   static_cast<std::uint32_t>(cases.size())));
      }
      for (const Status& status : AwaitAll(engine, std::move(requests)))
        ASSERT_TRUE(status.ok()) << status.message();
      for (std::size_t i = 0; i < cases.size(); ++i) {
        EXPECT_EQ(data[i], expected[i]) << "case " << i << " with " << size << " ranks";
      }
    });
  }
}

// A tensor that cannot be compressed is reduced as if the request did not say so.
TEST(Compression, LeavesOtherTypesAndOperationsAsTheyAre) {
  const int size = 3;
  RunRanks(size, [&](int rank, Engine& engine) {
    std::vector<float> largest(100, 1.0f + static_cast<float>(rank) * 0x1p-20f);
    Request of_floats = AllreduceFloats(largest, &largest, ReduceOp::kMax);
    of_floats.operation.compression = Compression::kFloat16;
    ASSERT_TRUE(Await(engine, std::move(of_floats)).ok());
    EXPECT_EQ(largest, std::vector<float>(100, 1.0f + 2 * 0x1p-20f));
    std::vector<double> sums(100, 1.0 + rank * 0x1p-40);
    Request of_doubles = MakeRequest(CollectiveKind::kAllreduce, DType::kFloat64, ReduceOp::kSum, sums.data(),
                                     sums.data(), 100);
    of_doubles.operation.compression = Compression::kBFloat16;
    ASSERT_TRUE(Await(engine, std::move(of_doubles)).ok());
    EXPECT_EQ(sums, std::vector<double>(100, 3.0 + 3 * 0x1p-40));
  });
}

}  // namespace
}  // namespace tf_smddp::testing
