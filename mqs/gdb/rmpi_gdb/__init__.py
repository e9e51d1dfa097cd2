# SPDX-License-Identifier: MIT OR Apache-2.0
"""What rmpi.py loads into gdb."""
