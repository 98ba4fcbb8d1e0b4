/* kernels/control/readiness_table.{h,cc}. Manifests are left out, since all ranks run the same requests. */

byte claim[PLACES];
byte arrived[PLACES];
byte ready[PLACES];
byte participants[PLACES];
byte acknowledged[PLACES];
byte members = ALL;

#define OPEN(ticket) (((ticket) + 1) << 1)
#define WRITING 1

/* The results of Arrive, in `outcome`. */
#define WAITING 1
#define LAST 2
#define BUSY 3
#define GIVEN_UP 4 /* kAborted */

inline SetArrived() {
  assert((arrived[p] & BIT(me)) == 0);
  arrived[p] = arrived[p] | BIT(me)
}

/* Arrive of rank `me` at place `p` for ticket `t` begins with the claim: a load, and a swap if it was 0. (A swap that fails
   has the effect of a later load.) It sets `x` to 1 if this rank has claimed the generation. */
inline ClaimGeneration() {
  atomic {
    claim[p] != (OPEN(t) | WRITING) || aborted ->
    if
    :: claim[p] == 0 -> claim[p] = OPEN(t) | WRITING; outcome = 0; x = 1
    :: claim[p] == (OPEN(t) | WRITING) -> outcome = GIVEN_UP
    :: claim[p] == OPEN(t) -> outcome = 0
    :: else -> outcome = BUSY
    fi
  }
}

inline Arrive() {
  if
  :: outcome != 0
  :: else ->
    if
    :: x == 1 -> d_step { ResetBatch(p); claim[p] = OPEN(t); x = 0 } /* the manifest is written */
    :: else
    fi;
#if LEAVES
    d_step { SetArrived(); x = arrived[p] };
    y = members;
    d_step {
      if
      :: (x & y) == y -> x = ready[p]
      :: else -> x = OPEN(t)
      fi;
      y = 0
    };
    TryReady(OPEN(t))
#else
    /* No rank leaves. So the rank that completes the set has no rival, and no rank arrives after it. */
    d_step {
      SetArrived();
      if
      :: arrived[p] == ALL -> ready[p] = OPEN(t); participants[p] = ALL; outcome = LAST
      :: else -> outcome = WAITING
      fi
    }
#endif
  fi
}

/* TryReady: `x` is the value of `ready` that was read before. It sets `outcome` to LAST for the rank that wins. */
inline TryReady(open) {
  if
  :: x == open -> x = 0
  :: else ->
    d_step {
#ifdef BUG_NO_ELECTION
      ready[p] = open; outcome = LAST;
#else
      if
      :: ready[p] == x -> ready[p] = open; outcome = LAST
      :: else
      fi;
#endif
      x = 0
    };
    if
    :: outcome == LAST ->
#ifdef BUG_PARTICIPANTS_ALL
      participants[p] = ALL
#else
      x = arrived[p];
      participants[p] = x;
      x = 0
#endif
    :: else
    fi
  fi
}

#define IS_READY(place, ticket) (ready[place] == OPEN(ticket) && participants[place] != 0)

/* Acknowledge of place `p` sets the bit. For the last participant, it retires the generation and sets `again`. */
inline MarkAcknowledged() {
  acknowledged[p] = acknowledged[p] | BIT(me);
#ifdef BUG_RETIRED_BY_FIRST
  won = 1;
#else
  won = (acknowledged[p] == participants[p]);
#endif
  if
  :: won
  :: else -> p = 0
  fi
}
inline Retire() {
  if
  :: won ->
#if LEAVES
    d_step { participants[p] = 0; arrived[p] = 0; acknowledged[p] = 0 };
    d_step { claim[p] = 0; again = 1; won = 0; p = 0 }
#else
    d_step { participants[p] = 0; arrived[p] = 0; acknowledged[p] = 0; claim[p] = 0; again = 1; won = 0; p = 0 }
#endif
  :: else
  fi
}

inline ClearTable() {
  d_step {
    i = 0;
    do
    :: i < PLACES ->
      claim[i] = 0; arrived[i] = 0; ready[i] = 0; participants[i] = 0; acknowledged[i] = 0;
      SpoilBatch(i);
      i++
    :: else -> break
    od;
    i = 0
  }
}
