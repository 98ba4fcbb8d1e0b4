// Interrupt: Ctrl-C ends the collectives that this process waits in.
//
// Place in the stack: above global_engine.h, below the C API. Python handles a signal between two of
// its own instructions, so never while an op waits for another rank. Here a C handler wakes a thread, which
// withdraws what is pending, and then calls the handler that was there before: the op fails, and Python
// raises KeyboardInterrupt.
#ifndef TF_SMDDP_KERNELS_PROCESS_INTERRUPT_H_
#define TF_SMDDP_KERNELS_PROCESS_INTERRUPT_H_

#include "kernels/common/status.h"

namespace tf_smddp {

// Takes over SIGINT. A second call does nothing. Errors: Internal (no thread to be had).
Status WatchInterrupts();

// Puts the handler from before back, unless someone has taken its place since; and ends the thread. Does
// nothing in a forked child.
void StopWatchingInterrupts();

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_PROCESS_INTERRUPT_H_
