// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookup of datatypes: by class and size, or by precision and range (MPI 5.0 section 19.1.5); of pair types by their
//! two parts (section 5.1.14).

use core::ffi::c_int;
use std::sync::Arc;

use crate::args::OutArg;
use crate::c::{
    MPI_COMBINER_F90_COMPLEX, MPI_COMBINER_F90_INTEGER, MPI_COMBINER_F90_REAL,
    MPI_TYPECLASS_COMPLEX, MPI_TYPECLASS_INTEGER, MPI_TYPECLASS_REAL, MPI_UNDEFINED,
    MPIX_TYPECLASS_LOGICAL,
};
use crate::datatype_contents::Recipe;
use crate::datatype_table;
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::MPI_Datatype;
use crate::state::TypeObject;

/// `MPI_Type_match_size`.
pub fn match_size(
    _mpi: Mpi,
    typeclass: c_int,
    size: c_int,
    datatype: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let (name, list) = match typeclass {
        MPI_TYPECLASS_INTEGER => ("MPI_TYPECLASS_INTEGER", INTEGERS),
        MPI_TYPECLASS_REAL => ("MPI_TYPECLASS_REAL", REALS),
        MPI_TYPECLASS_COMPLEX => ("MPI_TYPECLASS_COMPLEX", COMPLEXES),
        MPIX_TYPECLASS_LOGICAL => ("MPIX_TYPECLASS_LOGICAL", LOGICALS),
        _ => {
            let detail = format!(
                "typeclass is {typeclass}, expected MPI_TYPECLASS_INTEGER, MPI_TYPECLASS_REAL or MPI_TYPECLASS_COMPLEX"
            );
            return Err(Error::new(ErrorClass::ARG, detail));
        }
    };
    let Some((_, found)) = list.iter().find(|(bytes, _)| *bytes == size) else {
        let sizes: Vec<String> = list.iter().map(|(bytes, _)| bytes.to_string()).collect();
        let detail = format!(
            "no datatype of {name} has {size} bytes, there are those of {}",
            sizes.join(", ")
        );
        return Err(Error::new(ErrorClass::ARG, detail));
    };
    datatype.set(*found);
    Ok(())
}

/// `MPI_Type_create_f90_integer`.
pub fn create_f90_integer(mpi: Mpi, r: c_int, new: OutArg<'_, MPI_Datatype>) -> Result<()> {
    let fitting = INTEGER_RANGES.iter().find(|(range, _)| r <= *range);
    let found = fitting.filter(|_| r >= 0).map(|(_, found)| *found);
    let detail = || format!("no integer has {r} decimal digits, the longest has 38");
    f90(mpi, [MPI_COMBINER_F90_INTEGER, r, 0], found, detail, &new)
}

/// `MPI_Type_create_f90_real`.
pub fn create_f90_real(mpi: Mpi, p: c_int, r: c_int, new: OutArg<'_, MPI_Datatype>) -> Result<()> {
    let found = precise(p, r).map(|(real, _)| real);
    let key = [MPI_COMBINER_F90_REAL, p, r];
    f90(mpi, key, found, || imprecise(p, r), &new)
}

/// `MPI_Type_create_f90_complex`.
pub fn create_f90_complex(
    mpi: Mpi,
    p: c_int,
    r: c_int,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let found = precise(p, r).map(|(_, complex)| complex);
    let key = [MPI_COMBINER_F90_COMPLEX, p, r];
    f90(mpi, key, found, || imprecise(p, r), &new)
}

/// `MPI_Type_get_value_index`: `MPI_DATATYPE_NULL` if there is no such pair.
pub fn get_value_index(
    mpi: Mpi,
    value: MPI_Datatype,
    index: MPI_Datatype,
    pair: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    for given in [value, index] {
        crate::datatype::of(mpi, given)?;
    }
    let known = PAIRS.iter().find(|(v, i, _)| (*v, *i) == (value, index));
    pair.set(known.map_or(MPI_Datatype::NULL, |(_, _, pair)| *pair));
    Ok(())
}

/// The datatype of a key. The datatype is made at the first call with the key, so equal parameters give the same
/// handle.
fn f90(
    mpi: Mpi,
    key: [c_int; 3],
    found: Option<MPI_Datatype>,
    detail: impl FnOnce() -> String,
    new: &OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let found = found.ok_or_else(|| Error::new(ErrorClass::ARG, detail()))?;
    let handle = mpi.state(|state| {
        if let Some(known) = state.f90_types.get(&key) {
            return Ok::<_, Error>(*known);
        }
        let [combiner, first, second] = key;
        let recipe = Recipe::new(combiner).integer(first);
        let recipe = match combiner {
            MPI_COMBINER_F90_INTEGER => recipe,
            _ => recipe.integer(second),
        };
        let object = TypeObject {
            datatype: state.datatype(found)?.datatype,
            committed: true,
            recipe: Arc::new(recipe),
            name: String::new(),
            stands_for: datatype_table::basic(found),
        };
        let handle = state.datatypes.insert(object)?;
        state.f90_types.insert(key, handle);
        Ok(handle)
    })?;
    new.set(handle);
    Ok(())
}

/// The real and the complex type with at least `p` decimal digits and a decimal exponent range of at least `r`.
fn precise(p: c_int, r: c_int) -> Option<(MPI_Datatype, MPI_Datatype)> {
    let wanted = |value: c_int| match value {
        MPI_UNDEFINED => Some(0),
        other => (other >= 0).then_some(other),
    };
    let (digits, range) = (wanted(p)?, wanted(r)?);
    if p == MPI_UNDEFINED && r == MPI_UNDEFINED {
        return None;
    }
    let fits =
        |row: &&(c_int, c_int, MPI_Datatype, MPI_Datatype)| digits <= row.0 && range <= row.1;
    let (_, _, real, complex) = PRECISIONS.iter().find(fits)?;
    Some((*real, *complex))
}

fn imprecise(p: c_int, r: c_int) -> String {
    format!(
        "no real number has precision {p} and range {r}, expected 0 to 33 and 0 to 4931, one of them may be MPI_UNDEFINED"
    )
}

const INTEGERS: &[(c_int, MPI_Datatype)] = &[
    (1, MPI_Datatype::INTEGER1),
    (2, MPI_Datatype::INTEGER2),
    (4, MPI_Datatype::INTEGER4),
    (8, MPI_Datatype::INTEGER8),
    (16, MPI_Datatype::INTEGER16),
];

const REALS: &[(c_int, MPI_Datatype)] = &[
    (2, MPI_Datatype::REAL2),
    (4, MPI_Datatype::REAL4),
    (8, MPI_Datatype::REAL8),
    (16, MPI_Datatype::REAL16),
];

const COMPLEXES: &[(c_int, MPI_Datatype)] = &[
    (4, MPI_Datatype::COMPLEX4),
    (8, MPI_Datatype::COMPLEX8),
    (16, MPI_Datatype::COMPLEX16),
    (32, MPI_Datatype::COMPLEX32),
];

const LOGICALS: &[(c_int, MPI_Datatype)] = &[
    (1, MPI_Datatype::LOGICAL1),
    (2, MPI_Datatype::LOGICAL2),
    (4, MPI_Datatype::LOGICAL4),
    (8, MPI_Datatype::LOGICAL8),
    (16, MPI_Datatype::LOGICAL16),
];

/// Decimal exponent range of each integer type.
const INTEGER_RANGES: &[(c_int, MPI_Datatype)] = &[
    (2, MPI_Datatype::INTEGER1),
    (4, MPI_Datatype::INTEGER2),
    (9, MPI_Datatype::INTEGER4),
    (18, MPI_Datatype::INTEGER8),
    (38, MPI_Datatype::INTEGER16),
];

/// Decimal digits, decimal exponent range, real type and complex type.
const PRECISIONS: &[(c_int, c_int, MPI_Datatype, MPI_Datatype)] = &[
    (6, 37, MPI_Datatype::REAL4, MPI_Datatype::COMPLEX8),
    (15, 307, MPI_Datatype::REAL8, MPI_Datatype::COMPLEX16),
    (33, 4931, MPI_Datatype::REAL16, MPI_Datatype::COMPLEX32),
];

const PAIRS: &[(MPI_Datatype, MPI_Datatype, MPI_Datatype)] = &[
    (
        MPI_Datatype::FLOAT,
        MPI_Datatype::INT,
        MPI_Datatype::FLOAT_INT,
    ),
    (
        MPI_Datatype::DOUBLE,
        MPI_Datatype::INT,
        MPI_Datatype::DOUBLE_INT,
    ),
    (
        MPI_Datatype::LONG,
        MPI_Datatype::INT,
        MPI_Datatype::LONG_INT,
    ),
    (MPI_Datatype::INT, MPI_Datatype::INT, MPI_Datatype::TWO_INT),
    (
        MPI_Datatype::SHORT,
        MPI_Datatype::INT,
        MPI_Datatype::SHORT_INT,
    ),
    (
        MPI_Datatype::LONG_DOUBLE,
        MPI_Datatype::INT,
        MPI_Datatype::LONG_DOUBLE_INT,
    ),
    (
        MPI_Datatype::REAL,
        MPI_Datatype::REAL,
        MPI_Datatype::TWO_REAL,
    ),
    (
        MPI_Datatype::DOUBLE_PRECISION,
        MPI_Datatype::DOUBLE_PRECISION,
        MPI_Datatype::TWO_DOUBLE_PRECISION,
    ),
    (
        MPI_Datatype::INTEGER,
        MPI_Datatype::INTEGER,
        MPI_Datatype::TWO_INTEGER,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype_table::{BasicItem, basic};

    #[test]
    fn size_lists_match_the_sizes_of_the_datatypes() {
        for (bytes, datatype) in [INTEGERS, REALS, COMPLEXES, LOGICALS].concat() {
            assert_eq!(basic(datatype).map(|b| c_int::from(b.size)), Some(bytes));
        }
    }

    #[test]
    fn f90_real_selects_the_smallest_sufficient_precision() {
        let real = |p, r| precise(p, r).map(|(real, _)| real);
        assert_eq!(real(6, 37), Some(MPI_Datatype::REAL4));
        assert_eq!(real(7, MPI_UNDEFINED), Some(MPI_Datatype::REAL8));
        assert_eq!(real(MPI_UNDEFINED, 308), Some(MPI_Datatype::REAL16));
        assert_eq!(
            (real(34, 1), real(1, 5000), real(-1, 1)),
            (None, None, None)
        );
        assert_eq!(real(MPI_UNDEFINED, MPI_UNDEFINED), None);
    }

    #[test]
    fn pair_datatypes_consist_of_their_value_and_index() {
        for (value, index, pair) in PAIRS {
            let part = |datatype| match basic(datatype).unwrap().shape {
                BasicItem::One(scalar) => scalar,
                other => panic!("{other:?}"),
            };
            let BasicItem::Pair {
                value: v, index: i, ..
            } = basic(*pair).unwrap().shape
            else {
                panic!("{pair:?} is no pair");
            };
            assert_eq!((v, i), (part(*value), part(*index)));
        }
    }
}
