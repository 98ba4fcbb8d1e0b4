#include "tests/cpp/testing/test_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>

namespace tf_smddp::testing {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 30;  // address space; pages take memory when they are used

void Require(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::abort();
}

std::byte* Map(int fd, int protection) {
  void* const data = ::mmap(nullptr, kBytes, protection, MAP_SHARED, fd, 0);
  Require(data != MAP_FAILED, "mmap");
  return static_cast<std::byte*>(data);
}

}  // namespace

TestDevice& TestDevice::Get() {
  static std::mutex mu;
  static TestDevice* device = nullptr;  // it lives as long as the process
  static pid_t owner = 0;
  std::lock_guard<std::mutex> lock(mu);
  // A forked child has no thread of the parent's streams.
  if (owner != ::getpid()) device = new TestDevice;
  owner = ::getpid();
  return *device;
}

TestDevice::TestDevice() : spans_(0, kBytes) {
  const int fd = ::memfd_create("test-device", MFD_CLOEXEC);
  Require(fd >= 0 && ::ftruncate(fd, kBytes) == 0, "memfd_create");
  data_ = Map(fd, PROT_NONE);
  pages_ = Map(fd, PROT_READ | PROT_WRITE);
  ::close(fd);
}

TestDevice::Stream* TestDevice::StreamOf(int rank) {
  std::lock_guard<std::mutex> lock(mu_);
  std::unique_ptr<Stream>& stream = streams_[rank];
  if (stream == nullptr) stream = std::make_unique<Stream>(this, static_cast<unsigned>(rank));
  return stream.get();
}

std::byte* TestDevice::Allocate(std::size_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  const std::uint64_t offset = spans_.Allocate(bytes);
  Require(offset != SpanAllocator::kNone, "the test device is full");
  return data_ + offset;
}

void TestDevice::Free(std::byte* data) {
  std::lock_guard<std::mutex> lock(mu_);
  spans_.Free(static_cast<std::uint64_t>(data - data_));
}

bool TestDevice::Contains(const void* address) const { return address >= data_ && address < data_ + kBytes; }

Status TestDevice::CopyToHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) {
  return static_cast<Stream*>(stream)->PutCopy([=] { std::memcpy(to, Reach(from), bytes); },
                                               std::move(ended));
}

Status TestDevice::CopyFromHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) {
  return static_cast<Stream*>(stream)->PutCopy([=] { std::memcpy(Reach(to), from, bytes); },
                                               std::move(ended));
}

Status TestDevice::Copy(const InputBuffer& from, const Buffer& to, std::uint64_t bytes, Ended ended) {
  auto* const first = static_cast<Stream*>(from.stream);
  auto* const stream = static_cast<Stream*>(to.stream);
  return stream->PutCopy(
      [this, first, stream, to = to.data, from = from.data, bytes] {
        if (first != stream) first->Synchronize();
        std::memmove(Reach(to), Reach(from), bytes);
      },
      std::move(ended));
}

TestDevice::Stream::Stream(TestDevice* device, unsigned seed)
    : device_(device), thread_([this, seed] { Run(seed); }) {}

TestDevice::Stream::~Stream() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TestDevice::Stream::Write(std::vector<std::byte> from, std::byte* to) {
  Put([this, from = std::move(from), to] {
    if (!from.empty()) std::memcpy(device_->Reach(to), from.data(), from.size());
  });
}

std::vector<std::byte> TestDevice::Stream::Read(const std::byte* from, std::size_t bytes) {
  std::vector<std::byte> to(bytes);
  Put([&] {
    if (bytes > 0) std::memcpy(to.data(), device_->Reach(from), bytes);
  });
  Synchronize();
  return to;
}

void TestDevice::Stream::Synchronize() {
  std::promise<void> reached;
  Put([&reached] { reached.set_value(); });
  reached.get_future().wait();
}

Status TestDevice::Stream::PutCopy(std::function<void()> copy, Ended ended) {
  if (refuse_next_.exchange(false)) return Internal("refused on purpose");
  Put([copy = std::move(copy), ended = std::move(ended), fails = fail_next_.exchange(false)] {
    if (!fails) copy();
    ended(fails ? Internal("failed on purpose") : Status());
  });
  return {};
}

void TestDevice::Stream::Put(std::function<void()> work) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void TestDevice::Stream::SetHeld(bool held) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    held_ = held;
  }
  changed_.notify_all();
}

void TestDevice::Stream::Run(unsigned seed) {
  std::mt19937 random(seed);
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock<std::mutex> lock(mu_);
      changed_.wait(lock, [this] { return stopping_ || (!held_ && !work_.empty()); });
      if (work_.empty() || held_) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    work();
  }
}

}  // namespace tf_smddp::testing
