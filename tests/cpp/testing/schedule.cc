#include "tests/cpp/testing/schedule.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/cpp/testing/matrix.h"

namespace tf_smddp::testing {
namespace {

class Maker {
 public:
  explicit Maker(std::uint32_t seed) : random_(seed) {}

  Schedule Make() {
    Schedule schedule;
    schedule.size = 2 + Below(4);
    std::vector<int> ranks(static_cast<std::size_t>(schedule.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    // std::shuffle would not do, because its result depends on the library.
    for (std::size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[Index(i)]);
    ranks.resize(2 + Index(ranks.size() - 1));
    std::sort(ranks.begin(), ranks.end());
    schedule.second = ranks;
    schedule.bucket_cap_bytes = 128 << Below(12);
    schedule.chunk_bytes = 1024 << Below(6);
    schedule.small_bytes = Below(4) == 0 ? 0 : 64 << Below(8);
    const int num_steps = 4 + Below(8);
    schedule.leaves.assign(schedule.second.size(), -1);
    // The last member stays: others' broadcasts are from it.
    for (std::size_t member = 0; member + 1 < schedule.second.size(); ++member) {
      if (Below(4) == 0) schedule.leaves[member] = Below(num_steps);
    }
    for (int i = 0; i < num_steps; ++i) {
      schedule.steps.emplace_back();
      ScheduledStep& step = schedule.steps.back();
      step.in_second = Below(2) == 0;
      MakeStep(schedule, &step);
    }
    return schedule;
  }

 private:
  int Below(int limit) { return static_cast<int>(random_() % static_cast<std::uint32_t>(limit)); }
  std::size_t Index(std::size_t size) { return random_() % size; }

  void MakeStep(const Schedule& schedule, ScheduledStep* step) {
    const std::size_t index = schedule.steps.size() - 1;
    step->pairing = static_cast<Pairing::Kind>(Below(3));
    const int size = step->in_second ? static_cast<int>(schedule.second.size()) : schedule.size;
    const std::vector<int> participants = schedule.Participants(index);
    const bool all = participants.size() == static_cast<std::size_t>(size);
    const int trials = 1 + Below(5);
    for (int i = 0; i < trials; ++i) step->trials.push_back(MakeTrial(size, participants.back(), all));
    if (Below(4) != 0) return;
    step->sabotage = static_cast<Sabotage>(1 + Below(5));
    step->saboteur = participants[Index(participants.size())];
    // A rank that is alone disagrees with nobody.
    if (participants.size() == 1 && step->sabotage == Sabotage::kMismatch)
      step->sabotage = Sabotage::kFailStep;
  }

  Trial MakeTrial(int size, int stays, bool all) {
    constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllreduce, CollectiveKind::kAllreduce,
                                         CollectiveKind::kBroadcast, CollectiveKind::kBarrier,
                                         CollectiveKind::kAllgather, CollectiveKind::kReducescatter,
                                         CollectiveKind::kAlltoall};
    Trial trial;
    trial.kind = kKinds[Below(7)];
    // An alltoall is of all members or an error.
    if (trial.kind == CollectiveKind::kAlltoall && !all) trial.kind = CollectiveKind::kAllgather;
    static const std::vector<Arithmetic> all_arithmetic = AllArithmetic();
    const Arithmetic& arithmetic = all_arithmetic[Index(all_arithmetic.size())];
    trial.dtype = arithmetic.dtype;
    trial.op = arithmetic.op;
    trial.prescale = arithmetic.prescale;
    trial.postscale = arithmetic.postscale;
    trial.root = all ? Below(size) : stays;
    trial.salt = random_() % 1000000;
    trial.to_root = trial.salt % 3 == 0;
    constexpr std::int64_t kRows[] = {0, 1, 2, 3, 7, 50, 331, 1009, 4001, 20011};
    trial.rows = trial.kind == CollectiveKind::kBarrier ? 0 : kRows[Below(10)];
    trial.row_count = trial.rows < 2000 && Below(4) == 0 ? 1 + Below(5) : 1;
    if (trial.kind == CollectiveKind::kAllgather)
      trial.rows_of = Deal(trial.rows, size, Below(3), trial.salt);
    for (int sender = 0; trial.kind == CollectiveKind::kAlltoall && sender < size; ++sender) {
      trial.splits.push_back(Deal(trial.rows, size, Below(3), random_() % 1000));
    }
    trial.placements = PlacementsOf(static_cast<Layout>(Below(kNumLayouts)), size, trial.salt);
    return trial;
  }

  std::mt19937 random_;
};

}  // namespace

std::vector<int> Schedule::Participants(std::size_t index) const {
  std::vector<int> participants;
  const bool in_second = steps[index].in_second;
  const std::size_t members = in_second ? second.size() : static_cast<std::size_t>(size);
  for (std::size_t member = 0; member < members; ++member) {
    const bool left = in_second && leaves[member] >= 0 && static_cast<std::size_t>(leaves[member]) <= index;
    if (!left) participants.push_back(static_cast<int>(member));
  }
  return participants;
}

Schedule MakeSchedule(std::uint32_t seed) { return Maker(seed).Make(); }

}  // namespace tf_smddp::testing
