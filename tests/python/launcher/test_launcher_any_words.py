"""Any words as options, host lists and hostfiles: they are taken, or refused with a text; nothing else."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from smddprun import horovodrun, hosts, options
from smddprun.hosts import Host

OPTIONS = [
    "-np",
    "--num-proc",
    "-H",
    "--host",
    "--hosts",
    "--hostfile",
    "-x",
    "--grace",
    "--timeout",
    "--max-restarts",
    "--timeline",
    "--summary",
    "-v",
    "--verbose",
    "--check",
    "-m",
    "--rank-output",
    "--help",
    "--",
    "-n",
    "-N",
    "--np=2",
    "-np=2",
    "--timeout=1e400",
    "-H=",
    "-x=A=B",
    *options.with_value(),
    *horovodrun.IGNORED,
    *horovodrun.REFUSED,
]
VALUES = [
    "0",
    "1",
    "2",
    "-1",
    "1e9",
    "nan",
    "inf",
    "99999999999999999999",
    "a:2,b:2",
    "a:x",
    ",",
    "A=B",
    "A",
    "=",
    "python",
    "train.py",
]
WORDS = st.lists(st.sampled_from(OPTIONS) | st.sampled_from(VALUES) | st.text(max_size=8), max_size=8)
NAMES = st.from_regex(r"[abz09_][abz09_.-]{0,7}", fullmatch=True)
NAMED = st.lists(st.builds(Host, NAMES, st.integers(1, 100)), min_size=1, max_size=6)


@settings(max_examples=max(400, settings().max_examples))
@given(WORDS)
def test_words(words):
    with contextlib.suppress(options.UsageError):
        chosen = options.parse(words)
        assert chosen.num_ranks is None or 1 <= chosen.num_ranks <= options.MAX_RANKS
        assert chosen.max_restarts is None or chosen.max_restarts >= 0
        if chosen.hosts is not None:
            assert hosts.parse_list("-H", chosen.hosts)


@settings(max_examples=max(300, settings().max_examples))
@given(st.text(max_size=30) | st.text(st.sampled_from("a:,2 -"), max_size=30))
def test_a_list(text):
    with contextlib.suppress(options.UsageError):
        found = hosts.parse_list("-H", text)
        assert found and all(host.name and host.slots >= 1 for host in found)
        assert len({host.name for host in found}) == len(found)


@settings(max_examples=max(300, settings().max_examples))
@given(st.lists(st.text(max_size=20) | st.text(st.sampled_from("ab:=#2 slots"), max_size=20), max_size=5))
def test_a_hostfile(lines):
    with contextlib.suppress(options.UsageError):
        found = hosts.parse_file("f", lines)
        assert found and all(host.name and host.slots >= 1 for host in found)


@given(NAMED)
def test_a_list_and_a_hostfile_say_the_same(named):
    listed = hosts.parse_list("-H", ",".join(f"{host.name}:{host.slots}" for host in named))
    assert listed == hosts.parse_file("f", [f"{host.name} slots={host.slots}" for host in named])
    assert sum(host.slots for host in listed) == sum(host.slots for host in named)


@given(NAMED, st.integers(1, 700))
def test_ranks_are_dealt(named, num_ranks):
    slots = sum(host.slots for host in named)
    with contextlib.suppress(options.UsageError):
        dealt = hosts.deal(named, num_ranks)
        assert num_ranks <= slots and sum(host.slots for host in dealt) == num_ranks
        assert all(given.slots <= had.slots for given, had in zip(dealt, named))
        return
    assert num_ranks > slots
