// SPDX-License-Identifier: MIT OR Apache-2.0
//! Divides large reads and writes among several rails, each of which moves a share.

/// Divides bytes among rails in proportion to their rates, without slow rails whose share would be less than `least`.
/// If any rate is unknown (0), all rates count as equal.
pub(super) fn divide(bytes: u64, mut rails: Vec<(u8, u32)>, least: u64) -> Vec<(u8, u64)> {
    if rails.iter().any(|(_, rate)| *rate == 0) {
        rails.iter_mut().for_each(|(_, rate)| *rate = 1);
    }
    loop {
        let all: u128 = rails.iter().map(|(_, rate)| u128::from(*rate)).sum();
        let part = |rate: u32| {
            let part = u128::from(bytes) * u128::from(rate) / all.max(1);
            u64::try_from(part).unwrap_or(bytes)
        };
        let by_rate = |(_, (_, rate)): &(usize, &(u8, u32))| *rate;
        let slowest = rails.iter().enumerate().rev().min_by_key(by_rate);
        let too_slow = slowest.filter(|(_, (_, rate))| part(*rate) < least);
        if let Some((place, _)) = too_slow.filter(|_| rails.len() > 1) {
            rails.remove(place);
            continue;
        }
        let grains = |rate: u32| part(rate) / GRAIN_BYTES * GRAIN_BYTES;
        let mut shares: Vec<(u8, u64)> = rails
            .iter()
            .map(|(rail, rate)| (*rail, grains(*rate)))
            .collect();
        let rest = bytes - shares.iter().map(|(_, share)| share).sum::<u64>();
        if let Some((_, share)) = shares.last_mut() {
            *share += rest;
        }
        return shares;
    }
}

/// Shares begin at multiples of this, in bytes.
const GRAIN_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn divided(bytes: u64, rails: Vec<(u8, u32)>) -> Vec<(u8, u64)> {
        divide(bytes, rails, MIB / 4)
    }

    #[test]
    fn shares_are_proportional_to_rail_rates() {
        assert_eq!(
            divided(8 * MIB, vec![(0, 100_000), (1, 100_000)]),
            [(0, 4 * MIB), (1, 4 * MIB)]
        );
        assert_eq!(
            divided(10 * MIB + 5, vec![(0, 100_000), (2, 25_000)]),
            [(0, 8 * MIB), (2, 2 * MIB + 5)]
        );
        let shares = divided(10 * MIB, vec![(0, 10), (1, 400), (2, 200), (3, 400)]);
        assert_eq!(shares.len(), 3, "the slowest is left out: {shares:?}");
        assert_eq!(shares.iter().map(|(_, share)| share).sum::<u64>(), 10 * MIB);
        let (one, half) = (shares[0].1, shares[1].1);
        assert!(
            shares[0].0 == 1 && one.abs_diff(2 * half) <= 2 * GRAIN_BYTES,
            "{shares:?}"
        );
        assert_eq!(
            divided(u64::MAX, vec![(0, u32::MAX), (1, u32::MAX)]).len(),
            2
        );
    }

    #[test]
    fn shares_are_equal_when_a_rate_is_unknown() {
        assert_eq!(
            divided(2 * MIB, vec![(0, 0), (3, 400_000)]),
            [(0, MIB), (3, MIB)]
        );
    }

    #[test]
    fn rails_with_too_small_shares_are_left_out() {
        assert_eq!(divided(MIB / 2, vec![(0, 7), (1, 7)]).len(), 2);
        assert_eq!(
            divided(MIB / 2, vec![(0, 7), (1, 7), (2, 7)]),
            [(0, MIB / 4), (1, MIB / 4)]
        );
        assert_eq!(divided(MIB, vec![(0, 25), (1, 100)]), [(1, MIB)]);
        assert_eq!(divided(MIB, Vec::new()), []);
    }
}
