# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is special in a gdb that `rmpiexec --gdb` has started: its ranks run already, and cannot be started again."""
import subprocess

import gdb

# Commands that start a program, and so would kill a rank that is there.
STARTS = ("run", "start", "starti")

# The rank of each inferior, by its number.
RANKS = {}


class Session(gdb.Command):
    """Said by rmpiexec --gdb: the inferiors from 1 on are these ranks.

Usage: mpi session RANK..."""

    def __init__(self):
        super().__init__("mpi session", gdb.COMMAND_SUPPORT, gdb.COMPLETE_NONE)

    def invoke(self, argument, _from_tty):
        words = argument.split()
        if not words or not all(word.isdecimal() for word in words):
            raise gdb.GdbError(f"mpi session: ranks are expected, it was given `{argument.strip()}`")
        RANKS.update(enumerate(map(int, words), 1))
        NoStart()
        for command in STARTS:
            # A hook that fails keeps gdb from what it is called before; aliases (`r`) have it too.
            gdb.execute(f"define hook-{command}\nmpi no-start {command}\nend", to_string=True)


class NoStart(gdb.Command):
    """Called before run, start and starti: says what to type instead where the inferior is a rank of a job.

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
    """Said by rmpiexec --gdb: the inferior is this process of another host, where LINE, a line of shell, does what its last
word says, which is not there yet.

Usage: mpi reach HOST PROCESS LINE"""

    # What keeps each host from it; None: nothing.
    lacks = {}

    def __init__(self):
        super().__init__("mpi reach", gdb.COMMAND_SUPPORT, gdb.COMPLETE_NONE)

    def invoke(self, argument, _from_tty):
        words = argument.split(None, 2)
        if len(words) != 3 or not words[1].isdecimal():
            raise gdb.GdbError(f"mpi reach: HOST PROCESS LINE are expected, it was given `{argument.strip()}`")
        host, process, line = words
        rank = RANKS.get(gdb.selected_inferior().num)
        # A connection that fails spoils those that gdb has already, so it is asked before.
        if host not in self.lacks:
            self.lacks[host] = lack(line)
        if self.lacks[host]:
            raise gdb.GdbError(f"rank {rank} goes on without gdb: host {host}: {self.lacks[host]}")
        try:
            gdb.execute(f"target remote | {line} 'exec gdbserver --once --attach - {process}'")
        except gdb.error as error:
            raise gdb.GdbError(f"rank {rank} goes on without gdb: host {host}: {error}") from None


def lack(line):
    """Why a host has no gdbserver for us; None: it has one."""
    try:
        asked = subprocess.run(f"{line} 'command -v gdbserver'", shell=True, stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, errors="replace", timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "it does not answer"
    if asked.returncode == 0:
        return None
    said = asked.stderr.strip()
    return "there is no gdbserver, which gdb needs there; install it" + (f" ({said})" if said else "")


def register():
    """Makes the commands known."""
    Session()
    Reach()
