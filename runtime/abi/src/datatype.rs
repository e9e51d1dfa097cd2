// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 chapter 5: addresses, and datatypes that the program makes.

use std::sync::Arc;

use runtime::datatype::Datatype;

use crate::args::{ConstBuf, InOut, Out, OutCount};
use crate::attr;
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Aint, MPI_Count, MPI_Datatype, describe};
use crate::pt2pt::bad_count;
use crate::state::TypeObject;

/// `MPI_Get_address`.
pub fn get_address(location: ConstBuf, address: Out<'_, MPI_Aint>) -> Result<()> {
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

/// `MPI_Type_contiguous`.
pub fn type_contiguous(
    mpi: Mpi,
    count: i64,
    old: MPI_Datatype,
    new: Out<'_, MPI_Datatype>,
) -> Result<()> {
    let count = u64::try_from(count).map_err(|_| bad_count(count))?;
    derive(mpi, old, &new, |old| old.contiguous(count))
}

/// `MPI_Type_vector`.
pub fn type_vector(
    mpi: Mpi,
    count: i64,
    blocklength: i64,
    stride: i64,
    old: MPI_Datatype,
    new: Out<'_, MPI_Datatype>,
) -> Result<()> {
    let (count, block) = lengths(count, blocklength)?;
    derive(mpi, old, &new, |old| {
        old.strided(count, block, stride.checked_mul(old.extent)?)
    })
}

/// `MPI_Type_create_hvector`.
pub fn type_create_hvector(
    mpi: Mpi,
    count: i64,
    blocklength: i64,
    stride: i64,
    old: MPI_Datatype,
    new: Out<'_, MPI_Datatype>,
) -> Result<()> {
    let (count, block) = lengths(count, blocklength)?;
    derive(mpi, old, &new, |old| old.strided(count, block, stride))
}

/// `MPI_Type_dup`.
pub fn type_dup(mpi: Mpi, old: MPI_Datatype, new: Out<'_, MPI_Datatype>) -> Result<()> {
    let object = mpi.state(|state| state.datatype(old))?;
    let made = mpi.state(|state| state.datatypes.insert(object))?;
    if let Err(error) = attr::copy_all(mpi, old, made) {
        mpi.state(|state| state.datatypes.remove(made).map(drop))?;
        new.set(MPI_Datatype::NULL);
        return Err(error);
    }
    new.set(made);
    Ok(())
}

/// `MPI_Type_commit`. Predefined datatypes are committed already.
pub fn type_commit(mpi: Mpi, datatype: InOut<'_, MPI_Datatype>) -> Result<()> {
    let handle = datatype.get();
    mpi.state(|state| {
        if !state.datatype(handle)?.committed {
            state.datatypes.get_mut(handle)?.committed = true;
        }
        Ok(())
    })
}

/// `MPI_Type_free`. Operations that are under way keep what they need.
pub fn type_free(mpi: Mpi, datatype: InOut<'_, MPI_Datatype>) -> Result<()> {
    let handle = datatype.get();
    if crate::datatype_table::basic(handle).is_some() {
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
pub fn type_size_x(mpi: Mpi, datatype: MPI_Datatype, size: Out<'_, MPI_Count>) -> Result<()> {
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
    lb: Out<'_, MPI_Count>,
    extent: Out<'_, MPI_Count>,
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
    lb: Out<'_, MPI_Count>,
    extent: Out<'_, MPI_Count>,
) -> Result<()> {
    let datatype = of(mpi, datatype)?;
    lb.set(datatype.true_lb);
    extent.set(datatype.true_extent);
    Ok(())
}

/// The datatype of a handle.
pub(crate) fn of(mpi: Mpi, datatype: MPI_Datatype) -> Result<Arc<Datatype>> {
    mpi.state(|state| Ok(state.datatype(datatype)?.datatype))
}

fn lengths(count: i64, blocklength: i64) -> Result<(u64, u64)> {
    let length = |value: i64| u64::try_from(value).map_err(|_| bad_count(value));
    Ok((length(count)?, length(blocklength)?))
}

fn derive(
    mpi: Mpi,
    old: MPI_Datatype,
    new: &Out<'_, MPI_Datatype>,
    make: impl FnOnce(&Datatype) -> Option<Datatype>,
) -> Result<()> {
    let old = of(mpi, old)?;
    let Some(made) = make(&old) else {
        let detail = "the datatype would cover more bytes than there are addresses";
        return Err(Error::new(ErrorClass::COUNT, detail));
    };
    let object = TypeObject {
        datatype: Arc::new(made),
        committed: false,
    };
    new.set(mpi.state(|state| state.datatypes.insert(object))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_upper_half_add_and_subtract_like_pointers() {
        let high = isize::MIN + 16;
        assert_eq!(aint_diff(aint_add(high, 64), high), 64);
        assert_eq!(aint_add(isize::MAX, 1), isize::MIN);
    }
}
