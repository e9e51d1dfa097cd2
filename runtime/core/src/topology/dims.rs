// SPDX-License-Identifier: MIT OR Apache-2.0
//! `MPI_Dims_create` (MPI 5.0 section 8.5.2): extents that are as close to each other as possible.

use std::cmp::Reverse;

/// Splits a number into `count` factors, the largest first. Of all choices, returns that with the smallest difference
/// between the largest and the smallest factor. If several choices have that difference, returns the one whose smallest
/// factors are largest.
///
/// ```
/// use runtime::topology::balanced_dims;
///
/// assert_eq!(balanced_dims(6, 3), [3, 2, 1]);
/// assert_eq!(balanced_dims(72, 3), [6, 4, 3]);
/// ```
#[must_use]
pub fn balanced_dims(number: u32, count: usize) -> Vec<u32> {
    if count == 0 {
        return Vec::new();
    }
    let divisors = divisors(number);
    let mut search = Search {
        divisors,
        best: None,
        chosen: Vec::new(),
    };
    search.search(number, count, number);
    let mut best = search.best.unwrap_or_default();
    best.resize(count, 1);
    best
}

/// The search for the most even factors of a number.
struct Search {
    /// All divisors of the number, in ascending order.
    divisors: Vec<u32>,
    /// The best choice so far, without trailing ones.
    best: Option<Vec<u32>>,
    chosen: Vec<u32>,
}

impl Search {
    /// Chooses `left` factors whose product is `rest`, after those already chosen. No factor may be above `most`.
    fn search(&mut self, rest: u32, left: usize, most: u32) {
        if left == 1 || rest == 1 {
            if rest <= most {
                self.finish(rest, left);
            }
            return;
        }
        for at in 0..self.divisors.len() {
            let factor = self.divisors[at];
            if factor > most {
                break;
            }
            if !rest.is_multiple_of(factor) || !reaches(factor, left, rest) {
                continue;
            }
            // The smallest of the remaining factors cannot be above their geometric mean.
            let first = self.chosen.first().copied().unwrap_or(factor);
            let smallest = root(rest / factor, left - 1).min(factor);
            if self.spread().is_some_and(|best| first - smallest > best) {
                // Factors are tried in ascending order. A larger first factor can only increase the difference.
                if self.chosen.is_empty() {
                    break;
                }
                continue;
            }
            self.chosen.push(factor);
            self.search(rest / factor, left - 1, factor);
            self.chosen.pop();
        }
    }

    fn finish(&mut self, last: u32, left: usize) {
        let mut all = self.chosen.clone();
        all.push(last);
        all.resize(all.len() + left - 1, 1);
        let better = self
            .best
            .as_ref()
            .is_none_or(|best| balance(&all) < balance(best));
        if better {
            self.best = Some(all);
        }
    }

    fn spread(&self) -> Option<u32> {
        self.best.as_deref().map(spread)
    }
}

/// A value by which choices are compared: the choice with the lowest value is the best.
fn balance(factors: &[u32]) -> (u32, Reverse<Vec<u32>>) {
    let upwards = factors.iter().rev().copied().collect();
    (spread(factors), Reverse(upwards))
}

/// Difference between the first factor and the last.
fn spread(factors: &[u32]) -> u32 {
    match factors {
        [first, .., last] => first - last,
        _ => 0,
    }
}

/// Whether the product of `count` factors of at most `most` can be as large as `number`.
fn reaches(most: u32, count: usize, number: u32) -> bool {
    let mut reach = 1u64;
    for _ in 0..count {
        if most <= 1 || reach >= u64::from(number) {
            break;
        }
        reach = reach.saturating_mul(u64::from(most));
    }
    reach >= u64::from(number)
}

/// The largest integer whose power with exponent `power` is at most `number`.
fn root(number: u32, power: usize) -> u32 {
    let (mut low, mut high) = (1, number);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let mut product = 1u64;
        for _ in 0..power {
            product = product.saturating_mul(u64::from(middle));
            if product > u64::from(number) {
                break;
            }
        }
        if product <= u64::from(number) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

fn divisors(number: u32) -> Vec<u32> {
    let (mut low, mut high) = (Vec::new(), Vec::new());
    let mut candidate = 1u32;
    while u64::from(candidate) * u64::from(candidate) <= u64::from(number) {
        if number.is_multiple_of(candidate) {
            low.push(candidate);
            if number / candidate != candidate {
                high.push(number / candidate);
            }
        }
        candidate += 1;
    }
    low.extend(high.into_iter().rev());
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All factorizations of a number into `count` factors of at most `most`, in descending order.
    fn all_factorizations(number: u32, count: usize, most: u32) -> Vec<Vec<u32>> {
        if count == 0 {
            return if number == 1 { vec![vec![]] } else { vec![] };
        }
        let fits = (1..=most.min(number)).filter(|factor| number.is_multiple_of(*factor));
        fits.flat_map(|factor| {
            let rest = all_factorizations(number / factor, count - 1, factor);
            rest.into_iter()
                .map(move |tail| [vec![factor], tail].concat())
        })
        .collect()
    }

    #[test]
    fn balanced_dims_has_the_best_balance() {
        for number in 1..200 {
            for count in 1..5 {
                let factorizations = all_factorizations(number, count, number);
                let best = factorizations
                    .iter()
                    .min_by(|one, other| balance(one).cmp(&balance(other)));
                assert_eq!(
                    Some(&balanced_dims(number, count)),
                    best,
                    "{number} {count}"
                );
            }
        }
    }

    #[test]
    fn balanced_dims_of_numbers_with_few_and_many_factors() {
        assert_eq!(balanced_dims(2_147_483_647, 2), [2_147_483_647, 1]);
        assert_eq!(balanced_dims(1 << 30, 30), [2; 30]);
        assert_eq!(balanced_dims(1 << 30, 3), [1 << 10; 3]);
        assert_eq!(balanced_dims(12, 100)[..4], [3, 2, 2, 1]);
        let many = balanced_dims(1_396_755_360, 4);
        assert_eq!(many.iter().product::<u32>(), 1_396_755_360);
        assert!(spread(&many) < 40, "{many:?}");
        assert_eq!(balanced_dims(1_396_755_360, 9).len(), 9);
    }
}
