// SPDX-License-Identifier: MIT OR Apache-2.0
//! The constructors of datatypes (MPI 5.0 sections 5.1.2 to 5.1.4, 5.1.7 and 5.1.10).

use core::ffi::c_int;
use std::sync::Arc;

use runtime::datatype::{DarrayDimension, Datatype, Dimension, Spread, TypeBlock};

use crate::args::{CountArray, CountWidth, OutArg};
use crate::attr;
use crate::c::{
    self, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_DFLT_DARG,
    MPI_DISTRIBUTE_NONE, MPI_ORDER_C, MPI_ORDER_FORTRAN,
};
use crate::datatype_contents::{ConstituentType, Recipe};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::MPI_Datatype;
use crate::pt2pt::bad_count;
use crate::state::TypeObject;

/// `MPI_Type_contiguous`.
pub fn contiguous(
    mpi: Mpi,
    width: CountWidth,
    count: i64,
    old: MPI_Datatype,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let items = length_of(count)?;
    let old = Old::of(mpi, old)?;
    let recipe = Recipe::new(c::MPI_COMBINER_CONTIGUOUS).number(width, count);
    finish(
        mpi,
        &new,
        recipe,
        [old.part],
        old.datatype.contiguous(items),
    )
}

/// `MPI_Type_vector`.
pub fn vector(
    mpi: Mpi,
    width: CountWidth,
    count: i64,
    blocklength: i64,
    stride: i64,
    old: MPI_Datatype,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let (items, block) = (length_of(count)?, block_of(blocklength, None)?);
    let old = Old::of(mpi, old)?;
    let recipe = Recipe::new(c::MPI_COMBINER_VECTOR)
        .number(width, count)
        .number(width, blocklength)
        .number(width, stride);
    let stride = stride.checked_mul(old.datatype.extent);
    let made = stride.and_then(|stride| old.datatype.strided(items, block, stride));
    finish(mpi, &new, recipe, [old.part], made)
}

/// `MPI_Type_create_hvector`.
pub fn hvector(
    mpi: Mpi,
    width: CountWidth,
    count: i64,
    blocklength: i64,
    stride: i64,
    old: MPI_Datatype,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let (items, block) = (length_of(count)?, block_of(blocklength, None)?);
    let old = Old::of(mpi, old)?;
    let recipe = Recipe::new(c::MPI_COMBINER_HVECTOR)
        .number(width, count)
        .number(width, blocklength)
        .place(width, stride);
    let made = old.datatype.strided(items, block, stride);
    finish(mpi, &new, recipe, [old.part], made)
}

/// `MPI_Type_indexed`.
pub fn indexed(
    mpi: Mpi,
    blocklengths: CountArray<'_>,
    displacements: CountArray<'_>,
    old: MPI_Datatype,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let old = Old::of(mpi, old)?;
    let recipe = Recipe::new(c::MPI_COMBINER_INDEXED)
        .number(width_of(&blocklengths), in_int(blocklengths.len()))
        .list(&blocklengths)
        .list(&displacements);
    let unit = old.datatype.extent;
    let blocks = BlockList::each(&blocklengths, &displacements, unit)?;
    let made = blocks.of(&old.datatype);
    finish(mpi, &new, recipe, [old.part], made)
}

/// `MPI_Type_create_hindexed`.
pub fn hindexed(
    mpi: Mpi,
    blocklengths: CountArray<'_>,
    displacements: CountArray<'_>,
    old: MPI_Datatype,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let old = Old::of(mpi, old)?;
    let recipe = Recipe::new(c::MPI_COMBINER_HINDEXED)
        .number(width_of(&blocklengths), in_int(blocklengths.len()))
        .list(&blocklengths)
        .list(&displacements);
    let made = BlockList::each(&blocklengths, &displacements, 1)?.of(&old.datatype);
    finish(mpi, &new, recipe, [old.part], made)
}

/// `MPI_Type_create_indexed_block`.
pub fn indexed_block(
    mpi: Mpi,
    width: CountWidth,
    blocklength: i64,
    displacements: CountArray<'_>,
    old: MPI_Datatype,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let old = Old::of(mpi, old)?;
    let recipe = Recipe::new(c::MPI_COMBINER_INDEXED_BLOCK)
        .number(width, in_int(displacements.len()))
        .number(width, blocklength)
        .list(&displacements);
    let unit = old.datatype.extent;
    let made = BlockList::equal(blocklength, &displacements, unit)?.of(&old.datatype);
    finish(mpi, &new, recipe, [old.part], made)
}

/// `MPI_Type_create_hindexed_block`.
pub fn hindexed_block(
    mpi: Mpi,
    width: CountWidth,
    blocklength: i64,
    displacements: CountArray<'_>,
    old: MPI_Datatype,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let old = Old::of(mpi, old)?;
    let recipe = Recipe::new(c::MPI_COMBINER_HINDEXED_BLOCK)
        .number(width, in_int(displacements.len()))
        .number(width, blocklength)
        .list(&displacements);
    let made = BlockList::equal(blocklength, &displacements, 1)?.of(&old.datatype);
    finish(mpi, &new, recipe, [old.part], made)
}

/// `MPI_Type_create_struct`.
pub fn structure(
    mpi: Mpi,
    blocklengths: CountArray<'_>,
    displacements: CountArray<'_>,
    types: &[MPI_Datatype],
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let olds = mpi.state(|state| {
        let old = |(index, handle): (usize, &MPI_Datatype)| {
            let found = ConstituentType::of(state, *handle).and_then(|part| {
                let datatype = state.datatype(*handle)?.datatype;
                Ok(Old { part, datatype })
            });
            found.map_err(|error| {
                let detail = format!("array_of_types[{index}]: {}", error.detail());
                Error::new(error.class(), detail)
            })
        };
        types
            .iter()
            .enumerate()
            .map(old)
            .collect::<Result<Vec<_>>>()
    })?;
    let recipe = Recipe::new(c::MPI_COMBINER_STRUCT)
        .number(width_of(&blocklengths), in_int(blocklengths.len()))
        .list(&blocklengths)
        .list(&displacements);
    let blocks = BlockList::each(&blocklengths, &displacements, 1)?;
    let places = blocks.0.iter().zip(&olds);
    let made = Datatype::blocks(places.map(|(&(count, at), old)| TypeBlock {
        count,
        at,
        of: &old.datatype,
    }));
    finish(
        mpi,
        &new,
        recipe,
        olds.into_iter().map(|old| old.part),
        made,
    )
}

/// `MPI_Type_create_subarray`.
pub fn subarray(
    mpi: Mpi,
    sizes: CountArray<'_>,
    subsizes: CountArray<'_>,
    starts: CountArray<'_>,
    order: c_int,
    old: MPI_Datatype,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    some_dimensions(sizes.len())?;
    let mut dimensions = Vec::with_capacity(sizes.len());
    for index in 0..sizes.len() {
        let (size, part, start) = (sizes.get(index), subsizes.get(index), starts.get(index));
        at_least_one("array_of_sizes", index, size)?;
        within("array_of_subsizes", index, part, 1, size)?;
        within("array_of_starts", index, start, 0, size - part)?;
        dimensions.push(Dimension {
            size: size.unsigned_abs(),
            part: part.unsigned_abs(),
            start: start.unsigned_abs(),
        });
    }
    if is_fastest_first(order)? {
        dimensions.reverse();
    }
    let old = Old::of(mpi, old)?;
    let recipe = Recipe::new(c::MPI_COMBINER_SUBARRAY)
        .integer(c_int::try_from(sizes.len()).unwrap_or(c_int::MAX))
        .list(&sizes)
        .list(&subsizes)
        .list(&starts)
        .integer(order);
    let made = old.datatype.subarray(&dimensions);
    finish(mpi, &new, recipe, [old.part], made)
}

/// `MPI_Type_create_darray`.
pub fn darray(
    mpi: Mpi,
    size: c_int,
    rank: c_int,
    gsizes: CountArray<'_>,
    distribs: &[c_int],
    dargs: &[c_int],
    psizes: &[c_int],
    order: c_int,
    old: MPI_Datatype,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    some_dimensions(gsizes.len())?;
    let places = places_in_grid(size, rank, psizes)?;
    let mut shares = Vec::with_capacity(gsizes.len());
    for (index, process) in places.into_iter().enumerate() {
        let whole = gsizes.get(index);
        at_least_one("array_of_gsizes", index, whole)?;
        let processes = i64::from(psizes[index]);
        let spread = spread(index, distribs[index], dargs[index], whole, processes)?;
        shares.push(DarrayDimension {
            size: whole.unsigned_abs(),
            spread,
            processes: processes.unsigned_abs(),
            process,
        });
    }
    if is_fastest_first(order)? {
        shares.reverse();
    }
    let old = Old::of(mpi, old)?;
    let recipe = Recipe::new(c::MPI_COMBINER_DARRAY)
        .integers(&[size, rank])
        .integer(c_int::try_from(gsizes.len()).unwrap_or(c_int::MAX))
        .list(&gsizes)
        .integers(distribs)
        .integers(dargs)
        .integers(psizes)
        .integer(order);
    let made = old.datatype.share(&shares);
    finish(mpi, &new, recipe, [old.part], made)
}

/// `MPI_Type_create_resized`.
pub fn resized(
    mpi: Mpi,
    width: CountWidth,
    old: MPI_Datatype,
    lb: i64,
    extent: i64,
    new: OutArg<'_, MPI_Datatype>,
) -> Result<()> {
    let old = Old::of(mpi, old)?;
    let recipe = Recipe::new(c::MPI_COMBINER_RESIZED)
        .place(width, lb)
        .place(width, extent);
    let made = old.datatype.resized(lb, extent);
    finish(mpi, &new, recipe, [old.part], made)
}

/// `MPI_Type_dup`. The copy is committed if the original is, and gets copies of its attributes.
pub fn dup(mpi: Mpi, old: MPI_Datatype, new: OutArg<'_, MPI_Datatype>) -> Result<()> {
    let made = mpi.state(|state| {
        let known = state.datatype(old)?;
        let recipe = Recipe::new(c::MPI_COMBINER_DUP).types([ConstituentType::of(state, old)?]);
        state.datatypes.insert(TypeObject {
            datatype: known.datatype,
            committed: known.committed,
            recipe: Arc::new(recipe),
            name: String::new(),
            stands_for: None,
        })
    })?;
    if let Err(error) = attr::copy_all(mpi, old, made) {
        mpi.state(|state| state.datatypes.remove(made).map(drop))?;
        new.set(MPI_Datatype::NULL);
        return Err(error);
    }
    new.set(made);
    Ok(())
}

/// The datatype that a new datatype is made of.
struct Old {
    part: ConstituentType,
    datatype: Arc<Datatype>,
}

impl Old {
    fn of(mpi: Mpi, handle: MPI_Datatype) -> Result<Self> {
        mpi.state(|state| {
            Ok(Self {
                part: ConstituentType::of(state, handle)?,
                datatype: state.datatype(handle)?.datatype,
            })
        })
    }
}

/// Blocks: each a length in items and a displacement in bytes.
struct BlockList(Vec<(u64, i64)>);

impl BlockList {
    /// Blocks of individual lengths; displacements are in units of `unit` bytes.
    fn each(lengths: &CountArray<'_>, displacements: &CountArray<'_>, unit: i64) -> Result<Self> {
        let block = |(index, (length, place)): (usize, (i64, i64))| {
            Ok((block_of(length, Some(index))?, bytes_of(place, unit)?))
        };
        let pairs = lengths.iter().zip(displacements.iter()).enumerate();
        Ok(Self(pairs.map(block).collect::<Result<_>>()?))
    }

    /// Blocks of one length.
    fn equal(length: i64, displacements: &CountArray<'_>, unit: i64) -> Result<Self> {
        let length = block_of(length, None)?;
        let block = |place| Ok((length, bytes_of(place, unit)?));
        Ok(Self(
            displacements.iter().map(block).collect::<Result<_>>()?,
        ))
    }

    fn of(&self, datatype: &Datatype) -> Option<Datatype> {
        Datatype::blocks(self.0.iter().map(|&(count, at)| TypeBlock {
            count,
            at,
            of: datatype,
        }))
    }
}

/// Maximum nesting of constructors. Packing recurses once for each level, and the recursion must fit on the stack of
/// any thread.
const MAX_NESTING: u32 = 1000;

/// Inserts a new datatype, uncommitted, and writes its handle.
fn finish(
    mpi: Mpi,
    new: &OutArg<'_, MPI_Datatype>,
    recipe: Recipe,
    parts: impl IntoIterator<Item = ConstituentType>,
    made: Option<Datatype>,
) -> Result<()> {
    let Some(made) = made else {
        return Err(too_large());
    };
    if made.depth > MAX_NESTING {
        let detail = format!(
            "the datatype is made of datatypes {} deep, at most {MAX_NESTING} are possible",
            made.depth
        );
        return Err(Error::new(ErrorClass::TYPE, detail));
    }
    let object = TypeObject {
        datatype: Arc::new(made),
        committed: false,
        recipe: Arc::new(recipe.types(parts)),
        name: String::new(),
        stands_for: None,
    };
    new.set(mpi.state(|state| state.datatypes.insert(object))?);
    Ok(())
}

fn width_of(counts: &CountArray<'_>) -> CountWidth {
    match counts {
        CountArray::Int(_) => CountWidth::Int,
        CountArray::Large(_) | CountArray::Address(_) => CountWidth::Large,
    }
}

fn in_int(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn length_of(count: i64) -> Result<u64> {
    u64::try_from(count).map_err(|_| bad_count(count))
}

/// The length of a block as an unsigned number; an error if it is negative. `index`: the position of the block in an
/// array, for the error.
fn block_of(length: i64, index: Option<usize>) -> Result<u64> {
    u64::try_from(length).map_err(|_| {
        let which = index.map_or_else(String::new, |index| format!(" at index {index}"));
        let detail = format!("block length {length}{which} is negative");
        Error::new(ErrorClass::ARG, detail)
    })
}

fn bytes_of(displacement: i64, unit: i64) -> Result<i64> {
    displacement.checked_mul(unit).ok_or_else(too_large)
}

#[cold]
fn too_large() -> Error {
    let detail = "the datatype would cover more bytes than there are addresses";
    Error::new(ErrorClass::COUNT, detail)
}

fn some_dimensions(count: usize) -> Result<()> {
    match count {
        0 => Err(wrong("ndims is 0, an array has at least one dimension")),
        _ => Ok(()),
    }
}

fn at_least_one(name: &str, index: usize, value: i64) -> Result<()> {
    match value {
        1.. => Ok(()),
        _ => Err(wrong(format!(
            "{name}[{index}] is {value}, expected at least 1"
        ))),
    }
}

fn within(name: &str, index: usize, value: i64, low: i64, high: i64) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(wrong(format!(
        "{name}[{index}] is {value}, expected {low} to {high}"
    )))
}

/// Whether the first dimension varies fastest in memory (`MPI_ORDER_FORTRAN`).
fn is_fastest_first(order: c_int) -> Result<bool> {
    match order {
        MPI_ORDER_C => Ok(false),
        MPI_ORDER_FORTRAN => Ok(true),
        _ => Err(wrong(format!(
            "order is {order}, expected MPI_ORDER_C ({MPI_ORDER_C}) or MPI_ORDER_FORTRAN ({MPI_ORDER_FORTRAN})"
        ))),
    }
}

/// The coordinates of a process in a grid. Ranks are always in row-major order, also for an array in Fortran order.
fn places_in_grid(size: c_int, rank: c_int, psizes: &[c_int]) -> Result<Vec<u64>> {
    for (index, processes) in psizes.iter().enumerate() {
        at_least_one("array_of_psizes", index, i64::from(*processes))?;
    }
    let all = psizes.iter().try_fold(1i64, |all, processes| {
        all.checked_mul(i64::from(*processes))
    });
    if all != Some(i64::from(size)) {
        return Err(wrong(format!(
            "the process grid has {} places, size is {size}",
            all.map_or_else(|| "too many".to_owned(), |all| all.to_string())
        )));
    }
    if !(0..size).contains(&rank) {
        return Err(wrong(format!("rank is {rank}, expected 0 to {}", size - 1)));
    }
    let mut left = u64::from(rank.unsigned_abs());
    let mut places = vec![0; psizes.len()];
    for (place, processes) in places.iter_mut().zip(psizes).rev() {
        let processes = u64::from(processes.unsigned_abs());
        (*place, left) = (left % processes, left / processes);
    }
    Ok(places)
}

/// The distribution of dimension `index`, of `whole` items, over `processes` (MPI 5.0 section 5.1.4).
fn spread(
    index: usize,
    distribution: c_int,
    length: c_int,
    whole: i64,
    processes: i64,
) -> Result<Spread> {
    let given = (length != MPI_DISTRIBUTE_DFLT_DARG).then(|| i64::from(length));
    if let Some(length) = given
        && distribution != MPI_DISTRIBUTE_NONE
    {
        at_least_one("array_of_dargs", index, length)?;
    }
    match distribution {
        MPI_DISTRIBUTE_NONE if processes == 1 => Ok(Spread::None),
        MPI_DISTRIBUTE_NONE => Err(wrong(format!(
            "array_of_psizes[{index}] is {processes}, expected 1 for a dimension of MPI_DISTRIBUTE_NONE"
        ))),
        MPI_DISTRIBUTE_BLOCK => {
            let least = whole / processes + i64::from(whole % processes != 0);
            let length = given.unwrap_or(least);
            if length < least {
                return Err(wrong(format!(
                    "array_of_dargs[{index}] is {length}, {processes} blocks of at least {least} are needed for {whole} items"
                )));
            }
            Ok(Spread::Block(length.unsigned_abs()))
        }
        MPI_DISTRIBUTE_CYCLIC => Ok(Spread::Cyclic(given.unwrap_or(1).unsigned_abs())),
        _ => Err(wrong(format!(
            "array_of_distribs[{index}] is {distribution}, expected MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC or MPI_DISTRIBUTE_NONE"
        ))),
    }
}

#[cold]
fn wrong(detail: impl Into<String>) -> Error {
    Error::new(ErrorClass::ARG, detail.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn darray_process_grid_is_in_row_major_order() {
        assert_eq!(places_in_grid(6, 4, &[2, 3]), Ok(vec![1, 1]));
        assert_eq!(places_in_grid(6, 5, &[3, 2]), Ok(vec![2, 1]));
        let detail = |result: Result<Vec<u64>>| result.unwrap_err().detail().to_owned();
        assert_eq!(
            detail(places_in_grid(6, 0, &[2, 2])),
            "the process grid has 4 places, size is 6"
        );
        assert_eq!(
            detail(places_in_grid(4, 4, &[4])),
            "rank is 4, expected 0 to 3"
        );
    }

    #[test]
    fn darray_distributions_are_computed_or_rejected() {
        let dealt =
            |distribution, length, processes| spread(0, distribution, length, 10, processes);
        let default = MPI_DISTRIBUTE_DFLT_DARG;
        assert_eq!(
            dealt(MPI_DISTRIBUTE_BLOCK, default, 4),
            Ok(Spread::Block(3))
        );
        assert_eq!(
            dealt(MPI_DISTRIBUTE_CYCLIC, default, 4),
            Ok(Spread::Cyclic(1))
        );
        assert_eq!(dealt(MPI_DISTRIBUTE_NONE, default, 1), Ok(Spread::None));
        assert!(dealt(MPI_DISTRIBUTE_NONE, default, 2).is_err());
        assert!(dealt(MPI_DISTRIBUTE_CYCLIC, 0, 2).is_err());
        let short = dealt(MPI_DISTRIBUTE_BLOCK, 2, 4).unwrap_err();
        assert_eq!(
            short.detail(),
            "array_of_dargs[0] is 2, 4 blocks of at least 3 are needed for 10 items"
        );
        assert!(
            dealt(99, 1, 1)
                .unwrap_err()
                .detail()
                .contains("array_of_distribs[0] is 99")
        );
    }
}
