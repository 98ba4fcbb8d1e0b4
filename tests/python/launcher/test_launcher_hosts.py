"""The hosts of a job, and the words that start their ranks through MPI's launcher."""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smddprun import hosts, mpi, options
from smddprun.hosts import Host


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a:2,b:3", [Host("a", 2), Host("b", 3)]),
        ("a", [Host("a", 1)]),
        ("a,b,a", [Host("a", 2), Host("b", 1)]),
        (" a:1 , b:2", [Host("a", 1), Host("b", 2)]),
        ("10.0.0.1:8", [Host("10.0.0.1", 8)]),
        ("me@node-1.site_2:8", [Host("me@node-1.site_2", 8)]),
        ("[fe80::1]:8", [Host("[fe80::1]", 8)]),
    ],
)
def test_a_list(text, expected):
    assert hosts.parse_list("-H", text) == expected


@pytest.mark.parametrize("text", ["", "a,", ":2", "a:", "a:x", "a:0", "a:-1", "a:16385", "a:٢"])
def test_a_list_that_is_none(text):
    with pytest.raises(options.UsageError, match="-H "):
        hosts.parse_list("-H", text)


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a;b", "$(a)", "a b", "a@-o", "é", "a/b", "", "'a'"])
def test_a_name_that_is_no_host_does_not_reach_ssh(name):
    with pytest.raises(options.UsageError, match=r"-H .*(is no name of a host|give a host's name)"):
        hosts.parse_list("-H", f"{name}:2")


def test_a_line_of_another_file_is_shown_in_part():
    with pytest.raises(options.UsageError) as refused:
        hosts.parse_file("f", ["a: " + "secret" * 100])
    assert len(str(refused.value)) < 300


def test_a_file_without_an_end_is_not_read(launcher):
    result = launcher.run("--hostfile", "/dev/zero", "true")
    assert result.code == 2 and "has more than 1048576 characters" in result.messages


def test_a_key_whose_path_has_a_blank_is_refused():
    """MPI's launchers split it there, so that the rest would be options of ssh."""
    with pytest.raises(options.UsageError, match="no path with white space"):
        options.parse(["-H", "a", "--ssh-identity-file", "/x -oProxyCommand=y", "true"])


def test_a_host_that_nobody_knows_is_named(launcher, tmp_path):
    mpirun(tmp_path, "echo 'mpirun (Open MPI) 4.1.4'")
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    result = launcher.run("-H", "no-host.invalid:2", "true", env={"PATH": path})
    assert result.code == 0
    assert [note for note in result.notes if "no-host.invalid: no address is known here" in note], (
        result.notes
    )


def test_a_hostfile():
    lines = ["# our hosts", "a slots=2 max_slots=4", "", "b:3  # the new one", "c", "a slots=1"]
    assert hosts.parse_file("f", lines) == [Host("a", 3), Host("b", 3), Host("c", 1)]


@pytest.mark.parametrize("line", ["a slots=x", "a slots=", "slots=2 a slots=0"])
def test_a_hostfile_with_a_mistake(line):
    with pytest.raises(options.UsageError, match="--hostfile 'f', line 2"):
        hosts.parse_file("f", ["a", line])


def test_an_empty_hostfile():
    with pytest.raises(options.UsageError, match="'f' names no host"):
        hosts.parse_file("f", ["# nobody"])


def test_what_other_hosts_call_a_host():
    assert [hosts.address_of(Host(name, 1)) for name in ("a", "me@a.b", "[fe80::1]")] == [
        "a",
        "a.b",
        "fe80::1",
    ]
    assert hosts.address_of(Host("localhost", 1)) == socket.gethostname()


def test_the_first_hosts_are_filled_first():
    named = [Host("a", 2), Host("b", 2), Host("c", 2)]
    assert hosts.deal(named, None) == named
    assert hosts.deal(named, 3) == [Host("a", 2), Host("b", 1)]
    with pytest.raises(options.UsageError, match="-np 7: the hosts have 6 slots"):
        hosts.deal(named, 7)


def test_options():
    chosen = options.parse(["-np", "4", "-H", "a:2,b:2", "python", "train.py"])
    assert (chosen.num_ranks, chosen.hosts, chosen.hostfile) == (4, "a:2,b:2", None)
    assert options.parse(["--hosts=a", "x"]).hosts == "a"
    assert options.parse(["--hostfile", "f", "x"]).hostfile == "f"
    for wrong in (["-H", "", "x"], ["--hostfile", "", "x"], ["-H", "a", "--hostfile", "f", "x"], ["-H"]):
        with pytest.raises(options.UsageError, match=r"-H|--hostfile"):
            options.parse(wrong)


DEALT = [Host("a", 2), Host("b", 1)]
ENVIRON = {"PATH": "/bin", "TF_X": "1", "SSH_CLIENT": "me", "PWD": "/", "BASH_FUNC_f%%": "() {", "_": "x"}


def test_the_words_for_open_mpi():
    chosen = options.parse(["-H", "x", "--timeout", "9.4", "python"])
    words = mpi.launch_words("/usr/bin/mpirun", "Open MPI", DEALT, chosen, ENVIRON, ["python", "t.py"])
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    assert words == [
        *("/usr/bin/mpirun", "-np", "3", "-H", "a:2,b:1", "--bind-to", "none", "--map-by", "slot"),
        *root,
        *("--tag-output", "--timeout", "9", "-x", "PATH", "-x", "TF_X", "python", "t.py"),
    ]
    assert mpi.launch_environment("Open MPI", chosen, ENVIRON) == ENVIRON


def test_the_words_for_hydra():
    chosen = options.parse(["-H", "x", "--timeout", "9.4", "--no-tag-output", "python"])
    words = mpi.launch_words("/usr/bin/mpiexec", "Hydra", DEALT, chosen, ENVIRON, ["python", "t.py"])
    assert words == ["/usr/bin/mpiexec", "-np", "3", "-hosts", "a:2,b:1", "python", "t.py"]
    assert mpi.launch_environment("Hydra", chosen, ENVIRON)["MPIEXEC_TIMEOUT"] == "9"


@pytest.mark.parametrize("family", ["Open MPI", "Hydra"])
@pytest.mark.parametrize(
    "words, message",
    [
        (["--output-dir", "d"], "--output-dir 'd' is for ranks of this host"),
        (["--grace", "5"], "--grace 5 is for ranks of this host.*leave --grace out"),
        (["--grace", "0"], "--grace 0 is for ranks of this host"),
        (["--timeline", "t.json"], "--timeline 't.json' puts together files .* set SMDDP_TIMELINE"),
        (["-q"], "-q is for ranks of this host"),
        (["--summary"], "--summary puts together files of ranks of this host"),
    ],
)
def test_an_option_that_several_hosts_do_not_have(words, message, family):
    chosen = options.parse(["-H", "x", *words, "python"])
    with pytest.raises(options.UsageError, match=message):
        mpi.launch_words("/usr/bin/mpirun", family, DEALT, chosen, ENVIRON, ["python"])


def test_grace_for_several_hosts_is_a_mistake_on_the_command_line(launcher, tmp_path):
    mpirun(tmp_path, "echo 'mpirun (Open MPI) 4.1.4'")
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    result = launcher.run("-H", "a:1,b:1", "--grace", 5, "bash", "-c", ":", env={"PATH": path})
    assert (result.code, result.lines) == (2, []), result.messages
    assert result.messages.startswith("smddprun: --grace 5 is for ranks of this host"), result.messages


def test_grace_is_for_this_host_also_if_that_is_named(launcher):
    result = launcher.run("-H", "localhost:2", "--grace", 5, "bash", "-c", "echo $SMDDP_SIZE")
    assert (result.code, sorted(result.lines)) == (0, ["[0] 2", "[1] 2"]), result.messages


def mpirun(folder, text, name="mpirun"):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "shown, family",
    [
        ("mpirun (Open MPI) 4.1.4", "Open MPI"),
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to ...", "Open MPI"),
        ("HYDRA build details:\n    Version: 5.0.2", "Hydra"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.19", "Hydra"),
    ],
)
def test_the_family_of_the_launcher(tmp_path, shown, family):
    path = mpirun(tmp_path, f"printf '%s\\n' '{shown}'")
    assert mpi.find_launcher({"PATH": str(tmp_path)}) == (path, family)


def test_no_launcher(tmp_path):
    with pytest.raises(mpi.LauncherError, match="no mpirun or mpiexec in PATH"):
        mpi.find_launcher({"PATH": str(tmp_path)})
    mpirun(tmp_path, "echo something else", "mpiexec")
    with pytest.raises(mpi.LauncherError, match=r"of no MPI that smddprun knows \('something else'"):
        mpi.find_launcher({"PATH": str(tmp_path)})


names = st.from_regex(r"[a-z][a-z0-9.-]{0,10}", fullmatch=True)


@given(st.lists(st.tuples(names, st.integers(1, 16384)), min_size=1, max_size=8))
def test_what_is_written_is_read(wanted):
    totals = {}
    for name, slots in wanted:
        totals[name] = totals.get(name, 0) + slots
    merged = [hosts.Host(name, slots) for name, slots in totals.items()]
    assert hosts.parse_list("-H", ",".join(f"{name}:{slots}" for name, slots in wanted)) == merged
    assert hosts.parse_file("f", [f"{name} slots={slots}  # ours" for name, slots in wanted]) == merged
    assert hosts.parse_file("f", ["", *(f"  {name}:{slots}\n" for name, slots in wanted)]) == merged


@given(st.text(max_size=20))
def test_any_text_names_hosts_or_is_refused_in_one_line(text):
    for parse in (lambda: hosts.parse_list("-H", text), lambda: hosts.parse_file("f", text.split("\n"))):
        try:
            found = parse()
        except options.UsageError as error:
            assert "\n" not in str(error)
        else:
            assert found and all(host.name and host.slots >= 1 for host in found)


def test_a_number_that_is_given_twice():
    with pytest.raises(options.UsageError, match=r"line 2, 'b:3 slots=4': give the number of ranks once"):
        hosts.parse_file("f", ["a slots=2", "b:3 slots=4"])
