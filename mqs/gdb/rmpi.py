# SPDX-License-Identifier: MIT OR Apache-2.0
"""MPI in gdb: the commands `mpi ranks` and `mpi queues`, and pretty-printers for MPI's types.

Type `source PREFIX/share/rmpi/gdb/rmpi.py` in gdb, or add it to ~/.gdbinit; `rmpiexec --gdb` does so itself.
"""
import os
import sys

import gdb


def load():
    """Registers commands and pretty-printers, without writing bytecode files."""
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
