// The handles that programs have for our objects. A handle is never used twice, so that the use of one whose
// object was destroyed is found; and it points to nothing.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_HANDLES_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_HANDLES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/fault.h"

namespace pretend_gpu {

// The handles of one kind of object, such as streams. All methods: any thread.
template <class T>
class HandleTable {
 public:
  explicit HandleTable(const char* kind) : kind_(kind) {
    base_ = ForbiddenRange(kBytes, -1, [this](const void* address) {
      return kind_ + " " + std::to_string(NumberOf(address)) + ", a handle";
    });
  }

  void* Add(std::shared_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mu_);
    if (next_ == kBytes / kStep) End("all %zu handles of the kind '%s' were used", next_, kind_.c_str());
    live_[next_] = std::move(object);
    return base_ + next_++ * kStep;
  }

  // Returns the object. Ends the process if it was destroyed, or if there never was one.
  std::shared_ptr<T> Get(const void* handle) { return Find(handle, false); }

  // As Get, and destroys the handle.
  std::shared_ptr<T> Remove(const void* handle) { return Find(handle, true); }

  // Returns the number that sentences give to this object.
  std::size_t NumberOf(const void* handle) const {
    return (static_cast<const char*>(handle) - base_) / kStep;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 30;
  static constexpr std::size_t kStep = 16;

  std::shared_ptr<T> Find(const void* handle, bool remove) {
    std::lock_guard<std::mutex> lock(mu_);
    const auto offset = reinterpret_cast<std::uintptr_t>(handle) - reinterpret_cast<std::uintptr_t>(base_);
    const std::size_t number = offset / kStep;
    if (offset % kStep != 0 || number == 0 || number >= next_) {
      End("%p is no %s; pass a handle that the call which made it has returned", handle, kind_.c_str());
    }
    const auto found = live_.find(number);
    if (found == live_.end()) {
      End("%s %zu was destroyed before, by %s; destroy it once, after its last use", kind_.c_str(), number,
          destroyed_by_[number].c_str());
    }
    std::shared_ptr<T> object = found->second;
    if (remove) {
      live_.erase(found);
      destroyed_by_[number] = Call::Name();
      destroyed_by_.erase(number - std::min(number, kRemembered));
    }
    return object;
  }

  // So many destroyed objects the table remembers.
  static constexpr std::size_t kRemembered = 10'000;

  const std::string kind_;
  char* base_;
  std::mutex mu_;
  std::size_t next_ = 1;                                       // guarded by mu_
  std::unordered_map<std::size_t, std::shared_ptr<T>> live_;   // guarded by mu_
  std::unordered_map<std::size_t, std::string> destroyed_by_;  // guarded by mu_
};

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_HANDLES_H_
