/* kernels/engine/core/delivery.{h,cc}. */

/* How each request has ended, by ticket and index, on all ranks (0: not yet), and the mask of the ranks that have
   delivered this end. */
byte result[INCARNATIONS * TICKETS * REQUESTS];
#define RESULT(ticket, q) result[(ticket) * REQUESTS + (q)]
#define TOLD(rank) (8 << (rank))
#define TOLD_ALL (8 * ALL)

/* Ends all requests in state `from` with `to`. Asserts that a request ends alike on all ranks, and once on each. */
inline PushCompletions(from, to) {
  x = 0;
  do
  :: x < REQUESTS && PENDING(me, x) == from ->
    PENDING(me, x) = to;
    y = RESULT(TICKET_AT(me, x), x);
    assert((y & TOLD(me)) == 0);
    assert(y == 0 || (y & 7) == to);
    y = y | TOLD(me) | to;
    RESULT(TICKET_AT(me, x), x) = ((y & TOLD_ALL) == TOLD_ALL -> TOLD_ALL : y); /* not read any more */
    x++
  :: x < REQUESTS && PENDING(me, x) != from -> x++
  :: else -> break
  od;
  x = 0;
  y = 0
}

#define RING_DEFERRING(x)      \
  if                           \
  :: deferring[x] -> Ring(x)   \
  :: else                      \
  fi

/* Completes the requests at the places in `finished`: PendingTable::Take and Acknowledge for each, then the callbacks. */
#define TO_COMPLETE(q) (PENDING(me, q) == ENTERED && (finished >> PLACE_AT(me, q) & 1))
inline Complete() {
  do
  :: FUSED {
      atomic {
        if
        :: finished ->
          j = 0;
          do
          :: j < REQUESTS && !TO_COMPLETE(j) -> j++
          :: else -> break
          od;
          assert(j < REQUESTS); /* else the log names a request that this rank has not submitted */
          p = PLACE_AT(me, j);
          assert(claim[p] == OPEN(TICKET_AT(me, j)) && IS_READY(p, TICKET_AT(me, j)) && (participants[p] & BIT(me)));
          finished = finished & ~BIT(p);
          PENDING(me, j) = TAKEN;
          j = 0;
          MarkAcknowledged()
        :: else
        fi
      };
      Retire();
      if
      :: finished == 0 -> atomic { PushCompletions(TAKEN, DONE_OK); break }
      :: else
      fi
    }
  od;
#if PIPELINED
  if
  :: again -> FOR_ALL(RING_DEFERRING)
  :: else
  fi;
#endif
  again = 0
}

/* FailIncarnation: TakeIncarnation, RememberStep, Settle, and the callbacks. */
inline FailPending() {
  FUSED {
    d_step {
      i = 0;
      won = 0;
      do
      :: i < REQUESTS ->
        if
        :: IS_PENDING(me, i) && INCARNATION_OF(TICKET_AT(me, i)) == at ->
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
    :: won -> d_step { RememberStep(incarnation_origin[at]) }
    :: else
    fi;
#if LEAVES
    d_step {
      Settle(won || (gone >> me & 1));
      if
      :: gone >> me & 1 -> missed[me]++
      :: else
      fi;
      won = 0
    };
#else
    d_step { Settle(won); won = 0 };
#endif
    d_step { PushCompletions(LOST, DONE_ERROR) }
  }
}
