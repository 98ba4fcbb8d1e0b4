#include "tests/pretend_gpu/ipc_event.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/other_process.h"

namespace pretend_gpu {

struct alignas(64) SharedEvent::Slot {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> reached;
  std::atomic<std::uint64_t> wanted;
};

namespace {

// Slots are not used again, as an event may be destroyed before another process has opened it.
constexpr std::uint64_t kSlots = 65536;
constexpr std::size_t kBoardBytes = kSlots * 64;

void Raise(std::atomic<std::uint64_t>* value, std::uint64_t to) {
  std::uint64_t now = value->load();
  while (now < to && !value->compare_exchange_weak(now, to)) {
  }
}

void* MapBoard(int fd) {
  void* board = mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (board == MAP_FAILED) End("the shared memory of events cannot be mapped: %m");
  return board;
}

}  // namespace

// A mark that some process has recorded.
class SharedEvent::Mark : public Waitable {
 public:
  Mark(std::shared_ptr<SharedEvent> event, std::uint64_t mark) : event_(std::move(event)), mark_(mark) {}

  void Wait() override {
    if (Reached()) return;
    Raise(&event_->slot_->wanted, mark_);
    BlockedScope blocked;
    std::chrono::microseconds pause(20);
    while (!Reached()) {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
  }

  bool Reached() override { return event_->slot_->reached.load() >= mark_; }

 private:
  const std::shared_ptr<SharedEvent> event_;
  const std::uint64_t mark_;
};

SharedEvent::Slot* SharedEvent::SlotOf(void* board, std::uint64_t slot) {
  static_assert(sizeof(Slot) == 64);
  return static_cast<Slot*>(board) + slot;
}

std::shared_ptr<SharedEvent> SharedEvent::Make() {
  static std::atomic<std::uint64_t> next{0};
  static const int fd = [] {
    const int made = memfd_create("pretend_gpu_events", MFD_CLOEXEC);
    if (made < 0 || ftruncate(made, kBoardBytes) != 0) End("the shared memory of events cannot be made: %m");
    return made;
  }();
  static void* board = MapBoard(fd);
  const std::uint64_t slot = next++;
  if (slot >= kSlots) return nullptr;
  return std::shared_ptr<SharedEvent>(
      new SharedEvent({getpid(), fd, InodeOf(fd), slot}, SlotOf(board, slot)));
}

std::shared_ptr<SharedEvent> SharedEvent::Open(const Place& place) {
  const int fd = OpenFileOf(place.process, place.fd, place.inode);
  if (fd < 0) return nullptr;
  static auto* mu = new std::mutex;
  static auto* boards = new std::map<int, void*>;
  std::lock_guard<std::mutex> lock(*mu);
  void*& board = (*boards)[fd];
  if (board == nullptr) board = MapBoard(fd);
  return std::shared_ptr<SharedEvent>(new SharedEvent(place, SlotOf(board, place.slot)));
}

std::uint64_t SharedEvent::NewMark() { return ++slot_->recorded; }

void SharedEvent::Reach(std::uint64_t mark) { Raise(&slot_->reached, mark); }

bool SharedEvent::Wanted(std::uint64_t mark) { return slot_->wanted.load() >= mark; }

std::shared_ptr<Waitable> SharedEvent::LastMark(const std::shared_ptr<SharedEvent>& event) {
  const std::uint64_t recorded = event->slot_->recorded.load();
  if (recorded == 0) return nullptr;
  return std::make_shared<Mark>(event, recorded);
}

}  // namespace pretend_gpu
