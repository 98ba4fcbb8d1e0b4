// BlockedCall: a call of a compiled program that has waited for other ranks for a while, and blocks threads
// of TensorFlow's. Reports to the engine when no thread is left that could run another program.
//
// Place in the stack: between group_run.h, which waits, and the engine, which ends a job whose ranks would
// wait for each other for ever (Note [Starved ranks] in kernels/engine/starvation.h). Uses no header of
// TensorFlow's or XLA's.
//
// Note [Blocked threads]: a call blocks up to two threads.
//   - The thread that launched the program. In a graph that is one of the inter-op pool. For a function that
//     Python calls directly it is Python's own thread. The call cannot tell, since in TensorFlow 2.15
//     XLA runs it on a thread of its own. So Python reports how many steps launch programs from graphs.
//   - The thread that runs the call. In TensorFlow 2.21, parts of a program run on the intra-op pool, unless
//     the program is small. The call knows whether it is on such a thread.
#ifndef TF_SMDDP_KERNELS_TF_XLA_BLOCKED_CALLS_H_
#define TF_SMDDP_KERNELS_TF_XLA_BLOCKED_CALLS_H_

#include "kernels/engine/engine.h"

namespace tf_smddp {

struct ThreadPools {
  // The number of threads; 0 if it is not known: then nothing is reported.
  int inter_op = 0, intra_op = 0;
  // Returns whether the calling thread is one of the intra-op pool's.
  bool (*on_intra_op_thread)() = nullptr;
};

class BlockedCall {
 public:
  // Registers the call, which runs on this thread and waits for a request in communicator `communicator`,
  // until the destructor runs. `engine` outlives it. Any thread.
  BlockedCall(Engine* engine, CommunicatorId communicator);
  ~BlockedCall();
  BlockedCall(const BlockedCall&) = delete;
  BlockedCall& operator=(const BlockedCall&) = delete;

  // Tells the engine whether a thread is left. To be called each second while the call waits. Any thread.
  void Look();

  // Any thread.
  static void SetPools(ThreadPools pools);
  // Sets how many steps of this process are under way that launch programs from graphs. Any thread.
  static void SetGraphSteps(int steps);

 private:
  Engine* const engine_;
  const CommunicatorId communicator_;
  bool on_intra_op_thread_ = false;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_XLA_BLOCKED_CALLS_H_
