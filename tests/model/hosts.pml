/* kernels/engine/hosts/relay.{h,cc}, relay_head.{h,cc} and kernels/control/host_order.{h,cc}: the order and the batches that one host
   decides for all, failed steps, and an abort. A host is one process: its members, which arrive, fail and abort, and its relay.
   What happens between the members of a host is in engine.pml. Every step is a call of Relay::Step for one message or one
   request; channels are the wire. */

/* Each incarnation has so many requests on each host. */
#ifndef HOSTS
#define HOSTS 2
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif
/* The places for them in each host's table. */
#ifndef PLACES
#define PLACES REQUESTS
#endif
/* Requests of a sequence enter in the order of their tickets; of a group (0) in any. */
#ifndef IN_TURN
#define IN_TURN 0
#endif
/* Bit t: request t is small. A report has the host's part of its data, and its launch has the result. */
#ifndef SMALL
#define SMALL 0
#endif
#define IS_SMALL(t) ((SMALL >> (t)) & 1)
/* So many times a member of some host fails its step. */
#ifndef FAILURES
#define FAILURES 0
#endif
/* 1: hosts remember their batches. */
#ifndef BATCHES
#define BATCHES 0
#endif
/* 1: some host aborts the job, and its processes may end at once. 2: some host dies. */
#ifndef ABORT
#define ABORT 0
#endif
/* Requests that cross fail an incarnation, too. Nobody arrives after the last one. */
#if IN_TURN == 0 && PLACES < REQUESTS
#define INCARNATIONS (FAILURES + 2)
#else
#define INCARNATIONS (FAILURES + 1)
#endif

#define ALL ((1 << HOSTS) - 1)
#define QUEUE 8

/* Messages. */
#define READY 1
#define FAILED 2
#define LAUNCH 3
#define FAIL 4
#define LAUNCH_SEALS 5 /* it ends its batch */
#define SEAL 6         /* the open batch ends */
chan to_head[HOSTS] = [QUEUE] of { byte, byte, byte }; /* kind, ticket, incarnation */
chan to_host[HOSTS] = [QUEUE] of { byte, byte, byte };

/* A request on a host. */
#define NEW 0
#define ARRIVED 1
#define REPORTED 2
#define LAUNCHED 3
#define DONE 4
byte state[HOSTS * REQUESTS];
#define S(h, t) state[(h) * REQUESTS + (t)]

byte incarnation[HOSTS];
byte failing[HOSTS]; /* failures that the head has decided, and that the host has not obeyed */
byte aborted[HOSTS]; /* the text of the error; or the host has died */
byte failures;

#define TEXT 1    /* of the host that aborts the job */
#define SILENCE 2 /* a host has been silent for too long */
#define DEAD 3

/* By incarnation and request: the hosts that have sent their part of the data, be it in a report or after a launch; and the
   end that the first host saw. */
#define AT(i, t) ((i) * REQUESTS + (t))
byte sent[INCARNATIONS * REQUESTS];
byte ended[INCARNATIONS * REQUESTS];
#define WELL 1
#define BADLY 2

/* All hosts see the same end of a request, unless the job is aborted. */
inline End(t, how) {
  assert(ended[AT(incarnation[h], t)] == 0 || ended[AT(incarnation[h], t)] == how);
  ended[AT(incarnation[h], t)] = how
}

/* All hosts cut the same batches, of the requests that are not small. */
#if BATCHES
byte sealed[HOSTS];                      /* batches that have ended */
bit begun[HOSTS];                        /* the open one has a request */
byte batch_of[INCARNATIONS * REQUESTS];  /* + 1 */
#define IN_BATCH(t)                                                                                \
  assert(batch_of[AT(incarnation[h], t)] == 0 || batch_of[AT(incarnation[h], t)] == sealed[h] + 1); \
  batch_of[AT(incarnation[h], t)] = sealed[h] + 1;                                                  \
  begun[h] = 1
#define SEAL_HERE sealed[h] = sealed[h] + begun[h]; begun[h] = 0
#define NO_BATCHES sealed[h] = 0; begun[h] = 0
#else
#define IN_BATCH(t)
#define SEAL_HERE
#define NO_BATCHES
#endif

/* All hosts launch in the same order: the requests of each incarnation, in that of the first host. */
byte launches[HOSTS];
byte order_of[INCARNATIONS * REQUESTS];
inline Launched(t) {
  assert(S(h, t) == REPORTED);
  assert(order_of[AT(incarnation[h], launches[h])] == 0 || order_of[AT(incarnation[h], launches[h])] == t + 1);
  order_of[AT(incarnation[h], launches[h])] = t + 1;
  launches[h]++;
  if
  :: IS_SMALL(t) ->
    assert(sent[AT(incarnation[h], t)] == ALL);
    S(h, t) = DONE;
    End(t, WELL)
  :: else ->
    S(h, t) = LAUNCHED;
    IN_BATCH(t);
    sent[AT(incarnation[h], t)] = sent[AT(incarnation[h], t)] | 1 << h
  fi
}

/* Note [Places between hosts] in kernels/engine/core/pending.h. */
#define USES(h, t) (S(h, t) >= ARRIVED && S(h, t) <= LAUNCHED)
#define SAME(t, u) ((t) != (u) && (t) % PLACES == (u) % PLACES)
#if REQUESTS == 2
#define ANY(CONDITION) (CONDITION(0) || CONDITION(1))
#else
#define ANY(CONDITION) (CONDITION(0) || CONDITION(1) || CONDITION(2))
#endif
#define BUSY0(u) (SAME(0, u) && USES(h, u))
#define BUSY1(u) (SAME(1, u) && USES(h, u))
#define BUSY2(u) (SAME(2, u) && USES(h, u))
#define RUNS (incarnation[h] < INCARNATIONS && !aborted[h])
#define TURN(t) (IN_TURN == 0 || (t) == 0 || S(h, (t) - (t > 0)) != NEW)

#define IS_LAUNCHED(u) (S(h, u) == LAUNCHED)

/* Job::Abort: each host that is told tells the others. A host listens for the beats of the one before it. */
#if ABORT
chan told[HOSTS] = [HOSTS * HOSTS] of { byte };
#define BEFORE(h) ((h) == 0 -> HOSTS - 1 : (h) - 1)
inline Tell(other, text) {
  if
  :: (other) != h && !aborted[other] -> told[other] ! text
  :: else
  fi
}
inline TellOthers(text) {
  Tell(0, text);
  Tell(1, text);
  Tell(HOSTS - 1, text)
}
#ifdef BUG_DRAINS_BEFORE_ABORT
#define HEARS_ABORT (nempty(told[h]) && !ANY(IS_LAUNCHED))
#else
#define HEARS_ABORT nempty(told[h])
#endif
#ifdef BUG_ONLY_THE_HEAD_LISTENS
#define LISTENS (h == 0)
#else
#define LISTENS 1
#endif
#endif

/* The last member of the host arrives at request `t`; the relay reports it; its data have come from all hosts. */
#define OF_REQUEST(t, BUSY)                                                        \
  :: atomic { RUNS && S(h, t) == NEW && TURN(t) && !ANY(BUSY) -> S(h, t) = ARRIVED } \
  :: atomic { RUNS && S(h, t) == ARRIVED ->                                          \
       S(h, t) = REPORTED; to_head[h] ! READY, t, incarnation[h];                    \
       sent[AT(incarnation[h], t)] = sent[AT(incarnation[h], t)] | IS_SMALL(t) << h } \
  :: atomic { RUNS && S(h, t) == LAUNCHED && sent[AT(incarnation[h], t)] == ALL ->   \
       S(h, t) = DONE; End(t, WELL) }

inline Obey() {
  if
  :: kind == LAUNCH || kind == LAUNCH_SEALS ->
    assert(about == incarnation[h]);
    Launched(ticket);
    if
    :: kind == LAUNCH_SEALS -> SEAL_HERE
    :: else
    fi
  :: kind == SEAL -> SEAL_HERE
  :: kind == FAIL -> failing[h]++
  fi
}

/* FailWhenDrained: all launches before have completed. Requests that have not been launched get the error. */
inline FailHere() {
  ticket = 0;
  do
  :: ticket < REQUESTS ->
    if
    :: S(h, ticket) >= ARRIVED && S(h, ticket) <= LAUNCHED -> End(ticket, BADLY)
    :: else
    fi;
    S(h, ticket) = NEW;
    ticket++
  :: else -> break
  od;
  ticket = 0;
  launches[h] = 0;
  NO_BATCHES;
  incarnation[h]++
}

proctype Host(byte h) {
  byte kind, ticket, about;
  do
  OF_REQUEST(0, BUSY0)
  OF_REQUEST(1, BUSY1)
#if REQUESTS == 3
  OF_REQUEST(2, BUSY2)
#endif
  :: atomic { RUNS && failures < FAILURES ->
       failures++;
       to_head[h] ! FAILED, 0, incarnation[h];
#ifdef BUG_FAILS_BY_ITSELF
       FailHere()
#endif
     }
  :: atomic { !aborted[h] && nempty(to_host[h]) ->
       to_host[h] ? kind, ticket, about;
       Obey();
       kind = 0; ticket = 0; about = 0 }
#ifdef BUG_FAILS_AT_ONCE
  :: atomic { !aborted[h] && failing[h] > 0 -> failing[h]--; FailHere() }
#else
  :: atomic { !aborted[h] && failing[h] > 0 && !ANY(IS_LAUNCHED) -> failing[h]--; FailHere() }
#endif
#if ABORT
  :: atomic { !aborted[h] && HEARS_ABORT -> told[h] ? kind; TellOthers(kind); aborted[h] = kind; kind = 0 }
  /* Messages that a host sends before it dies come long before its silence is noticed. */
  :: atomic { !aborted[h] && LISTENS && empty(told[h]) && aborted[BEFORE(h)] == DEAD ->
       TellOthers(SILENCE); aborted[h] = SILENCE }
#endif
  od
}

/* The head's HostOrder. `order` is its incarnation. */
byte order;
byte waiting[REQUESTS]; /* the hosts that are ready */

inline Publish(what, t) {
  to_host[0] ! what, t, order;
  to_host[1] ! what, t, order;
#if HOSTS == 3
  to_host[2] ! what, t, order;
#endif
}

/* Launches that the head holds back: those of the open batch. Others of it may have been published. */
chan held = [REQUESTS] of { byte };
#if BATCHES
bit open;
#define OPENS open = 1
#define CLOSES open = 0
#else
#define open 0
#define OPENS skip
#define CLOSES skip
#endif

inline PublishHeld() {
  do
  :: nempty(held) -> held ? launched; Publish(LAUNCH, launched)
  :: empty(held) -> break
  od;
  launched = 0
}

/* The batch ends with the last launch that is held back, or after what was published. */
inline SealOpen() {
  do
  :: len(held) > 1 -> held ? launched; Publish(LAUNCH, launched)
  :: len(held) == 1 -> held ? launched; Publish(LAUNCH_SEALS, launched); break
  :: len(held) == 0 && open -> Publish(SEAL, 0); break
  :: len(held) == 0 && !open -> break
  od;
  CLOSES;
  launched = 0
}

inline LaunchReady(t) {
  waiting[t] = 0;
  if
  :: IS_SMALL(t) ->
    /* In no batch, but behind those that are held back. */
    if
    :: nempty(held) -> OPENS
    :: empty(held)
    fi;
    held ! t;
    PublishHeld()
  :: else -> held ! t
  fi
}

inline FailAll() {
#ifndef BUG_KEEPS_WHAT_IS_HELD
  SealOpen();
#endif
  Publish(FAIL, 0);
  order++;
  waiting[0] = 0;
#if REQUESTS == 3
  waiting[2] = 0;
#endif
  waiting[1] = 0
}

#define CROSSES(u) (SAME(ticket, u) && waiting[u] != 0)

inline Take(host) {
  if
#ifdef BUG_TAKES_WHAT_IS_OLD
  :: kind == READY ->
#else
  :: kind == READY && about == order ->
#endif
    waiting[ticket] = waiting[ticket] | 1 << host;
    if
    :: waiting[ticket] == ALL -> LaunchReady(ticket)
#ifndef BUG_CROSSES
    :: waiting[ticket] != ALL && ANY(CROSSES) ->
      assert(IN_TURN == 0 && PLACES < REQUESTS);
      FailAll()
#endif
    :: else
    fi
  :: kind == FAILED && about == order -> FailAll()
  :: else
  fi;
  kind = 0; ticket = 0; about = 0
}

#define HEAD_RUNS (aborted[0] == 0)
/* The open batch goes when it is full, or when the head's rank has no other work: at any moment. */
proctype Head() {
  byte kind, ticket, about, launched;
  do
  :: atomic { HEAD_RUNS && (nempty(held) || open) -> SealOpen() }
  :: atomic { HEAD_RUNS && nempty(to_head[0]) -> to_head[0] ? kind, ticket, about; Take(0) }
  :: atomic { HEAD_RUNS && nempty(to_head[1]) -> to_head[1] ? kind, ticket, about; Take(1) }
#if HOSTS == 3
  :: atomic { HEAD_RUNS && nempty(to_head[2]) -> to_head[2] ? kind, ticket, about; Take(2) }
#endif
  od
}

#if ABORT
proctype Aborter() {
  byte h;
  if
  :: h = 0
  :: h = HOSTS - 1
  fi;
#if ABORT == 2
  aborted[h] = DEAD
#else
#ifdef BUG_RAISES_BEFORE_TELLING
  aborted[h] = TEXT;
  atomic {
    if
    :: TellOthers(TEXT)
    :: aborted[h] = DEAD
    fi
  }
#else
  atomic {
    if
    :: aborted[h] == 0 -> TellOthers(TEXT)
    :: else
    fi
  }
  atomic {
    aborted[h] = TEXT;
    if
    :: aborted[h] = DEAD
    :: true
    fi
  }
#endif
#endif
}
#endif

/* When nothing can happen any more, all hosts are in the same incarnation, and have all results; or all are aborted. */
#define ALL_DONE(h) (S(h, 0) == DONE && S(h, 1) == DONE && S(h, REQUESTS - 1) == DONE)
#define AT_REST(h) (incarnation[h] == order && failing[h] == 0 && empty(held) && empty(to_host[h]) && empty(to_head[h]) && \
    (ALL_DONE(h) || order == INCARNATIONS))

/* All have the text of the host that was the first to know, however it ends. */
#if ABORT == 2
#define HAS_ABORTED(h) (aborted[h] == SILENCE || aborted[h] == DEAD)
#else
#define HAS_ABORTED(h) (aborted[h] == TEXT || aborted[h] == DEAD)
#endif

proctype Quiescence() {
  atomic {
    timeout ->
#if ABORT
    assert(HAS_ABORTED(0) && HAS_ABORTED(HOSTS - 1) && HAS_ABORTED(1))
#else
    assert(AT_REST(0) && AT_REST(1) && AT_REST(HOSTS - 1))
#endif
  }
}

init {
  atomic {
    run Host(0);
    run Host(1);
#if HOSTS == 3
    run Host(2);
#endif
    run Head();
#if ABORT
    run Aborter();
#endif
    run Quiescence()
  }
}
