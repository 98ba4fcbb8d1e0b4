// Communicators: made, used, removed; members and others; failures that stay where they belong.
#include <algorithm>
#include <chrono>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/matrix.h"
#include "tests/cpp/testing/meeting.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"
#include "tests/cpp/testing/step.h"
#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {
namespace {

CommunicatorId Create(Engine& engine, const std::vector<int>& ranks) {
  CommunicatorId id = kWorld;
  const Status status = engine.CreateCommunicator(ranks, &id);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_NE(id, kWorld);
  return id;
}

CommunicatorId CreateAmong(Engine& engine, const std::vector<int>& ranks, std::uint64_t key) {
  CommunicatorId id = kWorld;
  const Status status = engine.CreateCommunicatorAmong(ranks, key, &id);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(id, kFirstOfMembers + key);
  return id;
}

bool IsMember(Engine& engine, CommunicatorId id) {
  const std::vector<int> ranks = engine.RanksOf(id);
  return std::find(ranks.begin(), ranks.end(), engine.config().rank) != ranks.end();
}

// Returns one collective of each kind in each layout.
std::vector<Trial> OneOfEach(int size, unsigned salt) {
  std::vector<Trial> trials;
  for (const CollectiveKind kind :
       {CollectiveKind::kAllreduce, CollectiveKind::kBroadcast, CollectiveKind::kAllgather,
        CollectiveKind::kReducescatter, CollectiveKind::kAlltoall, CollectiveKind::kBarrier}) {
    for (const std::int64_t count : {11, 5003}) {
      Trial trial;
      trial.kind = kind;
      trial.salt = ++salt;
      trial.root = static_cast<int>(salt) % size;
      trial.rows = kind == CollectiveKind::kBarrier ? 0 : count;
      if (kind == CollectiveKind::kAllgather) trial.rows_of = Deal(count, size, 1, salt);
      for (int sender = 0; kind == CollectiveKind::kAlltoall && sender < size; ++sender) {
        trial.splits.push_back(Deal(count, size, 1, salt + static_cast<unsigned>(sender)));
      }
      trial.placements = PlacementsOf(static_cast<Layout>(salt % kNumLayouts), size, salt);
      trials.push_back(trial);
    }
  }
  return trials;
}

TEST(Communicator, EveryCollectiveInEverySubset) {
  const int size = 4;
  RunRanks(size, [](int, Engine& engine) {
    unsigned salt = 0;
    for (unsigned mask = 1; mask < 1u << size; ++mask) {
      std::vector<int> ranks;
      for (int rank = size - 1; rank >= 0; --rank) {  // in any order
        if ((mask >> rank & 1) != 0) ranks.push_back(rank);
      }
      const CommunicatorId id = Create(engine, ranks);
      std::sort(ranks.begin(), ranks.end());
      EXPECT_EQ(engine.RanksOf(id), ranks);
      const std::vector<Trial> trials = OneOfEach(static_cast<int>(ranks.size()), salt += 100);
      if (IsMember(engine, id)) {
        RunAlone(engine, id, trials);
        RunAsGroup(engine, id, trials, mask);
      }
      if (mask % 3 != 0) continue;  // the others stay
      EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
      EXPECT_TRUE(engine.RanksOf(id).empty());
    }
  });
}

TEST(Communicator, AJobOfOneRank) {
  RunRanks(1, [](int, Engine& engine) {
    const CommunicatorId id = Create(engine, {0});
    EXPECT_EQ(engine.RanksOf(id), std::vector<int>{0});
    RunAlone(engine, id, OneOfEach(1, 7));
    RunAsGroup(engine, id, OneOfEach(1, 7), 1);
    EXPECT_TRUE(engine.Leave(id).ok());
    EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
    CommunicatorId none = kWorld;
    EXPECT_EQ(engine.CreateCommunicator({1}, &none).code(), StatusCode::kInvalidArgument);
  });
}

TEST(Communicator, BadCallsAreRefusedHereAlone) {
  RunRanks(3, [](int rank, Engine& engine) {
    std::vector<float> data(4, 1.0f);
    CommunicatorId none = kWorld;
    for (const std::vector<int>& ranks : {std::vector<int>{}, {0, 3}, {-1}, {1, 1}}) {
      const Status status = engine.CreateCommunicator(ranks, &none);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    }
    EXPECT_EQ(engine.RemoveCommunicator(kWorld).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(engine.RemoveCommunicator(17).code(), StatusCode::kInvalidArgument);
    std::uint64_t ticket = 0;
    EXPECT_NE(engine.DrawTicket(17, kNoStep, &ticket).message().find("no process set 17"), std::string::npos);
    EXPECT_NE(Await(engine, AllreduceIn(17, &data)).message().find("no process set 17"), std::string::npos);
    EXPECT_NE(engine.Leave(17).message().find("no process set 17"), std::string::npos);
    const CommunicatorId id = Create(engine, {0, 2});
    if (rank == 1) {
      EXPECT_NE(Await(engine, AllreduceIn(id, &data)).message().find("rank 1 is not in process set"),
                std::string::npos);
      EXPECT_NE(engine.DrawTicket(id, kNoStep, &ticket).message().find("ranks 0, 2"), std::string::npos);
      EXPECT_FALSE(engine.Leave(id).ok());
    } else {
      Request request = AllreduceIn(id, &data);
      request.operation.kind = CollectiveKind::kBroadcast;
      request.operation.root = RankId(1);
      EXPECT_NE(Await(engine, request).message().find("root rank 1, which is not in its process set"),
                std::string::npos);
      request.operation.root = RankId(2);  // a rank of the job
      EXPECT_TRUE(Await(engine, request).ok());
    }
    std::vector<float> world(3, 1.0f);
    EXPECT_TRUE(Await(engine, AllreduceFloats(world, &world)).ok());
  });
}

TEST(Communicator, RanksThatDisagreeAreToldSoAndGoOn) {
  RunRanks(3, [](int rank, Engine& engine) {
    CommunicatorId id = kWorld;
    const Status status =
        engine.CreateCommunicator(rank == 1 ? std::vector<int>{1, 2} : std::vector<int>{0, 1}, &id);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("ranks 0, 1"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("ranks 1, 2"), std::string::npos) << status.message();
    const CommunicatorId agreed = Create(engine, {1, 2});
    if (IsMember(engine, agreed)) RunAlone(engine, agreed, OneOfEach(2, 1));
  });
}

TEST(Communicator, WhatIsMadeInThePlaceOfAnotherStartsAnew) {
  RunRanks(3, [](int, Engine& engine) {
    const CommunicatorId kept = Create(engine, {0, 1, 2});
    CommunicatorId id = Create(engine, {0, 1});
    for (int round = 0; round < (kSanitized ? 20 : 100); ++round) {
      EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
      const std::vector<int> ranks = round % 2 == 0 ? std::vector<int>{1, 2} : std::vector<int>{0, 1};
      EXPECT_EQ(Create(engine, ranks), ++id);
      if (!IsMember(engine, id)) continue;
      EXPECT_EQ(DrawTicket(engine, id), 0u);
      std::vector<float> data(round % 3 == 0 ? 3000 : 3, 1.0f);
      ASSERT_TRUE(Await(engine, Named(AllreduceIn(id, &data), "the same name")).ok());
      ASSERT_EQ(data[2], 2.0f);
    }
    RunAlone(engine, kept, OneOfEach(3, 5));
  });
}

TEST(Communicator, SixtyFourAtATime) {
  RunRanks(2, [](int rank, Engine& engine) {
    std::vector<CommunicatorId> ids;
    for (int i = 1; i < 64; ++i) ids.push_back(Create(engine, {0, 1}));
    CommunicatorId none = kWorld;
    const Status status = engine.CreateCommunicator({0, 1}, &none);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("64"), std::string::npos) << status.message();
    // All communicators are used at once.
    std::vector<std::vector<float>> data(ids.size(), std::vector<float>(2000, static_cast<float>(rank)));
    std::vector<Request> requests;
    for (std::size_t i = 0; i < ids.size(); ++i) requests.push_back(AllreduceIn(ids[i], &data[i]));
    for (const Status& each : AwaitAll(engine, std::move(requests))) ASSERT_TRUE(each.ok()) << each.message();
    for (const auto& each : data) ASSERT_EQ(each[1999], 1.0f);
    EXPECT_TRUE(engine.RemoveCommunicator(ids[30]).ok());
    EXPECT_EQ(Create(engine, {0, 1}), 64u);
  });
}

TEST(Communicator, OneInUseIsNotRemoved) {
  RunRanks(2, [](int rank, Engine& engine) {
    const CommunicatorId id = Create(engine, {0, 1});
    std::vector<float> data(4, 1.0f), flag(1, 1.0f);
    if (rank == 0) {
      std::promise<Status> outcome;
      Request request = AllreduceIn(id, &data);
      request.done = [&outcome](const Status& status) { outcome.set_value(status); };
      engine.Submit(std::move(request));
      EXPECT_EQ(engine.RemoveCommunicator(id).code(), StatusCode::kFailedPrecondition);
      ASSERT_TRUE(Await(engine, AllreduceFloats(flag, &flag)).ok());
      EXPECT_TRUE(outcome.get_future().get().ok());
    } else {
      ASSERT_TRUE(Await(engine, AllreduceFloats(flag, &flag)).ok());
      EXPECT_TRUE(Await(engine, AllreduceIn(id, &data)).ok());
    }
    EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
    EXPECT_NE(Await(engine, AllreduceIn(id, &data)).message().find("no process set"), std::string::npos);
  });
}

// Several threads of each rank, each in a communicator of its own; the sets overlap.
TEST(Communicator, OverlappingSetsAtOnce) {
  const int size = 4;
  RunRanks(size, [](int, Engine& engine) {
    std::vector<CommunicatorId> ids = {kWorld};
    for (const std::vector<int>& ranks : {std::vector<int>{0, 1}, {1, 2, 3}, {0, 3}, {0, 1, 2, 3}}) {
      ids.push_back(Create(engine, ranks));
    }
    std::vector<std::thread> users;
    for (const CommunicatorId id : ids) {
      if (!IsMember(engine, id)) continue;
      users.emplace_back([&engine, id] {
        const int members = static_cast<int>(engine.RanksOf(id).size());
        for (unsigned round = 0; round < (kSanitized ? 2 : 10); ++round) {
          RunAsGroup(engine, id, OneOfEach(members, 100 * id + round), round);
          RunAlone(engine, id, OneOfEach(members, 100 * id + 50 + round));
        }
      });
    }
    for (std::thread& user : users) user.join();
  });
}

// A step that fails in one communicator is nothing to the others.
TEST(Communicator, AFailureStaysInItsCommunicator) {
  RunRanks(3, [](int rank, Engine& engine) {
    const CommunicatorId id = Create(engine, {0, 1});
    std::thread elsewhere([&engine, rank] {
      for (int round = 0; round < 300; ++round) {
        std::vector<float> data(round % 5 == 0 ? 3000 : 5, static_cast<float>(rank));
        const Status status = Await(engine, AllreduceFloats(data, &data));
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(data[4], 3.0f);
      }
    });
    for (int attempt = 0; rank < 2 && attempt < 60; ++attempt) {
      std::vector<float> data(attempt % 4 == 1 ? 3000 : 4, 1.0f);
      Step step(engine);
      if (attempt % 2 == 1 && rank == attempt / 2 % 2) {
        step.Fail("disk full", {id});
      } else {
        step.Submit(AllreduceIn(id, &data));
      }
      EXPECT_EQ(step.End().ok(), attempt % 2 == 0) << step.End().message();
      if (attempt % 2 == 0) {
        EXPECT_EQ(data[0], 2.0f);
      }
    }
    elsewhere.join();
  });
}

// Steps that use the world and a smaller communicator, and fail on one rank: one failed step on every rank.
// The two communicators fail one after the other; the ranks meet before they try again.
TEST(Communicator, AStepThatUsesTwo) {
  for (const bool small_first : {true, false}) {
    SCOPED_TRACE(small_first ? "fails in the small one first" : "fails in the world first");
    Meeting meeting(3);
    RunRanks(3, [&](int rank, Engine& engine) {
      std::mt19937 random(static_cast<unsigned>(rank));
      const CommunicatorId small = Create(engine, {0, 1});
      int turn = 0;
      for (int attempt = 0; attempt < (kSanitized ? 20 : 100); ++attempt) {
        meeting.Await();
        if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        const bool fails = attempt % 2 == 1, here = fails && rank == attempt / 2 % 2;
        std::vector<float> world(10, static_cast<float>(turn)), members(3000, static_cast<float>(turn));
        Step step(engine);
        if (here) {
          if (attempt % 3 == 1) step.Submit(AllreduceIn(small, &members));
          step.Fail("disk full", small_first ? std::vector<CommunicatorId>{small, kWorld}
                                             : std::vector<CommunicatorId>{kWorld, small});
        }
        if (rank < 2) step.Submit(AllreduceIn(small, &members));
        step.Submit(AllreduceIn(kWorld, &world));
        const Status status = step.End();
        EXPECT_EQ(status.ok(), !fails)
            << "rank " << rank << ", attempt " << attempt << ": " << status.message();
        if (!status.ok()) {
          EXPECT_NE(status.message().find("disk full"), std::string::npos) << status.message();
          continue;
        }
        EXPECT_EQ(world[0], static_cast<float>(3 * turn)) << "rank " << rank;
        if (rank < 2) {
          EXPECT_EQ(members[0], static_cast<float>(2 * turn)) << "rank " << rank;
        }
        ++turn;
      }
    });
  }
}

// A communicator that is created while steps fail is created on all ranks or on none.
TEST(Communicator, MadeAndRemovedWhileStepsFail) {
  RunRanks(3, [](int rank, Engine& engine) {
    for (int round = 0; round < (kSanitized ? 10 : 60); ++round) {
      if (rank == round % 3) engine.FailStep(kWorld, kNoStep, "disk full");
      CommunicatorId id = kWorld;
      Status status;
      // The rank that failed by itself has had its failure; the others get it here.
      if (rank != round % 3) {
        status = engine.CreateCommunicator({0, 1, 2}, &id);
        EXPECT_NE(status.message().find("disk full"), std::string::npos) << status.message();
      }
      status = engine.CreateCommunicator({0, 1, 2}, &id);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(id, static_cast<CommunicatorId>(round) + 1);
      status = engine.RemoveCommunicator(id);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  });
}

// ---- Made by their members alone

TEST(CommunicatorAmong, OthersTakeNoPart) {
  Meeting over(5);
  RunRanks(5, [&over](int rank, Engine& engine) {
    const CommunicatorId low = kFirstOfMembers + 9, high = kFirstOfMembers + 4;
    if (rank < 2) {
      EXPECT_EQ(CreateAmong(engine, {1, 0}, 9), low);
      RunAlone(engine, low, OneOfEach(2, 1));
      EXPECT_TRUE(engine.RemoveCommunicator(low).ok());
      EXPECT_EQ(engine.RemoveCommunicator(low).code(), StatusCode::kInvalidArgument);
    } else if (rank < 4) {
      EXPECT_EQ(CreateAmong(engine, {2, 3}, 4), high);
      EXPECT_EQ(engine.RanksOf(high), (std::vector<int>{2, 3}));
      RunAsGroup(engine, high, OneOfEach(2, 2), 1);
    }
    over.Await();
    std::vector<float> data(4, 1.0f);
    if (rank < 2 || rank == 4) {
      EXPECT_TRUE(engine.RanksOf(high).empty());
      EXPECT_NE(Await(engine, AllreduceIn(high, &data)).message().find("no process set"), std::string::npos);
      EXPECT_EQ(engine.RemoveCommunicator(high).code(), StatusCode::kInvalidArgument);
    }
  });
}

// Between those that all ranks make. Each rank makes its own in one order, and removes them in another.
TEST(CommunicatorAmong, EverySubset) {
  const int size = 4;
  RunRanks(size, [](int rank, Engine& engine) {
    std::vector<CommunicatorId> ids;
    for (unsigned mask = 1; mask < 1u << size; ++mask) {
      if ((mask >> rank & 1) == 0) continue;
      std::vector<int> ranks;
      for (int each = 0; each < size; ++each) {
        if ((mask >> each & 1) != 0) ranks.push_back(each);
      }
      ids.push_back(CreateAmong(engine, ranks, 100 * mask));
      const std::vector<Trial> trials = OneOfEach(static_cast<int>(ranks.size()), mask);
      RunAlone(engine, ids.back(), trials);
      RunAsGroup(engine, ids.back(), trials, mask);
    }
    const CommunicatorId all = Create(engine, {0, 1, 2, 3});
    EXPECT_EQ(all, 1u);
    RunAlone(engine, all, OneOfEach(size, 1000));
    std::reverse(ids.begin(), ids.end());
    for (const CommunicatorId id : ids) {
      EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
      EXPECT_TRUE(engine.RanksOf(id).empty());
    }
    RunAlone(engine, all, OneOfEach(size, 2000));
    EXPECT_TRUE(engine.RemoveCommunicator(all).ok());
  });
}

// Each thread makes, uses and removes one, in no common order.
TEST(CommunicatorAmong, ThreadsOfTheirOwn) {
  const std::vector<std::vector<int>> sets = {{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}, {0, 1}};
  RunRanks(3, [&sets](int rank, Engine& engine) {
    for (std::uint64_t round = 0; round < (kSanitized ? 3 : 10); ++round) {
      std::vector<std::thread> users;
      for (std::size_t i = 0; i < sets.size(); ++i) {
        const std::size_t key = (i + static_cast<std::size_t>(rank)) % sets.size();
        const std::vector<int>& ranks = sets[key];
        if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
        users.emplace_back([&engine, &ranks, key, round, size = sets.size()] {
          const CommunicatorId id = CreateAmong(engine, ranks, round * size + key);
          std::vector<float> data(key % 2 == 0 ? 5 : 3000, 1.0f);
          const Status status = Await(engine, AllreduceIn(id, &data));
          EXPECT_TRUE(status.ok()) << status.message();
          EXPECT_EQ(data.back(), static_cast<float>(ranks.size()));
          EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
        });
      }
      for (std::thread& user : users) user.join();
    }
  });
}

TEST(CommunicatorAmong, BadCallsAreRefusedHereAlone) {
  RunRanks(3, [](int rank, Engine& engine) {
    const auto expect_refused = [&engine](const std::vector<int>& ranks, std::uint64_t key,
                                          const std::string& part) {
      CommunicatorId none = kWorld;
      const Status status = engine.CreateCommunicatorAmong(ranks, key, &none);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    };
    expect_refused({}, 1, "at least one rank");
    expect_refused({rank, 3}, 1, "rank 3");
    expect_refused({rank, rank}, 1, "twice");
    expect_refused({(rank + 1) % 3}, 1, "rank " + std::to_string(rank) + " is not among");
    expect_refused({rank}, kFirstOfMembers, "keys are 0 to 8388607");
    const auto key = static_cast<std::uint64_t>(rank);
    const CommunicatorId own = CreateAmong(engine, {rank}, key);
    expect_refused({rank}, key, "key " + std::to_string(rank));
    RunAlone(engine, own, OneOfEach(1, 3));
    EXPECT_TRUE(engine.RemoveCommunicator(own).ok());
    expect_refused({rank}, key, "key " + std::to_string(rank));
    const CommunicatorId all = CreateAmong(engine, {0, 1, 2}, 7);
    if (rank == 1) {
      EXPECT_TRUE(engine.Leave(all).ok());
    } else {
      std::vector<float> data(4, 1.0f);
      while (data[0] != 2.0f) {  // until rank 1 has left
        data[0] = 1.0f;
        ASSERT_TRUE(Await(engine, AllreduceIn(all, &data)).ok());
      }
      EXPECT_NE(engine.RemoveCommunicator(all).message().find(" left it"), std::string::npos);
      EXPECT_TRUE(engine.Leave(all).ok());
    }
    RankId last;
    EXPECT_TRUE(engine.Return(all, &last).ok());
    EXPECT_TRUE(engine.RemoveCommunicator(all).ok());
  });
}

// Where the ranks of a host do, the job is over.
TEST(CommunicatorAmong, RanksThatDisagreeAreToldSo) {
  RunRanks(
      3,
      [](int rank, Engine& engine) {
        CommunicatorId id = kWorld;
        const Status status = engine.CreateCommunicatorAmong(
            rank == 1 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2}, 5, &id);
        EXPECT_EQ(status.code(), StatusCode::kInternal);
        if (RanksOnHosts(3).size() == 1) {
          EXPECT_NE(status.message().find("process set of key 5"), std::string::npos) << status.message();
        } else {
          EXPECT_NE(status.message().find("ranks 0, 1, 2"), std::string::npos) << status.message();
        }
      },
      {}, /*orderly=*/false);
}

TEST(CommunicatorAmong, AsManyAsAHostHasRoomFor) {
  RunRanks(
      2,
      [](int, Engine& engine) {
        std::vector<CommunicatorId> ids;
        for (std::uint64_t key = 0; key < 63; ++key) ids.push_back(CreateAmong(engine, {0, 1}, key));
        EXPECT_TRUE(engine.RemoveCommunicator(ids[20]).ok());
        const CommunicatorId last = Create(engine, {0, 1});
        RunAlone(engine, last, OneOfEach(2, 1));
        for (const CommunicatorId id : {ids.front(), ids.back()}) {
          EXPECT_TRUE(engine.RemoveCommunicator(id).ok());
        }
        CreateAmong(engine, {0, 1}, 100);
        CreateAmong(engine, {0, 1}, 101);
        // All ranks of the job get the error of one that has no room, and go on.
        CommunicatorId none = kWorld;
        EXPECT_NE(engine.CreateCommunicator({0, 1}, &none).message().find("this host has 64"),
                  std::string::npos);
        RunAlone(engine, last, OneOfEach(2, 1));
        EXPECT_NE(engine.CreateCommunicatorAmong({0, 1}, 102, &none).message().find("this host has 64"),
                  std::string::npos);
      },
      {}, /*orderly=*/false);
}

// A step that fails, in whatever moment, fails the making on all members or on none.
TEST(CommunicatorAmong, WithdrawnWhileItIsMade) {
  RunRanks(2, [](int rank, Engine& engine) {
    for (std::uint64_t key = 0; key < (kSanitized ? 20 : 100); ++key) {
      std::thread interrupter;
      if (rank == 1) {
        interrupter = std::thread([&engine, key] {
          std::this_thread::sleep_for(std::chrono::microseconds(key * 7 % 500));
          engine.CancelAll("interrupted");
        });
      } else if (key % 4 == 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // rank 1 has given it up
      }
      CommunicatorId id = kWorld;
      std::vector<float> own(1), sum(1);
      const bool done = engine.CreateCommunicatorAmong({0, 1}, key, &id).ok();
      if (interrupter.joinable()) interrupter.join();
      own[0] = done ? 1.0f : 0.0f;
      ASSERT_TRUE(Await(engine, AllreduceFloats(own, &sum)).ok());
      EXPECT_EQ(sum[0], 2 * own[0]);
      if (!done) continue;
      // Between hosts the failure may come only now.
      while (!engine.RemoveCommunicator(id).ok()) ASSERT_FALSE(engine.RanksOf(id).empty());
    }
  });
}

TEST(Communicator, ShutdownWithSeveral) {
  RunRanks(3, [](int rank, Engine& engine) {
    Create(engine, {0, 1});
    const CommunicatorId id = Create(engine, {1, 2});
    std::vector<float> data(3000, 1.0f);
    if (rank > 0) {
      ASSERT_TRUE(Await(engine, AllreduceIn(id, &data)).ok());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * rank));
  });
}

}  // namespace
}  // namespace tf_smddp::testing
