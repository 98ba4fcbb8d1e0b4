// The job of the C API: its life, communicators, errors, and what is written of it.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/process/smddp.h"
#include "tests/cpp/process/c_ranks.h"
#include "tests/cpp/testing/ranks.h"

namespace tf_smddp::testing {
namespace {

using Floats = std::vector<float>;

// The sum of what the members of `communicator` bring.
smddp_result Sum(smddp_communicator communicator, float mine, float* sum) {
  const std::vector<int64_t> shape{1};
  const Floats input{mine};
  Floats output{-1};
  smddp_request request = CRequest(SMDDP_ALLREDUCE, SMDDP_FLOAT32, shape, input, &output);
  request.communicator = communicator;
  const smddp_result result = smddp_run(&request);
  *sum = output[0];
  return result;
}

TEST(CJob, BeforeItAndAfterIt) {
  const auto outside = [] {
    EXPECT_EQ(smddp_is_initialized(), 0);
    for (const auto number : {smddp_rank, smddp_size, smddp_local_rank, smddp_local_size}) {
      EXPECT_EQ(number(), -1);
    }
    EXPECT_EQ(smddp_communicator_rank(SMDDP_WORLD), -1);
    EXPECT_EQ(smddp_communicator_size(SMDDP_WORLD), 0);
    float sum = 0;
    ExpectError(Sum(SMDDP_WORLD, 1, &sum), SMDDP_FAILED_PRECONDITION, "call init()");
    smddp_communicator communicator = 0;
    const int ranks[] = {0};
    ExpectError(smddp_create_communicator(ranks, 1, &communicator), SMDDP_FAILED_PRECONDITION, "init()");
    uint64_t ticket = 0;
    ExpectError(smddp_draw_ticket(SMDDP_WORLD, &ticket), SMDDP_FAILED_PRECONDITION, "init()");
    std::array<char, 100> text{};
    ExpectError(smddp_stats(0, text.data(), text.size()), SMDDP_FAILED_PRECONDITION, "init()");
    smddp_fail(SMDDP_WORLD, "");
    smddp_abort("");
    smddp_note_script_end();
    smddp_abort_text(text.data(), text.size());
    EXPECT_STREQ(text.data(), "");
    ExpectSuccess(smddp_stop_timeline());
  };
  outside();
  EXPECT_EQ(smddp_api_version(), SMDDP_API_VERSION);
  EXPECT_NE(std::string(smddp_version()).find('.'), std::string::npos);
  RunCRanks(2, [&outside](int) {
    ExpectError(smddp_init(nullptr, nullptr), SMDDP_FAILED_PRECONDITION, "running already");
    // The text is the calling thread's own.
    std::thread([] { EXPECT_STREQ(smddp_last_error(), ""); }).join();
    ExpectSuccess(smddp_shutdown());
    outside();
    ExpectSuccess(smddp_shutdown());
  });
}

TEST(CJob, AWrongVariable) {
  ::setenv("SMDDP_STALL_WARNING", "often", 1);
  std::array<char, 100> text{};
  const char* const expected = "SMDDP_STALL_WARNING='often'";
  ExpectError(smddp_init(nullptr, nullptr), SMDDP_INVALID_ARGUMENT, expected);
  ExpectError(smddp_process_manager(text.data(), text.size()), SMDDP_INVALID_ARGUMENT, expected);
  ExpectError(smddp_find_libraries("", "", text.data(), text.size()), SMDDP_INVALID_ARGUMENT, expected);
  ::unsetenv("SMDDP_STALL_WARNING");
  ExpectSuccess(smddp_process_manager(text.data(), text.size()));
  EXPECT_STREQ(text.data(), "");
  ExpectSuccess(smddp_find_libraries("/nowhere/libnccl.so.2", nullptr, text.data(), text.size()));
  EXPECT_EQ(std::string(text.data()).rfind("CUDA driver\t", 0), 0u) << text.data();
}

TEST(CJob, Communicators) {
  RunCRanks(3, [](int rank) {
    smddp_communicator last_two = 0;
    const int ranks[] = {2, 1};
    ExpectError(smddp_create_communicator(ranks, -1, &last_two), SMDDP_INVALID_ARGUMENT, "num_ranks is -1");
    ExpectSuccess(smddp_create_communicator(ranks, 2, &last_two));
    EXPECT_NE(last_two, SMDDP_WORLD);
    EXPECT_EQ(smddp_communicator_rank(SMDDP_WORLD), rank);
    EXPECT_EQ(smddp_communicator_size(SMDDP_WORLD), 3);
    EXPECT_EQ(smddp_communicator_rank(last_two), rank - 1);
    EXPECT_EQ(smddp_communicator_size(last_two), 2);
    float sum = 0;
    if (rank == 0) {
      EXPECT_EQ(Sum(last_two, 1, &sum), SMDDP_INVALID_ARGUMENT);
    } else {
      ExpectSuccess(Sum(last_two, static_cast<float>(rank), &sum));
      EXPECT_EQ(sum, 3);
    }
    ExpectSuccess(Sum(SMDDP_WORLD, static_cast<float>(rank), &sum));
    EXPECT_EQ(sum, 3);
    ExpectSuccess(smddp_remove_communicator(last_two));
    EXPECT_EQ(smddp_communicator_size(last_two), 0);
    EXPECT_EQ(smddp_remove_communicator(last_two), SMDDP_INVALID_ARGUMENT);
  });
}

TEST(CJob, ACommunicatorOfItsMembersAlone) {
  RunCRanks(3, [](int rank) {
    smddp_communicator last_two = 0;
    const int ranks[] = {2, 1};
    ExpectError(smddp_create_communicator_among(ranks, -1, 5, &last_two), SMDDP_INVALID_ARGUMENT,
                "num_ranks is -1");
    if (rank == 0) {
      ExpectError(smddp_create_communicator_among(ranks, 2, 5, &last_two), SMDDP_INVALID_ARGUMENT,
                  "rank 0 is not among ranks 1, 2");
      return;
    }
    ExpectError(smddp_create_communicator_among(ranks, 2, 8388608, &last_two), SMDDP_INVALID_ARGUMENT,
                "key 8388608");
    ExpectSuccess(smddp_create_communicator_among(ranks, 2, 5, &last_two));
    EXPECT_EQ(smddp_communicator_rank(last_two), rank - 1);
    EXPECT_EQ(smddp_communicator_size(last_two), 2);
    float sum = 0;
    ExpectSuccess(Sum(last_two, static_cast<float>(rank), &sum));
    EXPECT_EQ(sum, 3);
    ExpectSuccess(smddp_remove_communicator(last_two));
    EXPECT_EQ(smddp_communicator_size(last_two), 0);
  });
}

// The ranks leave one after the other; the sums of the others go on without them.
TEST(CJob, LeavingAndReturning) {
  RunCRanks(3, [](int rank) {
    float sum = 0;
    for (int step = 0; step <= rank; ++step) {
      ExpectSuccess(Sum(SMDDP_WORLD, 1, &sum));
      EXPECT_EQ(sum, static_cast<float>(3 - step));
    }
    ExpectSuccess(smddp_leave(SMDDP_WORLD));
    int last = -1;
    ExpectSuccess(smddp_return(SMDDP_WORLD, &last));
    EXPECT_EQ(last, 2);
    ExpectError(smddp_return(SMDDP_WORLD, &last), SMDDP_FAILED_PRECONDITION, "has not left");
    ExpectSuccess(Sum(SMDDP_WORLD, 1, &sum));
    EXPECT_EQ(sum, 3);
  });
}

TEST(CJob, AnAbortEndsItForAll) {
  RunCRanks(
      2,
      [](int rank) {
        float sum = 0;
        if (rank == 1) smddp_abort("rank 1 has had enough");
        ExpectError(Sum(SMDDP_WORLD, 1, &sum), SMDDP_INTERNAL, "rank 1 has had enough");
        ExpectError(Sum(SMDDP_WORLD, 1, &sum), SMDDP_INTERNAL, "rank 1 has had enough");
        std::array<char, 100> text{};
        smddp_abort_text(text.data(), text.size());
        EXPECT_NE(std::string(text.data()).find("rank 1 has had enough"), std::string::npos) << text.data();
        smddp_abort_text(text.data(), 5);
        EXPECT_EQ(std::string(text.data()).size(), 4u);
      },
      /*orderly=*/false);
}

TEST(CJob, StatisticsAndTimeline) {
  const PrivateDirectory directory;
  RunCRanks(2, [&directory](int rank) {
    const std::string path = directory.path() + "/" + std::to_string(rank) + ".json";
    ExpectSuccess(smddp_start_timeline(path.c_str()));
    EXPECT_EQ(smddp_start_timeline(path.c_str()), SMDDP_FAILED_PRECONDITION);
    ExpectSuccess(smddp_stop_timeline());
    EXPECT_EQ(smddp_start_timeline(nullptr), SMDDP_INTERNAL);
    ExpectSuccess(smddp_start_timeline(path.c_str()));
    float sum = 0;
    ExpectSuccess(Sum(SMDDP_WORLD, 1, &sum));
    ExpectSuccess(smddp_stop_timeline());
    std::stringstream timeline;
    timeline << std::ifstream(path).rdbuf();
    EXPECT_NE(timeline.str().find("allreduce"), std::string::npos) << timeline.str();
    std::remove(path.c_str());

    std::vector<char> text(1 << 18);
    ExpectError(smddp_stats(0, text.data(), 10), SMDDP_INTERNAL, "more than the 10 there is room for");
    ExpectSuccess(smddp_stats(1, text.data(), text.size()));
    EXPECT_NE(std::string(text.data()).find("\"allreduce\": {\"calls\": 1,"), std::string::npos);
    ExpectSuccess(smddp_stats(0, text.data(), text.size()));
    EXPECT_NE(std::string(text.data()).find("\"allreduce\": {\"calls\": 0,"), std::string::npos);
  });
}

// Ctrl-C in one rank ends what it waits for, on all ranks; the handler of before is called, too.
TEST(CJob, Interrupts) {
  RunCRanks(2, [](int rank) {
    static volatile std::sig_atomic_t handled = 0;
    std::signal(SIGINT, [](int) { handled = 1; });
    ExpectSuccess(smddp_watch_interrupts());
    float sum = 0;
    if (rank == 0) {
      std::thread presses([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::raise(SIGINT);
      });
      ExpectError(Sum(SMDDP_WORLD, 1, &sum), SMDDP_INTERNAL, "rank 0 was interrupted (SIGINT)");
      presses.join();
      EXPECT_EQ(handled, 1);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ExpectError(Sum(SMDDP_WORLD, 1, &sum), SMDDP_INTERNAL, "rank 0 was interrupted (SIGINT)");
    }
    smddp_stop_watching_interrupts();
    ExpectSuccess(Sum(SMDDP_WORLD, 1, &sum));
  });
}

TEST(CJob, AForkedChild) {
  RunCRanks(2, [](int) {
    auto* shared = static_cast<char*>(smddp_allocate(1000));
    *shared = 1;
    const pid_t child = ::fork();
    if (child == 0) {
      float sum = 0;
      ExpectError(Sum(SMDDP_WORLD, 1, &sum), SMDDP_FAILED_PRECONDITION, "forked child");
      auto* own = static_cast<char*>(smddp_allocate(1000));
      *own = *shared = 2;
      EXPECT_EQ(smddp_is_in_arena(own), 0);
      smddp_free(own);
      smddp_free(shared);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(*shared, 1);
    smddp_free(shared);
    float sum = 0;
    ExpectSuccess(Sum(SMDDP_WORLD, 1, &sum));
  });
}

}  // namespace
}  // namespace tf_smddp::testing
