"""The engine's protocol, in every interleaving; and each way to break it that is listed here is found."""

from typing import Dict, Tuple

import model
import pytest

# Scenarios that are explored whole: the parameters of parameters.pml that differ from 2 ranks, 2 steps of one
# request, no failure.
SCENARIOS: Dict[str, Tuple[str, ...]] = {
    # Failures and incarnations: a step fails at any point, by itself or from another thread, on one rank or
    # on both.
    "both_fail": ("STEPS=1", "FAILURES=2", "FAILING=3", "CHUNKS=0"),
    "one_fails_twice": ("FAILURES=2", "FAILING=1", "FAILS_WHEN=1", "CHUNKS=0"),
    "fails_finely": ("FINE=1", "STEPS=1", "FAILURES=1", "FAILING=1", "FAILS_WHEN=2", "CHUNKS=0"),
    "three_ranks_fail": ("RANKS=3", "STEPS=1", "FAILURES=1", "FAILING=1", "CHUNKS=0", "COARSE=1"),
    "fails_in_batch": ("FAILURES=1", "FAILING=1", "PARTS=1"),
    "fails_small": ("FAILURES=1", "FAILING=1", "SMALL=1", "CALLERS=1"),
    "fails_between_requests": ("STEPS=1", "REQUESTS=2", "FAILURES=1", "FAILING=1", "CHUNKS=0"),
    "withdrawn": ("STEPS=1", "FAILURES=1", "WITHDRAWAL=1"),
    # No failure: arrival, batches, work and sleep.
    "two_ranks": (),
    "two_ranks_finely": ("FINE=1", "STEPS=1"),
    "three_ranks": ("RANKS=3", "STEPS=1"),
    "batches": ("STEPS=1", "REQUESTS=2", "SEALS=2"),
    "small_and_large": ("STEPS=1", "REQUESTS=2", "SEALS=2", "SMALL=1", "TURNED=1", "CALLERS=1"),
    "small_twice": ("STEPS=1", "REQUESTS=2", "SMALL=3", "TURNED=1", "CALLERS=1"),
    "one_key_thrice": ("STEPS=1", "REQUESTS=3", "PIPELINED=1", "CHUNKS=0"),
    "one_key_unsealed": ("STEPS=1", "REQUESTS=3", "PIPELINED=1", "SEALS=0", "CHUNKS=0", "COARSE=1"),
    # Ranks leave, and return.
    "leaves": ("LEAVES=1", "LEAVES_AFTER=1", "PARTS=1"),
    "leaves_three": ("RANKS=3", "STEPS=1", "LEAVES=1", "CHUNKS=0"),
    "leaves_and_fails": ("STEPS=1", "LEAVES=1", "FAILURES=1", "FAILING=1"),
    "leaves_and_ends": ("RANKS=3", "STEPS=1", "LEAVES=1", "STEPS_AFTER_RETURN=0", "CHUNKS=0"),
    # The job ends.
    "aborts": ("ABORT=1",),
    "aborts_three": ("RANKS=3", "STEPS=1", "ABORT=1", "CHUNKS=0", "COARSE=1"),
    "dies": ("STEPS=1", "ABORT=2", "PARTS=1"),
    "dies_small": ("STEPS=1", "ABORT=2", "SMALL=1", "CALLERS=1"),
    "aborts_and_fails": ("STEPS=1", "ABORT=1", "FAILURES=1", "FAILING=1", "FAILS_WHEN=2", "CHUNKS=0"),
}

# The scenarios that `make test` explores: one of each kind. The result changes only with the model. Whoever
# changes that runs `make model`, which explores all.
SHORT = {
    "two_ranks",
    "small_twice",
    "batches",
    "leaves_and_fails",
    "dies_small",
    "thread_and_caller",
    "hosts_small",
    "hosts_die",
}

# Broken variants that `make test` looks for: one of each kind.
ALWAYS_FOUND = {
    "FINISHES_AHEAD",
    "NOT_EXCUSED",
    "OWED_RING_TAKEN_LATE",
    "FAILS_AT_ONCE",
}

# For each change to the protocol the scenario that it breaks, smaller where a smaller one finds it.
MUTATIONS: Dict[str, Tuple[str, ...]] = {
    # Table and log.
    "RETIRED_BY_FIRST": ("STEPS=1",),
    "PARTICIPANTS_ALL": ("STEPS=1", "LEAVES=1", "PARTS=1", "CHUNKS=0"),
    "NO_ELECTION": ("RANKS=3", "STEPS=1", "LEAVES=1", "CHUNKS=0"),
    "LEAVER_FORGETS": ("STEPS=1", "LEAVES=1", "CHUNKS=0"),
    "PUBLISH_UNCHECKED": ("STEPS=1", "FAILURES=1", "FAILING=1", "SMALL=1"),
    "BATCHES_BY_READER": ("STEPS=1", "REQUESTS=2", "SEALS=2", "CHUNKS=0"),
    "BATCH_KEPT": ("CHUNKS=0",),
    "BATCH_RESET_LATE": ("STEPS=1",),
    "NO_RESOLVE": ("STEPS=1", "FAILURES=1", "FAILING=1", "SMALL=1"),
    "END_OVERWRITES": ("STEPS=1", "FAILURES=1", "FAILING=1"),
    "HALF_RING": ("STEPS=1", "REQUESTS=3", "PIPELINED=1", "SEALS=0", "CHUNKS=0"),
    # Who is rung.
    "FINISHES_AHEAD": ("STEPS=1", "REQUESTS=2", "SMALL=3", "TURNED=1"),
    "OWED_RING_KEPT": ("STEPS=1", "SMALL=1", "CALLERS=1"),
    "UNHUSH_BLIND": ("STEPS=1", "SMALL=1", "CALLERS=1"),
    "LEAVES_WORK": ("STEPS=1", "SEALS=0", "CALLERS=1"),
    # Incarnations.
    "RESTART_BEFORE_DRAINED": ("FAILURES=1", "FAILING=1", "CHUNKS=0"),
    "RESTART_WITHOUT_THE_ABSENT": ("STEPS=1", "LEAVES=1", "FAILURES=1", "FAILING=1", "CHUNKS=0"),
    "LEAVER_IS_OWED": ("STEPS=1", "LEAVES=1", "FAILURES=1", "FAILING=1", "CHUNKS=0"),
    "RETURNS_NOT": ("STEPS=1", "LEAVES=1", "CHUNKS=0"),
    "LAST_IS_STALE": ("STEPS=1", "LEAVES=1", "CHUNKS=0"),
    "ABORTS_UNASKED": ("STEPS=1", "LEAVES=1", "STEPS_AFTER_RETURN=0", "CHUNKS=0"),
    "NEVER_OWED": ("STEPS=1", "FAILURES=1", "FAILING=1", "CHUNKS=0"),
    "OWED_ONCE": ("FAILURES=2", "FAILING=1", "FAILS_WHEN=1", "CHUNKS=0", "COARSE=1"),
    "NOT_EXCUSED": ("FAILURES=1", "FAILING=1", "CHUNKS=0"),
    "DRAWS_AT_ONCE": ("FAILURES=1", "FAILING=1", "CHUNKS=0"),
    "NO_RENAME": ("STEPS=1", "FAILURES=2", "FAILING=3", "CHUNKS=0"),
    "FORGETS_EXCUSED_STEP": ("STEPS=1", "FAILURES=2", "FAILING=3", "FAILS_WHEN=1", "CHUNKS=0"),
}

# Scenarios of the models that stand by themselves: progress_thread.pml, by its own parameters ...
THREAD_SCENARIOS: Dict[str, Tuple[str, ...]] = {
    "thread_and_caller": ("PEERS=1", "CALLERS=1"),
    "thread_and_callers": ("PEERS=0", "CALLERS=2"),
    "thread_and_peers": ("PEERS=2", "CALLERS=1"),
}
THREAD_MUTATIONS: Dict[str, Tuple[str, ...]] = {
    "LOOKS_BEFORE_LISTENING": ("PEERS=1", "CALLERS=1"),
    "RING_READS_FIRST": ("PEERS=1", "CALLERS=1"),
    "SLEEPING_SET_LATE": ("PEERS=1", "CALLERS=1"),
    "UNHUSH_READS_FIRST": ("PEERS=1", "CALLERS=1"),
    "OWED_RING_TAKEN_LATE": ("PEERS=1", "CALLERS=1"),
    "OWED_BEFORE_PUBLISHED": ("PEERS=1", "CALLERS=1"),
}

# ... and hosts.pml.
HOST_SCENARIOS: Dict[str, Tuple[str, ...]] = {
    "hosts_fail": ("REQUESTS=3", "FAILURES=1"),
    "hosts_fail_twice": ("FAILURES=2",),
    "hosts_small": ("BATCHES=1", "SMALL=1", "FAILURES=1"),
    "three_hosts": ("HOSTS=3",),
    "three_hosts_fail": ("HOSTS=3", "FAILURES=1"),
    "hosts_in_turn": ("REQUESTS=3", "PLACES=1", "IN_TURN=1", "FAILURES=1"),
    "hosts_cross": ("REQUESTS=3", "PLACES=1", "FAILURES=1"),
    "hosts_abort": ("FAILURES=1", "ABORT=1"),
    "hosts_die": ("HOSTS=3", "ABORT=2"),
    "hosts_batches_fail": ("BATCHES=1", "REQUESTS=3", "SMALL=2", "FAILURES=1"),
}
HOST_MUTATIONS: Dict[str, Tuple[str, ...]] = {
    "FAILS_AT_ONCE": ("FAILURES=1",),
    "FAILS_BY_ITSELF": ("FAILURES=1",),
    "TAKES_WHAT_IS_OLD": ("FAILURES=1",),
    "KEEPS_WHAT_IS_HELD": ("FAILURES=1",),
    "CROSSES": ("PLACES=1",),
    "RAISES_BEFORE_TELLING": ("HOSTS=3", "ABORT=1"),
    "DRAINS_BEFORE_ABORT": ("ABORT=1",),
    "ONLY_THE_HEAD_LISTENS": ("ABORT=2",),
}


SOURCES = {
    **dict.fromkeys([*THREAD_SCENARIOS, *THREAD_MUTATIONS], "progress_thread"),
    **dict.fromkeys([*HOST_SCENARIOS, *HOST_MUTATIONS], "hosts"),
}
ALL_SCENARIOS = {**SCENARIOS, **THREAD_SCENARIOS, **HOST_SCENARIOS}
ALL_MUTATIONS = {**MUTATIONS, **THREAD_MUTATIONS, **HOST_MUTATIONS}


@pytest.fixture(scope="module")
def explorations(tmp_path_factory, request):
    started = model.Explorations(tmp_path_factory.mktemp("model"))
    for item in request.session.items:
        params = item.callspec.params
        if "scenario" in params:
            name = params["scenario"]
            started.start(name, ALL_SCENARIOS[name], source=SOURCES.get(name, "engine"))
        else:
            name = params["mutation"]
            defines = (*ALL_MUTATIONS[name], f"BUG_{name}")
            # Most end early.
            started.start(name, defines, optimised=False, source=SOURCES.get(name, "engine"))
    yield started
    started.stop()


@pytest.mark.parametrize(
    "scenario",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in ALL_SCENARIOS],
)
def test_holds(explorations, scenario, record_property):
    outcome = explorations.outcome(scenario)
    record_property("states", outcome.states)
    record_property("seconds", outcome.seconds)
    print(f"{scenario}: {outcome.states} states, {outcome.seconds} s")
    assert outcome.violation == ""


@pytest.mark.parametrize(
    "mutation",
    [name if name in ALWAYS_FOUND else pytest.param(name, marks=pytest.mark.long) for name in ALL_MUTATIONS],
)
def test_found(explorations, mutation):
    outcome = explorations.outcome(mutation)
    print(f"{mutation}: {outcome.states} states, {outcome.seconds} s: {outcome.violation}")
    assert "assertion violated" in outcome.violation
