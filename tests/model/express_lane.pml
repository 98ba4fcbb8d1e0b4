/* kernels/control/express_lane.{h,cc} alone. All members run the same operations in the same order. Each operation goes through
   the lane or, if the members do not meet there, the usual way, where no member waits for the others. A member may go the usual
   way at once, or stop waiting in the lane at any moment. In the end, either all members have taken an operation in the lane, or
   none has. */

#ifndef MEMBERS
#define MEMBERS 3
#endif
#ifndef OPERATIONS
#define OPERATIONS 2
#endif

#define WITHDRAWN 0
#define POSTED 1
#define LEAVING 2

typedef Line {
  byte meeting; /* these three are one word */
  byte post;
  byte state;
  byte key;
  byte data
};
Line lines[MEMBERS * 2];
byte usual[OPERATIONS + 1]; /* number of members that take this operation the usual way */
byte changes;               /* number of changed words: a member that polls waits for the next one */
#define CHANGED changes++
byte over;                  /* number of members that have run all operations */

#ifdef BUG_ONE_LINE
#define LINE(m) lines[(m) * 2]
#else
#define LINE(m) lines[(m) * 2 + meeting % 2]
#endif
#define ARRIVED(m) (LINE(m).meeting == meeting && LINE(m).state != WITHDRAWN)

#ifdef BUG_ONE_LOOK
#define PASSES 1
#else
#define PASSES 2
#endif

/* ReadLines sets `seen` to ALL (kPosted), SOME (kUndecided) or NEVER (kWillNotMeet). */
#define ALL 0
#define SOME 1
#define NEVER 2
inline Look() {
  seen = ALL;
  again = 0;
  do
  :: again < PASSES && seen == ALL ->
    m = 0;
    do
    :: m == MEMBERS || seen != ALL -> break
    :: m < MEMBERS && seen == ALL && m == me -> m++
    :: m < MEMBERS && seen == ALL && m != me ->
      d_step { /* the word */
        state = LINE(m).state;
        if
        :: again && posts[m] != LINE(m).post * 4 + state -> seen = SOME
        :: else -> skip
        fi;
        posts[m] = LINE(m).post * 4 + state;
        if
        :: LINE(m).meeting != meeting -> seen = SOME
        :: else -> skip
        fi
      };
      if
      :: seen == ALL ->
        d_step { /* the key */
          same = LINE(m).key == operation;
          if
          :: state == WITHDRAWN && same -> seen = NEVER
#ifdef BUG_OLD_FORGOTTEN
          :: state == WITHDRAWN && !same -> seen = SOME
#else
          :: state == WITHDRAWN && !same && stays -> seen = NEVER
          :: state == WITHDRAWN && !same && !stays -> seen = SOME
#endif
          :: state != WITHDRAWN && !same -> seen = NEVER
#ifdef BUG_LEAVING_COUNTS
          :: state == LEAVING && same -> skip
#else
          :: state == LEAVING && same -> seen = SOME
#endif
          :: state == POSTED && same -> skip
          fi;
          state = 0;
          same = 0
        }
      :: else
      fi;
      m++
    od;
    again++
  :: else -> break
  od;
  atomic { m = 0; again = 0; posts[0] = 0; posts[1] = 0; posts[2] = 0; state = 0 }
}

/* Withdraw sets `withdrawn` if it has withdrawn the post. */
inline Withdraw() {
#ifdef BUG_WITHDRAWS_UNASKED
  d_step { LINE(me).state = WITHDRAWN; CHANGED };
  withdrawn = 1
#else
#ifndef BUG_LOOKS_BEFORE_LEAVING
  d_step { LINE(me).state = LEAVING; CHANGED };
#endif
  withdrawn = 0;
  m = 0;
  do
  :: m < MEMBERS && !withdrawn && m != me ->
    d_step { state = ARRIVED(m) };
    if
    :: state -> d_step { withdrawn = LINE(m).key != operation; state = 0 }
    :: else -> withdrawn = 1
    fi;
    m++
  :: m < MEMBERS && !withdrawn && m == me -> m++
  :: else -> break
  od;
  m = 0;
  if
  :: withdrawn -> d_step { LINE(me).state = WITHDRAWN; CHANGED }
  :: else -> d_step { LINE(me).state = POSTED; CHANGED }
  fi
#endif
}

proctype Member(byte me) {
  byte operation = 1, meeting = 1, post = 0;
  byte m, seen, again, state, seen_changes;
  byte posts[3];
  bit same, stays, withdrawn, meets;
  do
  :: operation > OPERATIONS -> break
  :: else ->
    meets = 0;
    if
    :: skip -> /* does not try the lane */
    :: skip ->
      LINE(me).data = operation;
      LINE(me).key = operation;
      d_step {
        post++;
        LINE(me).meeting = meeting;
        LINE(me).post = post;
        LINE(me).state = POSTED;
        CHANGED
      };
      do
      :: seen_changes = changes;
        Look();
        if
        :: seen == ALL -> meets = 1; break
        :: seen == NEVER ->
          Withdraw();
          if
          :: withdrawn -> break
          :: else
          fi
        :: seen == SOME && !stays -> /* it stops waiting, or looks again */
          if
          :: Withdraw();
            if
            :: withdrawn -> break
            :: else -> stays = 1
            fi
          :: skip
          fi
        :: seen == SOME && stays -> changes != seen_changes
        fi
      od
    fi;
    atomic { seen_changes = 0; stays = 0; seen = 0; withdrawn = 0 };
    if
    :: meets ->
      do
      :: m < MEMBERS -> assert(LINE(m).data == operation); m++
      :: else -> break
      od;
      m = 0;
      atomic { m = 0; meeting++ }
    :: else ->
      usual[operation]++
    fi;
    operation++
  od;
  over++
}

active proctype Quiescence() {
  byte o = 1;
  timeout;
  assert(over == MEMBERS);
  do
  :: o <= OPERATIONS -> assert(usual[o] == 0 || usual[o] == MEMBERS); o++
  :: else -> break
  od
}

init {
  atomic {
    run Member(0);
    run Member(1);
#if MEMBERS > 2
    run Member(2)
#endif
  }
}
