# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is special in a gdb that `rmpiexec --gdb` has started: its ranks run already, and cannot be started again."""
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


def register():
    """Makes the command known."""
    Session()
