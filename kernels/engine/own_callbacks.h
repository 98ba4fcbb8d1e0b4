// OwnCallbacks: callbacks that the thread which submits a request calls itself, and how deep it is in them.
//
// Place in the stack: the bottom of engine/. A callback may submit the next request in this thread, which may
// end at once, and call the next callback, and so on: a loop that would become a recursion. So at some depth
// they are left to the completion thread.
#ifndef TF_SMDDP_KERNELS_ENGINE_OWN_CALLBACKS_H_
#define TF_SMDDP_KERNELS_ENGINE_OWN_CALLBACKS_H_

#include "kernels/common/status.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class OwnCallbacks {
 public:
  // Whether this thread is in too many of them to call another.
  static bool TooDeep() { return Depth() >= kDeepest; }

  static void Call(const DoneCallback& done, const Status& status) {
    ++Depth();
    done(status);
    --Depth();
  }

 private:
  static constexpr int kDeepest = 8;

  static int& Depth() {
    thread_local int depth = 0;
    return depth;
  }
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_OWN_CALLBACKS_H_
