"""Starts an MCP server and ends it with all that it has started. Run by its path: it imports nothing of agentsite.

`python -I -S launcher.py PARENT PROGRAM …`: the server reads and writes the launcher's own pipes. Everything ends once
the server has ended, once the launcher is told to (SIGTERM), and once PARENT is gone, however it went.
"""

import ctypes
import os
import signal
import sys
import time

LOOK_S = 0.2
"""Seconds between two looks whether the worker or the server has ended."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main(parent: int, command: list[str]) -> int:
    """Return the exit code of the server."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    server = os.fork()
    if server == 0:
        become(command)
    for pipe in (0, 1, 2):  # whoever reads them hears when the server has closed its own
        os.dup2(os.open(os.devnull, os.O_RDWR), pipe)
    try:
        while os.getppid() == parent:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == server:
                return os.waitstatus_to_exitcode(status) & 0xFF
            time.sleep(LOOK_S)
        return 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_all(server)


def become(command: list[str]) -> None:
    """Turn this process into the server, in a session and a process group of its own."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.execvp(command[0], command)
    except OSError as fault:
        os.write(2, f"{command[0]}: {fault.strerror}\n".encode())
    os._exit(127)


def end_all(server: int) -> None:
    """Kill the server's group, then what has left the group: on Linux it has become a child of this process."""
    kill(os.killpg, server)
    while True:
        for pid in children():
            kill(os.kill, pid)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def kill(how, pid: int) -> None:  # type: ignore[no-untyped-def]
    """Kill a process or a group that may be gone."""
    try:
        how(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def children() -> list[int]:
    """Return the processes whose parent this one is, where /proc tells."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():  # noqa: PTH208, PTH112 (starts quickly)
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as told:  # noqa: PTH123
                    fields = told.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.append(int(name))
    return found


def prctl(option: int, value: int) -> None:
    """Ask Linux for an attribute of this process; other systems have none."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
