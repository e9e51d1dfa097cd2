# SPDX-License-Identifier: MIT OR Apache-2.0
"""Access to gdb's inferiors: memory, symbols, types, threads."""
import re
import struct
from contextlib import contextmanager

import gdb

# Valid names of symbols; anything else would be parsed as an expression.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

# Limit for strings in the target.
LONGEST_TEXT = 4096


class Unreadable(Exception):
    """Memory of a process that cannot be read."""


@contextmanager
def selected(inferior):
    """Selects an inferior, and restores the user's selection afterwards."""
    before = gdb.selected_inferior()
    thread = gdb.selected_thread()
    frame = None
    if thread is not None and thread.is_valid() and thread.is_stopped():
        frame = gdb.selected_frame()
    try:
        switch(inferior)
        yield
    finally:
        switch(before)
        if thread is not None and thread.is_valid():
            thread.switch()
        if frame is not None and frame.is_valid():
            frame.select()


def switch(inferior):
    """Selects an inferior, through one of its threads, since that prints nothing."""
    if inferior.num == gdb.selected_inferior().num:
        return
    threads = inferior.threads()
    if threads:
        min(threads, key=lambda thread: thread.num).switch()
    else:
        gdb.execute(f"inferior {inferior.num}", to_string=True)


@contextmanager
def in_c():
    """Evaluates expressions in C, whatever language the user has set."""
    before = gdb.parameter("language")
    gdb.execute("set language c", to_string=True)
    try:
        yield
    finally:
        gdb.execute(f"set language {before}", to_string=True)


class Target:
    """A selected inferior."""

    def __init__(self, inferior):
        self.inferior = inferior

    def read(self, address, count):
        """Bytes of its memory."""
        try:
            return bytes(self.inferior.read_memory(address, count))
        except (gdb.error, OverflowError, ValueError) as error:
            raise Unreadable(f"{count} bytes at {address:#x}: {error}") from None

    def numbers(self, address, form):
        """Numbers of its memory, in a format of the module struct."""
        return struct.unpack("<" + form, self.read(address, struct.calcsize("<" + form)))

    def text(self, address, longest=LONGEST_TEXT):
        """The zero-terminated text at an address."""
        found = b""
        while len(found) < longest and b"\0" not in found:
            here = address + len(found)
            # Not across a page boundary: the next page may not be mapped.
            found += self.read(here, min(256 - here % 256, longest - len(found)))
        return found.split(b"\0")[0].decode("utf-8", "replace")

    def symbol(self, name):
        """The address of a variable or function; None if there is none."""
        if not NAME.match(name):
            return None
        with in_c():
            try:
                return int(gdb.parse_and_eval(f"(unsigned long) &{name}"))
            except gdb.error:
                return None

    def type(self, name):
        """A type of the program's debug information, by name or struct tag; None if there is none."""
        with in_c():
            for spelling in (name, f"struct {name}"):
                try:
                    return gdb.lookup_type(spelling)
                except gdb.error:
                    continue
        return None

    def is_running(self):
        """Whether any of its threads runs, so that its memory is not consistent."""
        return any(not thread.is_stopped() for thread in self.inferior.threads())


def processes():
    """The inferiors that have a process or a core file."""
    return [it for it in gdb.inferiors() if it.is_valid() and it.pid != 0]
