/* kernels/control/doorbell.h. The word is a counter there; here it only says whether the bell has rung since Listen. */

bit rung[RANKS];

#if FINE

bit sleeping[RANKS];
bit in_kernel[RANKS]; /* in FutexWait, which has no timeout here, so that a lost wake-up is found */

#ifdef BUG_RING_READS_FIRST
#define Ring(x)                               \
  won = sleeping[x];                          \
  rung[x] = 1;                                \
  atomic {                                    \
    if :: won -> in_kernel[x] = 0 :: else fi; \
    won = 0                                   \
  }
#else
#define Ring(x) \
  rung[x] = 1;  \
  d_step { if :: sleeping[x] -> in_kernel[x] = 0 :: else fi }
#endif
#define RingAll FOR_ALL(Ring)
#define RingOthers FOR_OTHERS(Ring)

/* Calls Wait if `sleep` is set. The kernel compares the word again and puts the thread to sleep in one step. */
inline SleepIfIdle() {
  if
  :: sleep ->
#ifdef BUG_SLEEPING_SET_LATE
    d_step { if :: !rung[me] -> in_kernel[me] = 1 :: else fi };
    sleeping[me] = 1;
#else
    sleeping[me] = 1;
    d_step { if :: !rung[me] -> in_kernel[me] = 1 :: else fi };
#endif
    atomic { !in_kernel[me] -> sleeping[me] = 0; sleep = 0 }
  :: else
  fi
}

#else

#define Ring(x) rung[x] = 1
#define RingAll atomic { FOR_ALL(Ring) }
#define RingOthers atomic { FOR_OTHERS(Ring) }

inline SleepIfIdle() { atomic { !sleep || rung[me] -> sleep = 0 } }

#endif

#define RingSelf Ring(me)
#define Listen rung[me] = 0
