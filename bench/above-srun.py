#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What starts take above a bare srun: in an allocation of Slurm, each command in turn, and `srun true` with as many tasks.

    salloc -N 4 -n 64 bench/above-srun.py --rounds 7 rmpi="rmpiexec ./hello" mpich="mpiexec ./hello.mpich"

The first command has a bar: what it takes above the bare srun is at most half of what the best of the others takes above it.
Ends with 1 where it does not reach that, and with 2 where a command fails.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import time

BAR = 0.5


def named(text):
    name, equals, command = text.partition("=")
    if not (name and equals and command):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name, shlex.split(command)


def seconds(command, limit):
    began = time.monotonic()
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=limit, check=False)
    if ended.returncode != 0:
        sys.exit(complaint(f"{shlex.join(command)} ended with {ended.returncode}"))
    return time.monotonic() - began


def complaint(text):
    print(f"above-srun: {text}", file=sys.stderr)
    return 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=float, default=120, help="seconds that one start may take")
    parser.add_argument("commands", nargs="+", type=named, metavar="NAME=COMMAND")
    wish = parser.parse_args()
    tasks = os.environ.get("SLURM_NTASKS")
    if tasks is None:
        return complaint("SLURM_NTASKS is not set: call it in an allocation, as of `salloc -N 4 -n 64`")
    commands = [("bare srun", ["srun", "-n", tasks, "true"]), *wish.commands]
    times = {name: [] for name, _ in commands}
    for _ in range(wish.rounds):
        for name, command in commands:
            try:
                times[name].append(1000 * seconds(command, wish.limit))
            except subprocess.TimeoutExpired:
                return complaint(f"{shlex.join(command)} did not end within {wish.limit:g} s")
            except OSError as error:
                return complaint(f"{shlex.join(command)} cannot be started: {error}")
    medians = {name: statistics.median(all) for name, all in times.items()}
    bare = medians["bare srun"]
    print(f"{tasks} tasks, {wish.rounds} rounds in turn, ms")
    for name, all in times.items():
        print(f"{name:12} median {medians[name]:7.0f}   range {min(all):.0f} to {max(all):.0f}   above srun {medians[name] - bare:.0f}")
    ours, *others = (max(medians[name] - bare, 0) for name, _ in wish.commands)
    if not others:
        return 0
    is_held = ours <= BAR * min(others)
    print(f"bar: above srun at most {BAR:g} of the best other's: {'held' if is_held else 'not reached'}")
    return 0 if is_held else 1


sys.exit(main())
