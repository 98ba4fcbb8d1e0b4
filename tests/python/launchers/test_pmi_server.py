"""Strangers can't end a job by our process manager for MPI: its protocol, by sockets."""

import hashlib
import resource
import runpy
import socket
import subprocess
import sys
import time

import pytest
from foreign_jobs import ROOT

SERVER = ROOT / "smddp" / "pmi_server.py"
PROGRAM = runpy.run_path(str(SERVER))  # imported, it would bring TensorFlow
Names = PROGRAM["Names"]
SIZE = 2
SECRET = "a secret"
SECONDS = 30
pytestmark = pytest.mark.one_tensorflow


class Server:
    """The program, whose parent is this process."""

    def __init__(self, before=None):
        # Another test may take a free port before the program does.
        answers = (self._start(before) for _ in range(5))
        assert (
            next((answer for answer in answers if answer != b"Address already in use\n"), "") == b"listens\n"
        )

    def _start(self, before):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", SERVER, "localhost", str(self.port), str(SIZE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=before,
        )
        self.process.stdin.write(SECRET.encode())
        self.process.stdin.close()
        self.process.stdin = None  # communicate() would close it again
        return self.process.stdout.readline()

    def connect(self, *lines):
        return Connection(socket.create_connection(("127.0.0.1", self.port), SECONDS), lines)

    def rank(self, rank):
        """A connection that has joined as this rank."""
        connection = self.connect(f"cmd=initack pmiid={rank ^ Names.of(SECRET, SIZE).mask}")
        assert connection.read() == "cmd=initack rc=0"
        assert [connection.read() for _ in range(3)][1] == f"cmd=set rank={rank}"
        return connection


class Connection:
    def __init__(self, connected, lines):
        self.socket = connected
        self._file = connected.makefile("rb")
        self.send(*lines)

    def send(self, *lines):
        self.socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def read(self, seconds=SECONDS):
        """A line; an empty text when the server has closed the connection."""
        self.socket.settimeout(seconds)
        try:
            return self._file.readline().decode().strip()
        except ConnectionResetError:
            return ""


@pytest.fixture
def server():
    made = Server()
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.mark.parametrize(
    "line",
    [
        "cmd=put kvsname=x key=a value=b",
        "cmd=get kvsname=x key=a",
        "cmd=barrier_in",
        "cmd=init",
        "cmd=initack pmiid=0",
        "cmd=initack pmiid=-1",
        "cmd=initack pmiid=999999999999999999999",
        "cmd=initack",
        pytest.param("x" * 100_000, id="long"),
    ],
)
def test_a_stranger_gets_no_answer(server, line):
    assert server.connect(line).read() == ""


def test_a_stranger_may_ask_which_job_it_is_but_nothing_after_it(server):
    stranger = server.connect("cmd=hello", "cmd=get kvsname=x key=a")
    assert stranger.read() == f"cmd=hello_result job={Names.of(SECRET, SIZE).job}"
    assert stranger.read() == ""
    assert SECRET not in " ".join(map(str, Names.of(SECRET, SIZE)))


def test_a_barrier_waits_for_all_ranks(server):
    first = server.rank(0)
    first.send("cmd=barrier_in", "cmd=barrier_in", "cmd=get_appnum")
    assert first.read() == "cmd=appnum rc=0 appnum=0"
    second = server.rank(1)
    second.send("cmd=barrier_in")
    assert second.read() == first.read() == "cmd=barrier_out rc=0"


def test_the_limits_that_are_announced(server):
    ranks = [server.rank(0), server.rank(1)]
    ranks[0].send("cmd=get_maxes", f"cmd=put key={'k' * 256} value={'v' * 1024}", f"cmd=get key={'k' * 256}")
    assert ranks[0].read() == "cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=1024"
    assert ranks[0].read() == "cmd=put_result rc=0 msg=success"
    assert ranks[0].read() == f"cmd=get_result rc=0 msg=success value={'v' * 1024}"
    ranks[0].send(f"cmd=put key=a value={'v' * 1025}")
    assert ranks[0].read() == ""
    for number in range(512):
        ranks[1].send(f"cmd=put key=b-{number} value=1")
        assert ranks[1].read() == "cmd=put_result rc=0 msg=success"
    ranks[1].send("cmd=put key=b-512 value=1")
    assert ranks[1].read() == ""


def test_a_key_belongs_to_the_rank_that_has_put_it(server):
    first, second = server.rank(0), server.rank(1)
    first.send("cmd=put key=a value=1", "cmd=put key=a value=2")
    assert first.read() == first.read() == "cmd=put_result rc=0 msg=success"
    second.send("cmd=put key=a value=3")
    assert second.read() == ""
    first.send("cmd=get key=a")
    assert first.read() == "cmd=get_result rc=0 msg=success value=2"


def test_strangers_end_when_all_ranks_have_joined(server):
    strangers = [server.connect() for _ in range(5)]
    ranks = [server.rank(0), server.rank(1)]
    assert [stranger.read(5) for stranger in strangers] == [""] * 5
    for rank in ranks:
        rank.send("cmd=get_appnum")
        assert rank.read() == "cmd=appnum rc=0 appnum=0"
    deadline = time.monotonic() + SECONDS
    with pytest.raises(ConnectionRefusedError):  # it no longer listens
        while time.monotonic() < deadline:
            server.connect()
            time.sleep(0.1)


def test_silent_connections_end(server):
    began = time.monotonic()
    assert server.connect().read() == ""
    assert 5 < time.monotonic() - began < SECONDS


def test_more_connections_than_there_may_be():
    most = 256 + SIZE + 50  # fewer descriptors than connections
    server = Server(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    strangers = [server.connect() for _ in range(most + 20)]
    ranks = [server.rank(0), server.rank(1)]
    assert strangers[0].read() == ""
    for rank in ranks:
        rank.send("cmd=barrier_in")
    assert [rank.read() for rank in ranks] == ["cmd=barrier_out rc=0"] * 2
    server.process.kill()
    assert server.process.communicate()[1] == b""


def test_a_rank_that_comes_twice_ends_the_job(server):
    first = server.rank(1)
    number = 1 ^ Names.of(SECRET, SIZE).mask
    second = server.connect(f"cmd=initack pmiid={number}")
    ports = [connection.socket.getsockname()[1] for connection in (first, second)]
    text = server.process.communicate(timeout=SECONDS)[1].decode()
    assert text.startswith(
        "[tf_smddp rank 0 error] rank 1 has come twice to MPI's process manager, from "
        f"127.0.0.1 port {ports[0]} and from 127.0.0.1 port {ports[1]}. Either two processes"
    )
    assert first.read() == second.read() == ""


def test_what_a_stranger_may_know_of_the_processes(server):
    """Arguments are there for each user to read."""
    with open(f"/proc/{server.process.pid}/cmdline") as arguments:
        assert SECRET not in arguments.read()


def test_names_differ_between_jobs():
    names = [Names.of(run_id, size) for run_id in ("a", "b") for size in (2, 3)]
    assert len({each.job for each in names}) == len({each.mask for each in names}) == 4
    assert all(0 <= each.mask < 2**31 for each in names)
    assert names[0].job == hashlib.sha256(b"a 2").hexdigest()[:32]


@pytest.mark.parametrize("host", ["localhost", "127.0.1.1", "::1", "192.0.2.1", "no-such-host.invalid"])
def test_all_addresses_where_the_name_does_not_tell(host):
    """A host may know itself by a loopback address, and rank 0's name may be that of a gateway."""
    assert PROGRAM["_addresses_of"](host) is None
