# SPDX-License-Identifier: MIT OR Apache-2.0
"""Commands for a gdb that `rmpiexec --gdb` has started: its ranks are running, and cannot be started again."""
import subprocess

import gdb

# Commands that start a program, and would kill an attached rank.
STARTS = ("run", "start", "starti")

# The rank of each inferior, by inferior number.
RANKS = {}


class Session(gdb.Command):
    """Used by rmpiexec --gdb: the inferiors from 1 on are these ranks.

Usage: mpi session RANK..."""

    def __init__(self):
        super().__init__("mpi session", gdb.COMMAND_SUPPORT, gdb.COMPLETE_NONE)

    def invoke(self, argument, _from_tty):
        arguments = argument.split()
        if not arguments or not all(rank.isdecimal() for rank in arguments):
            raise gdb.GdbError(f"mpi session: ranks are expected, it was given `{argument.strip()}`")
        RANKS.update(enumerate(map(int, arguments), 1))
        NoStart()
        for command in STARTS:
            # A failing hook prevents the command; hooks also apply to aliases (`r`).
            gdb.execute(f"define hook-{command}\nmpi no-start {command}\nend", to_string=True)


class NoStart(gdb.Command):
    """Hook of run, start and starti: fails with advice if the inferior is a rank of a job.

Usage: mpi no-start COMMAND"""

    def __init__(self):
        super().__init__("mpi no-start", gdb.COMMAND_SUPPORT, gdb.COMPLETE_NONE)

    def invoke(self, argument, _from_tty):
        inferior = gdb.selected_inferior()
        rank = RANKS.get(inferior.num)
        if rank is None:
            return
        if inferior.pid != 0:
            raise gdb.GdbError(f"rank {rank} was started by rmpiexec, so it cannot be started by `{argument.strip()}`; "
                               "to let it go on, type: continue")
        raise gdb.GdbError(f"rank {rank} is gone, and a rank cannot be started again in its job; "
                           "to begin anew, type: quit, and start rmpiexec --gdb again")


class Reach(gdb.Command):
    """Used by rmpiexec --gdb: connects the inferior to this process of another host. LINE is a shell command to which a last
argument is appended, a command to run on that host.

Usage: mpi reach HOST PROCESS LINE"""

    # By host: why it cannot be reached; None if it can.
    obstacles = {}

    def __init__(self):
        super().__init__("mpi reach", gdb.COMMAND_SUPPORT, gdb.COMPLETE_NONE)

    def invoke(self, argument, _from_tty):
        arguments = argument.split(None, 2)
        if len(arguments) != 3 or not arguments[1].isdecimal():
            raise gdb.GdbError(f"mpi reach: HOST PROCESS LINE are expected, it was given `{argument.strip()}`")
        host, process, line = arguments
        rank = RANKS.get(gdb.selected_inferior().num)
        # A failing connection breaks those that gdb already has, so the host is checked first.
        if host not in self.obstacles:
            self.obstacles[host] = find_obstacle(line)
        if self.obstacles[host]:
            raise gdb.GdbError(f"rank {rank} goes on without gdb: host {host}: {self.obstacles[host]}")
        try:
            gdb.execute(f"target remote | {line} 'exec gdbserver --once --attach - {process}'")
        except gdb.error as error:
            raise gdb.GdbError(f"rank {rank} goes on without gdb: host {host}: {error}") from None


def find_obstacle(line):
    """Why gdbserver cannot be used on a host; None if it can."""
    try:
        check = subprocess.run(f"{line} 'command -v gdbserver'", shell=True, stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, errors="replace", timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "it does not answer"
    if check.returncode == 0:
        return None
    stderr = check.stderr.strip()
    return "there is no gdbserver, which gdb needs there; install it" + (f" ({stderr})" if stderr else "")


def register():
    """Registers the commands."""
    Session()
    Reach()
