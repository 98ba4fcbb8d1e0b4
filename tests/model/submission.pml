/* kernels/engine/core/submission.{h,cc}, and kernels/fusion/launch_order.h. */

/* A rank sets its bit while one of its requests waits until a generation is retired. */
bit deferring[RANKS];

/* A caller that drives the progress has launched something, for which it did not ring its own rank. */
#if CALLERS
bit owed_ring[RANKS];
#endif

/* The rank that launches a request rings the others. It also rings itself, or leaves that to the caller that drives. The
   change BUG_FINISHES_AHEAD is what an earlier version did: the rank that had reduced a request completed it for itself, and
   saw no need to ring itself. */
inline RingOwn() {
#ifdef BUG_FINISHES_AHEAD
  d_step { PENDING(me, j) = TAKEN; MarkAcknowledged() };
  Retire();
  d_step { PushCompletions(TAKEN, DONE_OK); again = 0 }
#elif CALLERS
  owed_ring[me] = 1
#else
  RingSelf
#endif
}

/* Launches request `j` at place `p`; then the caller leaves the incarnation. Other threads run between the two steps of an
   append. */
inline Launch() {
  Claim(p, SMALL >> j & 1);
  FUSED {
    Publish();
    RingOthers;
    RingOwn();
    LeaveIncarnation();
    outcome = 0;
    p = 0
  }
}

/* Enters request `j` with ticket `t`; then the caller leaves the incarnation. Sets `outcome` to BUSY if the request was deferred,
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
      LeaveIncarnation();
      p = 0
    }
  fi
}

/* Submits request `j` with ticket `drawn`. Sets `refused` if the engine refuses it. */
inline Submit() {
  FUSED {
    atomic {
      t = drawn;
      EnterIncarnation();
      if
      :: outcome -> refused = 1; outcome = (again -> 1 : 0); again = 0
      :: else ->
        incarnation = INCARNATION_OF(t) + 1;
        AddPending();
        if
        :: outcome == CLOSED -> refused = 1; outcome = 0; LeaveIncarnation()
        :: outcome == TO_WAIT -> outcome = 0; LeaveIncarnation(); again = 1
        :: else -> p = PLACE_OF(j, t)
        fi
      fi
    };
    if
    :: incarnation -> ClaimGeneration()
    :: else
    fi
  };
  if
  :: incarnation ->
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
