/* Parameters of the model: what model.py sets with -D, and what follows from it. */

/* Ranks, and requests that a step makes at once. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef REQUESTS
#define REQUESTS 1
#endif
/* Steps that each rank's user runs, failed ones included. */
#ifndef STEPS
#define STEPS 2
#endif
/* Steps that fail for a reason of their own, on all ranks together; FAILING has the bits of the ranks where they may. */
#ifndef FAILURES
#define FAILURES 0
#endif
#ifndef FAILING
#define FAILING 7
#endif
/* When: 1 before a step's first request, 2 after one, 3 both. */
#ifndef FAILS_WHEN
#define FAILS_WHEN 3
#endif
/* Bit q: request q is small, and is reduced by the rank that arrives last. */
#ifndef SMALL
#define SMALL 0
#endif
/* Any other: chunks that any rank can do for all, and whether each rank has a part of its own too. */
#ifndef CHUNKS
#define CHUNKS 1
#endif
#ifndef PARTS
#define PARTS 0
#endif
/* What decides that a request seals its batch: 0 never, 1 always, 2 either. */
#ifndef SEALS
#define SEALS 1
#endif
/* 1: a step's requests have the same key and tickets one after the other, and wait for places of the table. */
#ifndef PIPELINED
#define PIPELINED 0
#endif
/* 1: a second thread of rank 0 withdraws a request, at any moment. */
#ifndef WITHDRAWAL
#define WITHDRAWAL 0
#endif
/* 1: the last rank leaves the communicator after LEAVES_AFTER steps. */
#ifndef LEAVES
#define LEAVES 0
#endif
#ifndef LEAVES_AFTER
#define LEAVES_AFTER 0
#endif
/* 1: the job is aborted at any moment; 2: because the last rank dies, in the middle of anything. */
#ifndef ABORT
#define ABORT 0
#endif
/* 1: the doorbells with every step of theirs, and each store by itself. 0: see README.md, "Steps that are taken
   together". */
#ifndef FINE
#define FINE 0
#endif
#if FINE
#define FUSED
#else
#define FUSED atomic
#endif
/* 1: a call of the engine, and what a comm thread does when an epoch or the job ends, is one step; see there. */
#ifndef COARSE
#define COARSE 0
#endif
#if COARSE
#define TOGETHER atomic
#else
#define TOGETHER
#endif
/* Entries of a log's ring: four for each slot of the table. */
#ifndef CAPACITY
#define CAPACITY (4 * SLOTS)
#endif

#if PIPELINED
#define SLOTS 1
#define SLOT_OF(q) 0
#else
#define SLOTS REQUESTS
#define SLOT_OF(q) (q)
#endif
#define PLACES (2 * SLOTS)
#define ALL ((1 << RANKS) - 1)
#define BIT(x) (1 << (x))
#define EPOCHS (FAILURES + 2)

/* A ticket is (epoch, number), as one small number. */
#define TICKETS (STEPS * REQUESTS + 1)
#define TICKET(epoch, number) ((epoch) * TICKETS + (number))
#define EPOCH_OF(ticket) ((ticket) / TICKETS)
#define NUMBER_OF(ticket) ((ticket) % TICKETS)
#define PLACE_OF(q, ticket) (SLOT_OF(q) * 2 + NUMBER_OF(ticket) % 2)

#if RANKS == 2
#define FOR_ALL(DO) DO(0); DO(1)
#define FOR_OTHERS(DO) DO(1 - me)
#else
#define FOR_ALL(DO) DO(0); DO(1); DO(2)
#define FOR_OTHERS(DO) DO((me + 1) % 3); DO((me + 2) % 3)
#endif

/* What the threads of the engine work with; each has its own. */
#define LOCALS              \
  byte i, j, p, t, x, y;    \
  byte position, previous;  \
  byte word, origin;        \
  byte epoch, failing;      \
  byte outcome;             \
  bool seals, won, again, sleep
