/* kernels/engine/core/{sequencer,failure_memory,pending}.{h,cc}, the state that is local to a rank. Each of their functions holds
   a mutex, and so is one step. A rank has one step of its user's at a time, and one communicator. */

byte seq_incarnation[RANKS];
bit seq_open[RANKS] = 1;
byte inside[RANKS * 2];
byte next_ticket[RANKS];
byte group[RANKS]; /* the ticket of the group that is being submitted, plus 1; 0: none */
byte group_submitted[RANKS];
bit settled[RANKS] = 1;
byte owed[RANKS]; /* mask of the incarnations whose failure this rank's user has not seen yet */
bit excused[RANKS * 2];
int own_origins[RANKS * 2]; /* masks */
byte postponed[RANKS];      /* the origin of the postponed failure; 0: none */
byte last_origin[RANKS];
bit seq_closed[RANKS];

/* FailureMemory: the origin of the failure of the running step, or 0; and how many origins the rank has used. */
byte step_origin[RANKS];
byte num_own_origins[RANKS];
int delivered[RANKS]; /* mask of origins */
#define NEW_ORIGIN(rank) (1 + (rank) + num_own_origins[rank] * RANKS)

/* PendingTable. */
#define FREE 0
#define ENTERED 1
#define DEFERRED 2
#define TAKEN 3
#define LOST 4
#define DONE_OK 5
#define DONE_ERROR 6
byte pending[RANKS * REQUESTS];
byte ticket[RANKS * REQUESTS];
bit closed[RANKS];
#define PENDING(rank, q) pending[(rank) * REQUESTS + (q)]
#define TICKET_AT(rank, q) ticket[(rank) * REQUESTS + (q)]
#define PLACE_AT(rank, q) PLACE_OF(q, TICKET_AT(rank, q))
#define IS_PENDING(rank, q) (PENDING(rank, q) == ENTERED || PENDING(rank, q) == DEFERRED)

/* The steps that a rank's user has run, and those that it has seen fail; see user.pml. */
byte steps[RANKS];
byte failed_steps[RANKS];
#if WITHDRAWAL
bit own_failure[RANKS];
#endif
byte incarnation_origin[INCARNATIONS];

inline RememberStep(origin) {
  if
  :: step_origin[me] == 0 -> step_origin[me] = origin
  :: else
  fi
}

/* The first of the incarnations whose failure is owed. */
#define FIRST_OWED(rank) (owed[rank] & 1 -> 0 : (owed[rank] & 2 -> 1 : (owed[rank] & 4 -> 2 : 3)))

#define DELIVERED(origin) delivered[me] = delivered[me] | BIT(origin)
#define WAS_DELIVERED(origin) (delivered[me] >> (origin) & 1)

inline TakeOwed() {
  DELIVERED(incarnation_origin[FIRST_OWED(me)]);
  owed[me] = owed[me] & (owed[me] - 1)
}

/* CheckOwed sets `outcome` to 1 if this step gets an owed failure. */
inline CheckOwed() {
  do
  :: owed[me] && WAS_DELIVERED(incarnation_origin[FIRST_OWED(me)]) -> TakeOwed()
  :: else -> break
  od;
  if
  :: owed[me] ->
    RememberStep(incarnation_origin[FIRST_OWED(me)]);
    TakeOwed();
    outcome = 1
  :: else -> outcome = 0
  fi
}

/* AwaitTurn. Only Settle and Close make it true, and both notify the threads that wait. */
#ifdef BUG_DRAWS_AT_ONCE
#define MY_TURN true
#else
#define MY_TURN (seq_closed[me] || (settled[me] && !excused[me * 2 + seq_incarnation[me] % 2] && !IS_BROKEN(seq_incarnation[me])))
#endif

/* The check of Note [The step that failed]: this rank's user has seen exactly one failed step for each failed incarnation. */
#define CheckFailedSteps assert(seq_closed[me] || failed_steps[me] + MISSED(me) == seq_incarnation[me])

/* DrawTicket sets `refused` or `drawn`. */
inline DrawTicket() {
  atomic {
    MY_TURN ->
    if
    :: step_origin[me] -> outcome = 1
    :: else -> CheckOwed()
    fi;
    if
    :: outcome -> refused = 1
    :: else ->
      CheckFailedSteps;
      drawn = TICKET(seq_incarnation[me], next_ticket[me]);
      next_ticket[me]++;
      group[me] = drawn + 1;
      group_submitted[me] = 0
    fi;
    outcome = 0
  }
}

/* StartFailing sets `failing` to the incarnation to fail plus 1, or to 0. */
inline StartFailing() {
  atomic {
    MY_TURN ->
    if
    :: step_origin[me] && KNOWS(step_origin[me])
    :: else ->
      CheckOwed();
      failing = (outcome -> 0 : seq_incarnation[me] + 1);
      outcome = 0
    fi
  }
}

/* Enter of request `j`, in an atomic sequence. It sets `outcome` to 1 if the request is refused, `again` if the step must
   then fail on the other ranks, and `seals` if the incarnation has begun. */
inline EnterIncarnation() {
  MY_TURN ->
  if
  :: step_origin[me] -> outcome = 1; again = 1
  :: else ->
#if PIPELINED
    CheckOwed();
    if
    :: !outcome ->
      CheckFailedSteps;
      t = TICKET(seq_incarnation[me], next_ticket[me]);
      next_ticket[me]++
    :: else
    fi;
#else
    if
    :: INCARNATION_OF(t) != seq_incarnation[me] && owed[me] && FIRST_OWED(me) != INCARNATION_OF(t) -> outcome = 0
    :: else -> CheckOwed()
    fi;
    if
    :: !outcome && INCARNATION_OF(t) != seq_incarnation[me] -> RememberStep(last_origin[me]); outcome = 1
    :: else
    fi;
#endif
    if
    :: !outcome ->
      if
      :: group[me] -> group_submitted[me]++
      :: else
      fi;
      seals = seq_open[me];
      inside[me * 2 + seq_incarnation[me] % 2]++
    :: else
    fi
  fi
}

/* Exit of a thread that is inside incarnation `incarnation` - 1. If `incarnation` is 0, as for whoever drives the progress,
   it is inside none. */
inline LeaveIncarnation() {
  if
  :: incarnation -> inside[me * 2 + (incarnation - 1) % 2]--; incarnation = 0
  :: else
  fi
}

inline ExcuseNow(incarnation) {
  if
  :: (incarnation) == seq_incarnation[me] || ((incarnation) + 1 == seq_incarnation[me] && !settled[me]) ->
    excused[me * 2 + (incarnation) % 2] = 1
  :: else ->
    if
    :: owed[me] && FIRST_OWED(me) == (incarnation) -> TakeOwed()
    :: else
    fi
  fi
}

inline Rename(from, to) {
#ifndef BUG_NO_RENAME
  if
  :: step_origin[me] == from -> step_origin[me] = to
  :: else
  fi
#else
  skip
#endif
}

inline Excuse(incarnation, origin) {
  ExcuseNow(incarnation);
  if
  :: (incarnation) == seq_incarnation[me] ->
    own_origins[me * 2 + (incarnation) % 2] = own_origins[me * 2 + (incarnation) % 2] | BIT(origin)
  :: (incarnation) + 1 == seq_incarnation[me] -> Rename(origin, last_origin[me])
  :: else
  fi
}

/* EndGroup of ticket `drawn` after a failure sets `failing` to the incarnation to fail plus 1, or to 0. */
inline EndGroupOf() {
  d_step {
    if
    :: group[me] == drawn + 1 ->
      group[me] = 0;
      if
      :: INCARNATION_OF(drawn) == seq_incarnation[me] ->
        failing = (group_submitted[me] < REQUESTS -> INCARNATION_OF(drawn) + 1 : 0)
      :: else ->
#ifndef BUG_FORGETS_EXCUSED_STEP
        if
        :: (INCARNATION_OF(drawn) + 1 == seq_incarnation[me] && !settled[me]) ||
           (owed[me] && FIRST_OWED(me) == INCARNATION_OF(drawn)) ->
          RememberStep(incarnation_origin[INCARNATION_OF(drawn)])
        :: else
        fi;
#endif
        ExcuseNow(INCARNATION_OF(drawn))
      fi
    :: else
    fi
  }
}

/* Postpone sets `won` to its result. */
inline Postpone(incarnation, origin) {
  d_step {
    won = 0;
    if
    :: (incarnation) == seq_incarnation[me] && !seq_open[me] ->
      won = 1;
      if
      :: postponed[me] == 0 -> postponed[me] = origin
      :: else
      fi
    :: else
    fi
  }
}

/* Sequencer::Advance, AllOut, Settle, Open. */
inline Advance(origin) {
  if
  :: own_origins[me * 2 + seq_incarnation[me] % 2] >> step_origin[me] & 1 -> Rename(step_origin[me], origin)
  :: else
  fi;
  own_origins[me * 2 + seq_incarnation[me] % 2] = 0;
  last_origin[me] = origin;
  incarnation_origin[seq_incarnation[me]] = origin;
  seq_incarnation[me]++;
  seq_open[me] = 0;
  next_ticket[me] = 0;
#ifdef BUG_OWED_ONCE
  owed[me] = 0;
#endif
  settled[me] = 0
}

#define ALL_OUT(incarnation) (inside[me * 2 + (incarnation) % 2] == 0)

inline Settle(any) {
  x = seq_incarnation[me] - 1;
  if
#ifndef BUG_NEVER_OWED
  :: !(any) && !excused[me * 2 + x % 2] -> owed[me] = owed[me] | BIT(x)
#endif
  :: else -> DELIVERED(last_origin[me])
  fi;
  excused[me * 2 + x % 2] = 0;
  settled[me] = 1;
  x = 0
}

#if LEAVES
inline ForgetOwed() {
#ifndef BUG_LEAVER_IS_OWED
  do
  :: owed[me] -> TakeOwed(); missed[me]++
  :: else -> break
  od
#else
  skip
#endif
}
#endif

inline OpenIncarnation() { d_step { seq_open[me] = 1; origin = postponed[me]; postponed[me] = 0 } }

/* PendingTable::Add of request `j` with ticket `t`. `seals` says whether its incarnation has begun. It sets `outcome` to
   TO_ENTER, TO_WAIT or CLOSED. */
#define TO_ENTER 0
#define TO_WAIT 1
#define CLOSED 2
inline AddPending() {
  TICKET_AT(me, j) = t;
  x = 0;
  do
  :: x < REQUESTS ->
    if
    :: x != j && IS_PENDING(me, x) && PLACE_AT(me, x) == PLACE_AT(me, j) -> seals = 0
    :: else
    fi;
    x++
  :: else -> break
  od;
  x = 0;
  if
  :: closed[me] -> outcome = CLOSED
  :: !closed[me] && seals -> PENDING(me, j) = ENTERED; outcome = TO_ENTER
  :: else -> PENDING(me, j) = DEFERRED; outcome = TO_WAIT
  fi;
  seals = 0
}

/* PendingTable::Defer. */
inline DeferPending() {
  if
  :: PENDING(me, j) == ENTERED -> PENDING(me, j) = DEFERRED
  :: else
  fi
}
