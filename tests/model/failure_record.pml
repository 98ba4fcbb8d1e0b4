/* kernels/control/failure_record.{h,cc}. */

#define INCARNATION_RUNNING 0
#define INCARNATION_WRITING 1
#define INCARNATION_FAILED 2
#define INCARNATION_RESTARTING 3
#define WORD(incarnation, state) ((incarnation) << 2 | (state))

byte failure = 0; /* the word */
byte drained = 0;
int known_origins = 0; /* a mask */
byte failure_origin = 0; /* the last origin; it stands for the text, too */
bit all_left; /* the incarnation has ended because all have left */

#define FAILED(incarnation) (failure != WORD(incarnation, INCARNATION_RUNNING))
#define IS_BROKEN(incarnation) (failure > WORD(incarnation, INCARNATION_RUNNING))
#define BEGUN(incarnation) ((failure >> 2) >= (incarnation))

#define KNOWS(origin) (known_origins >> (origin) & 1)

/* Raise sets `outcome` to RAISED or NOT_RUNNING. It does the swap first, then writes the text and rings the doorbells. */
#define RAISED 1
#define NOT_RUNNING 2
inline StartRaise(incarnation, origin) {
  d_step {
    if
    :: failure == WORD(incarnation, INCARNATION_RUNNING) ->
      failure = WORD(incarnation, INCARNATION_WRITING);
      outcome = RAISED
    :: else -> outcome = NOT_RUNNING
    fi
  }
}
inline FinishRaise(incarnation, origin) {
  if
  :: outcome == RAISED ->
    FUSED {
      d_step { known_origins = known_origins | BIT(origin); failure_origin = origin; all_left = 0 };
      failure = WORD(incarnation, INCARNATION_FAILED);
      RingAll
    }
  :: else
  fi
}

/* As Raise, when all have left. The origin is of no concern to anybody. */
inline RaiseReturn(incarnation) {
  StartRaise(incarnation, 0);
  if
  :: outcome == RAISED ->
    FUSED {
      d_step { failure_origin = 0; all_left = 1; outcome = 0 };
      failure = WORD(incarnation, INCARNATION_FAILED);
      RingAll
    }
  :: else -> outcome = 0
  fi
}

/* TryRestart sets `won` if the caller must restart. */
inline TryRestart(incarnation) {
  d_step {
    won = 0;
    x = drained;
#ifdef BUG_RESTART_WITHOUT_THE_ABSENT
    y = members;
#else
    y = ALL;
#endif
#ifdef BUG_RESTART_BEFORE_DRAINED
    x = ALL;
#endif
    if
    :: (~x & y) == 0 && failure == WORD(incarnation, INCARNATION_FAILED) ->
      failure = WORD(incarnation, INCARNATION_RESTARTING);
      won = 1
    :: else
    fi;
    x = 0;
    y = 0
  }
}

inline RestartRecord(incarnation) {
  d_step {
    drained = 0;
    assert((incarnation) + 1 < INCARNATIONS);
    failure = WORD((incarnation) + 1, INCARNATION_RUNNING)
  }
}
