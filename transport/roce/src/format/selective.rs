// SPDX-License-Identifier: MIT OR Apache-2.0
//! The selective acknowledgement: a private extension header behind the AETH of an acknowledgement. It is not part of
//! any specification, so it is sent only if both ends have agreed on it (`Config::selective_repeat`).
//!
//! | offset |   bits | field | meaning |
//! |-------:|-------:|-------|----------------------------------------------------------------------|
//! |      0 | 64 × n | ahead | bit i, from the lowest of the first word: packet PSN + 2 + i arrived |
//!
//! The words are big endian; n is 1 to 4, according to the packet length.
//!
//! The PSN of the acknowledgement is that of the last packet before the first missing packet. An acknowledgement
//! without this header reports that no packet has arrived out of order.

/// A set of packets, as distances 0 to 255 from a base PSN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketSet {
    words: [u64; Self::WORDS],
}

impl PacketSet {
    /// Number of packets that a set can contain.
    pub const PACKETS: u32 = 256;
    /// The largest length on the wire, in bytes.
    pub const BYTES_MAX: usize = 8 * Self::WORDS;
    const WORDS: usize = 4;

    /// The set of the packets 0 to `count - 1`; `count` above [`Self::PACKETS`] counts as [`Self::PACKETS`].
    pub fn nearest(count: u32) -> Self {
        let mut set = Self::default();
        let mut left = count;
        for word in &mut set.words {
            *word = match left {
                0 => 0,
                1..64 => (1 << left) - 1,
                _ => u64::MAX,
            };
            left = left.saturating_sub(64);
        }
        set
    }

    /// Adds all packets of `other`.
    pub fn insert_all(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(other.words) {
            *word |= other;
        }
    }

    /// Removes all packets of `other`.
    pub fn remove_all(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(other.words) {
            *word &= !other;
        }
    }

    /// Adds the packet at this distance; a distance above 255 is ignored.
    pub fn insert(&mut self, packet: u32) {
        let (word, bit) = place(packet);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }

    /// Removes a packet.
    pub fn remove(&mut self, packet: u32) {
        let (word, bit) = place(packet);
        if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
        }
    }

    /// Whether the set contains the packet at this distance.
    pub fn contains(&self, packet: u32) -> bool {
        let (word, bit) = place(packet);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words == [0; Self::WORDS]
    }

    /// Number of packets in the set.
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// The smallest distance in the set.
    pub fn first(&self) -> Option<u32> {
        let words = (0..).zip(self.words);
        let mut set = words.filter(|(_, word)| *word != 0);
        set.next()
            .map(|(index, word): (u32, _)| 64 * index + word.trailing_zeros())
    }

    /// The largest distance in the set.
    pub fn last(&self) -> Option<u32> {
        let words = (0..).zip(self.words);
        let set = words.filter(|(_, word)| *word != 0);
        set.last()
            .map(|(index, word): (u32, _)| 64 * index + 63 - word.leading_zeros())
    }

    /// Number of consecutive packets in the set, from distance 0 on.
    pub fn run(&self) -> u32 {
        let mut run = 0;
        for word in self.words {
            run += word.trailing_ones();
            if word != u64::MAX {
                break;
            }
        }
        run
    }

    /// Advances the base PSN by `packets`; the packets before the new base are removed.
    pub fn forget_front(&mut self, packets: u32) {
        if packets >= 64 {
            let skip = usize::try_from(packets / 64).unwrap_or(usize::MAX);
            let skip = skip.min(Self::WORDS);
            self.words.copy_within(skip.., 0);
            self.words[Self::WORDS - skip..].fill(0);
        }
        let bits = packets % 64;
        if bits == 0 {
            return;
        }
        // One word at a time, as the words were stored. A load that spans two words, one of which was just stored,
        // cannot be forwarded: it waits until all earlier stores are in the cache, including those of payload.
        let mut high = 0;
        for word in self.words.iter_mut().rev() {
            let low = *word;
            *word = low >> bits | high << (64 - bits);
            high = low;
        }
    }

    /// Parses a header; `None` if the length is wrong.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || words.is_empty() || words.len() > Self::WORDS {
            return None;
        }
        let mut set = Self::default();
        for (to, from) in set.words.iter_mut().zip(words) {
            *to = u64::from_be_bytes(*from);
        }
        Some(set)
    }

    /// The header's bytes on the wire, and their number.
    pub(crate) fn write(&self) -> ([u8; Self::BYTES_MAX], usize) {
        let mut bytes = [0; Self::BYTES_MAX];
        for (to, from) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words) {
            *to = from.to_be_bytes();
        }
        let empty = self.words.iter().rev().take_while(|word| **word == 0);
        (bytes, 8 * (Self::WORDS - empty.count()))
    }
}

/// The index of the word with a packet's bit, and the bit in that word.
fn place(packet: u32) -> (usize, u64) {
    let word = usize::try_from(packet / 64).unwrap_or(usize::MAX);
    (word, 1 << (packet % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(packets: &[u32]) -> PacketSet {
        let mut set = PacketSet::default();
        for packet in packets {
            set.insert(*packet);
        }
        set
    }

    fn packets(set: &PacketSet) -> Vec<u32> {
        (0..300).filter(|packet| set.contains(*packet)).collect()
    }

    #[test]
    fn nearest_set_contains_all_below_the_count() {
        for count in [0, 1, 63, 64, 65, 128, 200, 255, 256, 300, u32::MAX] {
            let nearest: Vec<u32> = (0..count.min(256)).collect();
            assert_eq!(packets(&PacketSet::nearest(count)), nearest, "{count}");
        }
    }

    #[test]
    fn sets_are_inserted_and_removed() {
        let mut all = set(&[1, 70]);
        all.insert_all(&set(&[2, 70, 255]));
        assert_eq!(packets(&all), [1, 2, 70, 255]);
        all.remove_all(&set(&[1, 3, 255]));
        assert_eq!(packets(&all), [2, 70]);
    }

    #[test]
    fn set_holds_inserted_packets_below_256() {
        let mut some = set(&[0, 63, 64, 255, 256, u32::MAX]);
        assert_eq!(packets(&some), [0, 63, 64, 255]);
        assert_eq!((some.first(), some.last()), (Some(0), Some(255)));
        some.remove(0);
        some.remove(999);
        assert_eq!((some.first(), some.len()), (Some(63), 3));
        assert_eq!(set(&[]).first(), None);
        assert!(set(&[256]).is_empty());
    }

    #[test]
    fn a_run_ends_at_the_first_gap() {
        let all: Vec<u32> = (0..256).collect();
        assert_eq!(set(&all).run(), 256);
        assert_eq!(set(&all[..100]).run(), 100);
        assert_eq!(set(&all[1..]).run(), 0);
    }

    #[test]
    fn forget_front_shifts_distances() {
        for by in [0, 1, 63, 64, 65, 130, 255, 256, 1000, u32::MAX] {
            let mut some = set(&[0, 1, 64, 130, 200, 255]);
            let wanted = packets(&some);
            some.forget_front(by);
            let wanted = wanted.iter().filter_map(|packet| packet.checked_sub(by));
            assert_eq!(packets(&some), wanted.collect::<Vec<_>>(), "{by}");
        }
    }

    #[test]
    fn written_bytes_parse_back_unchanged() {
        for packets in [&[0][..], &[5, 64], &[130], &[255]] {
            let some = set(packets);
            let (bytes, len) = some.write();
            assert_eq!(PacketSet::parse(&bytes[..len]), Some(some));
        }
        assert_eq!(set(&[1]).write().1, 8);
        assert_eq!(set(&[1]).write().0[7], 2);
        for len in [0, 4, 12, 40] {
            assert_eq!(PacketSet::parse(&[0; 64][..len]), None);
        }
    }
}
