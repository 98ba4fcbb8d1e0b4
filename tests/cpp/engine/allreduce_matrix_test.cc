// Every size × type × op × count, in private memory and in arenas, in place and not, submitted in shuffled
// orders.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/reduce/reduce.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

struct Case {
  DType dtype;
  ReduceOp op;
  std::int64_t count;
  bool in_arena;
  bool in_place;
};

// Small integers, exact in every type; different for each rank. The bits of float16 and bfloat16 are written
// directly.
void Fill(const Case& one, int rank, int salt, std::vector<std::byte>* data) {
  // 0, 1, 2, 3
  static constexpr std::uint16_t kHalf[] = {0, 0x3c00, 0x4000, 0x4200};
  static constexpr std::uint16_t kBFloat[] = {0, 0x3f80, 0x4000, 0x4040};
  data->resize(static_cast<std::size_t>(one.count) * DTypeBytes(one.dtype));
  for (std::int64_t i = 0; i < one.count; ++i) {
    const int value = static_cast<int>((i * 7 + rank * 3 + salt) % 4);
    void* at = data->data() + static_cast<std::size_t>(i) * DTypeBytes(one.dtype);
    const auto put = [at](auto typed) { std::memcpy(at, &typed, sizeof typed); };
    switch (one.dtype) {
      case DType::kFloat16:
        put(kHalf[value]);
        break;
      case DType::kBFloat16:
        put(kBFloat[value]);
        break;
      case DType::kFloat32:
        put(static_cast<float>(value));
        break;
      case DType::kFloat64:
        put(static_cast<double>(value));
        break;
      case DType::kInt32:
        put(static_cast<std::int32_t>(value - 1));
        break;
      case DType::kInt64:
        put(static_cast<std::int64_t>(value - 1));
        break;
      case DType::kUInt8:
        put(static_cast<std::uint8_t>(value));
        break;
      case DType::kBool:
        put(static_cast<std::uint8_t>(value & 1));
        break;
    }
  }
}

std::vector<std::byte> Expected(const Case& one, int size, int salt) {
  std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(size));
  std::vector<const void*> pointers;
  for (int rank = 0; rank < size; ++rank) {
    Fill(one, rank, salt, &inputs[static_cast<std::size_t>(rank)]);
    pointers.push_back(inputs[static_cast<std::size_t>(rank)].data());
  }
  std::vector<std::byte> output(inputs[0].size());
  void* to = output.data();
  Reduce(one.dtype, one.op, pointers.data(), size, &to, 1, static_cast<std::size_t>(one.count));
  return output;
}

// A tensor in the arena or in private memory.
class Buffer {
 public:
  Buffer(Engine& engine, const std::vector<std::byte>& content, bool in_arena)
      : arena_(in_arena ? engine.arena() : nullptr), bytes_(content.size()) {
    if (arena_ != nullptr) data_ = static_cast<std::byte*>(arena_->Allocate(bytes_));
    if (data_ == nullptr) {
      arena_ = nullptr;  // full, or a job of one rank
      private_.resize(bytes_ + 1);
      data_ = private_.data();
    }
    if (bytes_ > 0) std::memcpy(data_, content.data(), bytes_);
  }
  ~Buffer() {
    if (arena_ != nullptr) arena_->Free(data_, bytes_);
  }
  Buffer(Buffer&&) = delete;
  std::byte* data() { return data_; }

 private:
  Arena* arena_;
  std::size_t bytes_;
  std::vector<std::byte> private_;
  std::byte* data_ = nullptr;
};

bool SameBytes(const std::byte* data, const std::vector<std::byte>& expected) {
  return std::equal(expected.begin(), expected.end(), data);
}

// Runs `cases` as one group.
void RunGroup(Engine& engine, int rank, int size, const std::vector<Case>& cases) {
  const std::uint64_t ticket = engine.NextTicket();
  const auto num_params = static_cast<std::uint32_t>(cases.size());
  std::vector<std::unique_ptr<Buffer>> inputs, outputs;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::vector<std::byte> content;
    Fill(cases[i], rank, static_cast<int>(i), &content);
    inputs.push_back(std::make_unique<Buffer>(engine, content, cases[i].in_arena));
    if (!cases[i].in_place) {
      const std::vector<std::byte> garbage(content.size(), std::byte{0x5a});
      outputs.push_back(std::make_unique<Buffer>(engine, garbage, cases[i].in_arena));
    } else {
      outputs.push_back(nullptr);
    }
    order.push_back(i);
  }
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank + 100 * ticket)));
  std::vector<Request> requests;
  for (const std::size_t i : order) {
    std::byte* output = (cases[i].in_place ? inputs[i] : outputs[i])->data();
    requests.push_back(InGroup(MakeRequest(CollectiveKind::kAllreduce, cases[i].dtype, cases[i].op,
                                           inputs[i]->data(), output, cases[i].count),
                               ticket, static_cast<std::uint32_t>(i), num_params));
  }
  const std::vector<Status> statuses = AwaitAll(engine, std::move(requests));
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::size_t i = order[k];
    const Case& one = cases[i];
    ASSERT_TRUE(statuses[k].ok()) << statuses[k].message();
    const std::vector<std::byte> expected = Expected(one, size, static_cast<int>(i));
    const std::byte* output = (one.in_place ? inputs[i] : outputs[i])->data();
    ASSERT_TRUE(SameBytes(output, expected))
        << DTypeName(one.dtype) << " " << ReduceOpName(one.op) << " count " << one.count << " arena "
        << one.in_arena << " in place " << one.in_place << " size " << size << " rank " << rank;
    if (!one.in_place) {
      std::vector<std::byte> input;
      Fill(one, rank, static_cast<int>(i), &input);
      ASSERT_TRUE(SameBytes(inputs[i]->data(), input)) << "the input was changed";
    }
  }
}

std::vector<Case> CasesOf(std::int64_t count, bool every_placement) {
  std::vector<Case> cases;
  int turn = 0;
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      if (!ReduceOpDefined(static_cast<DType>(dtype), static_cast<ReduceOp>(op))) continue;
      // All four placements, or one after the other.
      for (int placement = 0; placement < 4; ++placement) {
        if (!every_placement && placement != turn % 4) continue;
        cases.push_back({static_cast<DType>(dtype), static_cast<ReduceOp>(op), count, placement % 2 == 0,
                         placement / 2 == 0});
      }
      ++turn;
    }
  }
  return cases;
}

class AllreduceMatrix : public ::testing::TestWithParam<int> {};

TEST_P(AllreduceMatrix, SmallAndMediumCounts) {
  const int size = GetParam();
  if (kThreadSanitizer && size > 3) return;  // the smaller matrix: its ranks are 1, 2 and 3
  const std::vector<std::int64_t> counts =
      kSanitized ? std::vector<std::int64_t>{0, 1, size + 1, 5003}
                 : std::vector<std::int64_t>{0, 1, size - 1, size, size + 1, 997, 5003, 70001};
  RunRanks(
      size,
      [&](int rank, Engine& engine) {
        for (const std::int64_t count : counts) RunGroup(engine, rank, size, CasesOf(count, true));
      },
      [](int, Config* config) { config->chunk_bytes = 64 << 10; });
}

TEST_P(AllreduceMatrix, OneMebiElements) {
  const int size = GetParam();
  if (kSanitized && size > 2) return;  // the smaller matrix
  RunRanks(size, [&](int rank, Engine& engine) {
    const std::vector<Case> cases = CasesOf(1 << 20, false);
    for (std::size_t i = 0; i < cases.size(); i += kSanitized ? 8 : 2) {
      RunGroup(engine, rank, size, {cases[i]});
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllreduceMatrix, ::testing::Range(1, 9));

// The same request on the paths that configuration opens: no small path, tiny chunks, tiny buckets, a tiny
// table whose rings wrap round.
TEST(AllreducePaths, ConfigurationDoesNotChangeResults) {
  const int size = 3;
  const std::vector<Tweak> tweaks = {
      [](int, Config* config) { config->small_bytes = 0; },
      [](int, Config* config) { config->chunk_bytes = 128; },
      [](int, Config* config) { config->bucket_cap_bytes = 128; },
      [](int, Config* config) { config->table_slots = 256, config->bucket_cap_bytes = 4096; },
      [](int, Config* config) { config->small_bytes = 1 << 20; },
  };
  for (const Tweak& tweak : tweaks) {
    RunRanks(
        size,
        [&](int rank, Engine& engine) {
          for (int round = 0; round < (kThreadSanitizer ? 1 : 4); ++round) {
            for (const std::int64_t count : {0, 1, 33, 4097})
              RunGroup(engine, rank, size, CasesOf(count, true));
          }
        },
        tweak);
  }
}

// Small requests of which one rank has no room for a span go the staged way on all.
TEST(AllreducePaths, OneRanksArenaIsFull) {
  const int size = 3;
  RunRanks(size, [&](int rank, Engine& engine) {
    if (rank == 1) {
      for (std::uint64_t bytes = 16 << 20; bytes >= 64; bytes /= 2) {
        while (engine.arena()->Allocate(bytes) != nullptr) {
        }
      }
    }
    for (const bool in_place : {true, false}) {
      RunGroup(engine, rank, size,
               {{DType::kFloat32, ReduceOp::kSum, 3, false, in_place},
                {DType::kInt64, ReduceOp::kMax, 100, false, in_place},
                {DType::kFloat16, ReduceOp::kAverage, 1000, false, in_place}});
    }
  });
}

// Ranks whose tensors lie in different kinds of memory.
TEST(AllreducePaths, PlacementsMayDifferByRank) {
  const int size = 3;
  RunRanks(size, [&](int rank, Engine& engine) {
    for (int round = 0; round < 4; ++round) {
      for (const std::int64_t count : {1, 1000, 300000}) {
        RunGroup(engine, rank, size,
                 {{DType::kFloat32, ReduceOp::kSum, count, (rank + round) % 2 == 0, (rank + round) % 3 == 0},
                  {DType::kInt64, ReduceOp::kMax, count, rank == round, rank != round}});
      }
    }
  });
}

}  // namespace
}  // namespace tf_smddp::testing
