# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pretty-printers for MPI's types: handles of the standard ABI of MPI 5.0, and MPI_Status.

A predefined handle is a small number with a name in mpi.h, in every MPI of this ABI. The objects of other handles are read
from the library's anchor. `print /r` shows the bare number.
"""
import re

import gdb
import gdb.printing

from . import anchor
from .target import Target, Unreadable

HANDLES = ("Comm", "Datatype", "Errhandler", "File", "Group", "Info", "Message", "Op", "Request", "Session", "Win")

# The kind of a handle is in its bits from here on, the index below (runtime/abi/src/handle.rs).
KIND_SHIFT = 27
# The low bits of a request's handle are the token of its slot; the lowest bits of the token are its generation.
TOKEN_SHIFT = 8
KINDS = {1: "Comm", 2: "Group", 3: "Datatype", 4: "Request", 5: "Op", 6: "Errhandler", 7: "Info", 8: "Message", 9: "Win",
         10: "File", 11: "Session"}
NOUNS = {"Comm": "communicator", "Group": "group", "Datatype": "datatype", "Request": "request", "Op": "operation",
         "Errhandler": "error handler", "Info": "info object", "Message": "message", "Win": "window", "File": "file",
         "Session": "session"}

# C types of predefined datatypes whose handle does not encode their size.
C_TYPES = {"AINT": "long", "COUNT": "long", "OFFSET": "long", "SHORT": "short", "INT": "int", "LONG": "long",
           "LONG_LONG": "long long", "UNSIGNED_SHORT": "short", "UNSIGNED": "int", "UNSIGNED_LONG": "long",
           "UNSIGNED_LONG_LONG": "long long", "FLOAT": "float", "DOUBLE": "double", "LONG_DOUBLE": "long double",
           "WCHAR": "int", "CXX_BOOL": "char"}

KIND_OF_SLOT = {1: "send", 2: "receive", 3: "unexpected message", 4: "collective or generalized request"}
# Indexed by queue_layout::RequestState.
STATES = ("freed", "not started", "posted; waits for its message", "waits for room towards its receiver",
          "announced; waits for its receive", "matched; data are moving", "arrived with its data",
          "announced; its data are with the sender", "taken by a matched probe", "complete; not collected yet")
FLAGS = ((4, "synchronous"), (1, "persistent"), (16, "not contiguous"), (8, "request freed"))
CANCELLED, QUEUED, GATED = 2, 3, 512
ANY_PEER, ANY_TAG = 0xffffffff, -2
ANY_SOURCE_VALUE, ANY_TAG_VALUE, PROC_NULL_VALUE = "MPI_ANY_SOURCE", "MPI_ANY_TAG", "MPI_PROC_NULL"

# Maximum number of spans printed for a group's members.
MOST_SPANS = 12

# Names of predefined handles by kind and value, of other constants and of error classes, from mpi.h.
NAMES = {}
CONSTANTS = {}
ERRORS = {}


def read_header(path):
    """Reads the names of predefined handles from mpi.h; without it numbers are printed."""
    handle = re.compile(r"#define\s+(MPI_\w+)\s+\(\(MPI_(\w+)\)\s*(0x[0-9a-fA-F]+|\d+)\)")
    number = re.compile(r"#define\s+(MPI_\w+)\s+\(?(-?\d+)\)?\s*(?:/\*|$)")
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.readlines()
    except OSError:
        return
    for line in lines:
        if found := handle.match(line):
            NAMES.setdefault((found[2], int(found[3], 0)), found[1])
        elif found := number.match(line):
            CONSTANTS.setdefault(found[1], int(found[2]))
            if found[1].startswith(("MPI_ERR_", "MPI_SUCCESS")):
                ERRORS.setdefault(int(found[2]), found[1])


def memory():
    """The anchor of the selected process; None if it does not use rmpi or cannot be read."""
    inferior = gdb.selected_inferior()
    if inferior.pid == 0:
        return None
    return anchor.find(Target(inferior))


def named(row):
    """The name of a communicator, or its context id."""
    return row["name"] or f"communicator {row['context']}"


class Handle:
    """A handle of any kind."""

    def __init__(self, value, kind):
        self.bits, self.kind = int(value.cast(gdb.lookup_type("unsigned long"))), kind

    def to_string(self):
        """The handle's object as text."""
        try:
            return self.describe()
        except (Unreadable, gdb.error) as error:
            return f"{self.bits:#x} <its memory cannot be read: {error}>"

    def describe(self):
        """The same; raises if memory cannot be read."""
        noun = NOUNS[self.kind]
        name = NAMES.get((self.kind, self.bits))
        if name is not None:
            return self.predefined(name)
        if self.bits == 0:
            return f"0 <no {noun}, not even MPI_{self.kind.upper()}_NULL>"
        other = next((name for (_, bits), name in NAMES.items() if bits == self.bits), None)
        if other is not None:
            return f"{self.bits:#x} <no {noun}, but {other}>"
        found = KINDS.get(self.bits >> KIND_SHIFT)
        if found is None:
            return f"{self.bits:#x} <no handle: not set yet?>"
        if found != self.kind:
            return f"{self.bits:#x} <no {noun}, but the handle of a {NOUNS[found]}>"
        it = memory()
        if it is None or it.state == anchor.BEFORE:
            return f"{self.bits:#x} <a {noun}>"
        if it.state == anchor.FINALIZED:
            return f"{self.bits:#x} <a {noun}; MPI is finalized>"
        return self.live(it)

    def predefined(self, name):
        """The text of a predefined handle."""
        return name

    def live(self, _it):
        """The text of an object that the program made."""
        return f"{self.bits:#x} <a {NOUNS[self.kind]}>"


class Comm(Handle):
    """MPI_Comm."""

    def predefined(self, name):
        it = memory()
        for row in it.communicators() if it else ():
            if row.get("handle") == self.bits:
                return f"{name} ({place(row)})"
        return name

    def live(self, it):
        for row in it.communicators():
            if row.get("handle") == self.bits:
                name = f"\"{row['name']}\"" if row["name"] else f"communicator {row['context']}"
                return f"{name} ({place(row)})"
        return f"{self.bits:#x} <a communicator that was freed>"


def place(row):
    """Rank and size of a communicator."""
    parts = f"rank {row['rank']} of {row['size']}"
    return f"{parts}; {row['remote_size']} in the remote group" if row["kind"] == 2 else parts


class Group(Handle):
    """MPI_Group."""

    def live(self, it):
        if not it.has_groups():
            return super().live(it)
        for row in it.groups():
            if row["handle"] == self.bits:
                return self.of(it, it.members(row))
        return f"{self.bits:#x} <a group that was freed>"

    def of(self, it, members):
        """The members of a group, and this process's rank in it."""
        size = len(members)
        if size == 0:
            return "<a group without processes>"
        here = it.world_rank
        mine = f"; this process is rank {list(members).index(here)} of {size}" if here in members else "; this process is not in it"
        noun = "rank" if size == 1 else "ranks"
        return f"<group of {noun} {spans(members)} of MPI_COMM_WORLD{mine}>"


def spans(numbers):
    """Numbers in order, with `a-b` for consecutive ones; a long list is abbreviated in the middle."""
    found = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    parts = [f"{first}-{last}" if last > first else f"{first}" for first, last in found]
    if len(parts) > MOST_SPANS:
        parts[MOST_SPANS - 1:-1] = ["..."]
    return ", ".join(parts)


class Datatype(Handle):
    """MPI_Datatype."""

    def predefined(self, name):
        size = self.size(name.removeprefix("MPI_"))
        return name if size is None else f"{name} ({count(size)})"

    def size(self, name):
        """Bytes of a predefined datatype, from its handle or its C type; None if unknown."""
        if 0x240 <= self.bits < 0x280:
            # MPI 5.0 ABI: bits 3 to 5 are the binary logarithm of the size.
            return 1 << (self.bits >> 3 & 7)
        try:
            return gdb.lookup_type(C_TYPES[name]).sizeof
        except (KeyError, gdb.error):
            return None

    def live(self, it):
        for row in it.datatypes():
            if row["handle"] == self.bits:
                name = f"\"{row['name']}\"" if row["name"] else "datatype"
                state = "" if row["committed"] else ", not committed"
                return f"{name} ({count(row['bytes'])}, extent {row['extent']}{state})"
        return f"{self.bits:#x} <a datatype that was freed>"


def count(number):
    """A number of bytes as text."""
    return f"{number} byte" if number == 1 else f"{number} bytes"


def data(it, slot):
    """Size and datatype of a request's data."""
    size, row = slot["bytes"], it.datatype(slot.get("datatype", 0))
    if row is None:
        return count(size)
    name = row["name"] or "a datatype without a name"
    if row["bytes"] == 0 or size % row["bytes"]:
        return f"{count(size)} of {name}"
    return f"{count(size)} ({size // row['bytes']} of {name})"


class Request(Handle):
    """MPI_Request."""

    def predefined(self, name):
        return name

    def live(self, it):
        token = self.bits & ((1 << KIND_SHIFT) - 1)
        if token >> TOKEN_SHIFT == 0:
            return "<complete at once>"
        slot = it.request(token >> TOKEN_SHIFT)
        if slot is None or slot["kind"] == 0 or slot["token"] != token:
            return f"{self.bits:#x} <a request that was completed or freed>"
        if slot["version"] % 2:
            return f"{self.bits:#x} <a request that is being changed>"
        kind = KIND_OF_SLOT.get(slot["kind"], "request")
        parts = [kind] + [name for flag, name in FLAGS if slot["flags"] & flag]
        if slot["kind"] in (1, 2):
            parts[0] += self.partner(it, slot)
        state = STATES[slot["state"]] if slot["state"] < len(STATES) else "?"
        if slot["error"]:
            state = "failed; not collected yet"
        elif slot["flags"] & CANCELLED:
            state = "cancelled; not collected yet"
        elif slot["state"] == QUEUED and slot["flags"] & GATED:
            state = "waits for its receive"
        return f"<{', '.join(parts)}: {state}>"

    def partner(self, it, slot):
        """Peer, tag, data and communicator of a message."""
        comm = next((row for row in it.communicators() if row["context"] == slot["context"]), None)
        towards = " to" if slot["kind"] == 1 else " from"
        if slot["peer"] == ANY_PEER:
            peer = "any rank"
        else:
            rank = it.local_rank(comm, slot["peer"]) if comm else None
            peer = f"rank {rank}" if rank is not None else f"rank {slot['peer']} of MPI_COMM_WORLD"
        tag = "any tag" if slot["tag"] == ANY_TAG else f"tag {slot['tag']}"
        inside = named(comm) if comm else "a communicator that was freed"
        return f"{towards} {peer}, {tag}, {data(it, slot)}, in {inside}"


class Status:
    """MPI_Status."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        """Its fields as text; bytes only with rmpi, since MPI_internal differs between libraries."""
        source, tag, error = (int(self.value[name]) for name in ("MPI_SOURCE", "MPI_TAG", "MPI_ERROR"))
        parts = ["source " + constant(source, ANY_SOURCE_VALUE, PROC_NULL_VALUE), "tag " + constant(tag, ANY_TAG_VALUE),
                 "error " + ERRORS.get(error, str(error))]
        if memory() is not None:
            low, high, cancelled = (int(self.value["MPI_internal"][at]) & 0xffffffff for at in range(3))
            parts.append(count(high << 32 | low))
            parts += ["cancelled"] if cancelled else []
        return ", ".join(parts)


def has_field(value, name):
    """Whether a structure has a field."""
    return any(field.name == name for field in value.type.strip_typedefs().fields())


def constant(number, *names):
    """A number, or the one of these names that has its value."""
    return next((name for name in names if CONSTANTS.get(name) == number), str(number))


KINDS_OF_PRINTER = {"Comm": Comm, "Datatype": Datatype, "Group": Group, "Request": Request}


def look_up(value):
    """The printer for a value; None if its type is not one of the standard ABI."""
    bare = value.type.strip_typedefs().unqualified()
    if bare.code == gdb.TYPE_CODE_PTR:
        tag = bare.target().unqualified().strip_typedefs().name or ""
        kind = tag.removeprefix("MPI_ABI_")
        if tag.startswith("MPI_ABI_") and kind in HANDLES:
            return KINDS_OF_PRINTER.get(kind, Handle)(value, kind)
    is_status = bare.code == gdb.TYPE_CODE_STRUCT and has_field(value, "MPI_SOURCE") and has_field(value, "MPI_internal")
    return Status(value) if is_status else None


look_up.name = "rmpi"
look_up.enabled = True


def register(header):
    """Registers the printers for all programs."""
    read_header(header)
    gdb.printing.register_pretty_printer(None, look_up, replace=True)
