// Which waits a program makes, and one of them left out: so that tests of waits are tested, and the program
// need not change for it.
//
// A wait is known by the code that makes it: the place of the call and its two nearest callers, each as the
// offset of the return address in its file: "program+0x5e1f program+0x5d20 program+0x4c11".
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_WAITS_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_WAITS_H_

namespace pretend_gpu {

// Returns whether the wait that the program is about to make is the one that PRETEND_GPU_LEAVE_OUT names. If
// PRETEND_GPU_WAITS names a file, each wait is added to it, as one line, when it is made for the first time.
// Any thread.
bool LeavesOutWait();

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_WAITS_H_
