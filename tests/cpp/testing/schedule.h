// Schedule: a random program of collectives, the same on all ranks, made from a seed.
//
// A schedule is a list of steps in one or two communicators. A step is a few trials (trial.h), grouped, in
// sequence or by name; on some a rank is set to fail it, in one of several ways, and then all ranks try it
// again. Choices that are random by rank (delays, the order within a group) change no result.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_SCHEDULE_H_
#define TF_SMDDP_TESTS_CPP_TESTING_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "tests/cpp/testing/trial.h"

namespace tf_smddp::testing {

// The way in which a rank fails a step.
enum class Sabotage {
  kNone,
  kFailStep,   // before it submits anything
  kMidway,     // with a part submitted
  kEndGroup,   // it has drawn the ticket, and submits no tensor, or not all
  kMismatch,   // one trial has another length
  kCancelAll,  // what waits is withdrawn
};

struct ScheduledStep {
  bool in_second = false;  // communicator
  Pairing::Kind pairing = Pairing::kGroup;
  std::vector<Trial> trials;
  Sabotage sabotage = Sabotage::kNone;
  int saboteur = 0;  // a member
};

struct Schedule {
  int size = 2;
  std::vector<int> second;           // ranks of the second communicator, ascending
  std::vector<ScheduledStep> steps;  // each rank runs those of its communicators, in this order
  std::vector<int> leaves;  // by member of the second: the step at whose start it leaves it; -1: stays
  std::int64_t bucket_cap_bytes = 0;
  std::int64_t chunk_bytes = 0;
  std::int64_t small_bytes = 0;

  // The members of a step's communicator that take part in step `index`.
  std::vector<int> Participants(std::size_t index) const;
};

Schedule MakeSchedule(std::uint32_t seed);

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_SCHEDULE_H_
