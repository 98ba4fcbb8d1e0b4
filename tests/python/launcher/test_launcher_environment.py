"""The environment of the ranks, and the recognition of an outer launcher."""

import os
import socket

import pytest

from smddprun import environment, rendezvous
from smddprun.environment import Place


@pytest.mark.parametrize("size", range(1, 18))
def test_places(size):
    places = environment.places_on_this_host(size)
    assert [place.rank for place in places] == list(range(size))
    assert all(place == Place(i, size, i, size) for i, place in enumerate(places))


def test_rank_environment():
    result = environment.rank_environment({"A": "1"}, Place(5, 8, 1, 4), "/tmp/d", "id")
    assert result == {
        "A": "1",
        "SMDDP_RANK": "5",
        "SMDDP_SIZE": "8",
        "SMDDP_LOCAL_RANK": "1",
        "SMDDP_LOCAL_SIZE": "4",
        "OMPI_COMM_WORLD_RANK": "5",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "SMDDP_RENDEZVOUS": "/tmp/d",
        "SMDDP_JOB_ID": "id",
    }


@pytest.mark.parametrize("threads,inter", [(1, "2"), (2, "2"), (3, "3"), (16, "16")])
def test_threads(threads, inter):
    result = environment.job_environment({}, threads, False)
    assert result["OMP_NUM_THREADS"] == result["TF_NUM_INTRAOP_THREADS"] == str(threads)
    assert result["TF_NUM_INTEROP_THREADS"] == inter
    assert result["PYTHONUNBUFFERED"] == "1"


def test_what_the_user_set_is_kept():
    own = {"OMP_NUM_THREADS": "7", "TF_NUM_INTEROP_THREADS": "9", "PYTHONUNBUFFERED": ""}
    result = environment.job_environment(own, 2, False)
    assert {name: result[name] for name in own} == own
    assert result["TF_NUM_INTRAOP_THREADS"] == "2"


def test_threads_per_rank_counts_more_than_the_environment():
    assert environment.job_environment({"OMP_NUM_THREADS": "7"}, 3, True)["OMP_NUM_THREADS"] == "3"


def test_exports():
    environ = {"A": "1", "B": "2"}
    assert environment.with_exports(environ, [("A", "x"), ("B", None), ("C", ""), ("D", None)]) == {
        "A": "x",
        "B": "2",
        "C": "",
    }
    assert environ == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    "environ,found",
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, "OMPI_COMM_WORLD_RANK"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "PMI_RANK"),
        ({"PMI_SIZE": "2"}, None),
        ({"PMI_RANK": "0"}, None),
        ({"PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm.1"}, "PMIX_RANK"),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, "MV2_COMM_WORLD_RANK"),
        ({"SMDDP_RANK": "1", "SMDDP_SIZE": "2"}, "SMDDP_RANK"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}, "SLURM_PROCID"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, None),
    ],
)
def test_outer_launcher(environ, found):
    assert environment.outer_launcher(environ) == found


OPEN_MPI = {f"OMPI_COMM_WORLD_{name}": "1" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")}


SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_PROCID": "5",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu[03-04,07],big",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
TWO_HOSTS = dict(zip(OPEN_MPI, ["5", "8", "1", "4"]))
ONE_HOST = dict(zip(OPEN_MPI, ["1", "2", "1", "2"]))


@pytest.mark.parametrize(
    "environ,numbers,address",
    [
        ({}, None, None),
        (TWO_HOSTS, ["5", "8", "1", "4"], None),
        ({**TWO_HOSTS, "MASTER_ADDR": "h"}, ["5", "8", "1", "4"], "h"),
        (ONE_HOST, ["1", "2", "1", "2"], "127.0.0.1"),
        (HYDRA, ["1", "2", "1", "2"], "127.0.0.1"),
        ({"PMI_RANK": "5", "PMI_SIZE": "8"}, None, None),
        ({"PMIX_RANK": "0", "PMIX_NAMESPACE": "1"}, None, None),
        (SLURM, ["5", "7", "1", "2"], "gpu03"),
        ({**SLURM, "SLURM_STEP_NODELIST": "a,b[1-2]"}, ["5", "7", "1", "2"], "a"),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "1"}, None, None),
        ({**SLURM, "SLURM_LOCALID": ""}, None, None),
    ],
)
def test_what_torchs_env_reads(environ, numbers, address):
    found = environment.with_torch_variables({"A": "1", **environ}, 4)
    port = found.pop("MASTER_PORT", None)
    assert found.pop("MASTER_ADDR", None) == address
    torchs = dict(zip(["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"], numbers or []))
    environ = {name: value for name, value in environ.items() if name != "MASTER_ADDR"}
    assert found == {"A": "1", **environ, **torchs}
    assert port is None if numbers is None else 20000 <= int(port) < 30000


def test_each_run_has_a_port():
    def port(run, parent):
        return environment.with_torch_variables({**ONE_HOST, "PMIX_NAMESPACE": run}, parent)["MASTER_PORT"]

    assert port("a", 4) == port("a", 5) != port("b", 4)
    assert port("", 4) == port("", 4) != port("", 5)


def test_torchs_own_variables_stay():
    own = {**ONE_HOST, "RANK": "7", "MASTER_ADDR": "h"}
    assert environment.with_torch_variables(own, 4) == own
    assert environment.with_torch_variables({**ONE_HOST, "MASTER_PORT": "8"}, 4)["MASTER_PORT"] == "8"


@pytest.mark.parametrize(
    "environ,store",
    [
        ({}, ("h", "9")),
        ({"MASTER_ADDR": "a"}, ("a", "9")),
        ({"MASTER_PORT": "8"}, ("h", "8")),
        ({"MASTER_ADDR": "", "MASTER_PORT": "8"}, ("h", "8")),
        # Those of the job in which the launcher is a rank.
        ({"MASTER_ADDR": "a", "MASTER_PORT": "8", **OPEN_MPI}, ("h", "9")),
        (
            {"MASTER_PORT": "8", "TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_USE_AGENT_STORE": "True"},
            ("h", "9"),
        ),
    ],
)
def test_where_torchs_ranks_meet(environ, store):
    result = environment.with_torch_store(environ, "h", 9)
    assert (result["MASTER_ADDR"], result["MASTER_PORT"]) == store
    assert "TORCHELASTIC_USE_AGENT_STORE" not in result


def test_job_ids_of_nested_jobs():
    outer = environment.new_job_id({}, "aa")
    inner = environment.new_job_id({"SMDDP_JOB_ID": outer}, "bb")
    assert environment.belongs_to_job({"SMDDP_JOB_ID": inner}, outer)
    assert environment.belongs_to_job({"SMDDP_JOB_ID": inner}, inner)
    assert not environment.belongs_to_job({"SMDDP_JOB_ID": outer}, inner)
    assert not environment.belongs_to_job({"SMDDP_JOB_ID": "aab"}, "aa")
    assert not environment.belongs_to_job({}, "aa")


@pytest.mark.parametrize(
    "environ,parent",
    [
        ({}, "/tmp"),
        ({"TMPDIR": "/a"}, "/a"),
        ({"TMPDIR": "/a", "SMDDP_TMPDIR": "/b/"}, "/b"),
        ({"TMPDIR": "", "SMDDP_TMPDIR": ""}, "/tmp"),
    ],
)
def test_rendezvous_path(environ, parent):
    assert rendezvous.choose(environ, "token") == f"{parent}/smddp-token"


def test_rendezvous_path_has_room_for_a_socket():
    longest = next(n for n in range(200) if _refused("/" + "d" * n)) - 1
    directory = rendezvous.choose({"TMPDIR": "/" + "d" * longest}, "t" * 16)
    assert len(rendezvous.meeting(directory)) + len("/") + 16 == 107
    with pytest.raises(rendezvous.RendezvousError, match=r"TMPDIR=.*too long.*set SMDDP_TMPDIR"):
        rendezvous.choose({"TMPDIR": "/" + "é" * 90}, "t" * 16)


def _refused(parent):
    try:
        rendezvous.choose({"TMPDIR": parent}, "t" * 16)
    except rendezvous.RendezvousError:
        return True
    return False


def test_rendezvous_directory(tmp_path):
    path = tmp_path / "d"
    rendezvous.create(str(path))
    assert path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(rendezvous.RendezvousError, match="SMDDP_TMPDIR"):
        rendezvous.create(str(path))
    (path / "socket").touch()
    rendezvous.remove(str(path))
    assert not path.exists()
    rendezvous.remove(str(path))


def test_a_reserved_port_is_for_who_asks_for_it():
    with rendezvous.reserve_port() as port, socket.socket() as store, socket.socket() as other:
        number = port.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.1", number))
        other.bind(("", 0))
        assert other.getsockname()[1] != number
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        store.bind(("", number))
        store.listen()


def test_each_job_and_each_start_has_a_port_of_its_own(launcher):
    script = 'echo "$MASTER_ADDR $MASTER_PORT"; exit 1'
    jobs = [launcher.start("--max-restarts", 1, "-np", 1, "bash", "-c", script) for _ in range(2)]
    lines = [line for job in jobs for line in job.finish().lines]
    assert len(lines) == 4 and len(set(lines)) >= 3, lines  # a later start may get an earlier one's
    assert all(line.startswith("127.0.0.1 ") for line in lines), lines
    assert launcher.run("-np", 1, "-x", "MASTER_PORT=7", "bash", "-c", script).lines == ["127.0.0.1 7"]


def test_ranks_see_the_contract(launcher):
    names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "RENDEZVOUS", "JOB_ID"]
    show = " ".join(f"${{SMDDP_{name}}}" for name in names)
    result = launcher.run(
        "-np",
        3,
        "bash",
        "-c",
        f'test -d "$SMDDP_RENDEZVOUS" && stat -c %a "$SMDDP_RENDEZVOUS" && echo "{show}"',
    )
    assert result.code == 0
    rows = sorted(
        line.split() for line in result.lines if line.endswith(result.lines[-1].split()[-1]) and "/" in line
    )
    assert [row[1:5] for row in rows] == [[str(r), "3", str(r), "3"] for r in range(3)]
    assert len({row[5] for row in rows}) == 1 and len({row[6] for row in rows}) == 1
    assert rows[0][5].startswith(f"{launcher.rendezvous_parent}/smddp-")
    assert sorted(line for line in result.lines if "/" not in line) == ["[0] 700", "[1] 700", "[2] 700"]


def test_thread_variables_and_exports_reach_the_ranks(launcher):
    show = "echo $OMP_NUM_THREADS $TF_NUM_INTRAOP_THREADS $TF_NUM_INTEROP_THREADS $PYTHONUNBUFFERED $A $B"
    options = ["-np", 1, "--threads-per-rank", 3, "-x", "A=x y", "-x", "B", "-x", "OMP_NUM_THREADS=9"]
    result = launcher.run(*options, "bash", "-c", show, env={"B": "b"})
    assert result.lines == ["9 3 3 1 x y b"]


def test_too_long_a_directory_is_a_clear_error(launcher):
    long = launcher.work / ("d" * 90)
    long.mkdir()
    result = launcher.run("-np", 2, "true", env={"SMDDP_TMPDIR": str(long)})
    assert result.code == 1 and result.stdout == b""
    assert result.messages.count("\n") == 1
    assert "SMDDP_TMPDIR" in result.messages and "107" in result.messages
    missing = launcher.run("-np", 2, "true", env={"SMDDP_TMPDIR": "/nonexistent"})
    assert missing.code == 1 and "/nonexistent" in missing.messages and missing.messages.count("\n") == 1


def test_the_name_of_the_directory_does_not_tell_the_jobs_id(launcher):
    """Any user sees the name; with the id, anybody's process could pass for one of the job's."""
    result = launcher.run("-np", 1, "bash", "-c", 'echo "$SMDDP_RENDEZVOUS"; echo "$SMDDP_JOB_ID"')
    directory, job_id = result.lines
    assert job_id and job_id not in directory


def test_the_name_of_the_directory_is_kept_until_the_end(launcher):
    """The engine removes the inner one. If the name were free then, another user could take it."""
    script = 'rmdir "$SMDDP_RENDEZVOUS"; stat -c "%a %u" "$(dirname "$SMDDP_RENDEZVOUS")"'
    assert launcher.run("-np", 1, "bash", "-c", script).lines == [f"700 {os.getuid()}"]
