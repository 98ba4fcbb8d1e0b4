#include "kernels/collectives/backends/ipc/ipc_transfer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/common/collective_info.h"
#include "kernels/common/config.h"

namespace tf_smddp::ipc {
namespace {

// Collects what a step does.
class DeviceMover final : public Mover {
 public:
  void Copy(void* to, const void* from, std::uint64_t bytes) override {
    copies_.push_back({to, from, bytes});
  }

  void Reduce(const Operation& operation, const void* const* inputs, int num_inputs, void* const* outputs,
              int num_outputs, std::uint64_t count) override {
    cuda::Reduction reduction;
    reduction.dtype = operation.dtype;
    reduction.op = operation.op;
    reduction.prescale = operation.prescale;
    reduction.postscale = operation.postscale;
    reduction.num_inputs = num_inputs;
    reduction.num_outputs = num_outputs;
    std::copy_n(inputs, num_inputs, reduction.inputs.begin());
    std::copy_n(outputs, num_outputs, reduction.outputs.begin());
    reduction.count = count;
    reductions_.push_back(reduction);
  }

  Status Put(const Windows& windows, cuda::Stream stream) const {
    const Status status = windows.copier().Put(copies_, stream);
    return status.ok() ? windows.reducer().Put(reductions_, stream) : status;
  }

 private:
  std::vector<cuda::Copy> copies_;
  std::vector<cuda::Reduction> reductions_;
};

}  // namespace

bool Supports(const Operation& operation) {
  return !InfoOf(operation.kind).Is(kReduces) || cuda::Reducer::Supports(operation.dtype, operation.op);
}

// An incarnation, as the stream's thread sees it. Counts of one that is over would be taken for those of the
// next one.
struct IpcTransfer::Epoch {
  std::mutex mu;
  bool over = false;  // guarded by mu
};

IpcTransfer::IpcTransfer(Board* board, const Windows* windows, MemberId member, int num_members,
                         DeviceJob job)
    : board_(board),
      windows_(windows),
      member_(member),
      num_members_(num_members),
      job_(std::move(job)),
      epoch_(std::make_shared<Epoch>()) {}

IpcTransfer::~IpcTransfer() = default;

std::uint64_t IpcTransfer::Plan(std::vector<const ResolvedRequest*> requests, BatchState*) {
  base_ = copied_out_;
  requests_ = std::move(requests);
  plan_.Clear();
  for (const ResolvedRequest* request : requests_) plan_.Add(*request->collective, request->call);
  begun_ = false;
  done_ = requests_.empty();
  return done_ ? 0 : static_cast<std::uint64_t>(num_members_);
}

Transfer::Progress IpcTransfer::Step() {
  Progress progress;
  const Status status = StepOnce(&progress.moved);
  if (!status.ok()) job_.fail(status.message());
  const bool finished = copied_out_ == base_ + plan_.size();
  done_ = finished || !status.ok();
  progress.unit_done = finished && status.ok();
  progress.moved |= progress.unit_done;
  return progress;
}

Status IpcTransfer::StepOnce(bool* moved) {
  if (!begun_) {
    // Note [Old readers].
    if (board_->Slowest(&MemberEntry::settled, num_members_) < failed_) return {};
    *moved = begun_ = true;
    return Begin();
  }
  Status status;
  // The last step comes first, since it frees slots for the other ranks.
  if (copied_out_ < combined_ && copied_out_ < board_->Slowest(&MemberEntry::combined, num_members_)) {
    status = Put(&Collective::StageOut, copied_out_++, &MemberEntry::copied_out);
    *moved = true;
  }
  if (status.ok() && combined_ < staged_ && combined_ < board_->Slowest(&MemberEntry::staged, num_members_)) {
    status = Put(&Collective::Combine, combined_++, &MemberEntry::combined);
    *moved = true;
  }
  if (status.ok() && staged_ < base_ + plan_.size() &&
      staged_ < board_->Slowest(&MemberEntry::copied_out, num_members_) + kSlots) {
    status = Put(&Collective::StageIn, staged_++, &MemberEntry::staged);
    *moved = true;
  }
  return status;
}

// Lets the stream wait for the tensors.
Status IpcTransfer::Begin() {
  if (stream_ == nullptr) {
    device_ = static_cast<cuda::Device*>(requests_.front()->device_output->kind);
    const Status status = device_->NewStream("smddp-ipc", &stream_);
    if (!status.ok()) return status;
  }
  for (const ResolvedRequest* request : requests_) {
    const Status status = uses_.Begin(*request, stream_.get());
    if (!status.ok()) return status;
  }
  return {};
}

// Puts a step for a slot on the stream. Its count follows when the stream has come past it.
Status IpcTransfer::Put(Method method, std::uint64_t slot, Counter counter) {
  const Status status = PutMoves(method, slot);
  if (!status.ok()) return status;
  return stream_->WhenReached([epoch = epoch_, count = &(board_->member(member_.value()).*counter),
                               slots = slot + 1, job = job_](const Status& reached) {
    if (!reached.ok()) return job.fail(reached.message());
    std::lock_guard<std::mutex> lock(epoch->mu);
    if (!epoch->over) count->store(slots, std::memory_order_release);
  });
}

Status IpcTransfer::PutMoves(Method method, std::uint64_t slot) {
  DeviceMover mover;
  for (const SlotPart& part : plan_.At(slot - base_)) {
    const ResolvedRequest& request = *requests_[part.item];
    std::array<std::byte*, kMostRanks> windows;
    for (std::size_t i = 0; i < request.members.size(); ++i) {
      windows[i] = windows_->slots(request.members[i]) + slot % kSlots * kSlotBytes + part.offset;
    }
    const StagedChunk chunk = {request.self,
                               part.index,
                               part.capacity,
                               static_cast<const std::byte*>(request.inputs[request.self.index()]),
                               static_cast<std::byte*>(request.outputs[request.self.index()]),
                               windows.data(),
                               &mover};
    (request.collective->*method)(request.call, chunk);
  }
  const cuda::CurrentContext current(device_->driver(), device_->context());
  return mover.Put(*windows_, stream_->handle());
}

void IpcTransfer::Complete() { End({}); }

// The tensors are not used any more when the stream has come so far.
void IpcTransfer::End(Status outcome) {
  if (uses_.empty()) return;
  const auto ended = [outcome = std::move(outcome), uses = std::exchange(uses_, {}),
                      job = job_](const Status& reached) {
    if (!reached.ok()) job.fail(reached.message());
    uses.End(reached.ok() ? outcome : reached);
  };
  const Status status = stream_->WhenReached(ended);
  if (!status.ok()) ended(status);
}

void IpcTransfer::Abandon(const Status* job_end) {
  requests_.clear();
  plan_.Clear();
  done_ = true;
  {
    std::lock_guard<std::mutex> lock(epoch_->mu);
    epoch_->over = true;
  }
  End(job_end == nullptr ? Internal("the step has failed") : *job_end);
  if (job_end != nullptr) return;
  ++failed_;
  const auto settle = [settled = &board_->member(member_.value()).settled](const Status&) {
    settled->fetch_add(1, std::memory_order_release);
  };
  if (stream_ == nullptr || !stream_->WhenReached(settle).ok()) settle({});
}

void IpcTransfer::Reset() {
  base_ = staged_ = combined_ = copied_out_ = 0;
  epoch_ = std::make_shared<Epoch>();
}

}  // namespace tf_smddp::ipc
