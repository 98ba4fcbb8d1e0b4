#include "tests/pretend_gpu/nccl/board.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <map>
#include <random>
#include <utility>

#include "tests/pretend_gpu/diagnostics.h"

namespace pretend_gpu::nccl {
namespace {

std::mutex boards_mu;

// By inode; guarded by boards_mu. Threads of one process share a mapping, since ThreadSanitizer goes by
// addresses.
std::map<std::uint64_t, std::weak_ptr<Board>>& Boards() {
  static auto* boards = new std::map<std::uint64_t, std::weak_ptr<Board>>;
  return *boards;
}

void InitializeMutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

std::string NameOf(std::uint64_t id) {
  char text[32];
  std::snprintf(text, sizeof(text), "communicator %04x", static_cast<unsigned>(id & 0xFFFF));
  return text;
}

}  // namespace

std::shared_ptr<Board> Board::Make() {
  auto file = SharedFile::Make("pretend_nccl_board", sizeof(BoardData));
  const Place place = file->place();
  return Keep(std::move(file), place, true);
}

std::shared_ptr<Board> Board::Open(const Place& place) {
  {
    std::lock_guard<std::mutex> lock(boards_mu);
    const auto found = Boards().find(place.inode);
    if (found != Boards().end()) {
      if (auto board = found->second.lock()) return board;
    }
  }
  auto file = SharedFile::Open(place);
  return file == nullptr ? nullptr : Keep(std::move(file), place, false);
}

std::shared_ptr<Board> Board::Keep(std::unique_ptr<SharedFile> file, const Place& place, bool fresh) {
  std::lock_guard<std::mutex> lock(boards_mu);
  std::weak_ptr<Board>& kept = Boards()[place.inode];
  if (auto board = kept.lock()) return board;  // another thread was faster
  void* mapped =
      mmap(nullptr, sizeof(BoardData), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file->fd(), 0);
  if (mapped == MAP_FAILED) End("the shared memory of a communicator cannot be mapped: %m");
  auto* data = static_cast<BoardData*>(mapped);
  if (fresh) {
    InitializeMutex(&data->mutex);
    std::random_device random;
    data->id = std::uint64_t{random()} << 32 | random();
  }
  std::shared_ptr<Board> board(new Board(std::move(file), place, data));
  kept = board;
  return board;
}

Board::Board(std::unique_ptr<SharedFile> file, const Place& place, BoardData* data)
    : file_(std::move(file)), place_(place), data_(data), name_(NameOf(data->id)) {}

Board::~Board() {
  {
    std::lock_guard<std::mutex> lock(boards_mu);
    const auto found = Boards().find(place_.inode);
    if (found != Boards().end() && found->second.expired()) Boards().erase(found);
  }
  munmap(data_, sizeof(BoardData));
}

void Board::lock() {
  // A process that died with the lock has left at most an entry half written, which nobody looks at.
  if (pthread_mutex_lock(&data_->mutex) == EOWNERDEAD) pthread_mutex_consistent(&data_->mutex);
}

void Board::unlock() { pthread_mutex_unlock(&data_->mutex); }

void Board::Ring() {
  data_->bell++;
  syscall(SYS_futex, &data_->bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Board::AwaitChange(std::unique_lock<Board>& lock, std::chrono::milliseconds limit) {
  const std::uint32_t heard = data_->bell;
  lock.unlock();
  const timespec time{limit.count() / 1000, limit.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &data_->bell, FUTEX_WAIT, heard, &time, nullptr, 0);
  lock.lock();
}

Entry& Board::EntryOf(int lane, int party, std::uint64_t number) {
  const std::uint64_t at = (number - 1) % kWindow;
  if (lane == kCollectives) return data_->collectives[at * kMostRanks + party];
  return data_->pairs[((lane - 1) * kWindow + at) * 2 + party];
}

Entry* Board::Find(int lane, int party, std::uint64_t number) {
  if (data_->lanes[lane].posted[party] < number) return nullptr;
  Entry& entry = EntryOf(lane, party, number);
  return entry.number == number ? &entry : nullptr;
}

}  // namespace pretend_gpu::nccl
