/* kernels/control/failure_record.{h,cc}. */

#define EPOCH_RUNNING 0
#define EPOCH_WRITING 1
#define EPOCH_FAILED 2
#define EPOCH_RESTARTING 3
#define WORD(epoch, state) ((epoch) << 2 | (state))

byte failure = 0; /* the word */
byte drained = 0;
int known_origins = 0; /* a mask */
byte failure_origin = 0; /* the last origin; it stands for the text, too */
byte draining = ALL;     /* the members that the end of an epoch waits for */

#define FAILED(epoch) (failure != WORD(epoch, EPOCH_RUNNING))
#define IS_BROKEN(epoch) (failure > WORD(epoch, EPOCH_RUNNING))
#define BEGUN(epoch) ((failure >> 2) >= (epoch))

#define KNOWS(origin) (known_origins >> (origin) & 1)

/* Raise sets `outcome` to RAISED or NOT_RUNNING. It does the swap first, then writes the text and rings the doorbells. */
#define RAISED 1
#define NOT_RUNNING 2
inline StartRaise(epoch, origin) {
  d_step {
    if
    :: failure == WORD(epoch, EPOCH_RUNNING) ->
      failure = WORD(epoch, EPOCH_WRITING);
      outcome = RAISED
    :: else -> outcome = NOT_RUNNING
    fi
  }
}
inline FinishRaise(epoch, origin) {
  if
  :: outcome == RAISED ->
    FUSED {
      d_step { known_origins = known_origins | BIT(origin); failure_origin = origin };
      failure = WORD(epoch, EPOCH_FAILED);
      RingAll
    }
  :: else
  fi
}

/* TryRestart sets `won` if the caller must restart. */
inline TryRestart(epoch) {
#if LEAVES
  x = drained;
#ifdef BUG_RESTART_IGNORES_LEAVING
  y = members;
#else
  y = draining;
#endif
#endif
  d_step {
    won = 0;
#if !LEAVES
    x = drained;
    y = ALL;
#endif
#ifdef BUG_RESTART_BEFORE_DRAINED
    x = ALL;
#endif
    if
    :: (~x & y) == 0 && failure == WORD(epoch, EPOCH_FAILED) ->
      failure = WORD(epoch, EPOCH_RESTARTING);
      won = 1
    :: else
    fi;
    x = 0;
    y = 0
  }
}

inline RestartRecord(epoch) {
  d_step {
    drained = 0;
    assert((epoch) + 1 < EPOCHS);
    failure = WORD((epoch) + 1, EPOCH_RUNNING)
  }
}
