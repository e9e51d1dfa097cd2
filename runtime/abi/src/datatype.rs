// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 chapter 5: addresses; sizes, bounds, names, commit and free of datatypes.

use core::ffi::{CStr, c_int};
use std::sync::Arc;

use runtime::datatype::Datatype;

use crate::args::{ConstBuf, InOutArg, OutArg, OutCount, OutString};
use crate::attr;
use crate::c::MPI_MAX_OBJECT_NAME;
use crate::datatype_table;
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result, truncate};
use crate::handle::{MPI_Aint, MPI_Count, MPI_Datatype, describe};
use crate::state::TypeObject;

/// `MPI_Get_address`.
pub fn get_address(location: ConstBuf, address: OutArg<'_, MPI_Aint>) -> Result<()> {
    address.set(location.address().cast_signed());
    Ok(())
}

/// `MPI_Aint_add`.
pub fn aint_add(base: MPI_Aint, displacement: MPI_Aint) -> MPI_Aint {
    base.wrapping_add(displacement)
}

/// `MPI_Aint_diff`.
pub fn aint_diff(first: MPI_Aint, second: MPI_Aint) -> MPI_Aint {
    first.wrapping_sub(second)
}

/// `MPI_Type_commit`. Predefined datatypes are committed already.
pub fn type_commit(mpi: Mpi, datatype: InOutArg<'_, MPI_Datatype>) -> Result<()> {
    let handle = datatype.get();
    mpi.state(|state| {
        if !state.datatype(handle)?.committed {
            let commit = |object: &mut TypeObject| object.committed = true;
            state.datatypes.change(handle, commit)?;
        }
        Ok(())
    })
}

/// `MPI_Type_free`. Operations in progress keep a reference.
pub fn type_free(mpi: Mpi, datatype: InOutArg<'_, MPI_Datatype>) -> Result<()> {
    let handle = datatype.get();
    let predefined = datatype_table::basic(handle).is_some()
        || mpi.state(|state| Ok::<_, Error>(state.datatypes.get(handle)?.stands_for.is_some()))?;
    if predefined {
        let detail = format!("{} is predefined and cannot be freed", describe(handle.0));
        return Err(Error::new(ErrorClass::TYPE, detail));
    }
    of(mpi, handle)?;
    attr::delete_all(mpi, handle)?;
    mpi.state(|state| state.datatypes.remove(handle).map(drop))?;
    datatype.set(MPI_Datatype::NULL);
    Ok(())
}

/// `MPI_Type_size`.
pub fn type_size(mpi: Mpi, datatype: MPI_Datatype, size: OutCount<'_>) -> Result<()> {
    let datatype = of(mpi, datatype)?;
    size.set_or_undefined(i64::try_from(datatype.size).ok());
    Ok(())
}

/// `MPI_Type_size_x`.
pub fn type_size_x(mpi: Mpi, datatype: MPI_Datatype, size: OutArg<'_, MPI_Count>) -> Result<()> {
    let datatype = of(mpi, datatype)?;
    size.set(i64::try_from(datatype.size).unwrap_or_else(|_| crate::c::MPI_UNDEFINED.into()));
    Ok(())
}

/// `MPI_Type_get_extent`.
pub fn type_get_extent(
    mpi: Mpi,
    datatype: MPI_Datatype,
    lb: OutCount<'_>,
    extent: OutCount<'_>,
) -> Result<()> {
    let datatype = of(mpi, datatype)?;
    lb.set(datatype.lb)?;
    extent.set(datatype.extent)
}

/// `MPI_Type_get_extent_x`.
pub fn type_get_extent_x(
    mpi: Mpi,
    datatype: MPI_Datatype,
    lb: OutArg<'_, MPI_Count>,
    extent: OutArg<'_, MPI_Count>,
) -> Result<()> {
    let datatype = of(mpi, datatype)?;
    lb.set(datatype.lb);
    extent.set(datatype.extent);
    Ok(())
}

/// `MPI_Type_get_true_extent`.
pub fn type_get_true_extent(
    mpi: Mpi,
    datatype: MPI_Datatype,
    lb: OutCount<'_>,
    extent: OutCount<'_>,
) -> Result<()> {
    let datatype = of(mpi, datatype)?;
    lb.set(datatype.true_lb)?;
    extent.set(datatype.true_extent)
}

/// `MPI_Type_get_true_extent_x`.
pub fn type_get_true_extent_x(
    mpi: Mpi,
    datatype: MPI_Datatype,
    lb: OutArg<'_, MPI_Count>,
    extent: OutArg<'_, MPI_Count>,
) -> Result<()> {
    let datatype = of(mpi, datatype)?;
    lb.set(datatype.true_lb);
    extent.set(datatype.true_extent);
    Ok(())
}

/// `MPI_Type_get_name`.
pub fn type_get_name(
    mpi: Mpi,
    datatype: MPI_Datatype,
    name: OutString<'_>,
    length: OutArg<'_, c_int>,
) -> Result<()> {
    let text = mpi.state(|state| -> Result<String> {
        if let Some(given) = state.type_names.get(&datatype.0) {
            return Ok(given.clone());
        }
        // MPI_DATATYPE_NULL has a name too.
        match datatype_table::name(datatype).or_else(|| null_name(datatype)) {
            Some(initial) => Ok(initial.to_owned()),
            None => Ok(state.datatypes.get(datatype)?.name.clone()),
        }
    })?;
    let written = name.set(&text);
    length.set(c_int::try_from(written).unwrap_or(c_int::MAX));
    Ok(())
}

/// `MPI_Type_set_name`.
pub fn type_set_name(mpi: Mpi, datatype: MPI_Datatype, name: &CStr) -> Result<()> {
    let mut text = name.to_string_lossy().into_owned();
    truncate(&mut text, MPI_MAX_OBJECT_NAME - 1);
    mpi.state(|state| {
        if datatype_table::basic(datatype).is_some() {
            state.type_names.insert(datatype.0, text);
        } else {
            let rename = |object: &mut TypeObject| object.name = text;
            state.datatypes.change(datatype, rename)?;
        }
        Ok(())
    })
}

fn null_name(datatype: MPI_Datatype) -> Option<&'static str> {
    (datatype == MPI_Datatype::NULL).then_some("MPI_DATATYPE_NULL")
}

/// The datatype of a handle.
pub(crate) fn of(mpi: Mpi, datatype: MPI_Datatype) -> Result<Arc<Datatype>> {
    mpi.state(|state| Ok(state.datatype(datatype)?.datatype))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aint_arithmetic_wraps_like_pointers() {
        let high = isize::MIN + 16;
        assert_eq!(aint_diff(aint_add(high, 64), high), 64);
        assert_eq!(aint_add(isize::MAX, 1), isize::MIN);
    }
}
