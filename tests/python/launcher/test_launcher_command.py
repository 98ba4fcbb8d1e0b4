"""The program that a command names, and the messages when there is none."""

import os
import signal
import sys

import pytest
from launcher_harness import proc, wait_until

import smddprun
from smddprun.command import CommandError, resolve

MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}


def test_resolve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "tool"
    tool.touch(0o755)
    path = {"PATH": f"/nonexistent:{tmp_path}/bin"}
    assert resolve(["tool", "a"], path) == [str(tool), "a"]
    assert resolve(["bin/tool"], {}) == ["bin/tool"]
    assert resolve(["train.py", "-x"], path) == [sys.executable, "train.py", "-x"]
    assert resolve(["./train.py"], path) == [sys.executable, "./train.py"]
    (tmp_path / "train.py").chmod(0o755)
    assert resolve(["./train.py"], path) == ["./train.py"]
    assert resolve(["train.py"], path) == [sys.executable, "train.py"]
    (tmp_path / "data").touch()
    for command, code in [
        ("nope", 127),
        ("./nope", 127),
        ("nope.py", 127),
        ("data", 127),
        ("./data", 126),
        ("./bin", 126),
    ]:
        with pytest.raises(CommandError) as error:
            resolve([command], path)
        assert (
            error.value.exit_code == code
            and repr(command) in str(error.value)
            and "\n" not in str(error.value)
        )


def test_a_script_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        CommandError, match=f"there is no script 'trian.py' in {tmp_path}, and no such command"
    ):
        resolve(["trian.py"], {"PATH": "/nonexistent"})


@pytest.mark.parametrize(
    "arguments,code,part",
    [
        (["-np", "0", "true"], 2, "'0'"),
        (["-np", "abc", "true"], 2, "'abc'"),
        (["-np", "2"], 2, "no command"),
        (["--frobnicate", "true"], 2, "'--frobnicate'"),
        (["-np", "2", "no-such-command"], 127, "'no-such-command'"),
        (["-np", "2", "./plain"], 126, "chmod +x"),
        (["-np", "2", "./odd"], 126, "#!"),
        (["-np", "2", "./lost"], 126, "#!"),
        (["--output-dir", "/dev/null/x", "true"], 2, "/dev/null/x"),
    ],
)
def test_mistakes_are_one_line(launcher, arguments, code, part):
    launcher.script("plain", "text")
    launcher.script("odd", "\0\1\2", 0o755)
    launcher.script("lost", "#!/no/such/interpreter\n", 0o755)
    result = launcher.run(*arguments)
    assert result.code == code
    assert part in result.messages and result.messages.count("\n") == 1 and result.stdout == b""


def test_help_and_version(launcher):
    result = launcher.run("--help")
    assert (
        result.code == 0
        and "usage: smddprun" in result.stdout.decode()
        and "examples:" in result.stdout.decode()
    )
    assert launcher.run("--version").stdout.decode() == f"smddprun {smddprun.__version__}\n"


def test_python_files_run_with_this_python(launcher):
    launcher.script("train.py", "import sys; print(sys.executable, sys.argv)")
    result = launcher.run("-np", 1, "train.py", "--verbose", "-np")
    assert result.lines == [f"{sys.executable} ['train.py', '--verbose', '-np']"]


def test_one_rank_by_default_and_its_exit_code(launcher):
    result = launcher.run("bash", "-c", "echo $SMDDP_SIZE; exit 9")
    assert result.lines == ["1"] and result.code == 9


def test_under_mpi_the_launcher_becomes_the_command(launcher):
    script = "echo $$ $SMDDP_RANK- $SMDDP_JOB_ID- $OMP_NUM_THREADS-; cat /proc/$PPID/comm; exit 5"
    running = launcher.start("-v", "bash", "-c", script, env=MPI)
    result = running.finish()
    assert result.code == 5 and result.stderr == b""
    assert result.lines[0] == f"{running.pid} - - -"


def test_under_mpi_the_command_gets_signals_descriptors_and_default_signal_handling(launcher):
    read_end, write_end = os.pipe()
    script = f"grep SigIgn /proc/self/status; echo through >&{write_end}; echo $$ > pid; exec sleep 60"
    running = launcher.start("bash", "-c", script, env=MPI, pass_fds=[write_end])
    os.close(write_end)
    launcher.wait_for_files("pid")
    assert os.read(read_end, 100) == b"through\n"
    os.close(read_end)
    wait_until(lambda: proc(running.pid, "comm") == b"sleep\n", "exec")
    running.signal(15)
    result = running.finish()
    assert result.code == -15
    ignored = int(result.lines[0].split()[1], 16)
    assert not any(ignored >> (number - 1) & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))


def test_with_np_the_launcher_launches_even_under_mpi(launcher):
    result = launcher.run("-np", 2, "bash", "-c", "echo $SMDDP_RANK", env=MPI)
    assert sorted(result.lines) == ["[0] 0", "[1] 1"]


def test_a_number_of_hosts_is_ignored_under_mpi_and_refused_elsewhere(launcher):
    command = ("-n", 16, "-x", "A=x", "bash", "-c", "echo $$ $SMDDP_RANK- $A")
    running = launcher.start(*command, env=MPI)
    result = running.finish()
    assert (result.code, result.lines, result.stderr) == (0, [f"{running.pid} - x"], b"")
    for more in ([], ["-np", 2], ["-H", "localhost:2"], ["-H", "a:1,b:1"]):
        for environ in (MPI if more else {}, {}):
            result = launcher.run(*more, *command, env=environ)
            assert (result.code, result.stdout) == (2, b""), result.messages
            assert result.messages.startswith("smddprun: -n 16: it counted hosts"), result.messages


def test_in_a_rank_the_launcher_is_transparent_too(launcher):
    result = launcher.run(
        "-np", 2, sys.executable, "-m", "smddprun", "bash", "-c", "echo $SMDDP_RANK of $SMDDP_SIZE"
    )
    assert sorted(result.lines) == ["[0] 0 of 2", "[1] 1 of 2"]


def test_mistakes_under_mpi(launcher):
    assert launcher.run("no-such-command", env=MPI).code == 127
    launcher.script("odd", "\0\1\2", 0o755)
    result = launcher.run("./odd", env=MPI)
    assert result.code == 126 and result.messages.count("\n") == 1
