/* kernels/engine/core/{log_reader,batch_runner,progress}.{h,cc}, and the loops of progress_thread.cc that drive them.
   `driven` says that a caller drives the progress, in place of the thread that sleeps. */

#if CALLERS
bit calling[RANKS]; /* the user is in SubmitAndProgress */
bit driven[RANKS];
#define DRIVEN driven[me]
#else
#define DRIVEN false
#endif

#define COUNT(set) (((set) & 1) + ((set) >> 1 & 1) + ((set) >> 2 & 1) + ((set) >> 3 & 1))

#ifdef BUG_FINISHES_AHEAD
#define IS_ENTERED(place) (ENTERED_AT(0, place) || ENTERED_AT(REQUESTS - 1, place))
#define ENTERED_AT(q, place) (PENDING(me, q) == ENTERED && PLACE_AT(me, q) == (place))
#endif

/* LogReader::Take of the entry that is read next. Places of requests that are done go to `finished`. */
inline Take() {
  word = ENTRY(reading[me]);
  if
#ifdef BUG_FINISHES_AHEAD
  :: KIND(word) == IS_DONE && !IS_ENTERED(PLACE_IN(word))
  :: KIND(word) == IS_DONE && IS_ENTERED(PLACE_IN(word)) -> finished = finished | BIT(PLACE_IN(word))
#else
  :: KIND(word) == IS_DONE -> finished = finished | BIT(PLACE_IN(word))
#endif
  :: KIND(word) == LAUNCHED || KIND(word) == LAUNCHED_SEALS ->
    open = (open -> open : PLACE_IN(word) << 4) | BIT(PLACE_IN(word))
  :: else
  fi;
#ifdef BUG_BATCHES_BY_READER
  if
  :: open && (KIND(word) == LAUNCHED_SEALS || KIND(word) == MARKER || reading[me] + 1 == tail_position) ->
#else
  if
  :: open && (KIND(word) == LAUNCHED_SEALS || KIND(word) == MARKER) ->
#endif
    SeeBatch(open, reading[me]);
    x = 0;
    do
    :: sealed >> x -> x = x + BATCH_BITS
    :: else -> break
    od;
    sealed = sealed | open << x;
    x = 0;
#ifndef BUG_BATCH_KEPT
    open = 0
#endif
  :: else
  fi;
  word = 0;
  reading[me]++
}

/* LogReader::Read. An entry that was published does not change, so reading all of them late is as good as one by one. */
inline ReadLog() {
  d_step {
    do
    :: PUBLISHED(ENTRY(reading[me]), reading[me]) && KIND(ENTRY(reading[me])) != DROPPED -> Take(); moved = 1
    :: else -> break
    od
  }
}

/* BatchRunner::Start. */
inline StartBatch() {
  running = sealed & ((1 << BATCH_BITS) - 1);
  sealed = sealed >> BATCH_BITS;
  total = CHUNKS * COUNT(SET(running));
#ifdef BUG_BATCH_RESET_LATE
  next_chunk[FIRST(running)] = 0;
  done_units[FIRST(running)] = 0;
  batch_end[FIRST(running)] = RUNNING;
#endif
#if PARTS
  i = 0;
  do
  :: i < PLACES ->
    if
    :: SET(running) >> i & 1 -> x = x | participants[i]
    :: else
    fi;
    i++
  :: else -> break
  od;
  total = total + COUNT(x);
  x = 0;
  i = 0
#endif
}

/* The beginning of BatchRunner::Step, up to the work itself: looks whether the batch has ended, else sets `piece` to what this
   rank can do for it now. A batch that has ended as complete goes to `finished`. */
#define NO_PIECE 0
#define UNIT 1
#define NO_UNITS 2
inline NextPiece() {
  d_step {
    if
    :: !running && sealed ->
      StartBatch();
      moved = 1;
      piece = (total == 0 -> NO_UNITS : NO_PIECE)
    :: else
    fi;
    if
    :: !running || piece
    :: running && !piece && batch_end[FIRST(running)] != RUNNING ->
      outcome = batch_end[FIRST(running)];
      SeeEnd(running);
      if
      :: outcome == COMPLETE -> finished = finished | SET(running)
      :: else /* EndIncarnation or EndJob delivers the error */
      fi;
      outcome = 0;
      running = 0;
      total = 0;
      chunks_claimed = 0;
      part_done = 0;
      moved = 1
    :: else ->
#if CHUNKS
      if
      :: !chunks_claimed ->
        assert(claim[FIRST(running)] == ready[FIRST(running)] && (acknowledged[FIRST(running)] & BIT(me)) == 0);
        if
        :: next_chunk[FIRST(running)] < CHUNKS * COUNT(SET(running)) -> next_chunk[FIRST(running)]++; piece = UNIT
        :: else -> chunks_claimed = 1
        fi
      :: else
      fi;
#endif
#if PARTS
      if
      :: !piece && !part_done -> part_done = 1; piece = UNIT
      :: else
      fi;
#endif
      if
      :: piece -> moved = 1
      :: else
      fi
    fi
  }
}

/* The work on a chunk, or on this rank's own part, and then AddDone. All requests of the batch must be ready, this rank must be
   one of their participants, and no rank may have acknowledged one of them. */
inline DoPiece() {
  d_step {
    won = (piece == NO_UNITS);
    if
    :: piece == UNIT ->
      i = 0;
      do
      :: i < PLACES ->
        if
        :: SET(running) >> i & 1 ->
          assert(claim[i] == ready[i] && (participants[i] & BIT(me)) && acknowledged[i] == 0)
        :: else
        fi;
        i++
      :: else -> break
      od;
      i = 0;
      assert(batch_end[FIRST(running)] != COMPLETE);
      done_units[FIRST(running)]++;
      won = (done_units[FIRST(running)] == total)
    :: else
    fi
  };
  if
  :: won ->
    FUSED {
      End(running, COMPLETE);
      outcome = 0;
      won = 0;
      if
      :: piece == UNIT -> RingOthers
      :: else
      fi;
      piece = NO_PIECE
    }
  :: else -> piece = NO_PIECE
  fi
}

/* Progress::SettleLog. */
inline SettleLog() {
#if LEAVES
  if
  :: gone >> me & 1 -> Close(); reading[me] = tail_position; open = 0 /* SkipRest */
  :: else -> TOGETHER { CloseAndRead() }
  fi
#else
  TOGETHER { CloseAndRead() }
#endif
}

inline CloseAndRead() {
  Close();
  do
  :: FUSED {
      if
      :: reading[me] >= tail_position -> break
      :: else
      fi;
      d_step { Resolve(); Take() }
    }
  od;
  open = 0;
  /* BatchRunner::End and EndUnstarted. */
  do
  :: FUSED {
      d_step {
        if
        :: !running && sealed -> running = sealed & ((1 << BATCH_BITS) - 1); sealed = sealed >> BATCH_BITS
        :: else
        fi
      };
      if
      :: !running -> break
      :: else
      fi;
      End(running, ABORTED);
      d_step {
        SeeEnd(running);
        if
        :: outcome == COMPLETE -> finished = finished | SET(running)
        :: else
        fi;
        outcome = 0;
        running = 0
      }
    }
  od;
  atomic { total = 0; chunks_claimed = 0; part_done = 0; piece = 0 };
  if
  :: finished -> Complete()
  :: else
  fi
}

/* Restarts after incarnation `incarnation`. */
inline Restart(incarnation) {
  TryRestart(incarnation);
  if
  :: won ->
    won = 0;
    FUSED {
#if LEAVES
#ifndef BUG_RETURNS_NOT
      if
      :: all_left -> last_to_leave = 0; members = ALL
      :: else
      fi;
#endif
#endif
      ClearTable();
      Reopen();
      ForgetEntries();
      RestartRecord(incarnation);
      RingAll
    }
  :: else
  fi
}

inline EndIncarnation() {
  atomic {
    assert(failure == WORD(at, INCARNATION_WRITING) || failure == WORD(at, INCARNATION_FAILED)); /* else the word is corrupt */
    failure == WORD(at, INCARNATION_FAILED) || aborted;
    if
#if LEAVES
    :: failure == WORD(at, INCARNATION_FAILED) -> returning = all_left; Advance(failure_origin)
#else
    :: failure == WORD(at, INCARNATION_FAILED) -> Advance(failure_origin)
#endif
    :: else
    fi
  };
  atomic {
    ALL_OUT(at) || aborted;
    won = (seq_incarnation[me] > at && ALL_OUT(at))
  };
  if
  :: won ->
    won = 0;
    TOGETHER {
      SettleLog();
      FUSED {
        FailPending();
        d_step { at++; begun = 0; drained = drained | BIT(me) }
      }
    };
    TOGETHER { Restart(at - 1) }
  :: else
  fi
}

#if LEAVES
inline ReturnIfAllHaveLeft() {
  if
#ifdef BUG_LAST_IS_STALE
  :: members == 0 -> assert(last_to_leave == 1 + cleared_last); RaiseReturn(at)
#else
  :: members == 0 && last_to_leave -> assert(last_to_leave == 1 + cleared_last); RaiseReturn(at)
#endif
  :: else
  fi
}
#endif

inline BeginIncarnation() {
  begun = 1;
  OpenIncarnation();
  if
  :: origin -> StartRaise(at, origin); FinishRaise(at, origin); origin = 0; outcome = 0
  :: else
  fi;
#if LEAVES
  if
  :: returning ->
    assert(owed[me] == 0);
    d_step { returning = 0; gone = gone & ~BIT(me); closed[me] = 0; returned[me] = 1 }
  :: !returning && (gone >> me & 1) -> ReturnIfAllHaveLeft()
  :: else
  fi
#endif
}


inline EndJob() {
  if
  :: begun -> SettleLog()
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
  d_step {
    members = members & ~BIT(me);
    won = (members == 0);
    if
    :: won -> cleared_last = me
    :: else
    fi
  };
  if
  :: won -> won = 0; last_to_leave = 1 + me
  :: else
  fi;
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
    Claim(p, 0);
    Publish();
#endif
    p++
  :: p < PLACES && !(finished >> p & 1) -> p++
  :: else -> p = 0; finished = 0; break
  od;
  RingAll;
  d_step { ForgetOwed() };
  d_step { gone = gone | BIT(me); leaving[me] = 0 };
  ReturnIfAllHaveLeft()
}

/* The checks at the beginning of Progress::Step. */
#define NOTHING 0
#define ENDS_JOB 1
#define BEGINS 2
#define FAILS 3
#define RUNS 4
inline WhichWay() {
  d_step {
    moved = 0;
#if CALLERS
    owed_ring[me] = 0;
#endif
    if
    :: aborted -> way = (ended -> NOTHING : ENDS_JOB)
    :: !aborted && !begun -> way = (BEGUN(at) -> BEGINS : NOTHING)
    :: else -> way = (FAILED(at) -> FAILS : (gone >> me & 1 -> NOTHING : RUNS))
    fi
  }
}

#if LEAVES && !STEPS_AFTER_RETURN
/* Failures::CheckLeftBetweenIncarnations, of a rank that awaits its return. Here, no program ends before it is back. */
inline CheckLeftBetweenIncarnations() {
  d_step {
    x = drained;
    y = OVER;
#ifndef BUG_ABORTS_UNASKED
    if
    :: BEGUN(at) -> y = 0
    :: else
    fi;
#endif
    assert((y & ~x) == 0); /* else the job is aborted for ranks that have shut down and not drained */
    x = 0;
    y = 0
  }
}
#endif

/* Seals the open batch, if this rank is out of sealed work. */
inline OutOfWork() {
#if SEALS != 1 || LEAVES
  if
  :: running
  :: else ->
    SealOpen();
    if
    :: won -> won = 0; RingOthers; moved = 1
    :: else
    fi
  fi
#else
  skip
#endif
}

/* After a look that has found nothing: there is nothing else to do. */
#if FINE
#define IDLE false
#else
#define IDLE (!moved && !finished && !HAS_DEFERRED && !leaving[me] && (running || tail_closed || !tail_open))
#endif

proctype Progress(byte me) PROVIDED {
  LOCALS;
  byte at = 0; /* the incarnation */
  bit begun = 1;
#if LEAVES
  bit returning = 0; /* last_to_leave_ */
#endif
  bit ended = 0;
  bit moved = 0;                     /* in the last step */
  byte finished = 0;                 /* requests that are to be completed, as a set of places */
  byte open = 0, running = 0;        /* batches; 0: none */
  int sealed = 0;                    /* batches that were not taken yet, the oldest in the lowest bits */
  byte total = 0;                    /* the units of work of `running` */
  bit chunks_claimed = 0, part_done = 0; /* Transfer::done of each */
  byte piece = 0;
  byte way = 0;
#if CALLERS
  bit woken = 0; /* the thread was awake when the caller began to drive */
#endif
  do
  :: FUSED {
      if
      :: !DRIVEN && (moved || bell[me]) /* the thread goes on, or is awake */
#if CALLERS
      :: !driven[me] && !moved && calling[me] -> driven[me] = 1; woken = bell[me] /* Guard::Try */
      :: driven[me] && (moved || bell[me] || owed_ring[me]) /* DriveUntil; another step would find nothing */
#endif
      fi;
      Listen;
      WhichWay();
      if
      :: way == RUNS ->
        ReadLog();
        if
        :: !finished -> NextPiece()
        :: else
        fi;
        if
        :: IDLE -> way = NOTHING
        :: else
        fi
      :: else
      fi
    };
    if
    :: way == ENDS_JOB -> TOGETHER { EndJob() }; moved = 1
    :: way == BEGINS -> TOGETHER { BeginIncarnation() }; moved = 1
    :: way == FAILS -> EndIncarnation(); moved = 1
    :: way == RUNS ->
      if
      :: finished -> Complete(); NextPiece()
      :: else
      fi;
      if
      :: piece -> DoPiece()
      :: else
      fi;
      if
      :: finished -> Complete() /* of a batch */
      :: else
      fi;
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
      fi
#if LEAVES && !STEPS_AFTER_RETURN
    :: way == NOTHING && !begun && (gone >> me & 1) -> CheckLeftBetweenIncarnations()
    :: way == NOTHING && (begun || !(gone >> me & 1))
#else
    :: way == NOTHING
#endif
    fi;
    way = 0
#if CALLERS
  :: atomic { /* ~Guard: Unhush and Ring */
      driven[me] ->
#ifdef BUG_UNHUSH_BLIND
      bell[me] = (moved || woken);
#elif defined(BUG_LEAVES_WORK)
      bell[me] = (bell[me] || woken);
#else
      bell[me] = (bell[me] || moved || woken);
#endif
      driven[me] = 0;
      moved = 0;
      woken = 0
    }
#endif
  od
}
