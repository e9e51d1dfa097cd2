// SPDX-License-Identifier: MIT OR Apache-2.0
//! A slot map from handles to objects. Its errors describe the invalid handle.

use std::collections::VecDeque;
use std::marker::PhantomData;

use crate::error::{Error, ErrorClass};
use crate::handle::{self, Handle, HandleKind, HandleParts, MAX_OBJECTS};

/// All objects of one handle type.
///
/// ```
/// use mpi_abi::handle::MPI_Info;
/// use mpi_abi::registry::HandleRegistry;
///
/// let mut infos: HandleRegistry<MPI_Info, &str> = HandleRegistry::new();
/// let info = infos.insert("first").unwrap();
/// assert_eq!(infos.get(info), Ok(&"first"));
/// infos.remove(info).unwrap();
/// assert!(infos.get(info).unwrap_err().detail().ends_with("is a freed info object handle"));
/// ```
pub struct HandleRegistry<H, T> {
    slots: Vec<RegistrySlot<T>>,
    /// Free slots, the least recently freed first. A freed slot is not reused soon: the generation has only 8 bits, so
    /// frequent reuse would soon make a stale handle valid again.
    free: VecDeque<usize>,
    handle: PhantomData<fn(H) -> H>,
}

/// A slot for an object, with its generation.
struct RegistrySlot<T> {
    generation: u8,
    object: Option<T>,
}

impl<H: Handle, T> HandleRegistry<H, T> {
    /// An empty registry.
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
            handle: PhantomData,
        }
    }

    /// Inserts `object` and returns its handle.
    pub fn insert(&mut self, object: T) -> Result<H, Error> {
        // `WAITING` free slots stay unused until no slot can be added, so that a freed slot is not reused soon.
        let reuse = self.free.len() > WAITING || self.slots.len() == MAX_OBJECTS;
        let reused = if reuse { self.free.pop_front() } else { None };
        let index = match reused {
            Some(index) => index,
            None => self.grow()?,
        };
        let slot = &mut self.slots[index];
        slot.object = Some(object);
        Ok(H::from_bits(
            HandleParts {
                index,
                generation: slot.generation,
            }
            .bits(H::KIND),
        ))
    }

    /// The object of `handle`.
    pub fn get(&self, handle: H) -> Result<&T, Error> {
        let object = HandleParts::of(H::KIND, handle.bits()).and_then(|place| {
            let slot = self.slots.get(place.index)?;
            slot.object
                .as_ref()
                .filter(|_| slot.generation == place.generation)
        });
        object.ok_or_else(|| not_here(handle, self.slots.len()))
    }

    /// The object of `handle`, mutable.
    pub fn get_mut(&mut self, handle: H) -> Result<&mut T, Error> {
        let issued = self.slots.len();
        match self
            .index(handle)
            .and_then(|index| self.slots.get_mut(index))
        {
            Some(RegistrySlot {
                object: Some(object),
                ..
            }) => Ok(object),
            _ => Err(not_here::<H>(handle, issued)),
        }
    }

    /// Removes the object of `handle`; the handle becomes stale.
    pub fn remove(&mut self, handle: H) -> Result<T, Error> {
        let taken = self
            .index(handle)
            .and_then(|index| Some((index, self.slots[index].object.take()?)));
        let Some((index, object)) = taken else {
            return Err(not_here(handle, self.slots.len()));
        };
        self.slots[index].generation = self.slots[index].generation.wrapping_add(1);
        self.free.push_back(index);
        Ok(object)
    }

    /// Every object with its handle.
    pub fn iter(&self) -> impl Iterator<Item = (H, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let place = HandleParts {
                index,
                generation: slot.generation,
            };
            Some((H::from_bits(place.bits(H::KIND)), slot.object.as_ref()?))
        })
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.slots
            .iter()
            .filter(|slot| slot.object.is_some())
            .count()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn index(&self, handle: H) -> Option<usize> {
        let place = HandleParts::of(H::KIND, handle.bits())?;
        let slot = self.slots.get(place.index)?;
        (slot.generation == place.generation).then_some(place.index)
    }

    fn grow(&mut self) -> Result<usize, Error> {
        if self.slots.len() == MAX_OBJECTS {
            let noun = H::KIND.noun();
            return Err(Error::new(
                ErrorClass::NO_MEM,
                format!("{MAX_OBJECTS} {noun} handles are in use, no more fit; free some"),
            ));
        }
        self.slots.push(RegistrySlot {
            generation: 0,
            object: None,
        });
        Ok(self.slots.len() - 1)
    }
}

/// The error for a handle that has no object. `issued`: the number of slots of the registry.
#[cold]
fn not_here<H: Handle>(handle: H, issued: usize) -> Error {
    let freed = HandleParts::of(H::KIND, handle.bits()).is_some_and(|place| place.index < issued);
    if freed {
        let detail = format!("{:#x} is a freed {} handle", handle.bits(), H::KIND.noun());
        return Error::new(H::KIND.error_class(), detail);
    }
    not_a(H::KIND, handle.bits())
}

impl<H: Handle, T> Default for HandleRegistry<H, T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A free slot is reused only if there are more free slots than this, or no slot can be added.
const WAITING: usize = 64;

/// The error for a number that is not a handle of this kind; it describes what the number is instead.
#[cold]
pub fn not_a(kind: HandleKind, bits: usize) -> Error {
    let given = handle::describe(bits);
    let predefined = handle::predefined_name(bits).is_some();
    let detail = match HandleKind::of(bits) {
        Some(other) if other != kind && predefined => {
            format!("{given} is {}, not {}", other.a_noun(), kind.a_noun())
        }
        Some(other) if other != kind => {
            format!(
                "{given} is {} handle, not {}",
                other.a_noun(),
                kind.a_noun()
            )
        }
        Some(_) if given.ends_with("_NULL") => format!("{given} is not {}", kind.a_noun()),
        Some(_) if predefined => format!(
            "{given} is predefined, {} of the program's own is needed",
            kind.a_noun()
        ),
        _ => format!("{given} is not {} handle", kind.a_noun()),
    };
    Error::new(kind.error_class(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{MPI_Comm, MPI_Datatype};

    fn detail<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        result.unwrap_err().detail().to_owned()
    }

    #[test]
    fn an_object_is_read_changed_and_removed_by_its_handle() {
        let mut comms: HandleRegistry<MPI_Comm, u32> = HandleRegistry::new();
        let first = comms.insert(1).unwrap();
        let second = comms.insert(2).unwrap();
        *comms.get_mut(second).unwrap() += 10;
        assert_eq!((comms.get(first), comms.get(second)), (Ok(&1), Ok(&12)));
        assert_eq!(
            comms.iter().map(|(h, v)| (h, *v)).collect::<Vec<_>>(),
            [(first, 1), (second, 12)]
        );
        assert_eq!(comms.remove(first), Ok(1));
        assert_eq!(comms.len(), 1);
    }

    #[test]
    fn a_freed_handle_stays_invalid_when_its_slot_is_reused() {
        let mut comms: HandleRegistry<MPI_Comm, usize> = HandleRegistry::new();
        let stale = comms.insert(0).unwrap();
        comms.remove(stale).unwrap();
        for life in 1..=4 * WAITING {
            let handle = comms.insert(life).unwrap();
            assert_ne!(handle, stale);
            comms.remove(handle).unwrap();
        }
        assert!(detail(comms.get(stale)).ends_with("is a freed communicator handle"));
        assert!(comms.get_mut(stale).is_err() && comms.remove(stale).is_err());
    }

    #[test]
    fn invalid_handle_errors_name_the_given_handle() {
        let mut comms: HandleRegistry<MPI_Comm, ()> = HandleRegistry::new();
        let mut types: HandleRegistry<MPI_Datatype, ()> = HandleRegistry::new();
        let number = types.insert(()).unwrap().0;
        let detail_of = |bits: usize| detail(comms.get(MPI_Comm(bits)));
        assert_eq!(
            detail_of(number),
            format!("{number:#x} is a datatype handle, not a communicator")
        );
        assert_eq!(
            detail_of(MPI_Datatype::INT.0),
            "MPI_INT is a datatype, not a communicator"
        );
        assert_eq!(
            detail_of(MPI_Comm::NULL.0),
            "MPI_COMM_NULL is not a communicator"
        );
        assert_eq!(detail_of(0), "NULL is not a communicator handle");
        assert_eq!(
            detail_of(0xdead_beef_0000),
            "0xdeadbeef0000 is not a communicator handle"
        );
        assert!(
            detail_of(
                HandleParts {
                    index: 9,
                    generation: 0
                }
                .bits(HandleKind::Comm)
            )
            .ends_with("is not a communicator handle")
        );
        assert_eq!(
            comms.get(MPI_Comm::NULL).unwrap_err().class(),
            ErrorClass::COMM
        );
        let _ = comms.insert(());
    }
}
