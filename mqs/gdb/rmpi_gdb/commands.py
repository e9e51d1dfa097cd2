# SPDX-License-Identifier: MIT OR Apache-2.0
"""The commands `mpi ranks` and `mpi queues`."""
import gdb

from . import anchor, dll
from .target import Target, Unreadable, processes, selected

# Limit of frames searched for the program's own.
MOST_FRAMES = 64


def rank_of(target):
    """The rank of the selected inferior; None if unknown."""
    found = anchor.find(target)
    if found is not None:
        return found.rank
    path = library(target)
    if path is None:
        return None
    try:
        return dll.load(path).inspect(target)[0]
    except dll.DllError:
        return None


def library(target):
    """The path of the debugger library that its MPI names (MPIR_dll_name); None if there is none."""
    place = target.symbol("MPIR_dll_name")
    try:
        return target.text(place) if place else None
    except Unreadable:
        return None


def frames(frame):
    """This frame and its callers, as far as gdb can unwind."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        yield frame
        try:
            frame = frame.older()
        except gdb.error:
            return


def call(newest):
    """The MPI function that the program is in, if any, and the program's own source line."""
    mpi = inside = None
    for frame in frames(newest):
        name = (frame.name() or "").removeprefix("P")
        if name.startswith(("MPI_", "QMP_")):
            mpi = name
        line = frame.find_sal()
        if line.symtab is None:
            continue
        if mpi is None and frame != newest:
            mpi = called(frame)
        place = f"{line.symtab.filename.rsplit('/', 1)[-1]}:{line.line}"
        found = f"{mpi or frame.name()} at {place}"
        if gdb.solib_name(frame.pc()) is None:
            return found
        # A frame of a shared library is used only if the program has none.
        inside = found if mpi or inside is None else inside
    return inside or mpi


def called(frame):
    """The MPI function that a frame has called, decoded from its call instruction (x86-64): after a tail call the function
        itself has no frame."""
    target, after = Target(gdb.selected_inferior()), frame.pc()
    try:
        code = target.read(after - 6, 6)
        place = after + int.from_bytes(code[2:], "little", signed=True)
        if code[:2] == b"\xff\x15":
            place, = target.numbers(place, "Q")
        elif code[1] != 0xe8:
            return None
        symbol = gdb.execute(f"info symbol {place:#x}", to_string=True)
    except (gdb.error, Unreadable):
        return None
    name = symbol.split()[0].split("@")[0].removeprefix("P")
    return name if name.startswith(("MPI_", "QMP_")) else None


def launcher(inferior):
    """The name of the selected inferior if it is a launcher like rmpiexec; None otherwise."""
    if Target(inferior).symbol("MPIR_proctable") is None:
        return None
    path = inferior.progspace.filename or "launcher"
    return path.rsplit("/", 1)[-1]


def where(inferior):
    """The location of this inferior's selected thread, or of its first."""
    threads = sorted(inferior.threads(), key=lambda thread: thread.num)
    thread = gdb.selected_thread() or (threads[0] if threads else None)
    if thread is None:
        return "no thread"
    if not thread.is_stopped():
        return "runs"
    if gdb.selected_thread() is None:
        thread.switch()
    frame = gdb.newest_frame()
    return call(frame) or frame.name() or f"{frame.pc():#x}"


class Mpi(gdb.Command):
    """What the ranks of an MPI program do: mpi ranks, mpi queues."""

    def __init__(self):
        super().__init__("mpi", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE, True)


class Ranks(gdb.Command):
    """The ranks that this gdb has: inferior, process, number of threads, and where each is.

Usage: mpi ranks"""

    def __init__(self):
        super().__init__("mpi ranks", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE)

    def invoke(self, argument, _from_tty):
        if argument.strip():
            raise gdb.GdbError(f"mpi ranks: it takes no argument, it was given `{argument.strip()}`")
        rows = []
        for inferior in some_processes():
            with selected(inferior):
                target = Target(inferior)
                rank = None if target.is_running() else rank_of(target)
                place, starter = where(inferior), None if rank is not None else launcher(inferior)
                if starter is not None:
                    place = f"no rank: {starter}, which starts the ranks and waits for them ({place})"
                rows.append((rank, inferior, place))
        rows.sort(key=lambda row: (row[0] is None, row[0] or 0, row[1].num))
        gdb.write("  rank  inferior      pid  threads  where\n")
        for rank, inferior, place in rows:
            name = "-" if rank is None else rank
            mark = "*" if inferior.num == gdb.selected_inferior().num else " "
            gdb.write(f"{mark} {name:>4}  {inferior.num:>8}  {inferior.pid:>7}  {len(inferior.threads()):>7}  {place}\n")


class Queues(gdb.Command):
    """What a rank sends, receives and was sent, communicator by communicator.

Usage: mpi queues          of the rank that is selected
       mpi queues RANK     of this rank of MPI_COMM_WORLD
       mpi queues all      of all ranks that this gdb has

It is read through the library that the rank's MPI names for debuggers (MPIR_dll_name), so it works with any MPI that has
one."""

    def __init__(self):
        super().__init__("mpi queues", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE)

    def invoke(self, argument, _from_tty):
        arguments = argument.split()
        if len(arguments) > 1 or arguments and arguments[0] != "all" and not arguments[0].isdecimal():
            raise gdb.GdbError(f"mpi queues: `{argument.strip()}` is neither a rank nor `all`")
        if not arguments:
            inferior = gdb.selected_inferior()
            if inferior.pid == 0:
                raise gdb.GdbError(NOTHING)
            show(inferior)
            return
        wanted = None if arguments[0] == "all" else int(arguments[0])
        found = [(rank, inferior) for rank, inferior in ranked() if wanted in (None, rank)]
        if not found:
            here = ", ".join(str(rank) for rank, _ in ranked() if rank is not None) or "none"
            raise gdb.GdbError(f"mpi queues: this gdb does not have rank {wanted}; ranks that it has: {here}")
        for _, inferior in found:
            try:
                show(inferior)
            except gdb.GdbError as error:
                if wanted is not None:
                    raise
                gdb.write(f"{error}\n")


NOTHING = "there is no process here: attach to a rank, load its core file, or start gdb by rmpiexec --gdb"


def some_processes():
    """All inferiors with a process; an error if there is none."""
    found = processes()
    if not found:
        raise gdb.GdbError(NOTHING)
    return found


def ranked():
    """All inferiors with a process, sorted by rank."""
    found = []
    for inferior in some_processes():
        with selected(inferior):
            target = Target(inferior)
            found.append((None if target.is_running() else rank_of(target), inferior))
    return sorted(found, key=lambda row: (row[0] is None, row[0] or 0, row[1].num))


def show(inferior):
    """Prints the queues of an inferior."""
    name = f"inferior {inferior.num} (pid {inferior.pid})"
    with selected(inferior):
        target = Target(inferior)
        if target.is_running():
            raise gdb.GdbError(f"{name} runs: stop it first (interrupt)")
        path = library(target)
        if path is None:
            raise gdb.GdbError(f"{name} has loaded no MPI that names a library for debuggers (MPIR_dll_name)")
        try:
            rank, communicators = dll.load(path).inspect(target)
        except dll.DllError as error:
            raise gdb.GdbError(f"{name}: {error}") from None
    title = name if rank is None else f"rank {rank}, {name}"
    if not communicators:
        gdb.write(f"{title}: MPI is not initialized, or is finalized\n")
        return
    lines = [line for it in communicators for line in communicator(*it)]
    gdb.write("\n".join([title] + (lines or ["  nothing is pending"])) + "\n")


def communicator(it, collectives, queues):
    """The lines of a communicator; none if nothing is pending."""
    name = it.name.decode("utf-8", "replace") or f"communicator {it.unique_id}"
    lines = [f"    in {what}, call {number}" for what, number in collectives]
    for kind, title in ((dll.SENDS, "sends"), (dll.RECEIVES, "receives"), (dll.UNEXPECTED, "unexpected messages"),
                        (dll.OTHERS, "waits")):
        if queues.get(kind):
            lines.append(f"    {title}")
            lines.extend(f"      {operation(one, kind)}" for one in queues[kind])
    return [f"  {name}: rank {it.local_rank} of {it.size}"] + lines if lines else []


# rmpi's extra_text of a collective and of a probe.
OTHERS = "waits for the other ranks"
MESSAGE = "waits for a message"


def operation(it, kind):
    """The line of an operation."""
    if it.desired_local_rank >= 0:
        peer = f"rank {it.desired_local_rank}"
    elif it.desired_global_rank >= 0:
        peer = f"rank {it.desired_global_rank} of MPI_COMM_WORLD"
    else:
        peer = "any rank"
    tag = "any tag" if it.tag_wild else f"tag {it.desired_tag}"
    line = f"{'to' if kind == dll.SENDS else 'from'} {peer}, {tag}, {it.desired_length} bytes"
    texts = [bytes(text.value).decode("utf-8", "replace") for text in it.extra_text]
    texts = [text for text in texts if text] or [("pending", "matched", "complete")[min(max(it.status, 0), 2)]]
    # The wait's number, which is for programs, is dropped.
    texts = [text.split(", wait ")[0] if text.startswith("in ") else text for text in texts]
    if OTHERS in texts[1:]:
        root = f" with root {it.desired_local_rank}" if it.desired_local_rank >= 0 else ""
        return f"{texts[0]}{root} ({'; '.join(texts[1:])})"
    if kind == dll.OTHERS:
        source = f" from {peer}, {tag}" if MESSAGE in texts[1:] else ""
        return f"{texts[0]}{source} ({'; '.join(texts[1:])})"
    line += f" ({'; '.join(texts)})"
    if kind == dll.RECEIVES and it.status >= dll.MATCHED:
        line += f" <- rank {it.actual_local_rank}, tag {it.actual_tag}, {it.actual_length} bytes"
    return line


def register():
    """Registers the commands."""
    Mpi()
    Ranks()
    Queues()
