// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sorting that the compiler can prove free of panics, for any keys.

/// Sorts by a key: heap sort, in place, O(n log n) in the worst case.
pub fn sort_by_key<T: Copy, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    // Most lists are sorted already: slots are allocated in order.
    if items.is_sorted_by_key(&key) {
        return;
    }
    let mut root = items.len() / 2;
    while root > 0 {
        root -= 1;
        sift(items, root, &key);
    }
    let mut rest = items;
    while let [first, .., last] = rest {
        core::mem::swap(first, last);
        let Some((_, before)) = rest.split_last_mut() else {
            return;
        };
        sift(before, 0, &key);
        rest = before;
    }
}

/// Moves the item at `root` down the heap until no child of it has a greater key.
fn sift<T: Copy, K: Ord>(heap: &mut [T], mut root: usize, key: &impl Fn(&T) -> K) {
    loop {
        let left = root.saturating_mul(2).saturating_add(1);
        let Some(mut greatest) = heap.get(left).map(key) else {
            return;
        };
        let mut child = left;
        if let Some(right) = heap.get(left + 1).map(key)
            && right > greatest
        {
            (greatest, child) = (right, left + 1);
        }
        let (Some(up), Some(down)) = (heap.get(root).copied(), heap.get(child).copied()) else {
            return;
        };
        if key(&up) >= greatest {
            return;
        }
        put(heap, root, down);
        put(heap, child, up);
        root = child;
    }
}

fn put<T>(items: &mut [T], at: usize, item: T) {
    if let Some(place) = items.get_mut(at) {
        *place = item;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_of_six_is_sorted() {
        for number in 0..6usize.pow(6) {
            let mut digits = [0; 6];
            let mut rest = number;
            for digit in &mut digits {
                (*digit, rest) = (rest % 6, rest / 6);
            }
            let mut expected = digits;
            expected.sort_unstable();
            sort_by_key(&mut digits, |digit| *digit);
            assert_eq!(digits, expected);
        }
    }
}
