/* kernels/engine/comm_thread.cc. */

#if FAILURES
#define BROKEN (FAILED(at) || aborted)
#else
#define BROKEN aborted
#endif

inline FollowSmallLog() {
#if SMALL
  do
  :: FUSED {
      Read(SMALL_LOG);
      if
      :: word != 0 -> d_step { finished = finished | BIT(PLACE_IN(word)); READING(me, SMALL_LOG)++; word = 0 }
      :: else -> break
      fi
    }
  od;
  if
  :: finished -> Complete(); moved = 1
  :: else
  fi
#else
  skip
#endif
}

#define COUNT(mask) (((mask) & 1) + ((mask) >> 1 & 1) + ((mask) >> 2 & 1) + ((mask) >> 3 & 1))

/* The work on a chunk, or on this rank's own part, and then AddDone. All requests of the batch must be ready, this rank must be
   one of their participants, and no rank may have acknowledged one of them. */
inline DoUnit() {
  d_step {
    i = 0;
    do
    :: i < PLACES ->
      if
      :: batch >> i & 1 -> assert(claim[i] == ready[i] && (participants[i] & BIT(me)) && acknowledged[i] == 0)
      :: else
      fi;
      i++
    :: else -> break
    od;
    i = 0;
    assert(batch_end[LAST_ENTRY] != COMPLETE);
    done_units[LAST_ENTRY]++;
    won = (done_units[LAST_ENTRY] == total)
  };
  if
  :: won ->
    FUSED {
      End(READING(me, LAUNCH_LOG) - 1, COMPLETE);
      won = 0;
      outcome = 0;
      RingOthers
    }
  :: else
  fi
}

/* RunBatch of the batch that ends with the entry that this rank has read last. */
inline RunBatch() {
  SeeBatch();
  d_step {
    total = CHUNKS * COUNT(batch);
#if PARTS
    i = 0; x = 0;
    do
    :: i < PLACES ->
      if
      :: batch >> i & 1 -> x = x | participants[i]
      :: else
      fi;
      i++
    :: else -> break
    od;
    total = total + COUNT(x);
    i = 0; x = 0
#endif
  };
  if
  :: total == 0 -> End(READING(me, LAUNCH_LOG) - 1, COMPLETE); outcome = 0
  :: else
  fi;
#if CHUNKS
  /* RunShared. */
  do
  :: FUSED {
      atomic { x = next_chunk[LAST_ENTRY]; next_chunk[LAST_ENTRY]++ };
      if
      :: x >= CHUNKS * COUNT(batch) -> x = 0; break
      :: else -> x = 0
      fi;
      if
      :: BROKEN -> break
      :: else
      fi
    };
    DoUnit();
    FollowSmallLog()
  od;
#endif
#if PARTS
  /* RunOwn, RunStaged. */
  if
  :: BROKEN
  :: else -> DoUnit(); FollowSmallLog()
  fi;
#endif
  do
  :: FUSED {
      SleepIfIdle();
      outcome = batch_end[LAST_ENTRY];
      if
      :: outcome != RUNNING -> break
      :: else
      fi;
      Listen;
      if
      :: BROKEN -> End(READING(me, LAUNCH_LOG) - 1, ABORTED); break
      :: else
      fi;
      outcome = batch_end[LAST_ENTRY];
      if
      :: outcome != RUNNING -> break
      :: else
      fi;
      moved = 0
    };
    FollowSmallLog();
    sleep = !moved
  od;
  FUSED {
    d_step { SeeEnd(); moved = 1 };
    if
    :: outcome == COMPLETE -> finished = batch
    :: else /* EndEpoch or EndJob delivers the error */
    fi;
    outcome = 0;
#ifndef BUG_BATCH_KEPT
    batch = 0;
#endif
    total = 0
  };
  if
  :: finished -> Complete()
  :: else
  fi
}

/* One iteration of FollowLaunchLog. It sets `won` if there was an entry, and `seals` if that entry ends its batch. */
inline NextEntry() {
  if
  :: BROKEN -> word = 0
  :: else -> Read(LAUNCH_LOG)
  fi;
  atomic {
    won = (word != 0);
    if
    :: word == 0
    :: else ->
      if
      :: !(word & MARKER_FLAG) -> batch = batch | BIT(PLACE_IN(word))
      :: else
      fi;
      READING(me, LAUNCH_LOG)++;
      moved = 1;
#ifdef BUG_BATCHES_BY_READER
      seals = ((word & SEALS_FLAG) || READING(me, LAUNCH_LOG) == tail_position[LAUNCH_LOG]);
#else
      seals = ((word & SEALS_FLAG) != 0);
#endif
      word = 0
    fi
  }
}

inline SettleLogs() { TOGETHER { CloseAndRead() } }

inline CloseAndRead() {
#if SMALL
  Close(SMALL_LOG);
#endif
  Close(LAUNCH_LOG);
#if SMALL
  do
  :: FUSED {
      if
      :: READING(me, SMALL_LOG) >= tail_position[SMALL_LOG] -> break
      :: else
      fi;
      Resolve(SMALL_LOG);
      d_step {
        if
        :: word != 0 -> finished = finished | BIT(PLACE_IN(word))
        :: else
        fi;
        word = 0;
        READING(me, SMALL_LOG)++
      }
    }
  od;
#endif
  do
  :: FUSED {
      if
      :: READING(me, LAUNCH_LOG) >= tail_position[LAUNCH_LOG] -> break
      :: else
      fi;
      Resolve(LAUNCH_LOG);
      d_step {
        if
        :: word != 0 && !(word & MARKER_FLAG) -> batch = batch | BIT(PLACE_IN(word))
        :: else
        fi;
        seals = ((word & SEALS_FLAG) != 0);
        word = 0;
        READING(me, LAUNCH_LOG)++
      }
    };
    if
    :: seals ->
      FUSED {
        SeeBatch();
        End(READING(me, LAUNCH_LOG) - 1, ABORTED);
        d_step {
          SeeEnd();
          if
          :: outcome == COMPLETE -> finished = finished | batch
          :: else
          fi;
          seals = 0;
          outcome = 0;
          batch = 0
        }
      }
    :: else
    fi
  od;
  batch = 0;
  if
  :: finished -> Complete()
  :: else
  fi
}

/* Dispatcher::FailEpoch: TakeEpoch, RememberStep, Settle, and the callbacks. */
inline FailPending() {
  FUSED {
    d_step {
      i = 0;
      won = 0;
      do
      :: i < REQUESTS ->
        if
        :: IS_PENDING(me, i) && EPOCH_OF(TICKET_AT(me, i)) == at ->
          PENDING(me, i) = LOST;
          won = 1
        :: else
        fi;
        i++
      :: else -> break
      od;
      i = 0
    };
    if
    :: won -> d_step { RememberStep(epoch_origin[at]) }
    :: else
    fi;
    d_step { Settle(won); won = 0 };
    d_step { PushCompletions(LOST, DONE_ERROR) }
  }
}

/* Restarts after epoch `epoch`. */
inline Restart(epoch) {
  TryRestart(epoch);
  if
  :: won ->
    won = 0;
    FUSED {
      ClearTable();
      Reopen(SMALL_LOG);
      Reopen(LAUNCH_LOG);
      ForgetEntries();
      RestartRecord(epoch);
      RingAll
    }
  :: else
  fi
}

inline EndEpoch() {
  atomic {
    assert(failure == WORD(at, EPOCH_WRITING) || failure == WORD(at, EPOCH_FAILED)); /* else the word is corrupt */
    failure == WORD(at, EPOCH_FAILED) || aborted;
    if
    :: failure == WORD(at, EPOCH_FAILED) -> Advance(failure_origin)
    :: else
    fi
  };
  atomic {
    ALL_OUT(at) || aborted;
    won = (seq_epoch[me] > at && ALL_OUT(at))
  };
  if
  :: won ->
    won = 0;
    TOGETHER {
      SettleLogs();
      FUSED {
        FailPending();
        d_step { at++; begun = 0; drained = drained | BIT(me) }
      }
    };
    TOGETHER { Restart(at - 1) }
  :: else
  fi
}

inline BeginEpoch() {
  begun = 1;
  OpenEpoch();
  if
  :: origin -> StartRaise(at, origin); FinishRaise(at, origin); origin = 0; outcome = 0
  :: else
  fi
}

inline EndJob() {
  if
  :: begun && (gone >> me & 1) == 0 -> SettleLogs()
  :: else
  fi;
  /* FailAll: Sequencer::Close, PendingTable::Close, and the callbacks. */
  seq_closed[me] = 1;
  d_step {
    closed[me] = 1;
    i = 0;
    do
    :: i < REQUESTS && IS_PENDING(me, i) -> PENDING(me, i) = LOST; i++
    :: i < REQUESTS && !IS_PENDING(me, i) -> i++
    :: else -> break
    od;
    i = 0
  };
  d_step { PushCompletions(LOST, DONE_ERROR); ended = 1 }
}

inline LeaveNow() {
  atomic {
    ALL_OUT(at) || aborted;
    won = ALL_OUT(at)
  };
  if
  :: won -> won = 0; LeaveWhenOut()
  :: else
  fi
}

inline LeaveWhenOut() {
  members = members & ~BIT(me);
  /* MakeReadyAfterLeaving. */
  p = 0;
  do
  :: p < PLACES ->
    x = ready[p];
    y = claim[p];
    if
    :: y == 0 || (y & WRITING) || y == x -> x = 0; y = 0
    :: else ->
      word = arrived[p];
      previous = members;
      if
      :: word == 0 || (word & previous) != previous -> x = 0
      :: else -> TryReady(y)
      fi;
      d_step {
        if
        :: outcome == LAST -> finished = finished | BIT(p)
        :: else
        fi;
        outcome = 0;
        word = 0;
        previous = 0;
        y = 0
      }
    fi;
    p++
  :: else -> p = 0; break
  od;
  /* LaunchForOthers. */
  do
  :: p < PLACES && (finished >> p & 1) ->
#ifdef BUG_LEAVER_FORGETS
    skip;
#else
    Claim(LAUNCH_LOG, p);
    Publish(LAUNCH_LOG);
#endif
    p++
  :: p < PLACES && !(finished >> p & 1) -> p++
  :: else -> p = 0; finished = 0; break
  od;
  RingAll;
  draining = draining & ~BIT(me);
  Restart(at);
  d_step { gone = gone | BIT(me); seq_closed[me] = 1; closed[me] = 1 }
}

/* The checks at the beginning of CommThread::Step. */
#define NOTHING 0
#define ENDS_JOB 1
#define BEGINS 2
#define FAILS 3
#define RUNS 4
inline WhichWay() {
  d_step {
    moved = 0;
    if
    :: aborted -> way = (ended -> NOTHING : ENDS_JOB)
    :: !aborted && (gone >> me & 1) -> way = NOTHING
    :: !aborted && !(gone >> me & 1) && !begun -> way = (BEGUN(at) -> BEGINS : NOTHING)
    :: else -> way = (FAILED(at) -> FAILS : RUNS)
    fi
  }
}

/* Seals the open batch. */
inline OutOfWork() {
#if SEALS != 1 || SMALL
  SealOpen();
  if
  :: won -> won = 0; RingOthers; moved = 1
  :: else
  fi
#else
  skip
#endif
}

/* After a look at the log that has found no entry: there is nothing else to do. */
#if FINE || SMALL
#define IDLE false
#else
#define IDLE (!moved && !HAS_DEFERRED && !leaving[me] && (tail_closed[LAUNCH_LOG] || !tail_open[LAUNCH_LOG]))
#endif

proctype CommThread(byte me) PROVIDED {
  LOCALS;
  byte at = 0; /* the epoch */
  bit begun = 1;
  bit ended = 0;
  bit moved = 0;
  byte batch = 0, finished = 0, total = 0; /* sets of places; the batch's units of work */
  byte way = 0;
  do
  :: FUSED {
      SleepIfIdle();
#ifndef BUG_LOOKS_BEFORE_LISTENING
      Listen;
#endif
      WhichWay();
#if !SMALL
      if
      :: way == RUNS -> NextEntry()
      :: else
      fi;
      if
      :: way == RUNS && !won && IDLE -> way = NOTHING
      :: else
      fi;
#endif
      sleep = (way == NOTHING)
    };
    if
    :: way == ENDS_JOB -> TOGETHER { EndJob() }; moved = 1
    :: way == BEGINS -> TOGETHER { BeginEpoch() }; moved = 1
    :: way == FAILS -> EndEpoch(); moved = 1
    :: way == RUNS ->
#if SMALL
      FollowSmallLog();
      FUSED { NextEntry() };
#endif
      do
      :: !won -> break
      :: else ->
        if
        :: seals -> seals = 0; RunBatch()
        :: else
        fi;
        FUSED { NextEntry() }
      od;
      RetryDeferred();
      if
      :: moved
      :: else ->
#if LEAVES
        if
        :: leaving[me] -> LeaveNow(); moved = 1
        :: else -> OutOfWork()
        fi
#else
        OutOfWork()
#endif
      fi;
      sleep = !moved
    :: way == NOTHING
    fi;
#ifdef BUG_LOOKS_BEFORE_LISTENING
    Listen;
#endif
    way = 0
  od
}
