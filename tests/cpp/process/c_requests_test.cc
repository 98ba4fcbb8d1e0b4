// Requests of the C API: each collective, each way to wait, order, groups, buffers and what is refused.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/process/smddp.h"
#include "tests/cpp/process/c_ranks.h"

namespace tf_smddp::testing {
namespace {

using Floats = std::vector<float>;
using Sizes = std::vector<int64_t>;

smddp_request Allreduce(const Floats& input, Floats* output, const Sizes& shape) {
  return CRequest(SMDDP_ALLREDUCE, SMDDP_FLOAT32, shape, input, output);
}

smddp_result StartOne(const smddp_request& request, smddp_operation** operation) {
  const smddp_request* const requests[] = {&request};
  return smddp_start(requests, 1, operation);
}

class CRequests : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CRequests, ::testing::Values(1, 2, 3));

TEST_P(CRequests, Allreduce) {
  const int size = GetParam();
  RunCRanks(size, [size](int rank) {
    EXPECT_EQ(smddp_rank(), rank);
    EXPECT_EQ(smddp_size(), size);
    EXPECT_EQ(smddp_local_rank(), rank);
    EXPECT_EQ(smddp_local_size(), size);
    const float sum = static_cast<float>(size * (size + 1) / 2);
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{300000}}) {
      const auto length = static_cast<std::size_t>(count);
      Floats input(length, static_cast<float>(rank + 1)), output(length, -1);
      const Sizes shape{count};
      smddp_request request = Allreduce(input, &output, shape);
      ExpectSuccess(smddp_run(&request));
      EXPECT_EQ(output, Floats(length, sum));
      request.op = SMDDP_AVERAGE;
      request.prescale = 2.0;
      request.postscale = 0.5;
      ExpectSuccess(smddp_run(&request));
      EXPECT_EQ(output, Floats(length, sum / static_cast<float>(size)));
      request = Allreduce(input, &input, shape);
      request.input.data = nullptr;  // in place
      request.op = SMDDP_MAX;
      ExpectSuccess(smddp_run(&request));
      EXPECT_EQ(input, Floats(length, static_cast<float>(size)));
    }
  });
}

TEST_P(CRequests, BFloat16) {
  const int size = GetParam();
  RunCRanks(size, [size](int) {
    constexpr uint16_t kNumbers[] = {0, 0x3f80, 0x4000, 0x4040};  // 0, 1, 2, 3
    const std::vector<uint16_t> input(100, kNumbers[1]);
    std::vector<uint16_t> output(100);
    const Sizes shape{10, 10};
    const smddp_request request = CRequest(SMDDP_ALLREDUCE, SMDDP_BFLOAT16, shape, input, &output);
    ExpectSuccess(smddp_run(&request));
    EXPECT_EQ(output, std::vector<uint16_t>(100, kNumbers[size]));
  });
}

TEST_P(CRequests, BroadcastAndBarrier) {
  const int size = GetParam();
  RunCRanks(size, [size](int rank) {
    smddp_request barrier;
    smddp_request_init(&barrier, sizeof barrier);
    barrier.collective = SMDDP_BARRIER;
    for (int root = 0; root < size; ++root) {
      Floats data(50000, static_cast<float>(rank));
      const Sizes shape{50000};
      smddp_request request = CRequest(SMDDP_BROADCAST, SMDDP_FLOAT32, shape, data, &data);
      request.root = root;
      ExpectSuccess(smddp_run(&request));
      EXPECT_EQ(data, Floats(50000, static_cast<float>(root)));
      ExpectSuccess(smddp_run(&barrier));
    }
  });
}

// Rank r brings r + 1 rows of two elements.
TEST_P(CRequests, AllgatherOfUnevenRows) {
  const int size = GetParam();
  RunCRanks(size, [size](int rank) {
    const Floats input(static_cast<std::size_t>(2 * (rank + 1)), static_cast<float>(rank));
    Floats expected;
    Sizes expected_rows;
    for (int each = 0; each < size; ++each) {
      expected.insert(expected.end(), static_cast<std::size_t>(2 * (each + 1)), static_cast<float>(each));
      expected_rows.push_back(each + 1);
    }
    Floats output(expected.size());
    Sizes rows(static_cast<std::size_t>(size));
    const Sizes shape{rank + 1, 2};
    smddp_request request = CRequest(SMDDP_ALLGATHER, SMDDP_FLOAT32, shape, input, &output);
    request.rows = rows.data();
    ExpectSuccess(smddp_run(&request));
    EXPECT_EQ(output, expected);
    EXPECT_EQ(rows, expected_rows);

    // The same, with an output of the size that the ranks have found.
    Floats allocated;
    request.output = {};
    request.rows = nullptr;
    request.allocate_context = &allocated;
    request.allocate = [](void* context, const int64_t* all, int num_rows) -> void* {
      auto& floats = *static_cast<Floats*>(context);
      floats.resize(2 * static_cast<std::size_t>(std::accumulate(all, all + num_rows, int64_t{0})));
      return floats.data();
    };
    ExpectSuccess(smddp_run(&request));
    EXPECT_EQ(allocated, expected);
  });
}

TEST_P(CRequests, ReduceScatterOfUnevenParts) {
  const int size = GetParam();
  RunCRanks(size, [size](int rank) {
    Floats input(7 * 2);
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i / 2);
    const int64_t begin = rank * (7 / size) + std::min(rank, 7 % size);
    const int64_t count = 7 / size + (rank < 7 % size ? 1 : 0);
    Floats expected;
    for (int64_t row = begin; row < begin + count; ++row) {
      expected.insert(expected.end(), 2, static_cast<float>(size * row));
    }
    Floats output(expected.size());
    int64_t rows = 0;
    const Sizes shape{7, 2};
    smddp_request request = CRequest(SMDDP_REDUCE_SCATTER, SMDDP_FLOAT32, shape, input, &output);
    request.rows = &rows;
    ExpectSuccess(smddp_run(&request));
    EXPECT_EQ(output, expected);
    EXPECT_EQ(rows, count);
  });
}

// Rank r sends r + i + 1 elements, of the value 10 r + i, to rank i.
TEST_P(CRequests, AlltoallOfUnevenSplits) {
  const int size = GetParam();
  RunCRanks(size, [size](int rank) {
    Floats input, expected;
    Sizes splits, expected_rows;
    for (int each = 0; each < size; ++each) {
      const auto count = static_cast<std::size_t>(rank + each + 1);
      input.insert(input.end(), count, static_cast<float>(10 * rank + each));
      expected.insert(expected.end(), count, static_cast<float>(10 * each + rank));
      splits.push_back(rank + each + 1);
    }
    Floats output(expected.size());
    Sizes rows(static_cast<std::size_t>(size));
    const Sizes shape{static_cast<int64_t>(input.size())};
    smddp_request request = CRequest(SMDDP_ALLTOALL, SMDDP_FLOAT32, shape, input, &output);
    request.splits = splits.data();
    request.num_splits = size;
    request.rows = rows.data();
    ExpectSuccess(smddp_run(&request));
    EXPECT_EQ(output, expected);
    EXPECT_EQ(rows, splits);
  });
}

// Several requests at once: their order is that of the calls.
TEST_P(CRequests, CallbacksAndOperations) {
  const int size = GetParam();
  RunCRanks(size, [size](int rank) {
    constexpr int kRequests = 20;
    std::array<Floats, kRequests> data;
    std::array<std::promise<std::string>, kRequests> ends;
    std::vector<smddp_operation*> operations;
    Sizes shape{0};
    for (int i = 0; i < kRequests; ++i) {
      Floats& each = data[static_cast<std::size_t>(i)];
      each.assign(static_cast<std::size_t>(i * i * 20), static_cast<float>(i + rank));
      shape[0] = static_cast<int64_t>(each.size());  // which the library has read when it returns
      const smddp_request request = Allreduce(each, &each, shape);
      if (i % 2 == 0) {
        const auto done = [](void* context, smddp_result result, const char* error) {
          static_cast<std::promise<std::string>*>(context)->set_value(result == SMDDP_SUCCESS ? "" : error);
        };
        ExpectSuccess(smddp_submit(&request, done, &ends[static_cast<std::size_t>(i)]));
      } else {
        operations.push_back(nullptr);
        ExpectSuccess(StartOne(request, &operations.back()));
      }
    }
    for (smddp_operation* operation : operations) {
      ExpectSuccess(smddp_wait(operation));
      EXPECT_EQ(smddp_test(operation), 1);
      ExpectSuccess(smddp_wait(operation));  // again
      smddp_release(operation);
    }
    for (int i = 0; i < kRequests; i += 2) {
      EXPECT_EQ(ends[static_cast<std::size_t>(i)].get_future().get(), "");
    }
    for (int i = 0; i < kRequests; ++i) {
      const float sum = static_cast<float>(size * i + size * (size - 1) / 2);
      EXPECT_EQ(data[static_cast<std::size_t>(i)], Floats(static_cast<std::size_t>(i * i * 20), sum));
    }
  });
}

TEST(COperations, WaitingForAnotherRank) {
  RunCRanks(2, [](int rank) {
    Floats data(3, 1);
    const Sizes shape{3};
    const smddp_request request = Allreduce(data, &data, shape);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    smddp_operation* operation = nullptr;
    ExpectSuccess(StartOne(request, &operation));
    if (rank == 0) {
      EXPECT_EQ(smddp_test(operation), 0);
    }
    smddp_release(operation);  // the request goes on
    smddp_request barrier;
    smddp_request_init(&barrier, sizeof barrier);
    barrier.collective = SMDDP_BARRIER;
    ExpectSuccess(smddp_run(&barrier));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (*static_cast<volatile float*>(data.data()) != 2 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(data, Floats(3, 2));
    smddp_release(nullptr);
  });
}

// A part of the group is one operation; each rank has another order in it.
TEST_P(CRequests, SeveralAsOneOperation) {
  const int size = GetParam();
  RunCRanks(size, [size](int rank) {
    constexpr uint32_t kTensors = 6;
    uint64_t ticket = 0;
    ExpectSuccess(smddp_draw_ticket(SMDDP_WORLD, &ticket));
    std::array<Floats, kTensors> data;
    std::array<smddp_request, kTensors> requests;
    std::array<Sizes, kTensors> shapes;
    std::vector<const smddp_request*> some;
    for (uint32_t i = 0; i < kTensors; ++i) {
      const uint32_t index = (i + static_cast<uint32_t>(rank)) % kTensors;
      data[index].assign(index == 3 ? 300000 : 10 * index, static_cast<float>(index));
      shapes[index] = {static_cast<int64_t>(data[index].size())};
      requests[index] = Allreduce(data[index], &data[index], shapes[index]);
      requests[index].ticket = ticket;
      requests[index].group_index = index;
      requests[index].group_size = kTensors;
      some.push_back(&requests[index]);
    }
    smddp_operation *first = nullptr, *rest = nullptr, *none = nullptr;
    // A request that is refused takes those beside it along: this must not submit the first ones twice.
    smddp_request bad = requests[0];
    bad.op = 7;
    const smddp_request* const refused[] = {some[0], some[1], &bad};
    ExpectError(smddp_start(refused, 3, &none), SMDDP_INVALID_ARGUMENT, "op is 7");
    EXPECT_EQ(none, nullptr);
    ExpectSuccess(smddp_start(some.data(), 2, &first));
    ExpectSuccess(smddp_start(some.data() + 2, kTensors - 2, &rest));
    ExpectSuccess(smddp_start(nullptr, 0, &none));
    EXPECT_EQ(smddp_test(none), 1);
    for (smddp_operation* each : {first, rest, none}) {
      ExpectSuccess(smddp_wait(each));
      EXPECT_EQ(smddp_test(each), 1);
      smddp_release(each);
    }
    for (uint32_t i = 0; i < kTensors; ++i) {
      EXPECT_EQ(data[i], Floats(data[i].size(), static_cast<float>(size) * static_cast<float>(i)));
    }
  });
}

// The second of three requests has another shape on one rank. The others may have succeeded or not.
TEST(COperations, TheErrorOfOneOfSeveral) {
  RunCRanks(2, [](int rank) {
    std::array<Floats, 3> data;
    std::array<Sizes, 3> shapes;
    std::array<smddp_request, 3> requests;
    const smddp_request* pointers[3];
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i].assign(i == 1 && rank == 1 ? 5 : 4, 1);
      shapes[i] = {static_cast<int64_t>(data[i].size())};
      requests[i] = Allreduce(data[i], &data[i], shapes[i]);
      pointers[i] = &requests[i];
    }
    smddp_operation* operation = nullptr;
    ExpectSuccess(smddp_start(pointers, data.size(), &operation));
    ExpectError(smddp_wait(operation), SMDDP_INTERNAL, "[5]");
    smddp_release(operation);
  });
}

TEST(COperations, OfOneCommunicatorAlone) {
  RunCRanks(2, [](int rank) {
    smddp_communicator pair = SMDDP_WORLD;
    const int ranks[] = {0, 1};
    ExpectSuccess(smddp_create_communicator(ranks, 2, &pair));
    Floats data(4, static_cast<float>(rank));
    const Sizes shape{4};
    const smddp_request world = Allreduce(data, &data, shape);
    smddp_request other = world;
    other.communicator = pair;
    const smddp_request* const both[] = {&world, &other};
    smddp_operation* operation = nullptr;
    ExpectError(smddp_start(both, 2, &operation), SMDDP_INVALID_ARGUMENT, "start those of each");
    EXPECT_EQ(operation, nullptr);
  });
}

// Each rank has another order in the group.
TEST_P(CRequests, GroupsInAnyOrder) {
  const int size = GetParam();
  RunCRanks(size, [size](int rank) {
    constexpr uint32_t kTensors = 6;
    for (int step = 0; step < 5; ++step) {
      uint64_t ticket = 0;
      ExpectSuccess(smddp_draw_ticket(SMDDP_WORLD, &ticket));
      std::array<Floats, kTensors> data;
      std::array<smddp_operation*, kTensors> operations{};
      for (uint32_t i = 0; i < kTensors; ++i) {
        const uint32_t index = (i + static_cast<uint32_t>(rank)) % kTensors;
        data[index].assign(1000 * (index + 1), static_cast<float>(index));
        const Sizes shape{static_cast<int64_t>(data[index].size())};
        smddp_request request = Allreduce(data[index], &data[index], shape);
        request.ticket = ticket;
        request.group_index = index;
        request.group_size = kTensors;
        ExpectSuccess(StartOne(request, &operations[index]));
      }
      for (uint32_t i = 0; i < kTensors; ++i) {
        ExpectSuccess(smddp_wait(operations[i]));
        smddp_release(operations[i]);
        EXPECT_EQ(data[i], Floats(1000 * (i + 1), static_cast<float>(size) * static_cast<float>(i)));
      }
    }
  });
}

TEST_P(CRequests, MemoryOfTheArena) {
  const int size = GetParam();
  float* kept = nullptr;
  RunCRanks(size, [size, &kept](int rank) {
    constexpr std::size_t kCount = 100000;
    auto* data = static_cast<float*>(smddp_allocate(kCount * sizeof(float)));
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 256, 0u);
    EXPECT_EQ(smddp_is_in_arena(data), size > 1 ? 1 : 0);
    EXPECT_EQ(smddp_is_in_arena(&kept), 0);
    std::fill(data, data + kCount, static_cast<float>(rank));
    const int64_t shape[] = {kCount};
    smddp_request request;
    smddp_request_init(&request, sizeof request);
    request.dtype = SMDDP_FLOAT32;
    request.shape = shape;
    request.num_dims = 1;
    request.input.data = request.output.data = data;
    request.input.bytes = request.output.bytes = kCount * sizeof(float);
    ExpectSuccess(smddp_run(&request));
    EXPECT_EQ(data[kCount - 1], static_cast<float>(size * (size - 1) / 2));
    void* const large = smddp_allocate(std::size_t{64} << 20);  // more than the arena has
    EXPECT_NE(large, nullptr);
    EXPECT_EQ(smddp_is_in_arena(large), 0);
    EXPECT_EQ(smddp_allocate(SIZE_MAX), nullptr);
    smddp_free(large);
    smddp_free(nullptr);
    ExpectSuccess(smddp_shutdown());
    EXPECT_EQ(data[0], static_cast<float>(size * (size - 1) / 2));  // still there
    smddp_free(data);
  });
}

TEST(CRequestErrors, WhatIsRefusedHere) {
  RunCRanks(1, [](int) {
    Floats input(4), output(4);
    const Sizes shape{2, 2};
    const smddp_request good = CRequest(SMDDP_ALLGATHER, SMDDP_FLOAT32, shape, input, &output);
    const auto refused = [](smddp_request request, const std::string& part) {
      ExpectError(smddp_run(&request), SMDDP_INVALID_ARGUMENT, part);
      smddp_operation* operation = nullptr;
      ExpectError(StartOne(request, &operation), SMDDP_INVALID_ARGUMENT, part);
      EXPECT_EQ(operation, nullptr);
      const auto done = [](void*, smddp_result, const char*) { ADD_FAILURE() << "called"; };
      ExpectError(smddp_submit(&request, done, nullptr), SMDDP_INVALID_ARGUMENT, part);
    };
    ExpectSuccess(smddp_run(&good));
    smddp_request bad = good;
    bad.struct_size = sizeof bad + 8;
    refused(bad, "a library that is not older than the header");
    bad.struct_size = 8;
    refused(bad, "Begin with smddp_request_init()");
    bad = good, bad.collective = 6;
    refused(bad, "collective is 6; it is 0 to 5");
    bad = good, bad.dtype = 15;
    refused(bad, "dtype is 15");
    bad = good, bad.op = -1;
    refused(bad, "op is -1");
    bad = good, bad.compression = 3;
    refused(bad, "compression is 3");
    bad = good, bad.timeout = -0.5;
    refused(bad, "timeout is -0.5");
    bad = good, bad.timeout = std::numeric_limits<double>::quiet_NaN();
    refused(bad, "timeout is");
    bad = good, bad.input.memory = 2;
    refused(bad, "input.memory is 2");
    bad = good, bad.output.memory = SMDDP_CUDA;
    refused(bad, "in memory of different kinds");
    bad = good, bad.num_dims = -1;
    refused(bad, "num_dims is -1");
    bad = good, bad.shape = nullptr;
    refused(bad, "its shape or splits is NULL");
    const Sizes negative{-1}, huge{int64_t{1} << 40, int64_t{1} << 40};
    bad = good, bad.shape = negative.data(), bad.num_dims = 1;
    refused(bad, "shape is -1");
    bad = good, bad.shape = huge.data();
    refused(bad, "too many bytes");
    bad = good, bad.input.bytes = 15;
    refused(bad, "input takes 16 bytes, and there is room for 15");
    bad = good, bad.collective = SMDDP_BROADCAST, bad.output.bytes = 15;
    refused(bad, "output takes 16 bytes, and there is room for 15");
  });
}

// An error that is found when the ranks have met, or by the engine, ends the request.
TEST(CRequestErrors, WhatEndsWithAnError) {
  RunCRanks(2, [](int rank) {
    Floats input(4), output(4);
    const Sizes shape{4};
    smddp_request request = CRequest(SMDDP_ALLGATHER, SMDDP_FLOAT32, shape, input, &output);
    ExpectError(smddp_run(&request), SMDDP_INTERNAL, "output takes 32 bytes, and there is room for 16");
    request = Allreduce(input, &output, shape);
    request.communicator = 77;
    std::promise<std::string> end;
    const auto done = [](void* context, smddp_result result, const char* error) {
      EXPECT_EQ(result, SMDDP_INVALID_ARGUMENT);
      static_cast<std::promise<std::string>*>(context)->set_value(error);
    };
    ExpectSuccess(smddp_submit(&request, done, &end));
    EXPECT_NE(end.get_future().get().find("77"), std::string::npos);

    // The ranks disagree: in a size, and in a name.
    const Sizes other{4 - rank};
    request = Allreduce(input, &output, other);
    request.label = "weights";
    ExpectError(smddp_run(&request), SMDDP_INTERNAL, "weights");
    request = Allreduce(input, &output, shape);
    request.name = rank == 0 ? "left" : "right";
    ExpectError(smddp_run(&request), SMDDP_INTERNAL, "left");

    // One rank cannot do its part.
    request = Allreduce(input, &output, shape);
    if (rank == 0) {
      ExpectError(smddp_run(&request), SMDDP_INTERNAL, "rank 1 could not begin a collective: no data");
    } else {
      smddp_fail(SMDDP_WORLD, "no data");
    }
    ExpectSuccess(smddp_run(&request));  // the ranks meet again
  });
}

}  // namespace
}  // namespace tf_smddp::testing
