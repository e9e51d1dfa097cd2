# SPDX-License-Identifier: MIT OR Apache-2.0
"""MPI in gdb: the commands `mpi ranks` and `mpi queues`, and values of MPI's types in words.

Say `source PREFIX/share/rmpi/gdb/rmpi.py` to gdb, or write that into ~/.gdbinit; `rmpiexec --gdb` does it itself.
"""
import os
import sys

import gdb


def load():
    """Makes the commands and printers known; nothing is written beside the files."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        from rmpi_gdb import commands, printers, session
        commands.register()
        session.register()
        printers.register(os.path.join(folder, "..", "..", "..", "include", "mpi.h"))
    except ImportError as error:
        raise gdb.GdbError(f"rmpi: this gdb cannot load its commands for MPI: {error}") from error
    finally:
        sys.dont_write_bytecode = writes


load()
