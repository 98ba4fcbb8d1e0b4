/* A rank's user: steps one after the other, through the op kernels (kernels/tf/{ticket_kernel,submission,step}.cc).
   A step draws its ticket, submits its requests and waits for them. It may fail by itself at any point after it has drawn its
   ticket. A step that has failed withdraws its pending requests, may still submit requests whose ops had begun to run, and
   ends. */

byte failures = 0;
bit withdrawing; /* the second thread of rank 0 is withdrawing a request */

#if FAILURES
#define MAY_FAIL (failures < FAILURES && (FAILING >> me & 1) && !OWN_FAILURE && !WITHDRAWAL)

#else
#define MAY_FAIL false
#endif

/* The step has failed by itself. This is a local variable if that is enough, since it makes fewer interleavings. */
#if WITHDRAWAL
#define OWN_FAILURE own_failure[me]
#else
#define OWN_FAILURE failed_by_itself
#endif

#if LEAVES
#define NUM_STEPS ((me == RANKS - 1 -> LEAVES_AFTER : STEPS) + returned[me])
#else
#define NUM_STEPS STEPS
#endif

/* The state of the requests of the step that runs. */
#define ENDED(q) (PENDING(me, q) == FREE || PENDING(me, q) == DONE_OK || PENDING(me, q) == DONE_ERROR)
#define FAILED_REQUEST(q) (PENDING(me, q) == DONE_ERROR)
#if REQUESTS == 1
#define ALL_ENDED ENDED(0)
#define ANY_ERROR FAILED_REQUEST(0)
#elif REQUESTS == 2
#define ALL_ENDED (ENDED(0) && ENDED(1))
#define ANY_ERROR (FAILED_REQUEST(0) || FAILED_REQUEST(1))
#else
#define ALL_ENDED (ENDED(0) && ENDED(1) && ENDED(2))
#define ANY_ERROR (FAILED_REQUEST(0) || FAILED_REQUEST(1) || FAILED_REQUEST(2))
#endif

inline EndStep() {
  if
  :: refused || OWN_FAILURE -> failed_steps[me]++
  :: else
  fi;
  refused = 0;
  withdrawn = 0;
  OWN_FAILURE = 0;
  drawn = 0;
  told = 0;
  failed_here = 0;
  group[me] = 0;
  group_submitted[me] = 0;
  step_origin[me] = 0;
  j = 0;
  do
  :: j < REQUESTS -> PENDING(me, j) = FREE; TICKET_AT(me, j) = 0; j++
  :: else -> break
  od;
  j = 0;
  steps[me]++
}

/* Step::End, once for each failed step: when it is cancelled, or when it has ended. */
inline TellEnd() {
  if
  :: !told ->
    told = 1;
#if !PIPELINED
    EndGroup();
#endif
    if
    :: !refused && !failed_here -> FailStep()
    :: else
    fi
  :: else
  fi
}

/* The step may fail now. The interleaving decides when the engine learns of it, and which requests have ended by then. */
inline MayFail(when) {
  if
  :: MAY_FAIL && (FAILS_WHEN & when) && !refused && !ANY_ERROR -> OWN_FAILURE = 1; failures++
  :: true
  fi
}

/* Turns `j` from a number in the order of this rank into that of a request, and back. */
inline TurnAround() {
#if TURNED
  j = (me == 0 -> REQUESTS - 1 - j : j)
#else
  skip
#endif
}

/* ProgressThread::SubmitAndProgress, after the request was submitted: while `calling` is set, this rank's user may drive the
   progress (progress.pml). In the end it rings for what nobody has looked at. */
inline StopDriving() {
#if CALLERS
  calling[me] = 1;
  atomic {
    !driven[me] ->
    calling[me] = 0;
#ifndef BUG_OWED_RING_KEPT
    if
    :: owed_ring[me] -> owed_ring[me] = 0; RingSelf
    :: else
    fi
#endif
  };
#else
  skip
#endif
}

#if LEAVES
/* JobEngine::Leave and Return. A rank whose step has failed leaves when that is settled. */
inline LeaveAndReturn() {
  atomic { MY_TURN -> closed[me] = 1 };
  leaving[me] = 1;
  RingSelf;
  atomic { returned[me] || aborted -> skip }
}
#endif

proctype User(byte me) PROVIDED {
  LOCALS;
#if !WITHDRAWAL
  bit failed_by_itself = 0;
#endif
  bit refused = 0;   /* the engine has refused or failed a request */
  bit withdrawn = 0; /* the requests that were pending when the step failed are withdrawn */
  bit told = 0;      /* Step::End was called */
  bit failed_here = 0; /* Share::failed_in_engine */
  byte drawn = 0;    /* the ticket */
  do
  :: FUSED {
      if
#if LEAVES
#if STEPS_AFTER_RETURN
      :: steps[me] == NUM_STEPS && !returned[me] && !aborted -> LeaveAndReturn()
#else
      :: steps[me] == NUM_STEPS && !returned[me] && !aborted -> LeaveAndReturn(); finished_user[me] = 1; break
#endif
      :: steps[me] == NUM_STEPS && returned[me] || aborted -> finished_user[me] = 1; break
#else
      :: steps[me] == NUM_STEPS || aborted -> finished_user[me] = 1; break
#endif
      :: else
      fi;
#if !PIPELINED
      DrawTicket();
#endif
      atomic { MayFail(1) }
    };
    /* The requests. An op that has not begun to run when the step fails does not run, or begins and notices the failure. */
    do
    :: j == REQUESTS -> j = 0; break
    :: j < REQUESTS ->
      if
      :: !OWN_FAILURE || WITHDRAWAL -> TurnAround(); TOGETHER { Submit() }; TurnAround()
      :: OWN_FAILURE && !refused -> /* Submission::RefuseCancelled; the step may have ended before it calls FailedIn */
        TOGETHER { FailStep() };
        if
        :: failed_here = 1
        :: true
        fi
      :: refused || OWN_FAILURE -> j = REQUESTS - 1
      fi;
      StopDriving();
      atomic { j++; MayFail(2) }
    od;
    /* The ends of the requests. */
    do
    :: atomic {
        ALL_ENDED && !(withdrawing && me == 0) ->
        refused = (refused || ANY_ERROR);
        if
        :: !refused && !OWN_FAILURE -> EndStep()
        :: else
        fi;
        break
      }
    :: atomic {
        !ALL_ENDED && !withdrawn && (refused || OWN_FAILURE || ANY_ERROR) ->
        refused = (refused || ANY_ERROR);
        withdrawn = 1
      };
      if
      :: !told -> TOGETHER { TellEnd() }
      :: true
      fi;
      do
      :: j < REQUESTS -> TOGETHER { FUSED { StartCancel() }; FinishFail() }; j++
      :: else -> j = 0; break
      od
    od;
    if
    :: refused || OWN_FAILURE ->
      TOGETHER { TellEnd() };
      atomic { EndStep() }
    :: else
    fi
  od;
}

#if WITHDRAWAL
/* A second thread of rank 0 that withdraws a request of the step that runs. */
proctype Withdrawer() {
  LOCALS;
  byte me = 0;
  atomic {
    if
    :: IS_PENDING(0, 0) -> j = 0
    :: IS_PENDING(0, REQUESTS - 1) -> j = REQUESTS - 1
    fi;
    withdrawing = 1;
    own_failure[0] = 1;
    failures++
  };
  StartCancel();
  FinishFail();
  withdrawing = 0
}
#endif
