#include "tests/pretend_gpu/nccl/group.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/nccl/launch.h"

namespace pretend_gpu::nccl {
namespace {

// Says on the board how many calls wait for the end of the group.
void Tell(Communicator& communicator, std::size_t grouped) {
  std::lock_guard<Board> lock(*communicator.board);
  communicator.member(communicator.rank).grouped = static_cast<std::int32_t>(grouped);
}

}  // namespace

Group& Group::Current() {
  thread_local Group group;
  return group;
}

// A program may leave a call that has hung, and its group, when it has aborted the communicator.
Group::~Group() {
  const auto aborted = [](const Calls& calls) { return calls.communicator->aborted(); };
  if (depth_ == 0 || (!calls_.empty() && std::all_of(calls_.begin(), calls_.end(), aborted))) return;
  pretend_gpu::End("a thread ends with an open group; call ncclGroupEnd once for each ncclGroupStart");
}

ncclResult_t Group::End() {
  if (depth_ == 0) pretend_gpu::End("no group is open; call ncclGroupStart before, on the same thread");
  return --depth_ > 0 ? ncclSuccess : Run();
}

bool Group::Has(const Communicator& communicator) const {
  return std::any_of(calls_.begin(), calls_.end(),
                     [&](const Calls& calls) { return calls.communicator.get() == &communicator; });
}

ncclResult_t Group::Add(const std::shared_ptr<Communicator>& communicator, Part part, CUstream stream) {
  WaitAsCallsDo(communicator->context);  // NCCL asks whether the stream is captured
  auto found = std::find_if(calls_.begin(), calls_.end(),
                            [&](const Calls& calls) { return calls.communicator == communicator; });
  if (found == calls_.end()) {
    calls_.push_back({communicator, Communicator::Using(communicator), {}, {}});
    found = std::prev(calls_.end());
  }
  found->parts.push_back(std::move(part));
  found->streams.push_back(stream);
  if (!open()) return Run();
  Tell(*communicator, found->parts.size());
  return ncclSuccess;
}

ncclResult_t Group::Add(std::unique_ptr<Making> making) {
  makings_.push_back(std::move(making));
  return open() ? ncclSuccess : Run();
}

ncclResult_t Group::Run() {
  const auto makings = std::exchange(makings_, {});
  auto all = std::exchange(calls_, {});
  if (const ncclResult_t error = Make(makings); error != ncclSuccess) return error;
  ncclResult_t result = ncclSuccess;
  for (Calls& calls : all) {
    const auto& communicator = calls.communicator;
    Tell(*communicator, 0);
    if (communicator->blocking) {
      const ncclResult_t error =
          EnqueueLaunch(communicator, std::move(calls.parts), std::move(calls.streams));
      if (error != ncclSuccess) return error;
      continue;
    }
    auto parts = std::make_shared<std::vector<Part>>(std::move(calls.parts));
    communicator->Defer([weak = std::weak_ptr(communicator), parts, streams = std::move(calls.streams)] {
      EnqueueLaunch(weak.lock(), std::move(*parts), streams);
    });
    result = ncclInProgress;
  }
  return result;
}

}  // namespace pretend_gpu::nccl
