/* kernels/engine/dispatcher.{h,cc}, Communicator::Fail, and the rule when a request seals its batch
   (kernels/fusion/fusion_buffer_manager.cc). */

/* A rank sets its bit while one of its requests waits until a generation is retired. */
bit deferring[RANKS];

/* How each request has ended, by ticket and index, on all ranks (0: not yet), and the mask of the ranks that have
   delivered this end. */
byte result[EPOCHS * TICKETS * REQUESTS];
#define RESULT(ticket, q) result[(ticket) * REQUESTS + (q)]
#define TOLD(rank) (8 << (rank))
#define TOLD_ALL (8 * ALL)

/* Ends all requests in state `from` with `to`. Asserts that a request ends alike on all ranks, and once on each. */
inline PushCompletions(from, to) {
  x = 0;
  do
  :: x < REQUESTS && PENDING(me, x) == from ->
    PENDING(me, x) = to;
    y = RESULT(TICKET_AT(me, x), x);
    assert((y & TOLD(me)) == 0);
    assert(y == 0 || (y & 7) == to);
    y = y | TOLD(me) | to;
    RESULT(TICKET_AT(me, x), x) = ((y & TOLD_ALL) == TOLD_ALL -> TOLD_ALL : y); /* not read any more */
    x++
  :: x < REQUESTS && PENDING(me, x) != from -> x++
  :: else -> break
  od;
  x = 0;
  y = 0
}

/* Launches request `j` at place `p`; then the caller leaves the epoch. */
inline Launch() {
  if
  :: SMALL >> j & 1 ->
    Claim(SMALL_LOG, p);
    Publish(SMALL_LOG);
#if SMALL && SEALS
    if /* AddElsewhere: the request may be the last of its group */
    :: SealOpen(); won = 0
    :: SEALS == 2
    fi
#endif
  :: else -> Claim(LAUNCH_LOG, p)
  fi;
  FUSED {
    Publish(LAUNCH_LOG);
    RingAll;
    LeaveEpoch();
    outcome = 0;
    p = 0
  }
}

/* Enters request `j` with ticket `t`; then the caller leaves the epoch. Sets `outcome` to BUSY if the request was deferred,
   else to 0. */
inline EnterTable() {
  Arrive();
  if
  :: outcome == LAST -> Launch()
  :: else ->
    atomic {
      if
      :: outcome == BUSY -> DeferPending()
      :: else -> outcome = 0
      fi;
      LeaveEpoch();
      p = 0
    }
  fi
}

/* Fails epoch `failing` - 1, unless `failing` is 0. The first failure of a step gives the step its origin. */
inline StartFail() {
  if
  :: failing ->
    FUSED {
      d_step {
        origin = step_origin[me];
        if
        :: origin == 0 || (KNOWS(origin) && !IS_BROKEN(failing - 1)) -> origin = NEW_ORIGIN(me); num_own_origins[me]++
        :: else
        fi;
        assert(origin < 31)
      };
      d_step { RememberStep(origin); DELIVERED(origin) };
#ifndef BUG_NOT_EXCUSED
      d_step { Excuse(failing - 1, origin) };
#endif
    };
    StartRaise(failing - 1, origin)
  :: else
  fi
}
inline FinishFail() {
  if
  :: failing ->
    FinishRaise(failing - 1, origin);
    FUSED {
      if
      :: outcome == NOT_RUNNING ->
        Postpone(failing - 1, origin);
        if
        :: !won -> StartRaise(failing - 1, origin)
        :: else -> outcome = 0; RingSelf
        fi
      :: else -> outcome = 0
      fi
    };
    FinishRaise(failing - 1, origin);
    d_step { origin = 0; outcome = 0; won = 0; failing = 0 }
  :: else
  fi
}

inline FailStep() {
  FUSED { StartFailing(); StartFail() };
  FinishFail()
}

/* Cancels request `j`, up to the swap; FinishFail does the rest. */
inline StartCancel() {
  d_step {
    if
    :: IS_PENDING(me, j) && !(PENDING(me, j) == ENTERED && IS_READY(PLACE_AT(me, j), TICKET_AT(me, j))) ->
      failing = EPOCH_OF(TICKET_AT(me, j)) + 1
    :: else
    fi
  };
  StartFail()
}

inline EndGroup() {
  FUSED { EndGroupOf(); StartFail() };
  FinishFail()
}

/* Submits request `j` with ticket `drawn`. Sets `refused` if the engine refuses it. */
inline Submit() {
  FUSED {
    atomic {
      t = drawn;
      EnterEpoch();
      if
      :: outcome -> refused = 1; outcome = (again -> 1 : 0); again = 0
      :: else ->
        epoch = EPOCH_OF(t) + 1;
        AddPending();
        if
        :: outcome == CLOSED -> refused = 1; outcome = 0; LeaveEpoch()
        :: outcome == TO_WAIT -> outcome = 0; LeaveEpoch(); again = 1
        :: else -> p = PLACE_OF(j, t)
        fi
      fi
    };
    if
    :: epoch -> ClaimGeneration()
    :: else
    fi
  };
  if
  :: epoch ->
    EnterTable();
    again = (outcome == BUSY);
    outcome = 0
  :: else
  fi;
  if
  :: again -> FUSED { RingSelf; again = 0 } /* deferred */
  :: outcome -> outcome = 0; FailStep()     /* the step has failed: fail it on the other ranks, too */
  :: else
  fi;
  t = 0
}

#define RING_DEFERRING(x)      \
  if                           \
  :: deferring[x] -> Ring(x)   \
  :: else                      \
  fi

/* Completes the requests at the places in `finished`: PendingTable::Take and Acknowledge for each, then the callbacks. */
#define TO_COMPLETE(q) (PENDING(me, q) == ENTERED && (finished >> PLACE_AT(me, q) & 1))
inline Complete() {
  do
  :: FUSED {
      atomic {
        if
        :: finished ->
          j = 0;
          do
          :: j < REQUESTS && !TO_COMPLETE(j) -> j++
          :: else -> break
          od;
          assert(j < REQUESTS); /* else the log names a request that this rank has not submitted */
          p = PLACE_AT(me, j);
          assert(claim[p] == OPEN(TICKET_AT(me, j)) && IS_READY(p, TICKET_AT(me, j)) && (participants[p] & BIT(me)));
          finished = finished & ~BIT(p);
          PENDING(me, j) = TAKEN;
          j = 0;
          MarkAcknowledged()
        :: else
        fi
      };
      Retire();
      if
      :: finished == 0 -> atomic { PushCompletions(TAKEN, DONE_OK); break }
      :: else
      fi
    }
  od;
#if PIPELINED
  if
  :: again -> FOR_ALL(RING_DEFERRING)
  :: else
  fi;
#endif
  again = 0
}

#if REQUESTS == 1
#define HAS_DEFERRED (PENDING(me, 0) == DEFERRED)
#define CAN_ENTER(q) (PENDING(me, q) == DEFERRED)
#elif REQUESTS == 2
#define HAS_DEFERRED (PENDING(me, 0) == DEFERRED || PENDING(me, 1) == DEFERRED)
#define CAN_ENTER(q) (PENDING(me, q) == DEFERRED)
#else
/* With three requests of one key, the third has the same place as the first. */
#define HAS_DEFERRED (PENDING(me, 0) == DEFERRED || PENDING(me, 1) == DEFERRED || PENDING(me, 2) == DEFERRED)
#define CAN_ENTER(q) (PENDING(me, q) == DEFERRED && !((q) == 2 && IS_PENDING(me, 0)))
#endif


/* RetryDeferred sets `moved` if it has entered a request. */
inline RetryDeferred() {
#if PIPELINED
  won = HAS_DEFERRED;
  deferring[me] = won;
  won = 0;
#endif
  do
  :: FUSED {
      atomic {
        do
        :: j < REQUESTS && !CAN_ENTER(j) -> j++
        :: else -> break
        od;
        if
        :: j == REQUESTS -> j = 0; break
        :: else -> PENDING(me, j) = ENTERED; t = TICKET_AT(me, j); p = PLACE_OF(j, t)
        fi
      };
      ClaimGeneration()
    };
    EnterTable();
    d_step {
      if
      :: outcome != BUSY -> moved = 1
      :: else
      fi;
      outcome = 0;
      t = 0;
      j++
    }
  od
}
