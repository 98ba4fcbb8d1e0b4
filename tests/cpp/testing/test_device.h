// TestDevice: memory that the CPU may not touch. Its addresses are mapped PROT_NONE, so whoever reads or
// writes there gets a SIGSEGV. Its streams alone, one thread each, reach the same pages through another
// mapping.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_TEST_DEVICE_H_
#define TF_SMDDP_TESTS_CPP_TESTING_TEST_DEVICE_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/memory/buffer.h"
#include "kernels/memory/span_allocator.h"

namespace tf_smddp::testing {

class TestDevice : public MemoryKind {
 public:
  // Does one thing after the other, each after a random delay. All methods: any thread.
  class Stream {
   public:
    Stream(TestDevice* device, unsigned seed);
    ~Stream();

    // Puts a copy on the stream. Read waits for it, and Synchronize for all that is there.
    void Write(std::vector<std::byte> from, std::byte* to);
    std::vector<std::byte> Read(const std::byte* from, std::size_t bytes);
    void Synchronize();

    // Between Hold and LetGo, nothing that is on the stream begins.
    void Hold() { SetHeld(true); }
    void LetGo() { SetHeld(false); }

    // The engine's next copy is not put on the stream; or is, and ends with an error.
    void RefuseNext() { refuse_next_ = true; }
    void FailNext() { fail_next_ = true; }

   private:
    friend class TestDevice;

    Status PutCopy(std::function<void()> copy, Ended ended);
    void Put(std::function<void()> work);
    void SetHeld(bool held);
    void Run(unsigned seed);

    TestDevice* const device_;
    std::atomic<bool> refuse_next_{false}, fail_next_{false};
    std::mutex mu_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> work_;  // guarded by mu_
    bool held_ = false, stopping_ = false;    // guarded by mu_
    std::thread thread_;
  };

  // The device of this process.
  static TestDevice& Get();

  TestDevice();

  // The stream of rank `rank`. Any thread.
  Stream* StreamOf(int rank);

  std::byte* Allocate(std::size_t bytes);
  void Free(std::byte* data);  // nothing on any stream may use it

  // Whether `address` lies in its memory. In a signal handler, too.
  bool Contains(const void* address) const;

  std::string name() const override { return "the test device"; }
  Status CopyToHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) override;
  Status CopyFromHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) override;
  Status Copy(const InputBuffer& from, const Buffer& to, std::uint64_t bytes, Ended ended) override;

 private:
  std::byte* Reach(const void* data) const { return pages_ + (static_cast<const std::byte*>(data) - data_); }

  std::byte *data_, *pages_;  // PROT_NONE, and where the streams reach the same
  std::mutex mu_;
  SpanAllocator spans_;                             // guarded by mu_
  std::map<int, std::unique_ptr<Stream>> streams_;  // guarded by mu_
};

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_TEST_DEVICE_H_
