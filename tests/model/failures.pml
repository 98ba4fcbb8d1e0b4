/* kernels/engine/core/failures.{h,cc}, and Communicator::Fail. */

/* Fails incarnation `failing` - 1, unless `failing` is 0. The first failure of a step gives the step its origin. */
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
      failing = INCARNATION_OF(TICKET_AT(me, j)) + 1
    :: else
    fi
  };
  StartFail()
}

inline EndGroup() {
  FUSED { EndGroupOf(); StartFail() };
  FinishFail()
}
