// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles: numbers instead of pointers. A stale or foreign handle is an error, and never dereferenced; a stale handle
//! is taken for a valid one only if its slot was reused about a million times.
//!
//! | bits     | meaning |
//! |----------|----------------------------------------|
//! | 48 to 63 | `0x514d`: not a canonical address |
//! | 44 to 47 | kind |
//! | 24 to 43 | generation of the slot, counted from 1 |
//! | 0 to 23  | index of the slot |

use std::collections::VecDeque;

/// The kind of a handle's object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QmpHandleKind {
    /// `QMP_comm_t`
    Comm = 1,
    /// `QMP_mem_t *`
    Memory = 2,
    /// `QMP_msgmem_t`
    MessageMemory = 3,
    /// `QMP_msghandle_t`
    Message = 4,
}

/// The objects of one kind, with their handles.
#[derive(Debug)]
pub struct HandleTable<T> {
    kind: QmpHandleKind,
    slots: Vec<HandleSlot<T>>,
    free: VecDeque<usize>,
}

/// A slot for an object, with its generation.
#[derive(Debug)]
struct HandleSlot<T> {
    generation: usize,
    value: Option<T>,
}

impl<T> HandleTable<T> {
    /// An empty table.
    pub const fn new(kind: QmpHandleKind) -> Self {
        Self {
            kind,
            slots: Vec::new(),
            free: VecDeque::new(),
        }
    }

    /// Inserts an object and returns its handle; `None` if there are 16 million already.
    pub fn insert(&mut self, value: T) -> Option<usize> {
        let index = match self.free.pop_front() {
            Some(index) => index,
            None if self.slots.len() > INDEX_MASK => return None,
            None => {
                self.slots.push(HandleSlot {
                    generation: 0,
                    value: None,
                });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[index];
        slot.generation = (slot.generation % GENERATION_MASK) + 1;
        slot.value = Some(value);
        Some(MARK << 48 | (self.kind as usize) << 44 | slot.generation << 24 | index)
    }

    /// The object of a handle, if the handle is valid.
    #[inline]
    pub fn get(&self, handle: usize) -> Option<&T> {
        self.slot(handle)
            .and_then(|index| self.slots[index].value.as_ref())
    }

    /// The object of a handle, mutable, if the handle is valid.
    #[inline]
    pub fn get_mut(&mut self, handle: usize) -> Option<&mut T> {
        self.slot(handle)
            .and_then(|index| self.slots[index].value.as_mut())
    }

    /// Removes the object; its handle becomes stale.
    pub fn remove(&mut self, handle: usize) -> Option<T> {
        let index = self.slot(handle)?;
        let value = self.slots[index].value.take()?;
        self.free.push_back(index);
        Some(value)
    }

    /// Removes all objects.
    pub fn drain(&mut self) -> Vec<T> {
        let mut all = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(value) = slot.value.take() {
                self.free.push_back(index);
                all.push(value);
            }
        }
        all
    }

    fn slot(&self, handle: usize) -> Option<usize> {
        let index = handle & INDEX_MASK;
        let is_ours = handle >> 44 == MARK << 4 | self.kind as usize;
        let slot = self.slots.get(index)?;
        (is_ours && slot.generation == handle >> 24 & GENERATION_MASK).then_some(index)
    }
}

const MARK: usize = 0x514d;
const GENERATION_MASK: usize = (1 << 20) - 1;
const INDEX_MASK: usize = (1 << 24) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_is_invalid_after_its_slot_is_reused() {
        let mut table = HandleTable::new(QmpHandleKind::Message);
        let first = table.insert("a").unwrap();
        assert_eq!(table.remove(first), Some("a"));
        let second = table.insert("b").unwrap();
        assert_ne!(first, second);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&"b"));
    }

    #[test]
    fn numbers_of_no_handle_are_refused() {
        let mut table = HandleTable::new(QmpHandleKind::Comm);
        let handle = table.insert(1).unwrap();
        let other_kind = HandleTable::new(QmpHandleKind::Memory).insert(1).unwrap();
        for wrong in [0, 1, usize::MAX, handle + 1, handle ^ 1 << 63, other_kind] {
            assert_eq!(table.get(wrong), None, "{wrong:x}");
        }
        assert_eq!(table.get(handle), Some(&1));
    }

    #[test]
    fn handle_generations_wrap_around_without_zero() {
        let mut table = HandleTable::new(QmpHandleKind::Comm);
        for _ in 0..GENERATION_MASK + 2 {
            let handle = table.insert(()).unwrap();
            assert_ne!(handle >> 24 & GENERATION_MASK, 0);
            table.remove(handle);
        }
    }
}
