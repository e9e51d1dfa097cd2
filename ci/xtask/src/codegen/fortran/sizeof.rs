// SPDX-License-Identifier: MIT OR Apache-2.0
//! `MPI_Sizeof` (MPI 5.0 section 16.3, deprecated): a procedure for each intrinsic type, in the modules themselves.

use std::fmt::Write as _;

/// Suffix and type.
const TYPES: [(&str, &str); 13] = [
    ("character", "character(len=*)"),
    ("logical1", "logical(kind=1)"),
    ("logical2", "logical(kind=2)"),
    ("logical4", "logical(kind=4)"),
    ("logical8", "logical(kind=8)"),
    ("integer1", "integer(kind=1)"),
    ("integer2", "integer(kind=2)"),
    ("integer4", "integer(kind=4)"),
    ("integer8", "integer(kind=8)"),
    ("real4", "real(kind=4)"),
    ("real8", "real(kind=8)"),
    ("complex4", "complex(kind=4)"),
    ("complex8", "complex(kind=8)"),
];

/// The generic names.
pub(super) fn generic() -> String {
    let mut text = String::new();
    for name in ["MPI_Sizeof", "PMPI_Sizeof"] {
        let _ = writeln!(text, "\n  interface {name}");
        for (suffix, _) in TYPES {
            let _ = writeln!(text, "    module procedure sizeof_{suffix}");
        }
        let _ = writeln!(text, "  end interface {name}");
    }
    for (suffix, _) in TYPES {
        let _ = writeln!(text, "  private :: sizeof_{suffix}");
    }
    text
}

/// The procedures.
pub(super) fn bodies() -> String {
    let mut text = String::new();
    for (suffix, fortran) in TYPES {
        let _ = write!(
            text,
            "\n  subroutine sizeof_{suffix}(x, size, ierror)\n    {fortran}, dimension(..), intent(in) :: x\n    \
             integer, intent(out) :: size\n    integer, optional, intent(out) :: ierror\n    size = storage_size(x) / 8\n    \
             if (present(ierror)) ierror = MPI_SUCCESS\n  end subroutine sizeof_{suffix}\n"
        );
    }
    text
}
