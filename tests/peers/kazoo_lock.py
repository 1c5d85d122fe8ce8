"""kazoo's Lock under command, for tests/zk_peers.rs.

Arguments: the port that commands come from, the servers, the lock's path. One command a line, one answer a line.
"""
import socket
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout


def main(port, servers, path):
    client = KazooClient(hosts=servers, timeout=10.0)
    client.start()

    def new_lock():
        # What zlock and Curator write; without it kazoo would not see them.
        return client.Lock(path, "kazoo", extra_lock_patterns=["lock-"])

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
            else:
                raise ValueError(line)
            lines.write(answer + "\n")
            lines.flush()
    client.stop()


main(*sys.argv[1:])
