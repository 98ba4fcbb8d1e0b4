// Events that several processes use: their marks are counted in shared memory.
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_IPC_EVENT_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_IPC_EVENT_H_

#include <cstdint>
#include <memory>

#include "tests/pretend_gpu/point.h"

namespace pretend_gpu {

// An event's state in shared memory. Marks are counted from 1. All methods: any thread.
class SharedEvent {
 public:
  // The place of an event, for another process of this machine and user.
  struct Place {
    std::int32_t process;
    std::int32_t fd;
    std::uint64_t inode;
    std::uint64_t slot;
  };

  // Returns a new event, or nullptr if this process has made too many.
  static std::shared_ptr<SharedEvent> Make();

  // Returns the event of another process, or nullptr if that process has ended.
  static std::shared_ptr<SharedEvent> Open(const Place& place);

  const Place& place() const { return place_; }

  std::uint64_t NewMark();          // a record was called
  void Reach(std::uint64_t mark);   // a stream has come to it
  bool Wanted(std::uint64_t mark);  // somebody waits for it

  // Returns the last mark of any process, or nullptr if there is none.
  static std::shared_ptr<Waitable> LastMark(const std::shared_ptr<SharedEvent>& event);

 private:
  struct Slot;
  class Mark;
  SharedEvent(const Place& place, Slot* slot) : place_(place), slot_(slot) {}
  static Slot* SlotOf(void* board, std::uint64_t slot);

  const Place place_;
  Slot* const slot_;  // stays mapped for good
};

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_IPC_EVENT_H_
