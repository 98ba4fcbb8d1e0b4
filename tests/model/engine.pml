/* The engine of one communicator on all ranks: arrival, launch, batches, ends, failures, incarnations, leaving and abort.
   README.md says what is modelled. Every step of a process is one operation on shared memory, or one call of a function
   that holds a mutex. */

#include "parameters.pml"

bit aborted;        /* the abort record */
bit leaving[RANKS]; /* AskToLeave was called */
byte gone = 0;      /* ranks that have left, and are not back */
bit finished_user[RANKS]; /* whose program has ended */
#define OVER (finished_user[0] | finished_user[1] << 1 | (RANKS == 3 -> finished_user[RANKS - 1] << 2 : 0))
#if LEAVES
bit returned[RANKS]; /* have been back */
byte last_to_leave;  /* 1 + the rank; 0: it has not said so */
byte cleared_last;   /* for an assertion */
byte missed[RANKS];  /* the ends of incarnations that were of no concern to the rank's user */
#define MISSED(rank) missed[rank]
#else
#define MISSED(rank) 0
#endif
#if ABORT == 2
bit dead; /* the last rank has died: its threads, which have the process numbers below, stop */
#define PROVIDED provided (!dead || (_pid != RANKS && _pid != 2 * RANKS))
#define LIVES(rank) (!dead || (rank) != RANKS - 1)
#else
#define PROVIDED
#define LIVES(rank) true
#endif

#include "doorbell.pml"
#include "launch_log.pml"
#include "batch_state.pml"
#include "failure_record.pml"
#include "readiness_table.pml"
#include "sequencer.pml"
#include "delivery.pml"
#include "failures.pml"
#include "submission.pml"
#include "progress.pml"
#include "user.pml"

#if ABORT
/* A watcher that notices a death, or any other cause that ends the job. */
proctype Aborter() {
  LOCALS;
#if ABORT == 2
  dead = 1;
#endif
  aborted = 1;
  RingAll
}
#endif

/* A rank's program may wait in the end for ranks whose programs have ended. All have seen the same number of failures, but
   when a step fails after its collectives were done, that failure costs the other ranks one more step. */
#define WAITS_FOR_ENDED(rank, q) (PENDING(rank, q) == ENTERED && (members & ~arrived[PLACE_AT(rank, q)] & OVER))
#if REQUESTS == 1
#define EXCUSED(rank) (FAILURES && WAITS_FOR_ENDED(rank, 0))
#else
#define EXCUSED(rank) (FAILURES && (WAITS_FOR_ENDED(rank, 0) || WAITS_FOR_ENDED(rank, 1)))
#endif
#define OWED(rank) ((owed[rank] & 1) + (owed[rank] >> 1 & 1) + (owed[rank] >> 2 & 1) + (owed[rank] >> 3 & 1))

inline CheckRank(rank) {
  assert(!LIVES(rank) || finished_user[rank] || (!aborted && EXCUSED(rank)));
  assert(!LIVES(rank) || aborted || failed_steps[rank] + OWED(rank) + MISSED(rank) == failure >> 2);
  assert(!LIVES(rank) || aborted || (seq_open[rank] && settled[rank] && postponed[rank] == 0));
  assert(inside[(rank) * 2] == 0 && inside[(rank) * 2 + 1] == 0 || !LIVES(rank))
}

/* When no process can continue, every user must have ended, and the shared state must be at rest. */
proctype Quiescence() {
  atomic {
    timeout ->
    assert(aborted || (failure & 3) == INCARNATION_RUNNING);
    FOR_ALL(CheckRank)
  }
}

init {
  atomic {
    run User(0);
    run User(1);
#if RANKS == 3
    run User(2);
#endif
    run Progress(0);
    run Progress(1);
#if RANKS == 3
    run Progress(2);
#endif
#if WITHDRAWAL
    run Withdrawer();
#endif
#if ABORT
    run Aborter();
#endif
    run Quiescence()
  }
}
