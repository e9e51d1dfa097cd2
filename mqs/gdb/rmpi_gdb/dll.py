# SPDX-License-Identifier: MIT OR Apache-2.0
"""The debugger library of an MPI, called inside gdb through the message queue interface (mpi_interface.h)."""
import ctypes as c
import struct

import gdb

from .target import Unreadable

OK, NO_INFORMATION, END_OF_LIST = 0, 1, 2
SENDS, RECEIVES, UNEXPECTED = 0, 1, 2
# An extension of rmpi: pending operations other than messages.
OTHERS = 100
MATCHED = 1
INTERFACE = 2

# Limit for a list, which may be endless.
MOST = 1_000_000

COLLECTIVES = ("Barrier Bcast Allgather Allgatherv Allreduce Alltoall Alltoallv Reduce_scatter Reduce Gather Gatherv "
               "Scan Scatter Scatterv").split()


class Communicator(c.Structure):
    """mqs_communicator."""
    _fields_ = [("unique_id", c.c_ulong), ("local_rank", c.c_long), ("size", c.c_long), ("name", c.c_char * 64)]


class Operation(c.Structure):
    """mqs_pending_operation."""
    _fields_ = [("status", c.c_int), ("desired_local_rank", c.c_long), ("desired_global_rank", c.c_long),
                ("tag_wild", c.c_int), ("desired_tag", c.c_long), ("desired_length", c.c_long),
                ("system_buffer", c.c_int), ("buffer", c.c_ulong), ("actual_local_rank", c.c_long),
                ("actual_global_rank", c.c_long), ("actual_tag", c.c_long), ("actual_length", c.c_long),
                ("extra_text", (c.c_char * 64) * 5)]


P, INT, STR, ADDRESS = c.c_void_p, c.c_int, c.c_char_p, c.POINTER(c.c_ulong)

# The callbacks of each table, in the interface's order: name, result, arguments.
BASIC = [("malloc", P, (c.c_size_t,)), ("free", None, (P,)), ("dprints", None, (STR,)), ("errorstring", P, (INT,)),
         ("put_info", None, (P, P)), ("get_info", P, (P,)), ("put_info", None, (P, P)), ("get_info", P, (P,))]
IMAGE = [("get_type_sizes", None, (P, P)), ("find_function", INT, (P, STR, INT, ADDRESS)),
         ("find_symbol", INT, (P, STR, ADDRESS)), ("find_type", P, (P, STR, INT)), ("field_offset", INT, (P, STR)),
         ("sizeof", INT, (P,))]
PROCESS = [("get_global_rank", INT, (P,)), ("get_image", P, (P,)), ("fetch_data", INT, (P, c.c_ulong, INT, P)),
           ("target_to_host", INT, (P, P, P, INT))]

# The library's handles of the image and of the process: two arbitrary non-NULL values.
THE_IMAGE, THE_PROCESS = 16, 32


class DllError(Exception):
    """An error of the library."""


class Host:
    """The callbacks of the library, for one target at a time."""

    def __init__(self):
        self.target = None
        self.infos = {}
        self.types = []
        self.unknown_error = c.create_string_buffer(b"this debugger has no error of this number")
        self.libc = c.CDLL(None)
        self.libc.malloc.restype, self.libc.malloc.argtypes = P, (c.c_size_t,)
        self.libc.free.restype, self.libc.free.argtypes = None, (P,)
        self.tables = [self.table(rows) for rows in (BASIC, IMAGE, PROCESS)]

    def begin(self, target):
        """Sets the target of all further calls."""
        self.target, self.infos, self.types = target, {}, []

    def table(self, rows):
        """A table of callbacks, valid as long as this object."""
        functions = [self.callback(*row) for row in rows]
        table = (P * len(functions))(*[c.cast(function, P) for function in functions])
        return table, functions

    def callback(self, name, result, arguments):
        """A function for C. Exceptions do not leave it: they become `mqs_no_information`."""
        method = getattr(self, name)
        failed = {INT: -1 if name in ("field_offset", "sizeof", "get_global_rank") else NO_INFORMATION}.get(result)

        def call(*given):
            try:
                return method(*given)
            except (gdb.error, gdb.MemoryError, Unreadable, ValueError, OverflowError, UnicodeError):
                return failed
        return c.CFUNCTYPE(result, *arguments)(call)

    def malloc(self, count):
        return self.libc.malloc(count)

    def free(self, place):
        self.libc.free(place)

    def dprints(self, text):
        gdb.write((text or b"").decode("utf-8", "replace"))

    def errorstring(self, _number):
        return c.addressof(self.unknown_error)

    def put_info(self, of, info):
        self.infos[of] = info

    def get_info(self, of):
        return self.infos.get(of)

    def get_type_sizes(self, _process, place):
        names = ("short", "int", "long", "long long", "void *")
        sizes = [gdb.lookup_type("void").pointer().sizeof if name == "void *" else gdb.lookup_type(name).sizeof
                 for name in names]
        # Five numbers, the minimum of all headers.
        c.memmove(place, struct.pack("=5i", *sizes), 20)

    def find_function(self, image, name, _language, place):
        return self.find_symbol(image, name, place)

    def find_symbol(self, _image, name, place):
        found = self.target.symbol((name or b"").decode("ascii", "replace"))
        if found is None:
            return NO_INFORMATION
        if place:
            place[0] = found
        return OK

    def find_type(self, _image, name, _language):
        found = self.target.type((name or b"").decode("utf-8", "replace"))
        if found is None:
            return None
        self.types.append(found.strip_typedefs())
        return len(self.types)

    def field_offset(self, number, name):
        name = (name or b"").decode("utf-8", "replace")
        for field in self.types[number - 1].fields():
            if field.name == name and hasattr(field, "bitpos"):
                return field.bitpos // 8
        return -1

    def sizeof(self, number):
        return self.types[number - 1].sizeof

    def get_global_rank(self, _process):
        # The library knows the rank itself; a library that does not gets the order of inferiors.
        return self.target.inferior.num - 1

    def get_image(self, _process):
        return THE_IMAGE

    def fetch_data(self, _process, address, count, place):
        if count < 0:
            return NO_INFORMATION
        c.memmove(place, self.target.read(address, count), count)
        return OK

    def target_to_host(self, _process, given, place, count):
        # gdb's host and the target have the same architecture.
        c.memmove(place, given, count)
        return OK


HOST = None
LOADED = {}


def load(path):
    """Loads the library of this path, once."""
    global HOST  # pylint: disable=global-statement
    if path not in LOADED:
        HOST = HOST or Host()
        LOADED[path] = Dll(path)
    return LOADED[path]


class Dll:
    """A library."""

    def __init__(self, path):
        self.path = path
        try:
            self.library = c.CDLL(path)
        except OSError as error:
            raise DllError(f"cannot load {path}, the MPI library's own for debuggers: {error}") from None
        version = self.function("mqs_version_compatibility")()
        if version != INTERFACE:
            raise DllError(f"{path} implements version {version} of the message queue interface, not {INTERFACE}")
        self.function("mqs_setup_basic_callbacks", (P,), None)(HOST.tables[0][0])

    def function(self, name, arguments=(), result=INT):
        """A required function."""
        found = self.optional(name, arguments, result)
        if found is None:
            raise DllError(f"{self.path} has no {name}, so it is no library for message queues")
        return found

    def optional(self, name, arguments=(), result=INT):
        """An optional function; None if it is missing."""
        found = getattr(self.library, name, None)
        if found is not None:
            found.argtypes, found.restype = arguments, result
        return found

    def check(self, result, what):
        """Raises the library's message for an error code."""
        if result == OK:
            return
        text = self.function("mqs_dll_error_string", (INT,), STR)(result) or b"no message"
        raise DllError(f"{what}: {text.decode('utf-8', 'replace')} (number {result})")

    def inspect(self, target):
        """The rank, None if unknown, and the communicators with their pending operations."""
        HOST.begin(target)
        try:
            self.set_up(HOST)
            return self.rank(), list(self.communicators())
        finally:
            for kind, of in (("process", THE_PROCESS), ("image", THE_IMAGE)):
                info = HOST.infos.pop(of, None)
                if info:
                    self.function(f"mqs_destroy_{kind}_info", (P,))(info)

    def set_up(self, host):
        """Sets up image and process, checks that they have queues, and updates the list of communicators."""
        for kind, of, table in (("image", THE_IMAGE, 1), ("process", THE_PROCESS, 2)):
            setup = self.function(f"mqs_setup_{kind}", (P, P))
            self.check(setup(of, host.tables[table][0]), f"the {kind} cannot be read")
            message = c.c_char_p()
            has = self.function(f"mqs_{kind}_has_queues", (P, c.POINTER(c.c_char_p)))
            result = has(of, c.byref(message))
            text = (message.value or b"").decode("utf-8", "replace")
            if result != OK and text:
                raise DllError(text.replace("%s", "the program").replace("%%", "%"))
            self.check(result, f"the {kind} has no message queues")
        self.check(self.function("mqs_update_communicator_list", (P,))(THE_PROCESS), "no list of communicators")

    def is_ours(self):
        """Whether it is rmpi's, which has queues of its own."""
        version = self.function("mqs_version_string", (), STR)() or b""
        return version.startswith(b"rmpi ")

    def rank(self):
        """The rank in MPI_COMM_WORLD; None if the library does not provide it."""
        get_rank = self.optional("mqs_get_global_rank", (P,))
        rank = get_rank(THE_PROCESS) if get_rank else -1
        return rank if rank >= 0 else None

    def communicators(self):
        """Yields each communicator with its collectives and its operations by class."""
        get = self.function("mqs_get_communicator", (P, P))
        move = self.function("mqs_next_communicator", (P,))
        result = self.function("mqs_setup_communicator_iterator", (P,))(THE_PROCESS)
        for _ in range(MOST):
            if result != OK:
                break
            it = Communicator()
            self.check(get(THE_PROCESS, c.byref(it)), "a communicator cannot be read")
            queues = {kind: self.operations(kind) for kind in (SENDS, RECEIVES, UNEXPECTED) + ((OTHERS,) if self.is_ours() else ())}
            yield it, self.collectives(), queues
            result = move(THE_PROCESS)

    def operations(self, kind):
        """The operations of a class; None if the library does not provide them."""
        if self.function("mqs_setup_operation_iterator", (P, INT))(THE_PROCESS, kind) not in (OK, END_OF_LIST):
            return None
        move, found = self.function("mqs_next_operation", (P, P)), []
        while len(found) < MOST:
            it = Operation()
            if move(THE_PROCESS, c.byref(it)) != OK:
                break
            found.append(it)
        return found

    def collectives(self):
        """Collectives in progress, with the number of the call."""
        get_state = self.optional("mqs_get_comm_coll_state", (P, INT, P, P))
        found = []
        for number, name in enumerate(COLLECTIVES if get_state else ()):
            called, active = INT(), INT()
            result = get_state(THE_PROCESS, number, c.byref(called), c.byref(active))
            if result == OK and active.value > 0:
                found.append((name, called.value))
        return found
