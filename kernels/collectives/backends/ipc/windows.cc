#include "kernels/collectives/backends/ipc/windows.h"

#include <chrono>
#include <random>
#include <thread>
#include <utility>

namespace tf_smddp::ipc {
namespace {

constexpr std::chrono::seconds kPatience{1};
constexpr std::chrono::microseconds kPoll{200};

// Ranks may be in containers whose processes are numbered alike. A process cannot open its own handles, and
// need not.
std::uint64_t ThisProcess() {
  static const std::uint64_t number = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  }();
  return number;
}

}  // namespace

Windows::Windows(Board* board, MemberId member, int num_members, Job job)
    : board_(board),
      member_(member),
      num_members_(num_members),
      job_(std::move(job)),
      slots_(static_cast<std::size_t>(num_members), nullptr) {}

Windows::~Windows() {
  if (memory_ == 0) return;
  const cuda::CurrentContext current(device_->driver(), device_->context());
  Close();
  const auto begin = std::chrono::steady_clock::now();
  while (!AllHaveClosed()) {
    if (job_.ended() || std::chrono::steady_clock::now() - begin > kPatience) return;
    std::this_thread::sleep_for(kPoll);
  }
  static_cast<void>(device_->driver()->MemFree(memory_));  // nobody is left whom an error would concern
}

// Those of the others.
void Windows::Close() {
  for (const cuda::DeviceAddress address : opened_) {
    static_cast<void>(device_->driver()->IpcCloseMemHandle(address));
  }
  opened_.clear();
  own().closed.store(1, std::memory_order_release);
}

bool Windows::AllHaveClosed() const {
  for (int member = 0; member < num_members_; ++member) {
    const MemberEntry& entry = board_->member(member);
    if (entry.state.load(std::memory_order_acquire) != WindowState::kNone &&
        entry.closed.load(std::memory_order_acquire) == 0) {
      return false;
    }
  }
  return true;
}

bool Windows::Ready(cuda::Device* device) {
  if (ready_.load(std::memory_order_acquire)) return true;
  const std::unique_lock<std::mutex> lock(mu_, std::try_to_lock);
  if (!lock.owns_lock() || refused_) return false;
  device_ = device;
  const cuda::CurrentContext current(device->driver(), device->context());
  if (memory_ == 0) {
    const Status status = Export();
    if (!status.ok()) Refuse(status);
  }
  bool all = true;
  for (int member = 0; member < num_members_ && !refused_; ++member) {
    if (slots_[static_cast<std::size_t>(member)] != nullptr) continue;
    switch (board_->member(member).state.load(std::memory_order_acquire)) {
      case WindowState::kNone:
        all = false;
        continue;
      case WindowState::kRefused:
        refused_ = true;  // that member has said why
        Close();
        continue;
      case WindowState::kExported:
      case WindowState::kReady:
        if (const Status status = Open(member); !status.ok()) Refuse(status);
    }
  }
  if (refused_ || !all) return false;
  own().state.store(WindowState::kReady, std::memory_order_release);
  if (!board_->AllReady(num_members_)) return false;
  ready_.store(true, std::memory_order_release);
  return true;
}

Status Windows::Export() {
  const cuda::Driver* const driver = device_->driver();
  Status status = cuda::Copier::Open(driver, device_->context(), &copier_);
  if (status.ok()) status = cuda::Reducer::Open(driver, device_->context(), &reducer_);
  if (!status.ok()) return status;
  status = driver->Check("cuMemAlloc", driver->MemAlloc(&memory_, kSlots * kSlotBytes));
  if (!status.ok()) {
    memory_ = 0;
    return status;
  }
  MemberEntry& entry = own();
  entry.process = ThisProcess();
  entry.address = memory_;
  status = driver->Check("cuIpcGetMemHandle", driver->IpcGetMemHandle(&entry.handle, memory_));
  if (status.ok()) entry.state.store(WindowState::kExported, std::memory_order_release);
  return status;
}

Status Windows::Open(int member) {
  const MemberEntry& entry = board_->member(member);
  cuda::DeviceAddress address = entry.address;
  if (entry.process != ThisProcess()) {
    const cuda::Driver* const driver = device_->driver();
    const Status status = driver->Check(
        "cuIpcOpenMemHandle", driver->IpcOpenMemHandle(&address, entry.handle, cuda::kIpcLazyPeerAccess));
    if (!status.ok()) return status;
    opened_.push_back(address);
  }
  slots_[static_cast<std::size_t>(member)] = reinterpret_cast<std::byte*>(address);
  return {};
}

void Windows::Refuse(const Status& why) {
  refused_ = true;
  own().state.store(WindowState::kRefused, std::memory_order_release);
  Close();
  job_.log("tensors of " + device_->name() +
           ", which ranks share, are copied to the host's memory and reduced there: " + why.message());
}

}  // namespace tf_smddp::ipc
