// OwnCallbacks: calls callbacks in the thread that drives the progress, and limits how deep they nest.
//
// Place in the stack: the bottom of engine/. A callback may submit the next request and drive the progress in
// the same thread, which may call the next callback, and so on: a user's loop would become a recursion. So
// beyond some depth the completion thread calls them.
#ifndef TF_SMDDP_KERNELS_ENGINE_OWN_CALLBACKS_H_
#define TF_SMDDP_KERNELS_ENGINE_OWN_CALLBACKS_H_

#include "kernels/common/status.h"
#include "kernels/engine/request.h"

namespace tf_smddp {

class OwnCallbacks {
 public:
  // Whether this thread is in too many callbacks to call another.
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
