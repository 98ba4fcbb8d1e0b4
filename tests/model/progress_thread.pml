/* kernels/control/doorbell.h and kernels/engine/core/progress_thread.cc alone, for one rank, in all detail: how its progress
   thread sleeps and is woken, how callers drive the progress in its place, and the ring that they owe. PEERS other ranks each
   publish something for which they ring. CALLERS threads of this rank each launch something, for which they owe a ring, and
   may drive. A step of progress takes what has been published; from each thing it makes another one, for which nobody rings
   and which only a later step takes. */

#ifndef PEERS
#define PEERS 1
#endif
#ifndef CALLERS
#define CALLERS 1
#endif

/* The things that have been published and not been taken. A step looks at the things in this order: the one that a step has made, then one
   for each peer and each caller. */
#define THINGS (1 + PEERS + CALLERS)
bit published[THINGS];

bit driving;   /* a mutex */
bit owed_ring;
byte over = 0; /* peers and callers that have ended */

/* The doorbell. `in_kernel`: the thread is in FutexWait, which has no timeout here, so that a lost wake-up is found. */
byte word;
bit sleeping;
bit hushed;
bit in_kernel;

inline Ring() {
#ifdef BUG_RING_READS_FIRST
  x = sleeping;
  word++;
#else
  word++;
  x = sleeping;
#endif
  if
  :: x && !hushed -> in_kernel = 0
  :: else
  fi;
  x = 0
}

inline Step() {
#ifndef BUG_OWED_RING_TAKEN_LATE
  owed_ring = 0;
#endif
  d_step { moved = 0; i = 0 };
  do
  :: i < THINGS ->
    d_step {
      if
      :: published[i] ->
        published[i] = 0;
        published[0] = (i > 0);
        moved = 1
      :: else
      fi;
      i++
    }
  :: else -> break
  od;
#ifdef BUG_OWED_RING_TAKEN_LATE
  owed_ring = 0;
#endif
  i = 0
}

/* ProgressThread::Run. The kernel compares the word again and puts the thread to sleep in one step. */
proctype Thread() {
  byte heard = 0, i = 0;
  bit moved = 0;
  atomic { !driving -> driving = 1 };
  do
  :: true ->
#ifdef BUG_LOOKS_BEFORE_LISTENING
    Step();
    heard = word;
#else
    heard = word;
    Step();
#endif
    if
    :: moved
    :: else ->
      driving = 0;
#ifdef BUG_SLEEPING_SET_LATE
      d_step { if :: word == heard -> in_kernel = 1 :: else fi };
      sleeping = 1;
#else
      sleeping = 1;
      d_step { if :: word == heard -> in_kernel = 1 :: else fi };
#endif
      !in_kernel;
      sleeping = 0;
      atomic { !driving -> driving = 1 }
    fi
  od
}

proctype Peer(byte thing) {
  bit x = 0;
  published[thing] = 1;
  Ring();
  over++
}

/* Submission::Launch and then ProgressThread::DriveUntil. A caller takes any number of steps before it leaves. */
proctype Caller(byte thing) {
  byte heard = 0, i = 0;
  bit moved = 0, x = 0;
#ifdef BUG_OWED_BEFORE_PUBLISHED
  owed_ring = 1;
  published[thing] = 1;
#else
  published[thing] = 1;
  owed_ring = 1;
#endif
  do
  :: atomic { !driving -> driving = 1 }; /* Guard::Try */
    hushed = 1;
    do
    :: heard = word; Step();
      if
      :: true
      :: break
      fi
    od;
    /* ~Guard: Unhush, then Ring. */
#ifdef BUG_UNHUSH_READS_FIRST
    x = (word != heard);
    hushed = 0;
#else
    hushed = 0;
    x = (word != heard);
#endif
    if
    :: x && sleeping -> in_kernel = 0
    :: else
    fi;
    x = 0;
    if
    :: moved -> Ring()
    :: else
    fi;
    driving = 0
  :: break
  od;
  atomic { x = owed_ring; owed_ring = 0 };
  if
  :: x -> Ring()
  :: else
  fi;
  over++
}

proctype Quiescence() {
  byte i = 0;
  timeout ->
  assert(over == PEERS + CALLERS && in_kernel && !driving && !hushed);
  do
  :: i < THINGS -> assert(!published[i]); i++
  :: else -> break
  od
}

init {
  byte i = 1;
  atomic {
    run Thread();
    do
    :: i <= PEERS -> run Peer(i); i++
    :: i > PEERS && i < THINGS -> run Caller(i); i++
    :: else -> break
    od;
    run Quiescence()
  }
}
