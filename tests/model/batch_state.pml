/* kernels/collectives/batch_state.h. The state of a batch lies with the batch's first request in the table. */

#define RUNNING 0
#define COMPLETE 1
#define ABORTED 2
byte batch_end[PLACES];
byte next_chunk[PLACES];
byte done_units[PLACES];

/* The batch as the first rank has read it: its requests, and the index of the entry that seals it, or 0; and the end on
   which the ranks have acted, or 0. All ranks see the same batch and the same end. */
byte seen_batch[PLACES];
byte seen_end[PLACES];

inline ResetBatch(place) {
  batch_end[place] = RUNNING;
  next_chunk[place] = 0;
  done_units[place] = 0;
  seen_batch[place] = 0;
  seen_end[place] = 0
}

/* After all ranks have let go of an incarnation, what is left may be anything until the next reset. */
inline SpoilBatch(place) {
  batch_end[place] = COMPLETE;
  next_chunk[place] = 0;
  done_units[place] = 0;
  seen_batch[place] = 0;
  seen_end[place] = 0
}

/* A batch as a rank keeps it is | first place: 2 bits | set of places: 4 bits |. */
#define SET(batch) ((batch) & 15)
#define FIRST(batch) ((batch) >> 4)
#define BATCH_BITS 6

/* End sets `outcome` to the end of the batch. */
inline End(batch, wanted) {
  d_step {
#ifdef BUG_END_OVERWRITES
    batch_end[FIRST(batch)] = wanted;
#else
    if
    :: batch_end[FIRST(batch)] == RUNNING -> batch_end[FIRST(batch)] = wanted
    :: else
    fi;
#endif
    outcome = batch_end[FIRST(batch)]
  }
}

inline SeeBatch(batch, position) {
  x = SET(batch) | (position) % CAPACITY << 4 | 128;
  assert(seen_batch[FIRST(batch)] == 0 || seen_batch[FIRST(batch)] == x);
  seen_batch[FIRST(batch)] = x;
  x = 0
}

/* This rank acts on `outcome`. */
inline SeeEnd(batch) {
  assert(outcome == batch_end[FIRST(batch)] && outcome != RUNNING);
  assert(seen_end[FIRST(batch)] == 0 || seen_end[FIRST(batch)] == outcome);
  seen_end[FIRST(batch)] = outcome
}
