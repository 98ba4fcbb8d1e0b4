// A policy says how the streams of each role behave: the adversary that a test meets.
//
// It is a list of <role>=<mood>, separated by commas. A role fits if it is part of the stream's role; `*`
// fits all; the first that fits counts; a stream that none fits is prompt. A lone mood is for all streams.
//
//   prompt  A task is done when the call that enqueues it returns, unless it waits for another stream or runs
//           the program's code: as early as it can be.
//   random  Each task comes after a random delay, from the seed.
//   lazy    A task runs when somebody waits for it, directly or through an event, or when nobody has for a
//           long time (PRETEND_GPU_LAZY_US): as late as it can be.
//   drawn   One of the three for each stream, from the seed.
//   paced   Each task that works on memory takes a time (PRETEND_GPU_PACE_US), and comes at once after the
//   one
//           before it, as on a GPU that is busy. PRETEND_GPU_TRACE shows the overlap.
//
// "tensorflow=lazy,*=prompt" is the adversary of a library that forgets to wait for TensorFlow's stream.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_POLICY_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_POLICY_H_

#include <cstdint>
#include <string>

namespace pretend_gpu {

enum class Mood { kPrompt, kRandom, kLazy, kPaced };

// Replaces PRETEND_GPU_POLICY for all tasks that are enqueued from now on. Ends the process if the policy
// cannot be read. Any thread.
void SetPolicy(const std::string& policy);

// Returns the mood of a stream with this role. `stream_id` decides what `drawn` draws. Any thread.
Mood MoodOf(const std::string& role, std::uint64_t stream_id);

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_POLICY_H_
