// libFuzzer: appends to a launch log, readers of it, and words in it that a peer has overwritten, in any
// order. Nothing outside of its memory is touched, and every loop over it ends. While no word was
// overwritten, an entry is read as it was appended.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>

#include "kernels/control/launch_log.h"
#include "tests/fuzz/input.h"

namespace tf_smddp {
namespace {

constexpr std::size_t kCapacity = 8;
constexpr std::size_t kWords = 64 / sizeof(std::uint64_t) + kCapacity;  // of its memory
constexpr std::uint64_t kItems = std::uint64_t{1} << 36;
constexpr int kMostSteps = 200;

class Run {
 public:
  explicit Run(Input* input) : input_(input), log_(memory_, kCapacity) {}

  void Go() {
    for (int step = 0; step < kMostSteps && !input_->empty(); ++step) {
      Step(input_->Below(8));
      ReadOn();
      CheckAll();
    }
  }

 private:
  void Step(unsigned kind) {
    const std::uint64_t position = log_.Tail();
    if (kind == 0) {  // a peer
      const std::size_t word = input_->Below(kWords);
      input_->Fill(memory_ + word * sizeof(std::uint64_t), sizeof(std::uint64_t));
      damaged_ = true;
    } else if (kind == 1) {
      Append({LaunchLog::View::kDone, Item(), false}, position);
    } else if (kind == 2) {
      if (log_.SealOpen()) Expect(position, {LaunchLog::View::kMarker, 0, true});
    } else if (kind == 3) {
      log_.Close();
      closed_ = true;
      const std::uint64_t end = log_.TailFrom(read_);
      Require(damaged_ || end == position);
      Require(end <= read_ + kCapacity);
      for (; read_ < end; ++read_) Require(log_.Resolve(read_).state != LaunchLog::View::kUnpublished);
    } else if (kind == 4) {
      log_.Reopen();
      closed_ = false;
      Require(damaged_ || !log_.HasOpenBatch());
    } else {
      Append({LaunchLog::View::kLaunched, Item(), input_->Below(4) == 0}, position);
    }
  }

  std::uint64_t Item() { return input_->Take<std::uint64_t>() % kItems; }

  void Append(LaunchLog::View view, std::uint64_t position) {
    bool weighed = false;
    const auto weigh = [&](std::uint64_t open) {
      weighed = true;
      Require(open < std::uint64_t{1} << 23);
      return view.seals ? 0 : open + 1;
    };
    const bool appended =
        view.state == LaunchLog::View::kDone ? log_.AppendDone(view.item) : log_.Append(view.item, weigh);
    Require(damaged_ || appended != closed_);
    Require(!appended || weighed || view.state == LaunchLog::View::kDone);
    if (appended) Expect(position, view);
  }

  void Expect(std::uint64_t position, LaunchLog::View view) {
    Require(damaged_ || log_.Tail() == position + 1);
    appended_[position % kCapacity] = {position, view};
  }

  // As the engine's reader, which goes on as far as there are entries.
  void ReadOn() {
    for (std::size_t entries = 0;; ++read_, ++entries) {
      Require(entries <= kCapacity);
      const LaunchLog::View view = log_.Read(read_);
      if (view.state == LaunchLog::View::kUnpublished || view.state == LaunchLog::View::kDropped) break;
    }
    Require(damaged_ || read_ == log_.Tail());
  }

  void CheckAll() {
    const std::uint64_t tail = log_.Tail();
    const std::uint64_t first = tail < kCapacity ? 0 : tail - kCapacity;
    for (std::uint64_t position = first; position < tail + kCapacity; ++position) {
      const LaunchLog::View view = log_.Read(position);
      Require(view.item < kItems);
      if (damaged_) continue;
      const auto found = appended_.find(position % kCapacity);
      const bool there = found != appended_.end() && found->second.first == position;
      Require((view.state != LaunchLog::View::kUnpublished) == there);
      if (!there) continue;
      const LaunchLog::View& expected = found->second.second;
      Require(view.state == expected.state && view.item == expected.item && view.seals == expected.seals);
    }
  }

  Input* const input_;
  alignas(64) std::byte memory_[kWords * sizeof(std::uint64_t)] = {};
  LaunchLog log_;
  std::uint64_t read_ = 0;
  bool damaged_ = false, closed_ = false;
  std::map<std::uint64_t, std::pair<std::uint64_t, LaunchLog::View>> appended_;  // by the place in the ring
};

}  // namespace
}  // namespace tf_smddp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tf_smddp::Input input(data, size);
  tf_smddp::Run(&input).Go();
  return 0;
}
