"""Jobs with parameter servers, without TensorFlow: roles, their environment, and how the tasks end together.

tests/python/test_parameter_servers.py has TensorFlow's servers and real programs.
"""

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess

import pytest
from launcher_harness import alive, wait_until

from smddprun import gpus, rendezvous, roles
from smddprun.check import programs
from smddprun.options import UsageError, parse
from smddprun.roles import Task, task_environment

# In the place of TensorFlow: a server that says where it is, and stays.
TENSORFLOW = """
import os, time
from types import SimpleNamespace as Names

class Server:
    def __init__(self, cluster, role, number, config):
        print("serves", flush=True)
        with open(f"{role}-{number}", "w") as file:
            file.write(f"{os.getpid()}\\n")

    def join(self):
        time.sleep(1000)

distribute = Names(Server=Server)
compat = Names(v1=Names(ConfigProto=lambda **_: None))
"""
TASK = """task=$(python3 -c 'import json, os
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(task["type"], task["index"])')
"""
NUMBERS = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")


def connected(address):
    """Returns a connection, or None if nobody listens."""
    try:
        return socket.create_connection(address, timeout=5)
    except ConnectionRefusedError:
        return None


@pytest.fixture
def servers(launcher):
    """Returns what starts a job with parameter servers; those are the stand-in's."""
    package = launcher.work / "stand-in" / "tensorflow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TENSORFLOW)
    path = os.pathsep.join([str(package.parent), launcher.environ()["PYTHONPATH"]])

    def start(*arguments, **changes):
        return launcher.start("--ps", *arguments, env={"PYTHONPATH": path, **changes})

    return start


@pytest.mark.parametrize("hosts", range(1, 6))
@pytest.mark.parametrize("count", range(1, 8))
def test_each_role_has_its_tasks(hosts, count):
    slots = [1 + index % 3 for index in range(hosts)]
    dealt = roles.deal(slots, count, False)
    together = [role for host in dealt for role in host]
    assert together[0] == "chief" and together.count("chief") == 1
    assert together.count("worker") == sum(slots) and together.count("ps") == count
    servers = [host.count("ps") for host in dealt]
    assert max(servers) - min(servers) <= 1
    between = roles.deal(slots, count, True)
    together = [role for host in between for role in host]
    assert together[0] == "master" and together.count("master") == 1
    assert together.count("worker") == sum(slots) - 1 and together.count("ps") == count
    assert [len(host) for host in between] == [
        slot + number for slot, number in zip(slots, servers, strict=True)
    ]


TEXT = "chief=a:1,worker=a:2,worker=a:3,ps=a:4,worker=[::1]:5,ps=[::1]:6"


def test_names():
    tasks = roles.parse(TEXT)
    assert tasks[4] == Task("worker", 2, "[::1]:5")
    assert [task.name for task in tasks] == ["chief", "worker 0", "worker 1", "ps 0", "worker 2", "ps 1"]


def test_tf_config():
    rank = {
        "SMDDP_RANK": "5",
        "SMDDP_SIZE": "6",
        "SMDDP_RENDEZVOUS": "/d",
        "SMDDP_LAUNCHER": "/f",
        "OMPI_COMM_WORLD_RANK": "5",
        "PMI_RANK": "5",
        "RANK": "5",
        "SLURM_PROCID": "5",
    }
    kept = {"SMDDP_JOB_ID": "id", "A": "1", "CUDA_VISIBLE_DEVICES": ""}
    found = task_environment({**rank, **kept}, roles.parse(TEXT), 5)
    assert json.loads(found.pop("TF_CONFIG")) == {
        "cluster": {"chief": ["a:1"], "worker": ["a:2", "a:3", "[::1]:5"], "ps": ["a:4", "[::1]:6"]},
        "task": {"type": "ps", "index": 1},
    }
    assert found == {**kept, "GRPC_FAIL_FAST": "use_caller"}
    between = task_environment(kept, roles.parse("master=a:1,ps=a:2"), 0)
    assert json.loads(between["TF_CONFIG"])["environment"] == "cloud"


def test_workers_take_turns_with_the_gpus_of_their_host(monkeypatch):
    monkeypatch.setattr(gpus, "count", lambda environ: 2)
    tasks = roles.parse("chief=a:1,worker=a:2,worker=a:3,worker=a:4,ps=a:5,worker=b:6,ps=b:7")
    shown = [task_environment({}, tasks, rank)["CUDA_VISIBLE_DEVICES"] for rank in range(len(tasks))]
    assert shown == ["-1", "0", "1", "0", "-1", "0", "-1"]
    chosen = {"CUDA_VISIBLE_DEVICES": "3,GPU-7"}
    assert task_environment(chosen, tasks, 2)["CUDA_VISIBLE_DEVICES"] == "GPU-7"


def test_the_first_task_waits_for_its_own_job(monkeypatch):
    tasks = roles.parse("chief=127.0.0.1:1,worker=127.0.0.1:2,ps=127.0.0.1:3")
    with rendezvous.reserve_port() as port:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port.getsockname()[1]))
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            waiting = threads.submit(roles._wait_for_others, tasks)
            strangers = ["GET / HTTP/1.1", "ps 0 at 127.0.0.1:4"]
            greetings = [*strangers, *(task.greeting for task in tasks[1:])]
            sent = [threads.submit(roles._connect, greeting).result(10) for greeting in greetings]
            found = waiting.result(10)
    assert {each.getpeername() for each in found} == {each.getsockname() for each in sent[2:]}
    for each in [*found, *sent]:
        each.close()


def test_a_task_that_does_not_come(monkeypatch):
    monkeypatch.setattr(roles, "_START_SECONDS", 0.1)
    with rendezvous.reserve_port() as port:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port.getsockname()[1]))
        with pytest.raises(OSError, match=r"ps 0 at a:2 did not start within 0\.1 s"):
            roles._wait_for_others(roles.parse("chief=a:1,ps=a:2"))
        with pytest.raises(OSError, match=r"the first task, 127.0.0.1:.* can't be reached: .*refused"):
            roles._connect("ps 0 at a:2")


@pytest.mark.parametrize(
    "words, text",
    [
        (["--between-graph", "true"], "add '--ps 1'"),
        (["--ps", "0", "true"], "--ps '0': give a whole number"),
        (["--ps", "1", "--summary", "true"], "leave out --summary"),
        (["--ps", "1", "--timeline", "f", "true"], "leave out --timeline"),
        (["--ps", "1", "--strategy", "train.py"], "leave out --strategy"),
        (["--ps", "1", "--check"], "leave out --ps"),
    ],
)
def test_mistakes(words, text):
    with pytest.raises(UsageError, match=text):
        parse(words)


def test_a_rank_starts_no_servers(launcher):
    result = launcher.run("--ps", 1, "true", env={"PMI_RANK": "0", "PMI_SIZE": "2"})
    assert result.code == 2 and "PMI_RANK" in result.messages and "give -np" in result.messages


def test_the_chief_alone_runs_the_script(servers):
    result = servers(
        1, "-np", 2, "bash", "-c", TASK + "echo runs $task $SMDDP_RANK; read line; echo $line"
    ).finish()
    assert result.code == 0 and result.stderr == b"", result.messages
    lines = set(result.lines)
    assert "[chief] runs chief 0" in lines and "[chief] " in lines
    # The script may have ended before a server has begun.
    assert lines <= {
        "[chief] runs chief 0",
        "[chief] ",
        "[worker 0] serves",
        "[worker 1] serves",
        "[ps 0] serves",
    }


def test_workers_run_the_script_between_graphs(servers, launcher):
    script = TASK + "echo runs $task; until [ -s ps-0 ] && [ -s ps-1 ]; do sleep 0.02; done"
    result = servers(2, "-np", 2, "--between-graph", "--output-dir", "logs", "bash", "-c", script).finish()
    assert result.code == 0 and result.stderr == b"", result.messages
    assert sorted(result.lines) == [
        "[master] runs master 0",
        "[ps 0] serves",
        "[ps 1] serves",
        "[worker 0] runs worker 0",
    ]
    logs = launcher.work / "logs"
    assert (logs / "worker-0.stdout").read_text() == "runs worker 0\n"
    assert (logs / "ps-1.stdout").read_text() == "serves\n"


WAIT = "until [ -s worker-0 ] && [ -s ps-0 ]; do sleep 0.02; done; touch ready; sleep 100"


@pytest.mark.parametrize("victim", ["worker 0", "ps 0"])
def test_a_server_that_dies_ends_the_job(servers, launcher, victim):
    job = servers(1, "-np", 1, "--grace", 0, "bash", "-c", WAIT)
    wait_until((launcher.work / "ready").exists, "the servers run")
    os.kill(int((launcher.work / victim.replace(" ", "-")).read_text()), signal.SIGKILL)
    result = job.finish()
    assert result.code == 137
    assert f"{victim} failed first: pid" in result.messages and "killed by SIGKILL" in result.messages
    assert "chief (pid" in result.messages and "was ended by smddprun with SIGTERM" in result.messages


def test_the_exit_code_is_the_chiefs(servers):
    result = servers(1, "-np", 2, "bash", "-c", "exit 3").finish()
    assert result.code == 3 and "chief failed first" in result.messages
    assert "worker" not in result.messages and "ps 0" not in result.messages, result.messages


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_servers_stay_while_the_chief_saves(servers, launcher, number):
    script = "trap 'sleep 1; kill -0 $(cat ps-0) && echo saved; exit 0' TERM INT; " + WAIT.replace(
        "sleep 100", "while true; do sleep 0.05; done"
    )
    job = servers(1, "-np", 1, "bash", "-c", script)
    wait_until((launcher.work / "ready").exists, "the servers run")
    job.signal(number)
    result = job.finish()
    assert result.code == 0 and "[chief] saved" in result.lines, (result.lines, result.messages)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_all_tasks_have_come_ends_the_first(launcher, number):
    with rendezvous.reserve_port() as port:
        meeting = ("127.0.0.1", port.getsockname()[1])
        changes = {f"SMDDP_{name}": value for name, value in zip(NUMBERS, "0202", strict=True)}
        changes |= {"MASTER_ADDR": meeting[0], "MASTER_PORT": str(meeting[1])}
        words = [*programs.words_of("smddprun.roles"), "chief=127.0.0.1:1,ps=127.0.0.1:2", "true"]
        task = subprocess.Popen(words, env=launcher.environ(**changes))
        with contextlib.closing(wait_until(lambda: connected(meeting), "the first task listens")):
            task.send_signal(number)
            assert task.wait(10) == -number


def test_nothing_stays_when_the_launcher_is_killed(servers, launcher):
    job = servers(1, "-np", 1, "bash", "-c", WAIT)
    wait_until((launcher.work / "ready").exists, "the servers run")
    pids = [int((launcher.work / name).read_text()) for name in ("worker-0", "ps-0")]
    job.signal(signal.SIGKILL)
    job.finish()
    wait_until(lambda: not any(map(alive, pids)), "the servers end")


@pytest.mark.long  # it waits for 20 s
def test_a_worker_whose_master_has_ended_is_ended(servers):
    script = TASK + '[ "$task" = "master 0" ] || exec sleep 100'
    result = servers(1, "-np", 2, "--between-graph", "bash", "-c", script).finish(60)
    assert result.code == 0 and result.stderr == b"", result.messages


def test_a_command_that_cannot_be_executed(servers, launcher):
    launcher.script("broken", "not a program\n", 0o755)
    result = servers(1, "-np", 1, "./broken").finish()
    assert result.code == 126 and "does a script begin with" in result.messages
