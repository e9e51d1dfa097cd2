// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 chapter 20: queries of the ABI, and the Fortran settings of a program or of language bindings.

use core::ffi::{CStr, c_int};
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::args::{OutArg, OutArray};
use crate::datatype_table::basic;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Aint, MPI_Count, MPI_Datatype, MPI_Info, MPI_Offset};
use crate::info::{InfoPairs, hints, insert};

/// The Fortran settings.
struct Fortran {
    info: Option<InfoPairs>,
    /// The values of `.TRUE.` and `.FALSE.`, for logicals of 1, 2, 4, 8 and 16 bytes.
    booleans: [Option<Booleans>; 5],
}

/// The bytes of `.TRUE.` and `.FALSE.` for one size of logicals; only the first bytes, up to that size, are used.
#[derive(Clone, Copy)]
struct Booleans {
    yes: [u8; 16],
    no: [u8; 16],
}

static FORTRAN: Mutex<Fortran> = Mutex::new(Fortran {
    info: None,
    booleans: [None; 5],
});

fn fortran() -> MutexGuard<'static, Fortran> {
    FORTRAN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `MPI_Abi_get_info`: the sizes of the integer types.
pub fn abi_get_info(info: OutArg<'_, MPI_Info>) -> Result<()> {
    let mut pairs = InfoPairs::default();
    for (key, bytes) in [
        (c"mpi_aint_size", size_of::<MPI_Aint>()),
        (c"mpi_count_size", size_of::<MPI_Count>()),
        (c"mpi_offset_size", size_of::<MPI_Offset>()),
    ] {
        let value = CString::new(bytes.to_string()).unwrap_or_default();
        pairs.set(key, &value);
    }
    info.set(insert(pairs)?);
    Ok(())
}

/// `MPI_Abi_get_fortran_info`: the info that was set, or `MPI_INFO_NULL`.
pub fn abi_get_fortran_info(info: OutArg<'_, MPI_Info>) -> Result<()> {
    let found = fortran().info.clone();
    info.set(match found {
        Some(pairs) => insert(pairs)?,
        None => MPI_Info::NULL,
    });
    Ok(())
}

/// `MPI_Abi_set_fortran_info`: the info can be set only once, and must agree with the library's Fortran datatypes.
pub fn abi_set_fortran_info(info: MPI_Info) -> Result<()> {
    let pairs = hints(info)?;
    for (key, datatype) in SIZES {
        check_size(&pairs, key, *datatype)?;
    }
    let mut fortran = fortran();
    if fortran.info.is_some() {
        return Err(Error::new(
            ErrorClass::ABI,
            "the Fortran information is set already; it can be set once",
        ));
    }
    fortran.info = Some(pairs);
    Ok(())
}

/// Info keys for the sizes of Fortran types (MPI 5.0 section 20.5), each with its type.
const SIZES: &[(&CStr, MPI_Datatype)] = &[
    (c"mpi_logical_size", MPI_Datatype::LOGICAL),
    (c"mpi_integer_size", MPI_Datatype::INTEGER),
    (c"mpi_real_size", MPI_Datatype::REAL),
    (c"mpi_double_precision_size", MPI_Datatype::DOUBLE_PRECISION),
];

fn check_size(pairs: &InfoPairs, key: &CStr, datatype: MPI_Datatype) -> Result<()> {
    let ours = basic(datatype).map_or(0, |basic| basic.size);
    let Some(found) = pairs.get(key) else {
        return Ok(());
    };
    if found
        .to_str()
        .is_ok_and(|text| text.trim().parse() == Ok(ours))
    {
        return Ok(());
    }
    Err(Error::new(
        ErrorClass::ABI,
        format!(
            "{key:?} is {found:?}, this library's type has {ours} bytes; compile without options that change it"
        ),
    ))
}

/// `MPI_Abi_get_fortran_booleans`.
pub fn abi_get_fortran_booleans(
    logical_true: OutArray<'_, u8>,
    logical_false: OutArray<'_, u8>,
    is_set: OutArg<'_, c_int>,
) -> Result<()> {
    let known = fortran().booleans[slot(logical_true.len())?];
    if let Some(known) = known {
        logical_true.fill(known.yes);
        logical_false.fill(known.no);
    }
    is_set.set(c_int::from(known.is_some()));
    Ok(())
}

/// `MPI_Abi_set_fortran_booleans`: the values can be set once for each size.
pub fn abi_set_fortran_booleans(logical_true: &[u8], logical_false: &[u8]) -> Result<()> {
    let slot = slot(logical_true.len())?;
    let mut fortran = fortran();
    if fortran.booleans[slot].is_some() {
        let bytes = logical_true.len();
        return Err(Error::new(
            ErrorClass::ABI,
            format!("the logicals of {bytes} bytes are set already; they can be set once"),
        ));
    }
    let mut found = Booleans {
        yes: [0; 16],
        no: [0; 16],
    };
    found.yes[..logical_true.len()].copy_from_slice(logical_true);
    found.no[..logical_false.len()].copy_from_slice(logical_false);
    fortran.booleans[slot] = Some(found);
    Ok(())
}

/// Index in `booleans` of logicals of this many bytes.
fn slot(bytes: usize) -> Result<usize> {
    let slot = [1, 2, 4, 8, 16].iter().position(|known| *known == bytes);
    slot.ok_or_else(|| {
        Error::new(
            ErrorClass::ARG,
            format!("logical_size is {bytes}, it must be 1, 2, 4, 8 or 16"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fortran_booleans_can_be_set_once_per_size() {
        abi_set_fortran_booleans(&[1, 0, 0, 0], &[0; 4]).unwrap();
        let refused = abi_set_fortran_booleans(&[255; 4], &[0; 4]).unwrap_err();
        assert_eq!(refused.class(), ErrorClass::ABI);
        assert_eq!(fortran().booleans[2].map(|found| found.yes[0]), Some(1));
        assert!(fortran().booleans[3].is_none());
        assert_eq!(slot(3).unwrap_err().class(), ErrorClass::ARG);
    }

    #[test]
    fn fortran_info_with_wrong_sizes_or_set_twice_is_rejected() {
        let mut pairs = InfoPairs::default();
        pairs.set(c"mpi_integer_size", c"8");
        let wrong = insert(pairs.clone()).unwrap();
        let refused = abi_set_fortran_info(wrong).unwrap_err();
        assert_eq!(refused.class(), ErrorClass::ABI);
        assert!(
            refused.detail().contains("mpi_integer_size") && refused.detail().contains("4 bytes"),
            "{refused}"
        );
        pairs.set(c"mpi_integer_size", c"4");
        let right = insert(pairs).unwrap();
        abi_set_fortran_info(right).unwrap();
        assert_eq!(
            abi_set_fortran_info(right).unwrap_err().class(),
            ErrorClass::ABI
        );
    }
}
