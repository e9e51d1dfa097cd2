// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 chapter 5: addresses.

use crate::args::{ConstBuf, Out};
use crate::error::Result;
use crate::handle::MPI_Aint;

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
