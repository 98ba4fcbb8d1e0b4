#include "kernels/control/progress_record.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tf_smddp {
namespace {

ProgressRecord::Submission SubmissionOf(std::int64_t number) {
  // Label, shape and time say the same, so that a mixture shows.
  return {0, number, MakeManifest({CollectiveKind::kAllreduce}, 0, 0, {number}, std::to_string(number))};
}

TEST(ProgressRecord, TheLastSubmission) {
  const auto record = std::make_unique<ProgressRecord>();  // zeros, as in new shared memory
  ProgressRecord::Submission last;
  EXPECT_FALSE(record->Last(&last));
  for (std::int64_t number = 1; number <= 20; ++number) {
    record->Submitted(SubmissionOf(number));
    ASSERT_TRUE(record->Last(&last));
    EXPECT_EQ(last.when_ns, number);
    EXPECT_EQ(std::string(last.manifest.label), std::to_string(number));
  }
  EXPECT_EQ(record->submitted(), 20u);
  EXPECT_EQ(record->ended(), 0u);
  record->Ended(3);
  record->Ended(4);
  EXPECT_EQ(record->ended(), 7u);
}

// With one writer, a reader gets only complete submissions, and never an older one than before.
TEST(ProgressRecord, IsReadWholeWhileItIsWritten) {
  const auto record = std::make_unique<ProgressRecord>();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::int64_t number = 1; !stop.load(); ++number) record->Submitted(SubmissionOf(number));
  });
  std::int64_t newest = 0;
  int found = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (std::chrono::steady_clock::now() < until || found < 100) {
    ProgressRecord::Submission last;
    if (!record->Last(&last)) continue;
    ++found;
    ASSERT_EQ(last.manifest.dims[0], last.when_ns);
    ASSERT_EQ(std::string(last.manifest.label), std::to_string(last.when_ns));
    ASSERT_GE(last.when_ns, newest);
    newest = last.when_ns;
  }
  stop.store(true);
  writer.join();
}

TEST(ProgressRecord, SeveralThreadsCountRight) {
  const auto record = std::make_unique<ProgressRecord>();
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 3; ++writer) {
    writers.emplace_back([&] {
      for (std::int64_t number = 1; number <= 5000; ++number) {
        record->Submitted(SubmissionOf(number));
        record->Ended(1);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(record->submitted(), 15'000u);
  EXPECT_EQ(record->ended(), 15'000u);
  ProgressRecord::Submission last;
  EXPECT_TRUE(record->Last(&last));
}

}  // namespace
}  // namespace tf_smddp
