// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles of the tool interface: kind, generation and index, as in [`crate::handle`], but with different kinds.

/// The kind of a handle of the tool interface. The numbers differ from those of [`crate::handle::HandleKind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ToolHandleKind {
    /// A control variable.
    Cvar = 12,
    /// A session of performance variables.
    Session = 13,
    /// A performance variable.
    Pvar = 14,
    /// An enumeration; its index counts from 0 and its generation is 0.
    Enum = 15,
    /// A registration for events.
    Registration = 16,
    /// An event, while callbacks are called for it.
    Instance = 17,
}

/// Encodes the value of a handle.
pub fn bits(kind: ToolHandleKind, index: usize, generation: u8) -> usize {
    (kind as usize) << KIND_SHIFT | (generation as usize) << GENERATION_SHIFT | index
}

/// Decodes index and generation of a handle of this kind.
pub fn place(kind: ToolHandleKind, bits: usize) -> Option<(usize, u8)> {
    let generation = u8::try_from(bits >> GENERATION_SHIFT & 0xff).ok()?;
    let ours = bits >> KIND_SHIFT == kind as usize;
    ours.then_some((bits & (MAX_HANDLES - 1), generation))
}

/// Maximum number of handles of a kind at a time.
pub const MAX_HANDLES: usize = 1 << GENERATION_SHIFT;

const KIND_SHIFT: u32 = 27;
const GENERATION_SHIFT: u32 = 19;

/// The objects of one kind of handle of the tool interface. A freed handle does not refer to the next 255 objects in
/// its slot.
#[derive(Debug)]
pub struct ToolHandles<T> {
    kind: ToolHandleKind,
    places: Vec<(u8, Option<T>)>,
}

impl<T> ToolHandles<T> {
    /// An empty table.
    pub const fn new(kind: ToolHandleKind) -> Self {
        Self {
            kind,
            places: Vec::new(),
        }
    }

    /// Inserts an object; returns the value of its handle, or `None` if there are too many.
    pub fn insert(&mut self, object: T) -> Option<usize> {
        let free = self.places.iter().position(|(_, there)| there.is_none());
        let index = free.unwrap_or(self.places.len());
        if index == MAX_HANDLES {
            return None;
        }
        if index == self.places.len() {
            self.places.push((0, None));
        }
        let (generation, there) = &mut self.places[index];
        *there = Some(object);
        Some(bits(self.kind, index, *generation))
    }

    /// The object of a handle.
    pub fn get(&self, number: usize) -> Option<&T> {
        let (index, generation) = place(self.kind, number)?;
        let (current, object) = self.places.get(index)?;
        object.as_ref().filter(|_| *current == generation)
    }

    /// Removes the object of a handle.
    pub fn remove(&mut self, number: usize) -> Option<T> {
        self.get(number)?;
        let (index, _) = place(self.kind, number)?;
        self.places[index].0 = self.places[index].0.wrapping_add(1);
        self.places[index].1.take()
    }

    /// The object of a handle, mutable.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        let (index, generation) = place(self.kind, number)?;
        let (current, object) = self.places.get_mut(index)?;
        object.as_mut().filter(|_| *current == generation)
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, object)| object.as_ref())
    }

    /// All objects, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let places = self.places.iter_mut();
        places.filter_map(|(_, object)| object.as_mut())
    }

    /// The first object from index `place` on, with its handle. Sets `place` to the index behind the object.
    pub fn next_from(&mut self, place: &mut usize) -> Option<(usize, &mut T)> {
        let kind = self.kind;
        let rest = self.places.iter_mut().enumerate().skip(*place);
        let mut objects = rest.filter_map(|(index, (generation, object))| {
            Some((index, bits(kind, index, *generation), object.as_mut()?))
        });
        let (index, number, object) = objects.next()?;
        *place = index + 1;
        Some((number, object))
    }

    /// Removes all objects.
    pub fn clear(&mut self) {
        for (generation, object) in &mut self.places {
            *generation = generation.wrapping_add(u8::from(object.take().is_some()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_tool_handle_stays_invalid_when_its_slot_is_reused() {
        let mut handles = ToolHandles::new(ToolHandleKind::Cvar);
        let first = handles.insert("first").unwrap();
        assert_eq!(handles.get(first), Some(&"first"));
        assert_eq!(handles.remove(first), Some("first"));
        let second = handles.insert("second").unwrap();
        assert_ne!(first, second);
        assert_eq!(handles.get(first), None);
        assert_eq!(handles.remove(first), None);
        handles.clear();
        assert_eq!(handles.get(second), None);
    }

    #[test]
    fn tool_handles_of_other_kinds_null_and_garbage_are_invalid() {
        let mut handles = ToolHandles::new(ToolHandleKind::Pvar);
        let one = handles.insert(1).unwrap();
        let (index, generation) = place(ToolHandleKind::Pvar, one).unwrap();
        assert_eq!((index, generation), (0, 0));
        assert_eq!(
            handles.get(bits(ToolHandleKind::Cvar, index, generation)),
            None
        );
        for number in [0, 1, one + 1, usize::MAX] {
            assert_eq!(handles.get(number), None);
        }
        // Handles are positive C ints, like those of MPI.
        assert!(bits(ToolHandleKind::Enum, MAX_HANDLES - 1, u8::MAX) <= i32::MAX as usize);
    }
}
