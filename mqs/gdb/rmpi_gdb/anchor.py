# SPDX-License-Identifier: MIT OR Apache-2.0
"""Requests, communicators, datatypes and groups of a stopped process, read from its MPI library's debugger tables.

The Rust side is the crate queue-layout: tables are found from the symbol `rmpi_debug_anchor`, and fields through the layout
table in the process itself. No function of the process is called, so core files work too.
"""
from .target import Unreadable

MAGIC = b"rmpimqs1"
MAJOR = 1
BEFORE, RUNNING, FINALIZED = 0, 1, 2

SLOT, COMM, COMM_TABLE, TYPE, TYPE_TABLE, GROUP, GROUP_TABLE = 1, 3, 4, 5, 6, 8, 9

# Names of the fields by structure, indexed by field number.
FIELDS = {
    SLOT: "version state kind flags peer context tag token error protocol bytes buffer sequence matched_peer matched_tag "
          "matched_bytes datatype",
    COMM: "version kind context uses rank size remote_size group remote name called active handle",
    COMM_TABLE: "changes chunks",
    TYPE: "version handle committed bytes extent name",
    TYPE_TABLE: "chunks",
    GROUP: "version handle size members",
    GROUP_TABLE: "chunks",
}
SIGNED = {"tag", "matched_tag", "extent"}

# Limits for the chunks of a table and the rows of a chunk.
MOST_CHUNKS = 1 << 12
MOST_ROWS = 1 << 20


class Anchor:
    """The anchor of a process that uses rmpi."""

    def __init__(self, target, address):
        self.target = target
        magic, self.major, _minor, self.size = target.numbers(address, "8sHHI")
        if magic != MAGIC or self.major != MAJOR or self.size < 104:
            raise Unreadable(f"rmpi_debug_anchor at {address:#x} is of version {self.major}; this script reads version {MAJOR}")
        (self.state, self.pid, self.world_rank, self.world_size, layout, rows, row_bytes, self.chunks, self.max_chunks,
         self.chunk_slots, self.slot_bytes, _, self.comms, self.first_rows,
         self.row_bytes) = target.numbers(address + 32, "IIIIQIIQIIIIQII")
        self.address = address
        self.layout = {}
        if self.state == RUNNING:
            for row in range(min(rows, 1 << 12)):
                structure, field, offset, size = target.numbers(layout + row * row_bytes, "HHII")
                names = FIELDS.get(structure, "").split()
                if field < len(names):
                    self.layout[structure, names[field]] = offset, size

    @property
    def rank(self):
        """The rank in MPI_COMM_WORLD; None before MPI_Init."""
        return None if self.state == BEFORE else self.world_rank

    def row(self, structure, address):
        """The fields of a structure, by name; `name` is decoded as text."""
        fields = {name: place for (of, name), place in self.layout.items() if of == structure}
        end = max((offset + size for offset, size in fields.values()), default=0)
        image, found = self.target.read(address, end), {}
        for name, (offset, size) in fields.items():
            part = image[offset:offset + size]
            if name == "name":
                found[name] = part.split(b"\0")[0].decode("utf-8", "replace")
            else:
                found[name] = int.from_bytes(part, "little", signed=name in SIGNED)
        return found

    def chunk_addresses(self, table, most):
        """The addresses in a zero-terminated table of chunks."""
        for number in range(min(most, MOST_CHUNKS)):
            address, = self.target.numbers(table + 8 * number, "Q")
            if address == 0:
                return
            yield address

    def growing(self, structure, table, first, row_bytes):
        """The rows of a table in which each chunk has twice as many rows as the previous one."""
        offset, size = self.layout[structure, "chunks"]
        of = {COMM_TABLE: COMM, TYPE_TABLE: TYPE, GROUP_TABLE: GROUP}[structure]
        for number, chunk in enumerate(self.chunk_addresses(table + offset, size // 8)):
            for index in range(min(first << number, MOST_ROWS)):
                yield self.row(of, chunk + index * row_bytes)

    def communicators(self):
        """The rows of all communicators."""
        if self.state == RUNNING:
            for row in self.growing(COMM_TABLE, self.comms, self.first_rows, self.row_bytes):
                if row["kind"] != 0 and row["version"] % 2 == 0:
                    yield row

    def datatypes(self):
        """The rows of all datatypes that the program made."""
        if self.state != RUNNING or (TYPE_TABLE, "chunks") not in self.layout or self.size < 120:
            return
        types, first, row_bytes = self.target.numbers(self.address + 104, "QII")
        for row in self.growing(TYPE_TABLE, types, first, row_bytes):
            if row["handle"] != 0 and row["version"] % 2 == 0:
                yield row

    def has_groups(self):
        """Whether the library has a table of groups: layout 1.6 and later."""
        return self.state == RUNNING and (GROUP_TABLE, "chunks") in self.layout and self.size >= 168

    def groups(self):
        """The rows of all groups of the program."""
        if self.has_groups():
            groups, first, row_bytes = self.target.numbers(self.address + 152, "QII")
            for row in self.growing(GROUP_TABLE, groups, first, row_bytes):
                if row["handle"] != 0 and row["version"] % 2 == 0:
                    yield row

    def members(self, row):
        """The world ranks of a group, in rank order."""
        if row["members"] == 0:
            return range(row["size"])
        return self.target.numbers(row["members"], f"{min(row['size'], MOST_ROWS)}I")

    def datatype(self, handle):
        """The row of a datatype, predefined or not; None if there is none."""
        if handle == 0:
            return None
        return next((row for rows in (self.predefined(), self.datatypes()) for row in rows if row["handle"] == handle), None)

    def predefined(self):
        """The rows of the predefined datatypes; layout 1.4 and later."""
        if self.state != RUNNING or (TYPE, "name") not in self.layout or self.size < 152:
            return
        row_bytes, = self.target.numbers(self.address + 116, "I")
        rows, count = self.target.numbers(self.address + 136, "QI")
        for index in range(min(count, 1 << 8)):
            yield self.row(TYPE, rows + index * row_bytes)

    def request(self, index):
        """The slot of this index; None if there is none."""
        if self.state != RUNNING or not 0 < index < self.max_chunks * self.chunk_slots:
            return None
        chunk, = self.target.numbers(self.chunks + 8 * (index // self.chunk_slots), "Q")
        if chunk == 0:
            return None
        return self.row(SLOT, chunk + index % self.chunk_slots * self.slot_bytes)

    def local_rank(self, row, world_rank):
        """The rank in a communicator of a world rank; None if it is not a member."""
        remote = row["kind"] == 2
        address, size = (row["remote"], row["remote_size"]) if remote else (row["group"], row["size"])
        if address == 0:
            return world_rank if world_rank < size else None
        ranks = self.target.numbers(address, f"{min(size, MOST_ROWS)}I")
        return ranks.index(world_rank) if world_rank in ranks else None


def find(target):
    """The anchor of the selected process; None if it does not use rmpi, or its memory cannot be read."""
    address = target.symbol("rmpi_debug_anchor")
    if address is None:
        return None
    try:
        return Anchor(target, address)
    except Unreadable:
        return None
