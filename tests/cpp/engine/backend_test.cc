// An engine with backends of its own: one that is in no list but this, and none.
#include "kernels/collectives/backend.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/collectives/backends/shared_memory/shared_memory_backend.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

// A member shares the numbers that it has brought, in the order of the batches.
struct alignas(64) Post {
  static constexpr std::uint64_t kRoom = 64;
  std::atomic<std::uint64_t> posted;
  std::int64_t numbers[kRoom];
};

// Reduces single numbers: each member posts its own, and adds up what all have posted.
class PostTransfer : public Transfer {
 public:
  PostTransfer(Post* posts, int self, int num_members, std::atomic<int>* moved)
      : posts_(posts), self_(self), num_members_(num_members), moved_(moved) {}

  bool Takes(const ResolvedRequest& request) const override {
    const Operation& operation = request.call.operation;
    return operation.kind == CollectiveKind::kAllreduce && operation.dtype == DType::kInt64 &&
           operation.op == ReduceOp::kSum && request.call.count() == 1;
  }

  std::uint64_t Plan(std::vector<const ResolvedRequest*> requests, BatchState*) override {
    requests_ = std::move(requests);
    first_ = next_;
    for (const ResolvedRequest* request : requests_) {
      posts_[self_].numbers[next_++ % Post::kRoom] =
          *static_cast<const std::int64_t*>(request->inputs[request->self.index()]);
    }
    posts_[self_].posted.store(next_, std::memory_order_release);
    return requests_.empty() ? 0 : static_cast<std::uint64_t>(num_members_);
  }

  Progress Step() override {
    for (int member = 0; member < num_members_; ++member) {
      if (posts_[member].posted.load(std::memory_order_acquire) < next_) return {};
    }
    for (const ResolvedRequest* request : requests_) {
      std::int64_t sum = 0;
      for (int member = 0; member < num_members_; ++member) {
        sum += posts_[member].numbers[first_ % Post::kRoom];
      }
      ++first_;
      sums_.push_back({request->outputs[request->self.index()], sum});
    }
    requests_.clear();
    ++*moved_;
    return {/*moved=*/true, /*unit_done=*/true, /*peers_wait=*/true};
  }

  bool done() const override { return requests_.empty(); }
  bool polls() const override { return !done(); }
  // Only now nobody reads the inputs.
  void Complete() override {
    for (const auto& [output, sum] : sums_) *static_cast<std::int64_t*>(output) = sum;
    sums_.clear();
  }
  void Renew(MemberMask active) override {
    for (const MemberId member : active) posts_[member.index()].posted.store(0);
  }
  void Reset() override {
    requests_.clear();
    sums_.clear();
    first_ = next_ = 0;
  }

 private:
  Post* const posts_;
  const int self_, num_members_;
  std::atomic<int>* const moved_;
  std::vector<const ResolvedRequest*> requests_;
  std::vector<std::pair<void*, std::int64_t>> sums_;
  std::uint64_t first_ = 0, next_ = 0;  // of the numbers of the batch under way, and behind them
};

class PostBackend : public Backend {
 public:
  explicit PostBackend(std::atomic<int>* moved) : moved_(moved) {}

  std::size_t SharedBytes(const Config&, int num_members) const override {
    return static_cast<std::size_t>(num_members) * sizeof(Post);
  }

  Parts Join(const CommunicatorView& communicator) override {
    Parts parts;
    parts.transfers.push_back(std::make_unique<PostTransfer>(reinterpret_cast<Post*>(communicator.shared),
                                                             communicator.self.value(),
                                                             communicator.num_members(), moved_));
    return parts;
  }

 private:
  std::atomic<int>* const moved_;
};

void WithoutSmallOnes(int, Config* config) { config->small_bytes = 0; }

std::int64_t SumOf(Engine& engine, std::int64_t number, CommunicatorId communicator = kWorld) {
  Request request =
      MakeRequest(CollectiveKind::kAllreduce, DType::kInt64, ReduceOp::kSum, &number, &number, 1);
  request.communicator = communicator;
  const Status status = Await(engine, std::move(request));
  EXPECT_TRUE(status.ok()) << status.message();
  return number;
}

// The first backend that takes a request moves it; each communicator has its own memory; after a failed step
// all begin again.
TEST(Backends, ARequestGoesToTheFirstThatTakesIt) {
  constexpr int kRanks = 3;
  std::atomic<int> moved{0};
  const auto backends = [&moved] {
    Backends both;
    both.push_back(std::make_unique<PostBackend>(&moved));
    both.push_back(SharedMemoryBackend());
    return both;
  };
  RunRanks(
      kRanks,
      [&](int rank, Engine& engine) {
        EXPECT_EQ(SumOf(engine, rank + 1), 6);
        const std::vector<float> ones(100000, 1.0f);
        std::vector<float> sum(ones.size());
        EXPECT_TRUE(Await(engine, AllreduceFloats(ones, &sum)).ok());
        EXPECT_EQ(sum, std::vector<float>(ones.size(), kRanks));
        CommunicatorId pair = kWorld;
        ASSERT_TRUE(engine.CreateCommunicator({0, 2}, &pair).ok());
        for (int i = 0; rank != 1 && i < 3; ++i) EXPECT_EQ(SumOf(engine, rank + 10, pair), 22);
        ASSERT_TRUE(Await(engine, AllreduceFloats(ones, &sum)).ok());  // all are past the sums of the pair
        if (rank == 0) {
          engine.FailStep(kWorld, kNoStep, "on purpose");
        } else {
          EXPECT_FALSE(Await(engine, AllreduceFloats(ones, &sum)).ok());
        }
        EXPECT_EQ(SumOf(engine, rank), 3);
      },
      WithoutSmallOnes, /*orderly=*/true, backends);
  EXPECT_EQ(moved.load(), 2 * kRanks + 3 * 2);
}

TEST(Backends, ARequestThatNoneTakesFailsOnAllRanks) {
  RunRanks(
      2,
      [](int, Engine& engine) {
        const std::vector<float> ones(1000, 1.0f);
        std::vector<float> sum(ones.size());
        const Status status = Await(engine, AllreduceFloats(ones, &sum));
        EXPECT_NE(status.message().find("no backend moves allreduce"), std::string::npos) << status.message();
      },
      WithoutSmallOnes, /*orderly=*/true, [] { return Backends(); });
}

}  // namespace
}  // namespace tf_smddp::testing
