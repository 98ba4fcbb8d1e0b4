/* The parameters of the model, which model.py sets with -D, and constants that follow from them. */

/* The number of ranks, and of requests that a step makes at once. */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef REQUESTS
#define REQUESTS 1
#endif
/* The number of steps that each rank's user runs, failed ones included. */
#ifndef STEPS
#define STEPS 2
#endif
/* The number of steps on all ranks together that fail by themselves. FAILING is the mask of the ranks on which they may. */
#ifndef FAILURES
#define FAILURES 0
#endif
#ifndef FAILING
#define FAILING 7
#endif
/* When a step may fail: 1 before its first request, 2 after a request, 3 both. */
#ifndef FAILS_WHEN
#define FAILS_WHEN 3
#endif
/* Bit q: request q is small, so the rank that arrives last reduces it. */
#ifndef SMALL
#define SMALL 0
#endif
/* For requests that are not small: the number of chunks that any rank can do for all; and whether each rank also has a
   part that only it can do. */
#ifndef CHUNKS
#define CHUNKS 1
#endif
#ifndef PARTS
#define PARTS 0
#endif
/* Whether a request seals its batch: 0 never, 1 always, 2 either. */
#ifndef SEALS
#define SEALS 1
#endif
/* 1: a step's requests have the same key and successive tickets, and wait for generations of the table. */
#ifndef PIPELINED
#define PIPELINED 0
#endif
/* 1: rank 0 submits the requests of a step in the opposite order. */
#ifndef TURNED
#define TURNED 0
#endif
/* 1: a second thread of rank 0 withdraws a request at some moment. */
#ifndef WITHDRAWAL
#define WITHDRAWAL 0
#endif
/* 1: callers drive the progress: after it has submitted a request, a rank's user may drive for as long as it likes. */
#ifndef CALLERS
#define CALLERS 0
#endif
/* 1: all ranks leave the communicator when they have run their steps, the last rank LEAVES_AFTER of them. When all have
   left, all are back, and run one step more. */
#ifndef LEAVES
#define LEAVES 0
#endif
#ifndef LEAVES_AFTER
#define LEAVES_AFTER 0
#endif
/* 0: a rank's program ends when it is back, without the step more. */
#ifndef STEPS_AFTER_RETURN
#define STEPS_AFTER_RETURN 1
#endif
/* 1: the job is aborted at some moment. 2: the last rank dies at some moment, and the job is aborted for that. */
#ifndef ABORT
#define ABORT 0
#endif
/* 1: every step of the doorbells and every store is a step of its own. 0: see README.md, "Fused steps". */
#ifndef FINE
#define FINE 0
#endif
#if FINE
#define FUSED
#else
#define FUSED atomic
#endif
/* 1: a call of the engine is one step, and so is the work of a rank's progress when an incarnation or the job ends. */
#ifndef COARSE
#define COARSE 0
#endif
#if COARSE
#define TOGETHER atomic
#else
#define TOGETHER
#endif
/* The number of entries of the log's ring: four for each slot of the table. */
#ifdef BUG_HALF_RING
#define CAPACITY (2 * SLOTS)
#else
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
#define INCARNATIONS (FAILURES + LEAVES + 2)

/* A ticket is (incarnation, number), as one small number. */
#define TICKETS ((STEPS + LEAVES) * REQUESTS + 1)
#define TICKET(incarnation, number) ((incarnation) * TICKETS + (number))
#define INCARNATION_OF(ticket) ((ticket) / TICKETS)
#define NUMBER_OF(ticket) ((ticket) % TICKETS)
#define PLACE_OF(q, ticket) (SLOT_OF(q) * 2 + NUMBER_OF(ticket) % 2)

#if RANKS == 2
#define FOR_ALL(DO) DO(0); DO(1)
#define FOR_OTHERS(DO) DO(1 - me)
#else
#define FOR_ALL(DO) DO(0); DO(1); DO(2)
#define FOR_OTHERS(DO) DO((me + 1) % 3); DO((me + 2) % 3)
#endif

/* The local variables of each thread of the engine. */
#define LOCALS              \
  byte i, j, p, t, x, y;    \
  byte position, previous;  \
  byte word, origin;        \
  byte incarnation, failing;      \
  byte outcome;             \
  bool seals, won, again, sleep
