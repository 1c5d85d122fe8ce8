"""kazoo's Lock under command, for tests/zk_peers.rs and tests/zk_mixed.rs.

Arguments: the port that commands come from, the servers, the lock's path, the session timeout in ms. One command a line, one answer a line.
"""
import os
import socket
import sys
import time
import uuid

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout


def note(folder, line):
    with open(os.path.join(folder, "journal"), "a") as file:
        file.write(line + "\n")


def crowd(new_lock, worker, folder):
    """See tests/zk_mixed.rs, and the docs of Journal in zlock-testkit for the files."""
    while not os.path.exists(os.path.join(folder, "stop")):
        note(folder, f"ask {worker}")
        with new_lock():
            with open(os.path.join(folder, "count"), "r+") as file:
                number = int(file.read())
                note(folder, f"in {worker} {number}")
                time.sleep(0.001)
                file.seek(0)
                file.write(str(number + 1))
            note(folder, f"out {worker} {number + 1}")


def main(port, servers, path, session):
    client = KazooClient(hosts=servers, timeout=int(session) / 1000)
    client.start()

    def new_lock():
        # What zlock and Curator write; without it kazoo would not see them.
        return client.Lock(path, "kazoo", extra_lock_patterns=["lock-"])

    def new_lock_beside_curator():
        # Curator orders by what follows "lock-", and does not wait for kazoo's own names, which lack that.
        lock = new_lock()
        lock.prefix = f"_c_{uuid.uuid4()}-lock-"
        lock.create_path = f"{path}/{lock.prefix}"
        return lock

    lock = new_lock()
    with socket.create_connection(("127.0.0.1", int(port))) as connection, connection.makefile("rw") as lines:
        for line in lines:
            command = line.split(maxsplit=2)
            if command[0] == "acquire":
                lock = new_lock()
                try:
                    answer = "true" if lock.acquire(timeout=int(command[1]) / 1000) else "false"
                except LockTimeout:
                    answer = "false"
            elif command[0] == "release":
                lock.release()
                answer = "released"
            elif command[0] == "count":
                for _ in range(int(command[1])):
                    with new_lock():
                        with open(command[2].strip()) as file:
                            number = int(file.read())
                        with open(command[2].strip(), "w") as file:
                            file.write(str(number + 1))
                answer = "counted"
            elif command[0] == "crowd":
                name, _, folder = line.split()[1:]
                crowd(new_lock_beside_curator, f"{name}.0", folder)
                answer = "done"
            else:
                raise ValueError(line)
            lines.write(answer + "\n")
            lines.flush()
    client.stop()


main(*sys.argv[1:])
