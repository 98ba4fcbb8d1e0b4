/* kernels/control/launch_log.{h,cc}. Log 0 is the small log, log 1 the launch log. */

#define SMALL_LOG 0
#define LAUNCH_LOG 1

/* The tail word. */
byte tail_position[2];
byte tail_open[2];
bit tail_closed[2];

/* An entry's word is | lap + 1: 2 bits | flags: 3 bits | 1 for an item | place: 2 bits |. */
byte entry[2 * CAPACITY];
#define SEALS_FLAG 8
#define MARKER_FLAG 16
#define DROPPED_FLAG 32
#define STAMP_OF(position) (((position) / CAPACITY + 1) << 6)
#define ENTRY(log, position) entry[(log) * CAPACITY + (position) % CAPACITY]
#define PUBLISHED(word, position) (((word) & 192) == STAMP_OF(position))
#define PLACE_IN(word) ((word) & 3)

/* The fields of an entry that ends a batch of the launch log. */
#define RUNNING 0
#define COMPLETE 1
#define ABORTED 2
byte batch_end[CAPACITY];
byte next_chunk[CAPACITY];
byte done_units[CAPACITY];

/* The batch that ends here, as the ranks have read it: its places, and its end << 4; 0 before the first rank reads it. */
byte taken_for[CAPACITY];
#define PLACES_OF(batch) ((batch) | 64)

/* The position that each rank reads next. */
byte reading[RANKS * 2];
#define READING(rank, log) reading[(rank) * 2 + (log)]

#if RANKS == 2
#define BEHIND(log, rank) ((gone >> rank & 1) == 0 && tail_position[log] - READING(rank, log) >= CAPACITY)
#define OVERFLOWS(log) (BEHIND(log, 0) || BEHIND(log, 1))
#else
#define BEHIND(log, rank) ((gone >> rank & 1) == 0 && tail_position[log] - READING(rank, log) >= CAPACITY)
#define OVERFLOWS(log) (BEHIND(log, 0) || BEHIND(log, 1) || BEHIND(log, 2))
#endif

inline PublishAtOnce(log) {
  atomic {
    if
    :: !PUBLISHED(ENTRY(log, position), position) ->
      ENTRY(log, position) = word | STAMP_OF(position);
      if
      :: log == LAUNCH_LOG ->
        batch_end[position % CAPACITY] = RUNNING;
        next_chunk[position % CAPACITY] = 0;
        done_units[position % CAPACITY] = 0
      :: else
      fi
    :: else -> won = 0 /* the result of SealOpen */
    fi;
    word = 0; position = 0
  }
}

/* Publish, after Claim: `word` has the flags and the item, or is 0 if Claim was refused. */
inline Publish(log) {
  if
  :: word == 0
  :: else ->
#ifdef BUG_PUBLISH_UNCHECKED
    d_step {
      ENTRY(log, position) = word | STAMP_OF(position);
      batch_end[position % CAPACITY] = RUNNING;
      word = 0; position = 0
    }
#else
#if FINE
    previous = ENTRY(log, position);
    if
    :: PUBLISHED(previous, position) -> word = 0
    :: !PUBLISHED(previous, position) && log == LAUNCH_LOG ->
      d_step {
        batch_end[position % CAPACITY] = RUNNING;
        next_chunk[position % CAPACITY] = 0;
        done_units[position % CAPACITY] = 0
      }
    :: else
    fi;
    d_step {
      if
      :: word != 0 && ENTRY(log, position) == previous -> ENTRY(log, position) = word | STAMP_OF(position)
      :: else -> won = 0
      fi;
      word = 0; position = 0; previous = 0
    }
#else
    PublishAtOnce(log)
#endif
#endif
  fi
}

/* Append is Claim, which claims a position and decides the seal in one swap of the tail word, and then Publish. */
#define ITEM(place) ((place) | 4)
inline Claim(log, place) {
  atomic {
    seals = (log == SMALL_LOG || SEALS == 1);
    if
    :: SEALS == 2 && log == LAUNCH_LOG -> seals = 1
    :: true
    fi;
    if
    :: tail_closed[log] -> word = 0
    :: else ->
      assert(!OVERFLOWS(log)); /* Note [The ring cannot overflow] */
      position = tail_position[log];
      tail_position[log]++;
      if
      :: log == LAUNCH_LOG -> taken_for[position % CAPACITY] = 0
      :: else
      fi;
      if
      :: seals -> tail_open[log] = 0; word = ITEM(place) | SEALS_FLAG
      :: else -> tail_open[log] = 1; word = ITEM(place)
      fi
    fi;
    seals = 0
  }
}

/* SealOpen sets `won` if it has sealed a batch. */
inline SealOpen() {
  atomic {
    won = 0;
    if
    :: !tail_closed[LAUNCH_LOG] && tail_open[LAUNCH_LOG] ->
      assert(!OVERFLOWS(LAUNCH_LOG));
      position = tail_position[LAUNCH_LOG];
      tail_position[LAUNCH_LOG]++;
      taken_for[position % CAPACITY] = 0;
      tail_open[LAUNCH_LOG] = 0;
      word = MARKER_FLAG | SEALS_FLAG;
      won = 1
    :: else
    fi
  };
  if
  :: won -> Publish(LAUNCH_LOG)
  :: else
  fi
}

inline Close(log) { tail_closed[log] = 1 }

inline Reopen(log) { d_step { tail_open[log] = 0; tail_closed[log] = 0 } }

/* When an epoch starts, all ranks have read all entries. Their number no longer matters, so counting starts from 0. */
inline ForgetEntries() {
#if !FINE
  d_step {
    i = 0;
    do
    :: i < 2 * CAPACITY -> entry[i] = 0; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < CAPACITY -> batch_end[i] = 0; next_chunk[i] = 0; done_units[i] = 0; taken_for[i] = 0; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < 2 * RANKS -> reading[i] = 0; i++
    :: else -> break
    od;
    tail_position[0] = 0;
    tail_position[1] = 0;
    i = 0
  }
#else
  skip
#endif
}

/* Read and Resolve set `word` to the entry's word, or 0. */
inline Read(log) {
  d_step {
    word = ENTRY(log, READING(me, log));
    if
    :: !PUBLISHED(word, READING(me, log)) || (word & DROPPED_FLAG) -> word = 0
    :: else
    fi
  }
}

inline Resolve(log) {
  d_step {
#ifndef BUG_NO_RESOLVE
    if
    :: !PUBLISHED(ENTRY(log, READING(me, log)), READING(me, log)) ->
      ENTRY(log, READING(me, log)) = STAMP_OF(READING(me, log)) | DROPPED_FLAG
    :: else
    fi;
#endif
    word = ENTRY(log, READING(me, log));
    if
    :: !PUBLISHED(word, READING(me, log)) || (word & DROPPED_FLAG) -> word = 0
    :: else
    fi
  }
}

/* The index of the entry that this rank has read last in the launch log. */
#define LAST_ENTRY ((READING(me, LAUNCH_LOG) - 1) % CAPACITY)

/* LogEntry::End on the batch that ends at `position` sets `outcome` to its end. */
inline End(position, wanted) {
  d_step {
#ifdef BUG_END_OVERWRITES
    batch_end[(position) % CAPACITY] = wanted;
#else
    if
    :: batch_end[(position) % CAPACITY] == RUNNING -> batch_end[(position) % CAPACITY] = wanted
    :: else
    fi;
#endif
    outcome = batch_end[(position) % CAPACITY]
  }
}

/* All ranks see the same batches in the same order, and the same end of each. The first rank to read a batch records it. */
inline SeeBatch() {
  d_step {
    assert(taken_for[LAST_ENTRY] == 0 || (taken_for[LAST_ENTRY] & 79) == PLACES_OF(batch));
    taken_for[LAST_ENTRY] = taken_for[LAST_ENTRY] | PLACES_OF(batch)
  }
}
inline SeeEnd() {
  assert(outcome == batch_end[LAST_ENTRY] && outcome != RUNNING);
  assert((taken_for[LAST_ENTRY] & 48) == 0 || (taken_for[LAST_ENTRY] >> 4 & 3) == outcome);
  taken_for[LAST_ENTRY] = taken_for[LAST_ENTRY] | outcome << 4
}
