/* kernels/control/doorbell.h, as far as the rest needs it: whether a rank's bell has rung since whoever drives its progress
   has called Listen. How a thread falls asleep, is woken and is hushed is in progress_thread.pml. */

bit bell[RANKS];

#define Ring(x) bell[x] = 1
#define RingAll FUSED { FOR_ALL(Ring) }
#define RingOthers FUSED { FOR_OTHERS(Ring) }
#define RingSelf Ring(me)
#define Listen bell[me] = 0
