/* kernels/control/launch_log.{h,cc}. */

/* The tail word. */
byte tail_position;
bit tail_open; /* a batch is open */
bit tail_closed;

/* An entry's word is | lap + 1: 3 bits | kind: 3 bits | place: 2 bits |. */
byte entry[CAPACITY];
#define LAUNCHED 4
#define LAUNCHED_SEALS 8
#define MARKER 12
#define IS_DONE 16
#define DROPPED 20
#define KIND(word) ((word) & 28)
#define PLACE_IN(word) ((word) & 3)
#define STAMP_OF(position) (((position) / CAPACITY + 1) << 5)
#define ENTRY(position) entry[(position) % CAPACITY]
#define PUBLISHED(word, position) (((word) & 224) == STAMP_OF(position))

/* The position that each rank reads next. The ring must hold all that a rank has not read. */
byte reading[RANKS];
#define BEHIND(rank) ((gone >> rank & 1) == 0 && tail_position - reading[rank] >= CAPACITY)
#if RANKS == 2
#define OVERFLOWS (BEHIND(0) || BEHIND(1))
#else
#define OVERFLOWS (BEHIND(0) || BEHIND(1) || BEHIND(2))
#endif

/* An append is Claim, one swap of the tail word, and then Publish. Claim sets `word` to what Publish writes at `position`, or
   to 0 if the log is closed. AppendDone leaves the open batch as it is. */
inline Claim(place, done) {
  atomic {
    if
    :: tail_closed -> word = 0
    :: else ->
      assert(!OVERFLOWS); /* Note [The ring cannot overflow] */
      position = tail_position;
      tail_position++;
      if
      :: done -> word = IS_DONE | (place)
      :: !(done) && SEALS != 0 -> tail_open = 0; word = LAUNCHED_SEALS | (place)
      :: !(done) && SEALS != 1 -> tail_open = 1; word = LAUNCHED | (place)
      fi
    fi
  }
}

/* Publish is a load and a swap, which fails if Resolve has settled the position meanwhile. */
inline Publish() {
  d_step {
    if
#ifdef BUG_PUBLISH_UNCHECKED
    :: word != 0 -> ENTRY(position) = word | STAMP_OF(position)
#else
    :: word != 0 && !PUBLISHED(ENTRY(position), position) -> ENTRY(position) = word | STAMP_OF(position)
#endif
    :: else -> won = 0 /* the result of SealOpen */
    fi;
    word = 0;
    position = 0
  }
}

/* SealOpen sets `won` if it has sealed a batch. */
inline SealOpen() {
  d_step {
    won = (!tail_closed && tail_open);
    if
    :: won ->
      assert(!OVERFLOWS);
      position = tail_position;
      tail_position++;
      tail_open = 0;
      word = MARKER
    :: else
    fi
  };
  if
  :: won -> Publish()
  :: else
  fi
}

inline Close() { tail_closed = 1 }

inline Reopen() { d_step { tail_open = 0; tail_closed = 0 } }

/* When an incarnation starts, all ranks have read all entries. Their number no longer matters, so counting starts from 0. */
inline ForgetEntries() {
#if !FINE
  d_step {
    i = 0;
    do
    :: i < CAPACITY -> entry[i] = 0; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < RANKS -> reading[i] = 0; i++
    :: else -> break
    od;
    tail_position = 0;
    i = 0
  }
#else
  skip
#endif
}

/* Resolve of the entry that this rank reads next. */
inline Resolve() {
#ifndef BUG_NO_RESOLVE
  if
  :: !PUBLISHED(ENTRY(reading[me]), reading[me]) -> ENTRY(reading[me]) = STAMP_OF(reading[me]) | DROPPED
  :: else
  fi;
#else
  skip
#endif
}
