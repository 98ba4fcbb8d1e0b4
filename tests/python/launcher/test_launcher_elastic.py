"""--min-np and --host-discovery-script: the hosts of each start of a job; and the loss of a host.

The other hosts are made up: the test's mpirun reaches those that have a file of their name, and runs the
rank here.
"""

import contextlib
import os
import signal
import socket
import stat
import time

import pytest

from smddprun import elastic, lost_hosts
from smddprun.hosts import Host
from smddprun.options import UsageError, parse

MPIRUN = """#!/bin/bash
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi
while [ "${1#-}" != "$1" ]; do
  case $1 in
    -H) where=$2; shift ;;
    -np|--bind-to|--map-by|-x|--timeout) shift ;;
  esac
  shift
done
for host in ${where//,/ }; do [ -e "${host%:*}" ] || exit 1; done
[ "$1" = true ] && exit
export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1
WHERE=$where "$@"
"""


@pytest.fixture
def elastic_launcher(launcher):
    """Returns a function that runs smddprun with the MPI above."""
    launcher.script("mpirun", MPIRUN, 0o755)
    path = os.pathsep.join([str(launcher.work), os.environ["PATH"]])

    def run(*words, **variables):
        return launcher.start(*words, env={"PATH": path, **variables}).finish(60)

    return run


@pytest.mark.parametrize(
    "words, message",
    [
        (["--min-np", "2"], "--min-np 2 is for jobs of several hosts; name them"),
        (["--min-np", "0", "-H", "a"], "--min-np '0': give a whole number from 1"),
        (["--min-num-proc", "5", "-np", "4", "-H", "a:8"], "--min-num-proc 5: there are 4 ranks at most"),
        (["--min-np", "2", "-H", "a:2", "--ps", "1"], "--min-np 2: a job with --ps needs all of its hosts"),
        (["--elastic-timeout", "soon", "-H", "a"], "--elastic-timeout 'soon': give a number of seconds"),
        (["--host-discovery-script", ""], "--host-discovery-script '': give the path of a file"),
        (["-H", "a", "--host-discovery-script", "f"], "-H and --host-discovery-script each name the hosts"),
        (
            ["-H", "a", "--slots-per-host", "2"],
            "--slots-per-host is for the hosts of --host-discovery-script",
        ),
    ],
)
def test_mistakes(words, message):
    with pytest.raises(UsageError) as refused:
        parse([*words, "train.py"])
    assert message in str(refused.value) and "\n" not in str(refused.value)


def script(folder, text):
    path = folder / "hosts.sh"
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_hosts_that_a_script_prints(tmp_path):
    path = script(tmp_path, "#!/bin/sh\nprintf 'a:2\\n\\nb\\n c:3 \\n'\n")
    assert elastic.discover(path, 4) == [Host("a", 2), Host("b", 4), Host("c", 3)]
    assert elastic.discover(script(tmp_path, "#!/bin/sh\n"), 1) == []


@pytest.mark.parametrize(
    "text, message",
    [
        ("#!/bin/sh\necho one >&2\necho 'no cloud' >&2\nexit 3\n", "has failed: exit code 3; no cloud$"),
        (
            "#!/bin/sh\necho 'a:x'\n",
            "hosts.sh' has printed 'a:x': after the colon",
        ),
        ("#!/bin/sh\necho '-oProxyCommand=x'\n", "is no name of a host"),
        ("#!/bin/sh\nexec sleep 20\n", "has failed: it had not ended after 0.5 s"),
        ("#!/no/such/shell\n", "has failed: exit code 127; .*hosts.sh: No such file"),
    ],
)
def test_a_script_that_fails(tmp_path, monkeypatch, text, message):
    monkeypatch.setattr(elastic, "_SCRIPT_SECONDS", 0.5)
    with pytest.raises(elastic.DiscoveryError, match=message):
        elastic.discover(script(tmp_path, text), 1)


def test_the_programs_of_a_script_end_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(elastic, "_SCRIPT_SECONDS", 1.0)
    with pytest.raises(elastic.DiscoveryError, match=r"it had not ended after 1 s"):
        elastic.discover(script(tmp_path, f"#!/bin/sh\nsleep 60 & echo $! > {tmp_path}/pid; wait; true\n"), 1)
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not os.path.exists(f"/proc/{child}"):
            return
        time.sleep(0.05)
    pytest.fail(f"process {child} is left")


def test_each_start_takes_the_hosts_that_answer(launcher, elastic_launcher):
    """Host b is lost at the first start and back at the third; c is there all the time."""
    for host in ("b", "c"):
        launcher.script(host, "")
    says = 'echo "$SMDDP_RESTART_COUNT: $WHERE"'
    text = f"{says}; case $SMDDP_RESTART_COUNT in 0) rm b;; 1) touch b;; *) exit;; esac; exit 5"
    words = ["--no-tag-output", "-np", 5, "--min-np", 2, "--max-restarts", 3, "-H", "b:2,c:2,gone:9"]
    result = elastic_launcher(*words, "sh", "-c", text)
    assert (result.code, result.lines) == (0, ["0: b:2,c:2", "1: c:2", "2: b:2,c:2"]), result.messages
    assert (
        "no answer from b, gone; there is room for 2 ranks: the job starts without the others"
        in result.messages
    )


def test_a_script_is_asked_at_each_start(launcher, elastic_launcher):
    launcher.script("b", "")
    launcher.script("c", "")
    launcher.script("hosts", "#!/bin/sh\necho b:2\n[ -e more ] && echo c\nexit 0\n", 0o755)
    words = [
        "--no-tag-output",
        "--host-discovery-script",
        "hosts",
        "--slots-per-host",
        3,
        "--max-restarts",
        1,
    ]
    result = elastic_launcher(*words, "sh", "-c", 'echo "$WHERE"; [ -e more ] && exit; touch more; exit 5')
    assert (result.code, result.lines) == (0, ["b:2", "b:2,c:3"]), result.messages


def test_too_few_hosts_end_the_job(elastic_launcher):
    words = ["--min-np", 3, "--max-restarts", 3, "--elastic-timeout", 1, "-H", "b:2,c:2"]
    result = elastic_launcher(*words, "true")
    assert result.code == 124 and "again" not in result.messages, result.messages
    assert (
        "smddprun: no answer from b, c; there is room for 0 ranks after 1 s, and 3 are needed: mend the hosts"
        in result.messages
    ), result.messages
    assert "; see 'smddprun --check -H b,c'" in result.messages, result.messages


def test_hosts_that_can_never_be_enough_are_a_mistake(elastic_launcher):
    result = elastic_launcher("--min-np", 3, "--max-restarts", 3, "-H", "b:1,c:1", "true")
    assert result.code == 2 and "--min-np 3: the hosts have 2 slots" in result.messages, result.messages


def test_a_script_that_fails_at_the_first_start_is_a_mistake(launcher, elastic_launcher):
    launcher.script("hosts", "#!/bin/sh\nexit 1\n", 0o755)
    result = elastic_launcher("--host-discovery-script", "hosts", "--max-restarts", 3, "true")
    assert result.code == 2 and "'hosts' has failed: exit code 1" in result.messages, result.messages


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_an_answer(launcher, number):
    """And the program that MPI's launcher was to run on the host, or the harness would find it."""
    text = '[ "$1" = --version ] && exec echo "Open MPI"; echo > asked; exec sleep 60'
    launcher.script("mpirun", f"#!/bin/sh\n{text}\n", 0o755)
    path = os.pathsep.join([str(launcher.work), os.environ["PATH"]])
    words = ["--min-np", 1, "--max-restarts", 3, "-H", "b:2", "true"]
    running = launcher.start(*words, env={"PATH": path})
    launcher.wait_for_files("asked")
    running.signal(number)
    result = running.finish()
    assert result.code == 128 + number and "again" not in result.messages, result.messages


def test_this_host_always_answers(launcher):
    result = launcher.run("-np", 2, "--min-np", 1, "-H", "localhost:2", "sh", "-c", "echo $SMDDP_SIZE")
    assert (result.code, sorted(result.lines)) == (0, ["[0] 2", "[1] 2"]), result.messages
    assert any("without --max-restarts, the loss of a host ends the job" in note for note in result.notes)


@contextlib.contextmanager
def connected(watch, **changes):
    """The connection of a first rank, which would be held by the command."""
    environ = {
        **watch.environ([Host("localhost", 1)]),
        **dict.fromkeys(("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"), "0"),
        **dict.fromkeys(("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"), "1"),
        **changes,
    }
    made = lost_hosts.hold(environ)
    assert lost_hosts.VARIABLE not in environ
    try:
        yield made
    finally:
        if made is not None:
            os.close(made)


def count(watch):
    watch.turn(0.2)
    return len(watch._selector.get_map()) - 1


def test_the_first_rank_of_a_host_holds_a_connection():
    watch = lost_hosts.Watch({})
    watch.begin()
    with connected(watch) as made:
        assert made is not None and os.get_inheritable(made)
        assert count(watch) == 1
    assert count(watch) == 0  # the rank has ended, and no host is lost
    with connected(watch, OMPI_COMM_WORLD_LOCAL_RANK="1") as made:
        assert made is None


def test_a_stranger_and_an_earlier_start_are_no_hosts():
    watch = lost_hosts.Watch({})
    watch.begin()
    with connected(watch):
        assert count(watch) == 1
        variable = watch.environ([Host("localhost", 1)])
        watch.begin()
        assert count(watch) == 0
    with connected(watch, **variable):
        assert count(watch) == 0
    address = watch.environ([Host("localhost", 1)])[lost_hosts.VARIABLE].split()[:2]
    with socket.create_connection(address) as stranger:
        stranger.sendall(b"\xff" * 2000)
        assert count(watch) == 0


def test_a_launcher_that_is_not_reached_is_a_note(capsys):
    watch = lost_hosts.Watch({})
    watch.begin()
    with connected(watch, **{lost_hosts.VARIABLE: "127.0.0.1 1 token"}) as made:
        assert made is None
    assert "can't connect to smddprun at 127.0.0.1, port 1: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, limit", [("12", 12.0), ("0", 30.0), ("", 30.0), ("never", 30.0), ("nan", 30.0)]
)
def test_the_time_limit(text, limit):
    assert lost_hosts.Watch({"SMDDP_HOST_TIMEOUT": text}).limit == limit
