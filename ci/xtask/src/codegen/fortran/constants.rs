// SPDX-License-Identifier: MIT OR Apache-2.0
//! The named constants in Fortran: the file `mpif.h`, and the declarations in the modules.

use std::fmt::Write as _;

use super::super::standard::{Constant, Standard};
use super::PREDEFINED;
use super::types::HANDLES;

/// A constant that the library recognizes by its address: a variable in a common block of its own (MPI 5.0 section
/// 2.5.4).
pub(super) struct Block {
    /// The constant.
    pub(super) name: &'static str,
    /// The block, whose name for the linker gets an underscore.
    pub(super) common: &'static str,
    /// Its declaration with `mpif.h` and `use mpi`.
    declared: &'static str,
    /// Its declaration with `mpi_f08`, if that differs.
    f08: Option<&'static str>,
}

const fn block(name: &'static str, common: &'static str, declared: &'static str) -> Block {
    Block {
        name,
        common,
        declared,
        f08: None,
    }
}

/// All such constants; `runtime/fortran/src/common.rs` defines the same blocks.
pub(super) const BLOCKS: [Block; 10] = [
    block("MPI_BOTTOM", "rmpi_bottom", "integer MPI_BOTTOM"),
    block("MPI_IN_PLACE", "rmpi_in_place", "integer MPI_IN_PLACE"),
    block(
        "MPI_BUFFER_AUTOMATIC",
        "rmpi_buffer_automatic",
        "integer MPI_BUFFER_AUTOMATIC",
    ),
    Block {
        f08: Some("type(MPI_Status) :: MPI_STATUS_IGNORE"),
        ..block(
            "MPI_STATUS_IGNORE",
            "rmpi_status_ignore",
            "integer MPI_STATUS_IGNORE(MPI_STATUS_SIZE)",
        )
    },
    Block {
        f08: Some("type(MPI_Status) :: MPI_STATUSES_IGNORE(1)"),
        ..block(
            "MPI_STATUSES_IGNORE",
            "rmpi_statuses_ignore",
            "integer MPI_STATUSES_IGNORE(MPI_STATUS_SIZE,1)",
        )
    },
    block(
        "MPI_ERRCODES_IGNORE",
        "rmpi_errcodes_ignore",
        "integer MPI_ERRCODES_IGNORE(1)",
    ),
    block(
        "MPI_ARGV_NULL",
        "rmpi_argv_null",
        "character MPI_ARGV_NULL(1)",
    ),
    block(
        "MPI_ARGVS_NULL",
        "rmpi_argvs_null",
        "character MPI_ARGVS_NULL(1,1)",
    ),
    block(
        "MPI_UNWEIGHTED",
        "rmpi_unweighted",
        "integer MPI_UNWEIGHTED(1)",
    ),
    block(
        "MPI_WEIGHTS_EMPTY",
        "rmpi_weights_empty",
        "integer MPI_WEIGHTS_EMPTY(1)",
    ),
];

/// Constants that C has under another name or not at all: name, type, value.
const FORTRAN_ONLY: [(&str, &str, &str); 9] = [
    ("MPI_ADDRESS_KIND", "integer", "8"),
    ("MPI_COUNT_KIND", "integer", "8"),
    ("MPI_OFFSET_KIND", "integer", "8"),
    ("MPI_INTEGER_KIND", "integer", "4"),
    ("MPI_STATUS_SIZE", "integer", "8"),
    ("MPI_SOURCE", "integer", "1"),
    ("MPI_TAG", "integer", "2"),
    ("MPI_ERROR", "integer", "3"),
    ("MPI_SUBARRAYS_SUPPORTED", "logical", ".false."),
];

/// A constant in Fortran.
struct Named {
    name: String,
    /// The type with `mpif.h`.
    fortran: &'static str,
    value: String,
    /// The derived type with `mpi_f08`; `None` for a constant that is no handle.
    handle: Option<&'static str>,
}

/// Every constant that has a value. Fortran's maximum lengths of strings do not count the NUL of C (MPI 5.0 section
/// 2.6.2).
fn named(standard: &Standard) -> Vec<Named> {
    let alone = FORTRAN_ONLY.iter().map(|(name, fortran, value)| Named {
        name: (*name).into(),
        fortran,
        value: (*value).into(),
        handle: None,
    });
    let mut all: Vec<Named> = alone.collect();
    all.push(Named {
        name: "MPI_ASYNC_PROTECTS_NONBLOCKING".into(),
        fortran: "logical",
        value: ".false.".into(),
        handle: None,
    });
    all.extend(standard.constants.iter().filter_map(|c| of_c(c, standard)));
    all
}

fn of_c(constant: &Constant, standard: &Standard) -> Option<Named> {
    let name = constant.name.as_str();
    if name.starts_with("MPI_T_") || name.starts_with("MPI_F_") || name.starts_with("MPI_ABI_C") {
        return None;
    }
    let handle = HANDLES.iter().find(|(_, c)| *c == constant.c_type);
    let (fortran, value) = match constant.c_type.as_str() {
        "int" if name.starts_with("MPI_MAX_") => {
            let size: i64 = constant.value.parse().unwrap_or(1);
            ("integer", (size - 1).to_string())
        }
        "int" => ("integer", constant.value.clone()),
        "MPI_Offset" => ("integer(kind=MPI_OFFSET_KIND)", constant.value.clone()),
        "alias" => {
            let of = standard
                .constants
                .iter()
                .find(|c| c.name == constant.value)?;
            let of = of_c(of, standard)?;
            return Some(Named {
                name: name.into(),
                ..of
            });
        }
        _ if handle.is_some() => ("integer", constant.value.clone()),
        _ => return None,
    };
    Some(Named {
        name: name.into(),
        fortran,
        value,
        handle: handle.map(|(_, c)| *c),
    })
}

/// Names of functions that return a value, for `mpif.h`.
const FUNCTIONS: [(&str, &str); 4] = [
    ("double precision", "MPI_WTIME"),
    ("double precision", "MPI_WTICK"),
    ("integer(kind=MPI_ADDRESS_KIND)", "MPI_AINT_ADD"),
    ("integer(kind=MPI_ADDRESS_KIND)", "MPI_AINT_DIFF"),
];

/// `mpif.h`: for fixed and for free form, so each statement is a line between columns 7 and 72.
pub(super) fn header(standard: &Standard) -> String {
    let mut text = String::from(
        "! SPDX-License-Identifier: MIT OR Apache-2.0\n\
         ! Generated by `cargo xtask codegen`; edit runtime/abi/mpi.api\n\
         ! instead. MPI 5.0 section 19.1.4: deprecated; `use mpi_f08` finds\n\
         ! mistakes that this does not.\n",
    );
    for Named {
        name,
        fortran,
        value,
        ..
    } in named(standard)
    {
        let _ = write!(
            text,
            "      {fortran} {name}\n      parameter ({name}={value})\n"
        );
    }
    for block in &BLOCKS {
        let _ = write!(
            text,
            "      {}\n      common /{}/ {}\n      save /{1}/\n",
            block.declared, block.common, block.name
        );
    }
    for (fortran, name) in FUNCTIONS {
        for name in [name.to_owned(), format!("P{name}")] {
            let _ = write!(text, "      {fortran} {name}\n      external {name}\n");
        }
    }
    for name in PREDEFINED {
        let _ = writeln!(text, "      external {name}");
    }
    text
}

/// The constants for the module `mpi`.
pub(super) fn for_mpi(standard: &Standard) -> String {
    let mut text = String::new();
    for Named {
        name,
        fortran,
        value,
        ..
    } in named(standard)
    {
        let _ = writeln!(
            text,
            "  {fortran}, parameter :: {name} = {}",
            of_kind(fortran, &value)
        );
    }
    for block in &BLOCKS {
        let declared = block.declared.replacen(' ', " :: ", 1);
        let _ = write!(
            text,
            "  {declared}\n  common /{}/ {}\n",
            block.common, block.name
        );
    }
    text
}

/// The constants for `mpi_f08`, where handles have derived types.
pub(super) fn for_f08(standard: &Standard) -> String {
    let mut text = String::new();
    for Named {
        name,
        fortran,
        value,
        handle,
    } in named(standard)
    {
        let _ = match handle {
            Some(of) => writeln!(text, "  type({of}), parameter :: {name} = {of}({value})"),
            None => {
                writeln!(
                    text,
                    "  {fortran}, parameter :: {name} = {}",
                    of_kind(fortran, &value)
                )
            }
        };
    }
    for block in &BLOCKS {
        let declared = match block.f08 {
            Some(f08) => f08.to_owned(),
            None => block.declared.replacen(' ', " :: ", 1),
        };
        let _ = write!(
            text,
            "  {declared}\n  common /{}/ {}\n",
            block.common, block.name
        );
    }
    text
}

fn of_kind(fortran: &str, value: &str) -> String {
    match fortran.contains("OFFSET") {
        true => format!("{value}_MPI_OFFSET_KIND"),
        false => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard() -> Standard {
        Standard::parse(
            "head\n",
            include_str!("../../../../../runtime/abi/standard/constants.tsv"),
            "head\n",
        )
    }

    #[test]
    fn the_header_is_for_both_forms() {
        for line in header(&standard()).lines() {
            let is_statement = line.starts_with("      ") && line.as_bytes()[6] != b' ';
            assert!(line.starts_with('!') || is_statement, "{line}");
            assert!(line.len() <= 72, "{line}");
        }
    }

    #[test]
    fn no_two_constants_have_one_name() {
        // Names in Fortran are case-insensitive.
        let mut names: Vec<String> = named(&standard())
            .iter()
            .map(|c| c.name.to_lowercase())
            .collect();
        names.extend(BLOCKS.iter().map(|block| block.name.to_lowercase()));
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count > 250, "{count}");
    }

    #[test]
    fn lengths_do_not_count_a_nul() {
        let header = header(&standard());
        assert!(
            header.contains("parameter (MPI_MAX_ERROR_STRING=511)"),
            "{header}"
        );
        assert!(header.contains("parameter (MPI_COMM_WORLD=257)"));
        assert!(!header.contains("MPI_T_"));
    }
}
