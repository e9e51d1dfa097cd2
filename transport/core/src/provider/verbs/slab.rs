// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table of values with small numbers; the numbers of removed values are used again.

/// A table of values.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
    count: usize,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            count: 0,
        }
    }

    /// Inserts a value; returns its number.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        self.count += 1;
        let Some(number) = self.free.pop() else {
            let number = u32::try_from(self.places.len()).expect("fewer things than numbers");
            self.places.push(Some(value));
            return number;
        };
        self.places[number as usize] = Some(value);
        number
    }

    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes a value.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        self.count -= 1;
        Some(value)
    }

    /// All values, lowest number first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// All numbers in use, now or before.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + use<T> {
        (0..).take(self.places.len())
    }

    /// All values, lowest number first, mutable.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_slot_number_is_reused() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((a, b), (0, 1));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!((slab.get(a), slab.get(b)), (None, Some(&'b')));
        assert_eq!(slab.insert('c'), a);
        assert_eq!(
            slab.iter_mut().map(|value| *value).collect::<String>(),
            "cb"
        );
    }

    #[test]
    fn removing_an_absent_entry_frees_nothing() {
        let mut slab = Slab::<u8>::new();
        assert_eq!(slab.remove(7), None);
        let number = slab.insert(1);
        slab.remove(number);
        assert!(slab.is_empty());
        assert_eq!(slab.remove(number), None);
        assert!(slab.is_empty());
        assert_eq!((slab.insert(2), slab.insert(3)), (0, 1));
    }
}
