// The requests of a group in a compiled program: started one by one, finished one by one, over when what they
// have written is there, and all over when one has failed.
#include "kernels/tf/xla/group_run.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

// Small, large, none.
const std::vector<std::size_t> kCounts = {3, 100'000, 0, 40'000};

// A group's buffers, reduced in place.
struct Buffers {
  Buffers() {
    for (const std::size_t count : kCounts) tensors.emplace_back(count, 1.0f);
  }
  Request RequestOf(std::size_t index, std::uint64_t ticket) {
    std::vector<float>& tensor = tensors[index];
    return InGroup(MakeRequest(CollectiveKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, tensor.data(),
                               tensor.data(), static_cast<std::int64_t>(tensor.size())),
                   ticket, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(tensors.size()));
  }

  std::vector<std::vector<float>> tensors;
};

std::shared_ptr<Engine> Shared(Engine& engine) { return {std::shared_ptr<Engine>(), &engine}; }

void Expect(const Buffers& buffers, float value) {
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    EXPECT_EQ(buffers.tensors[i], std::vector<float>(kCounts[i], value)) << i;
  }
}

class GroupRuns : public ::testing::TestWithParam<int> {};
// Failures between ranks, so there must be two.
class FailedGroupRuns : public GroupRuns {};

TEST_P(GroupRuns, StartThenFinish) {
  RunRanks(GetParam(), [](int, Engine& engine) {
    for (int step = 0; step < 20; ++step) {
      Buffers buffers;
      const std::uint64_t number =
          GroupRun::Keep(std::make_shared<GroupRun>(Shared(engine), kWorld, kCounts.size()));
      const std::shared_ptr<GroupRun> run = GroupRun::Find(number);
      ASSERT_NE(run, nullptr);
      const std::uint64_t ticket = DrawTicket(engine);
      for (std::size_t i = 0; i < kCounts.size(); ++i) {
        ASSERT_TRUE(run->Start(i, buffers.RequestOf(kCounts.size() - 1 - i, ticket)).ok());
      }
      for (std::size_t i = 0; i < kCounts.size(); ++i) ASSERT_TRUE(run->Finish(i).ok());
      GroupRun::Forget(number);
      EXPECT_EQ(GroupRun::Find(number), nullptr);
      Expect(buffers, static_cast<float>(engine.config().size));
    }
  });
}

TEST_P(GroupRuns, AllInOneCall) {
  RunRanks(GetParam(), [](int, Engine& engine) {
    for (int step = 0; step < 20; ++step) {
      Buffers buffers;
      const std::uint64_t ticket = DrawTicket(engine);
      std::vector<Request> requests;
      for (std::size_t i = 0; i < kCounts.size(); ++i) requests.push_back(buffers.RequestOf(i, ticket));
      const auto run = std::make_shared<GroupRun>(Shared(engine), kWorld, kCounts.size());
      ASSERT_TRUE(run->Run(std::move(requests)).ok());
      Expect(buffers, static_cast<float>(engine.config().size));
    }
  });
}

// Outputs that are written a while after their requests have ended, as on a GPU. The last one fails.
class LateWrites {
 public:
  ~LateWrites() {
    for (std::thread& thread : threads_) thread.join();
  }
  std::vector<WhenWritten> For(std::size_t count, const Status& last) {
    std::vector<WhenWritten> result;
    for (std::size_t i = 0; i < count; ++i) {
      result.push_back([this, status = i + 1 < count ? Status() : last](const auto& written) {
        std::lock_guard<std::mutex> lock(mu_);
        threads_.emplace_back([this, status, written] {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          ++written_;
          written(status);
        });
      });
    }
    return result;
  }
  int written() const { return written_; }

 private:
  std::mutex mu_;
  std::vector<std::thread> threads_;  // guarded by mu_ until all requests have ended
  std::atomic<int> written_{0};
};

TEST_P(GroupRuns, WaitForWhatIsWrittenLate) {
  RunRanks(GetParam(), [](int, Engine& engine) {
    for (const bool at_once : {false, true}) {
      for (const bool fails : {false, true}) {
        Buffers buffers;
        LateWrites writes;
        const auto run = std::make_shared<GroupRun>(Shared(engine), kWorld, kCounts.size());
        std::vector<WhenWritten> when = writes.For(kCounts.size(), fails ? Internal("no copy") : Status());
        const std::uint64_t ticket = DrawTicket(engine);
        Status status;
        if (at_once) {
          std::vector<Request> requests;
          for (std::size_t i = 0; i < kCounts.size(); ++i) requests.push_back(buffers.RequestOf(i, ticket));
          status = run->Run(std::move(requests), std::move(when));
        } else {
          for (std::size_t i = 0; i < kCounts.size(); ++i) {
            ASSERT_TRUE(run->Start(i, buffers.RequestOf(i, ticket), when[i]).ok());
          }
          for (std::size_t i = 0; status.ok() && i < kCounts.size(); ++i) status = run->Finish(i);
        }
        EXPECT_EQ(writes.written(), static_cast<int>(kCounts.size()));
        EXPECT_EQ(status.message(), fails ? "no copy" : "");
        Expect(buffers, static_cast<float>(engine.config().size));
      }
    }
  });
}

// The last one differs between the ranks. The buffers are gone when the error is there: under
// AddressSanitizer a late write would be seen.
TEST_P(FailedGroupRuns, NothingIsUnderWayAfterAnError) {
  RunRanks(GetParam(), [](int rank, Engine& engine) {
    for (const bool at_once : {false, true}) {
      auto buffers = std::make_unique<Buffers>();
      if (rank == 1) buffers->tensors[1].resize(7, 1.0f);
      const auto run = std::make_shared<GroupRun>(Shared(engine), kWorld, kCounts.size());
      std::uint64_t ticket = 0;
      // A rank that is late gets the error here.
      Status status = engine.DrawTicket(kWorld, kNoStep, &ticket);
      if (status.ok() && at_once) {
        std::vector<Request> requests;
        for (std::size_t i = 0; i < kCounts.size(); ++i) requests.push_back(buffers->RequestOf(i, ticket));
        status = run->Run(std::move(requests));
      } else {
        for (std::size_t i = 0; status.ok() && i < kCounts.size(); ++i) {
          status = run->Start(i, buffers->RequestOf(i, ticket));
        }
        for (std::size_t i = 0; status.ok() && i < kCounts.size(); ++i) status = run->Finish(i);
      }
      buffers.reset();
      EXPECT_NE(status.message().find("different collectives"), std::string::npos) << status.message();
      // The next step is well.
      Buffers next;
      const auto again = std::make_shared<GroupRun>(Shared(engine), kWorld, kCounts.size());
      const std::uint64_t next_ticket = DrawTicket(engine);
      std::vector<Request> requests;
      for (std::size_t i = 0; i < kCounts.size(); ++i) requests.push_back(next.RequestOf(i, next_ticket));
      ASSERT_TRUE(again->Run(std::move(requests)).ok());
      Expect(next, static_cast<float>(engine.config().size));
    }
  });
}

// Refused on one rank alone, in the middle: the others hear of it.
TEST_P(FailedGroupRuns, ARefusalIsToldToTheOthers) {
  RunRanks(GetParam(), [](int rank, Engine& engine) {
    Buffers buffers;
    std::uint64_t ticket = 0;
    const auto run = std::make_shared<GroupRun>(Shared(engine), kWorld, kCounts.size());
    Status status = engine.DrawTicket(kWorld, kNoStep, &ticket);
    for (std::size_t i = 0; status.ok() && i < kCounts.size(); ++i) {
      Request request = buffers.RequestOf(i, ticket);
      if (rank == 0 && i == 2) request.pairing.param_index = 99;
      status = run->Start(i, std::move(request));
    }
    for (std::size_t i = 0; status.ok() && i < kCounts.size(); ++i) status = run->Finish(i);
    EXPECT_FALSE(status.ok());
    if (rank != 0) {
      EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
    }
  });
}

// A call of another chain has failed on rank 0, which the other ranks have not reached yet. The buffers are
// gone then, as above.
TEST_P(FailedGroupRuns, AnErrorElsewhereWithdrawsWhatIsKept) {
  std::promise<void> withdrawn;
  std::shared_future<void> has_withdrawn = withdrawn.get_future().share();
  RunRanks(GetParam(), [&](int rank, Engine& engine) {
    std::uint64_t ticket = 0;
    // A rank that is late gets the error here.
    Status status = engine.DrawTicket(kWorld, kNoStep, &ticket);
    auto buffers = std::make_unique<Buffers>();
    const auto run = std::make_shared<GroupRun>(Shared(engine), kWorld, kCounts.size());
    if (rank == 0) {
      const std::uint64_t number = GroupRun::Keep(run);
      for (std::size_t i = 0; i < kCounts.size(); ++i) {
        ASSERT_TRUE(run->Start(i, buffers->RequestOf(i, ticket)).ok());
      }
      // Two threads, each with an error: neither comes back before all is over.
      std::thread another([] { GroupRun::WithdrawKept(Internal("a call elsewhere")); });
      GroupRun::WithdrawKept(Internal("a call elsewhere"));
      buffers.reset();
      EXPECT_EQ(GroupRun::Find(number), nullptr);
      another.join();
      withdrawn.set_value();
    } else {
      has_withdrawn.wait();
      for (std::size_t i = 0; status.ok() && i < kCounts.size(); ++i) {
        status = run->Start(i, buffers->RequestOf(i, ticket));
      }
      for (std::size_t i = 0; status.ok() && i < kCounts.size(); ++i) status = run->Finish(i);
      EXPECT_NE(status.message().find("a call elsewhere"), std::string::npos) << status.message();
    }
    // The next step is well.
    Buffers next;
    const auto again = std::make_shared<GroupRun>(Shared(engine), kWorld, kCounts.size());
    const std::uint64_t next_ticket = DrawTicket(engine);
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      ASSERT_TRUE(again->Start(i, next.RequestOf(i, next_ticket)).ok());
    }
    for (std::size_t i = 0; i < kCounts.size(); ++i) ASSERT_TRUE(again->Finish(i).ok());
    Expect(next, static_cast<float>(engine.config().size));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupRuns, ::testing::Values(1, 2, 3));
INSTANTIATE_TEST_SUITE_P(Ranks, FailedGroupRuns, ::testing::Values(2, 3));

}  // namespace
}  // namespace tf_smddp::testing
