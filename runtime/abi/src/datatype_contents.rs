// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoding of datatypes: the combiner and the arguments of the constructor (MPI 5.0 section 5.1.13).

use core::ffi::c_int;
use std::sync::Arc;

use crate::args::{CountArray, CountWidth, OutArg, OutArray, OutCount};
use crate::c::MPI_COMBINER_NAMED;
use crate::datatype_table;
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Aint, MPI_Count, MPI_Datatype, describe};
use crate::state::{LibraryState, TypeObject};

/// The constructor call of a datatype: its arguments by kind, in the order of the standard's table.
#[derive(Debug)]
pub struct Recipe {
    combiner: c_int,
    integers: Vec<c_int>,
    addresses: Vec<MPI_Aint>,
    counts: Vec<MPI_Count>,
    types: Vec<ConstituentType>,
}

/// A datatype that another datatype was made of. It exists even after its handle has been freed.
#[derive(Clone, Debug)]
pub enum ConstituentType {
    /// A datatype that cannot be freed.
    Predefined(MPI_Datatype),
    /// A datatype that the program made.
    Made(TypeObject),
}

impl ConstituentType {
    /// The datatype of a handle.
    pub fn of(state: &LibraryState, handle: MPI_Datatype) -> Result<Self> {
        if datatype_table::basic(handle).is_some() {
            return Ok(Self::Predefined(handle));
        }
        let object = state.datatypes.get(handle)?;
        Ok(match object.stands_for {
            Some(_) => Self::Predefined(handle),
            None => Self::Made(TypeObject {
                name: String::new(),
                ..object.clone()
            }),
        })
    }
}

impl Recipe {
    /// A constructor call that has no arguments yet.
    pub fn new(combiner: c_int) -> Self {
        Self {
            combiner,
            integers: Vec::new(),
            addresses: Vec::new(),
            counts: Vec::new(),
            types: Vec::new(),
        }
    }

    /// Adds an argument that is `int` in both the `int` and the large-count form of a constructor.
    #[must_use]
    pub fn integer(mut self, value: c_int) -> Self {
        self.integers.push(value);
        self
    }

    /// Adds an array of arguments that are `int` in both forms.
    #[must_use]
    pub fn integers(mut self, values: &[c_int]) -> Self {
        self.integers.extend(values);
        self
    }

    /// Adds an argument that is `int` in the `int` form and `MPI_Count` in the large-count form.
    #[must_use]
    pub fn number(mut self, width: CountWidth, value: i64) -> Self {
        match width {
            CountWidth::Int => self
                .integers
                .push(c_int::try_from(value).unwrap_or(c_int::MAX)),
            CountWidth::Large => self.counts.push(value),
        }
        self
    }

    /// Adds an argument that is `MPI_Aint` in the `int` form and `MPI_Count` in the large-count form.
    #[must_use]
    pub fn place(mut self, width: CountWidth, value: i64) -> Self {
        match width {
            CountWidth::Int => self
                .addresses
                .push(MPI_Aint::try_from(value).unwrap_or(MPI_Aint::MAX)),
            CountWidth::Large => self.counts.push(value),
        }
        self
    }

    /// Adds an array of arguments to the list of its element type.
    #[must_use]
    pub fn list(mut self, values: &CountArray<'_>) -> Self {
        match values {
            CountArray::Int(list) => self.integers.extend(*list),
            CountArray::Large(list) => self.counts.extend(*list),
            CountArray::Address(list) => self.addresses.extend(*list),
        }
        self
    }

    /// Adds the datatype arguments.
    #[must_use]
    pub fn types(mut self, types: impl IntoIterator<Item = ConstituentType>) -> Self {
        self.types.extend(types);
        self
    }
}

impl Drop for Recipe {
    /// Drops a long chain of nested datatypes iteratively, not recursively.
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.types);
        while let Some(part) = left.pop() {
            if let ConstituentType::Made(object) = part
                && let Some(mut recipe) = Arc::into_inner(object.recipe)
            {
                left.append(&mut recipe.types);
            }
        }
    }
}

/// `MPI_Type_get_envelope`.
pub fn type_get_envelope(
    mpi: Mpi,
    datatype: MPI_Datatype,
    num_integers: OutCount<'_>,
    num_addresses: OutCount<'_>,
    num_large_counts: Option<OutArg<'_, MPI_Count>>,
    num_datatypes: OutCount<'_>,
    combiner: OutArg<'_, c_int>,
) -> Result<()> {
    let known = recipe(mpi, datatype)?;
    let none = Recipe::new(MPI_COMBINER_NAMED);
    let recipe = known.as_deref().unwrap_or(&none);
    match num_large_counts {
        Some(place) => place.set(length(recipe.counts.len())),
        None => no_large_counts(datatype, recipe, "MPI_Type_get_envelope_c")?,
    }
    num_integers.set(length(recipe.integers.len()))?;
    num_addresses.set(length(recipe.addresses.len()))?;
    num_datatypes.set(length(recipe.types.len()))?;
    combiner.set(recipe.combiner);
    Ok(())
}

/// `MPI_Type_get_contents`. The returned handles are new, except those of predefined datatypes.
pub fn type_get_contents(
    mpi: Mpi,
    datatype: MPI_Datatype,
    integers: OutArray<'_, c_int>,
    addresses: OutArray<'_, MPI_Aint>,
    large_counts: Option<OutArray<'_, MPI_Count>>,
    datatypes: OutArray<'_, MPI_Datatype>,
) -> Result<()> {
    let Some(recipe) = recipe(mpi, datatype)? else {
        let detail = format!(
            "{} is predefined, it has no constituents; check its combiner with MPI_Type_get_envelope first",
            describe(datatype.0)
        );
        return Err(Error::new(ErrorClass::TYPE, detail));
    };
    room("max_integers", integers.len(), recipe.integers.len())?;
    room("max_addresses", addresses.len(), recipe.addresses.len())?;
    room("max_datatypes", datatypes.len(), recipe.types.len())?;
    match large_counts {
        Some(places) => {
            room("max_large_counts", places.len(), recipe.counts.len())?;
            places.fill(recipe.counts.iter().copied());
        }
        None => no_large_counts(datatype, &recipe, "MPI_Type_get_contents_c")?,
    }
    integers.fill(recipe.integers.iter().copied());
    addresses.fill(recipe.addresses.iter().copied());
    for (index, part) in recipe.types.iter().enumerate() {
        let handle = match part {
            ConstituentType::Predefined(handle) => *handle,
            ConstituentType::Made(object) => {
                mpi.state(|state| state.datatypes.insert(object.clone()))?
            }
        };
        datatypes.set(index, handle);
    }
    Ok(())
}

/// The constructor call of a datatype; `None` for a predefined one.
fn recipe(mpi: Mpi, datatype: MPI_Datatype) -> Result<Option<Arc<Recipe>>> {
    if datatype_table::basic(datatype).is_some() {
        return Ok(None);
    }
    mpi.state(|state| Ok(Some(Arc::clone(&state.datatypes.get(datatype)?.recipe))))
}

fn length(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn no_large_counts(datatype: MPI_Datatype, recipe: &Recipe, instead: &str) -> Result<()> {
    if recipe.counts.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "datatype {} was made by a function whose name ends in _c; {instead} has room for its arguments",
        describe(datatype.0)
    );
    Err(Error::new(ErrorClass::TYPE, detail))
}

fn room(name: &str, given: usize, needed: usize) -> Result<()> {
    if given >= needed {
        return Ok(());
    }
    let detail = format!("the parameter `{name}` is {given}, the datatype needs {needed}");
    Err(Error::new(ErrorClass::ARG, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype_table::datatype;

    fn object(recipe: Recipe) -> TypeObject {
        TypeObject {
            datatype: datatype(MPI_Datatype::INT).unwrap(),
            committed: false,
            recipe: Arc::new(recipe),
            name: String::new(),
            stands_for: None,
        }
    }

    #[test]
    fn constructor_arguments_are_stored_by_their_width() {
        let small = Recipe::new(1)
            .number(CountWidth::Int, 3)
            .place(CountWidth::Int, -8)
            .list(&CountArray::Int(&[1, 2]));
        assert_eq!(
            (&small.integers[..], &small.addresses[..]),
            (&[3, 1, 2][..], &[-8][..])
        );
        let large = Recipe::new(1)
            .number(CountWidth::Large, 3)
            .place(CountWidth::Large, -8)
            .list(&CountArray::Large(&[1, 2]));
        assert_eq!(
            (large.integers.len(), &large.counts[..]),
            (0, &[3, -8, 1, 2][..])
        );
    }

    #[test]
    fn a_chain_of_a_million_datatypes_is_freed_without_recursion() {
        let mut last =
            object(Recipe::new(1).types([ConstituentType::Predefined(MPI_Datatype::INT)]));
        for _ in 0..1_000_000 {
            last = object(Recipe::new(1).types([ConstituentType::Made(last)]));
        }
        drop(last);
    }
}
