# SPDX-License-Identifier: MIT OR Apache-2.0
"""The modules that rmpi.py loads into gdb."""
