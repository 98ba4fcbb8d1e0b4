// A process that writes random bytes into the shared tables of a live job. Results may be wrong and steps may
// fail, but no rank crashes, reads or writes outside (AddressSanitizer looks), or hangs beyond what an abort
// ends.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cpp/testing/limited_ranks.h"
#include "tests/cpp/testing/ranks.h"
#include "tests/cpp/testing/sanitizers.h"

namespace tf_smddp::testing {
namespace {

using std::chrono::milliseconds;

struct Region {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;  // in the segment
};

// Returns where this process has mapped the control segment: its head first, then its communicators.
std::vector<Region> ControlRegions() {
  std::vector<Region> regions;
  std::string line;
  for (std::ifstream maps("/proc/self/maps"); std::getline(maps, line);) {
    if (line.find("/memfd:smddp-control") == std::string::npos) continue;
    Region region;
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string permissions;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> permissions >> region.offset;
    region.data = reinterpret_cast<std::byte*>(begin);
    region.bytes = end - begin;
    regions.push_back(region);
  }
  std::sort(regions.begin(), regions.end(),
            [](const Region& a, const Region& b) { return a.offset < b.offset; });
  return regions;
}

// Overwrites a word of `region`, with a number like those that lie there, or a wild one.
void Scribble(const Region& region, std::mt19937_64* random) {
  auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(region.data);
  std::atomic<std::uint64_t>& word = words[(*random)() % (region.bytes / sizeof(std::uint64_t))];
  const std::uint64_t old = word.load(std::memory_order_relaxed);
  std::uint64_t wild = (*random)();
  switch ((*random)() % 6) {
    case 0:
      break;
    case 1:
      wild = old + 1;
      break;
    case 2:
      wild = old ^ (std::uint64_t{1} << (*random)() % 64);
      break;
    case 3:
      wild = (*random)() % 4096;
      break;
    case 4:
      wild = ~std::uint64_t{0};
      break;
    default:
      wild = old << ((*random)() % 32);
  }
  word.store(wild, std::memory_order_relaxed);
}

Request RandomRequest(std::mt19937_64* random, int size, const float* input, std::vector<float>* output) {
  constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllreduce, CollectiveKind::kBroadcast,
                                       CollectiveKind::kAllgather, CollectiveKind::kReducescatter,
                                       CollectiveKind::kAlltoall};
  const CollectiveKind kind = kKinds[(*random)() % 5];
  const std::int64_t counts[] = {2, 300, 4000};
  const std::int64_t count = counts[(*random)() % 3];
  Request request = MakeRequest(kind, DType::kFloat32, ReduceOp::kSum, input, output->data(), count);
  if (kind == CollectiveKind::kAlltoall) {
    request.splits.assign(static_cast<std::size_t>(size), 0);
    request.splits[0] = count;
  }
  if (kind == CollectiveKind::kAllgather || kind == CollectiveKind::kReducescatter ||
      kind == CollectiveKind::kAlltoall) {
    request.allocate = [output](const std::vector<std::int64_t>& rows, void** to) -> Status {
      std::uint64_t total = 0;
      for (const std::int64_t each : rows) total += static_cast<std::uint64_t>(each);
      if (total > 1 << 20) return Internal("no room for an output of that size");
      output->assign(static_cast<std::size_t>(total), 0.0f);  // exactly: AddressSanitizer guards its end
      *to = output->data();
      return {};
    };
  }
  return request;
}

// Requests of all kinds, on private and shared memory, until the job has been aborted or the time is over.
void RunRequests(Engine& engine, std::uint64_t seed, std::atomic<bool>* over) {
  std::mt19937_64 random(seed);  // the same on all ranks
  const int size = engine.config().size;
  constexpr std::size_t kFloats = 4000;
  std::vector<float*> in_arena;
  std::vector<float> in_private(kFloats, 1.0f);
  for (int i = 0; i < 4; ++i) {
    in_arena.push_back(static_cast<float*>(engine.arena()->Allocate(kFloats * sizeof(float))));
    std::memcpy(in_arena.back(), in_private.data(), kFloats * sizeof(float));
  }
  int refusals = 0;
  while (!over->load() && refusals < 3) {
    std::vector<std::vector<float>> outputs(4, std::vector<float>(kFloats));
    std::vector<Request> requests;
    std::uint64_t ticket = 0;
    const bool grouped = random() % 2 == 0 && engine.DrawTicket(kWorld, kNoStep, &ticket).ok();
    for (std::uint32_t i = 0; i < 4; ++i) {
      const bool shared = random() % 2 == 0, in_place = random() % 2 == 0;
      Request request = RandomRequest(&random, size, shared ? in_arena[i] : in_private.data(), &outputs[i]);
      if (shared && in_place && !request.allocate) request.output = in_arena[i];
      requests.push_back(grouped ? InGroup(std::move(request), ticket, i, 4) : std::move(request));
    }
    bool all_refused = true;
    for (const Status& status : AwaitAll(engine, std::move(requests))) all_refused &= !status.ok();
    refusals = all_refused ? refusals + 1 : 0;
  }
}

struct Damage {
  bool head = false;  // of the segment, with the abort record and the doorbells; else the world's region
  std::uint64_t seed = 0;
};

Status RunDamaged(Engine& engine, const Damage& damage) {
  std::atomic<bool> over{false}, done{false};
  // First the time is over; then an abort must end what hangs; then nothing can.
  std::thread watchdog([&] {
    const auto until = [&](milliseconds patience) {
      for (milliseconds waited{0}; waited < patience && !done.load(); waited += milliseconds(5)) {
        std::this_thread::sleep_for(milliseconds(5));
      }
    };
    until(milliseconds(150));
    over.store(true);
    until(milliseconds(100));
    if (!done.load()) engine.Abort("the time is over");
    until(milliseconds(8000));
    if (!done.load()) ::raise(SIGALRM);
  });
  std::thread scribbler([&] {
    if (engine.config().rank != 0) return;
    std::mt19937_64 random(damage.seed);
    const std::vector<Region> regions = ControlRegions();
    while (!over.load()) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      for (int i = 0; i < 10; ++i) Scribble(regions[damage.head ? 0 : regions.size() - 1], &random);
    }
  });
  RunRequests(engine, damage.seed, &over);
  scribbler.join();
  static_cast<void>(engine.Shutdown());  // may report an error; must end
  done.store(true);
  watchdog.join();
  return {};
}

void RunDamage(int size, const Damage& damage) {
  SCOPED_TRACE(std::string(damage.head ? "head" : "region") + ", seed " + std::to_string(damage.seed));
  LimitedRanks ranks(
      size,
      [](int, Config* config) {
        // Small, so that what is written hits something.
        config->table_slots = 16;
        config->chunk_bytes = 1024;
        config->bucket_cap_bytes = 4096;
        config->log_level = 4;
        config->arena_bytes = 1 << 20;
      },
      [&damage](Engine& engine) { return RunDamaged(engine, damage); });
  for (const RankEnd& end : ranks.AwaitAll()) {
    ASSERT_EQ(end.wait_status, 0) << (WIFSIGNALED(end.wait_status) ? "killed by a signal; " : "") << end.error
                                  << "\n"
                                  << end.log;
  }
}

TEST(Corruption, OfTheTablesAndLogsOfACommunicator) {
  for (std::uint64_t seed = 1; seed <= (kAddressSanitizer ? 40 : 30); ++seed) {
    ASSERT_NO_FATAL_FAILURE(RunDamage(seed % 2 == 0 ? 2 : 3, {false, seed}));
  }
}

TEST(Corruption, OfTheHeadOfTheSegment) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ASSERT_NO_FATAL_FAILURE(RunDamage(2, {true, seed}));
  }
}

// Overwrites the place of an input in a communicator's tables: the word before the words `output` and `rows`.
void MovePlace(std::uint64_t input, std::uint64_t output, std::uint64_t rows, std::uint64_t to) {
  const Region region = ControlRegions().back();
  auto* words = reinterpret_cast<std::uint64_t*>(region.data);
  int found = 0;
  for (std::size_t i = 0; i + 2 < region.bytes / sizeof *words; ++i) {
    if (words[i] != input || words[i + 1] != output || words[i + 2] != rows) continue;
    words[i] = to;
    ++found;
  }
  EXPECT_EQ(found, 1);
}

// Rank 0 submits a request on `count` elements in its arena, whose place in the tables then becomes that of
// its output and `bytes` more; then rank 1 submits. Returns the error of rank 0.
std::string RunMoved(CollectiveKind kind, std::int64_t count, std::uint64_t bytes) {
  std::promise<void> moved;
  std::string told;
  RunRanks(
      2,
      [&](int rank, Engine& engine) {
        const auto size = static_cast<std::uint64_t>(count) * sizeof(float);
        Arena& arena = *engine.arena();
        ASSERT_NE(arena.Allocate(4096), nullptr);  // so that no place is 0, as much in the tables is
        auto* input = static_cast<float*>(arena.Allocate(size));
        auto* output = static_cast<float*>(arena.Allocate(2 * size));
        std::fill_n(input, count, 1.0f);
        Request request = MakeRequest(kind, DType::kFloat32, ReduceOp::kSum, input, output, count);
        request.allocate = [output](const std::vector<std::int64_t>&, void** to) -> Status {
          *to = output;
          return {};
        };
        if (rank == 1) {
          moved.get_future().wait();
          static_cast<void>(Await(engine, std::move(request)));
          return;
        }
        std::promise<Status> outcome;
        request.done = [&outcome](const Status& status) { outcome.set_value(status); };
        engine.Submit(std::move(request));
        const std::uint64_t place = arena.OffsetOf(output, size);
        MovePlace(arena.OffsetOf(input, size), kind == CollectiveKind::kReducescatter ? 0 : place,
                  static_cast<std::uint64_t>(count), place + bytes);
        moved.set_value();
        told = outcome.get_future().get().message();
      },
      {}, /*orderly=*/false);
  return told;
}

TEST(Corruption, AMovedPlaceIsRefused) {
  for (const CollectiveKind kind :
       {CollectiveKind::kBroadcast, CollectiveKind::kAllreduce, CollectiveKind::kReducescatter}) {
    for (const std::int64_t count : {300, 100000}) {  // small, and by way of the launch log
      // Onto a part of the output; and out of the arena.
      for (const std::uint64_t bytes : {std::uint64_t{4}, std::uint64_t{1} << 40}) {
        EXPECT_NE(RunMoved(kind, count, bytes).find("shared memory is corrupt: invalid address for"),
                  std::string::npos)
            << static_cast<int>(kind) << " of " << count << ", moved by " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace tf_smddp::testing
