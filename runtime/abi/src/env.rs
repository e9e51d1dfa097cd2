// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 chapter 9: versions, error strings, memory, time; with `MPI_Pcontrol` (chapter 15) and `MPI_Abi_get_version`
//! (chapter 20).

use core::ffi::c_int;

use crate::args::{ExtraState, MutBuf, OutArg, OutString};
use crate::c::{
    MPI_ABI_SUBVERSION, MPI_ABI_VERSION, MPI_ERR_LASTCODE, MPI_SUBVERSION, MPI_SUCCESS, MPI_VERSION,
};
use crate::clock;
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result, string_of};
use crate::handle::{MPI_Aint, MPI_Info};

/// `MPI_Get_version`.
pub fn get_version(version: OutArg<'_, c_int>, subversion: OutArg<'_, c_int>) -> Result<()> {
    version.set(MPI_VERSION);
    subversion.set(MPI_SUBVERSION);
    Ok(())
}

/// `MPI_Abi_get_version`.
pub fn abi_get_version(major: OutArg<'_, c_int>, minor: OutArg<'_, c_int>) -> Result<()> {
    major.set(MPI_ABI_VERSION);
    minor.set(MPI_ABI_SUBVERSION);
    Ok(())
}

/// `MPI_Get_library_version`.
pub fn get_library_version(version: OutString<'_>, resultlen: OutArg<'_, c_int>) -> Result<()> {
    let text = format!(
        "rmpi {} (MPI {MPI_VERSION}.{MPI_SUBVERSION}, standard ABI {MPI_ABI_VERSION}.{MPI_ABI_SUBVERSION})",
        env!("CARGO_PKG_VERSION")
    );
    resultlen.set(c_length(version.set(&text)));
    Ok(())
}

/// `MPI_Error_class`: a code of this library is its own class.
pub fn error_class(code: c_int, class: OutArg<'_, c_int>) -> Result<()> {
    let found = ErrorClass(code).of_code();
    class.set(found.ok_or_else(|| unknown_code(code))?.0);
    Ok(())
}

/// `MPI_Error_string`.
pub fn error_string(
    code: c_int,
    string: OutString<'_>,
    resultlen: OutArg<'_, c_int>,
) -> Result<()> {
    let text = string_of(code).ok_or_else(|| unknown_code(code))?;
    resultlen.set(c_length(string.set(&text)));
    Ok(())
}

/// `MPI_Get_processor_name`: the host's name.
pub fn get_processor_name(_mpi: Mpi, name: OutString<'_>, length: OutArg<'_, c_int>) -> Result<()> {
    length.set(c_length(name.set(&crate::process::host())));
    Ok(())
}

/// `MPI_Alloc_mem`.
pub fn alloc_mem(
    mpi: Mpi,
    size: MPI_Aint,
    _info: MPI_Info,
    base: OutArg<'_, ExtraState>,
) -> Result<()> {
    let bytes = usize::try_from(size).map_err(|_| {
        Error::new(
            ErrorClass::ARG,
            format!("the size is {size}, it must not be negative"),
        )
    })?;
    base.set(ExtraState(crate::memory::allocate(mpi, bytes)?));
    Ok(())
}

/// `MPI_Free_mem`.
pub fn free_mem(mpi: Mpi, base: MutBuf) -> Result<()> {
    crate::memory::free(mpi, base.0)
}

fn unknown_code(code: c_int) -> Error {
    Error::new(
        ErrorClass::ARG,
        format!(
            "{code} is no error code of MPI, which lie between {MPI_SUCCESS} and {MPI_ERR_LASTCODE}, and none that \
             the program added"
        ),
    )
}

/// `MPI_Wtime`.
pub fn wtime() -> f64 {
    clock::now()
}

/// `MPI_Wtick`.
pub fn wtick() -> f64 {
    clock::resolution()
}

/// `MPI_Pcontrol` (MPI 5.0 section 15.2.4): for profiling tools; no effect in the library.
pub fn pcontrol(_level: c_int) -> Result<()> {
    Ok(())
}

/// A length as a C int. The lengths are below the `MPI_MAX_` constants, so they fit.
fn c_length(length: usize) -> c_int {
    c_int::try_from(length).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wtime_does_not_decrease_and_wtick_is_at_most_a_microsecond() {
        let first = wtime();
        assert!(wtime() >= first && first > 0.0);
        assert!(wtick() > 0.0 && wtick() <= 1e-6);
    }
}
