"""An SSH server for SageMaker's containers of a test: ssh_server.py -D runs in the place of /usr/sbin/sshd.

It lets every key in, and runs commands as its own user, in the session's environment of a Linux with PAM:
what /etc/environment has. It runs with the Python that has paramiko, which the toolkit brings.
"""

import os
import pathlib
import socket
import subprocess
import sys
import threading

import paramiko


def environment():
    """The variables of a new session."""
    lines = pathlib.Path("/etc/environment").read_text().splitlines()
    pairs = dict(line.split("=", 1) for line in lines if "=" in line)
    return {"HOME": os.environ["HOME"], "PATH": "/usr/bin:/bin", **pairs}


class Session(paramiko.ServerInterface):
    """The rights of one client."""

    def get_allowed_auths(self, username):
        return "publickey"

    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        threading.Thread(target=run, args=(channel, command.decode()), daemon=True).start()
        return True


def run(channel, command):
    """Runs a command of a client's, and sends what it writes."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    while output := os.read(process.stdout.fileno(), 1 << 14):
        channel.sendall(output)
    channel.send_exit_status(process.wait())
    channel.close()


def main():
    key = paramiko.Ed25519Key.from_private_key_file(os.path.expanduser("~/.ssh/id_ed25519"))
    server = socket.create_server(("", 22))
    while True:
        client, _ = server.accept()
        transport = paramiko.Transport(client)
        transport.add_server_key(key)
        try:
            transport.start_server(server=Session())
        except (paramiko.SSHException, EOFError) as error:
            print(f"ssh server: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
