// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings: sizes of queues and pools, and attributes of queue pairs.

use super::address::{MTU_BYTES_MAX, MTU_BYTES_MIN, MTU_UNIT_BYTES};
use super::bounce::MOST_COPIED_BYTES;
use super::port::Depths;
use super::{MOST_OTHERS, MOST_POSTED};

/// Sizes of queues and pools, and thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetLimits {
    /// Maximum number of reliable queue pairs.
    pub pairs: u32,
    /// Packets to a peer before a queue pair is made for it.
    pub datagrams_first: u32,
    /// If a peer's queue pair broke and the peer has not answered for this time, the peer is given up.
    pub silence_ns: u64,
    /// Send queue depth of one reliable queue pair.
    pub send_depth: u32,
    /// Depth of the shared receive queue.
    pub receive_depth: u32,
    /// Send queue depth of the datagram queue pair.
    pub datagram_depth: u32,
    /// Receive buffers for datagrams.
    pub datagram_receives: u32,
    /// Largest inline body in bytes, if the device grants it.
    pub inline_bytes: u32,
    /// One of this many packets on a queue pair is signaled.
    pub signal_every: u32,
    /// Smallest read or write that is striped over the rails, in bytes; memory of at least this size is registered on
    /// all rails.
    pub striped_bytes: u64,
    /// Largest message that is copied through a registered buffer if its memory is not registered, in bytes; at
    /// most 64 KiB.
    pub copied_bytes: u64,
    /// Largest read or write work request, in bytes.
    pub part_bytes: u64,
    /// Attributes of queue pairs.
    pub terms: NetTerms,
}

/// Attributes of queue pairs and address handles. The device may grant less than a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetTerms {
    /// Largest MTU in bytes; rounded down to a power of two, between user-space ports to a multiple of 64.
    pub packet_bytes: u32,
    /// Maximum number of reads and atomics in flight on one queue pair.
    pub reads: u8,
    /// Acknowledgement timeout before the first retransmission; rounded up to a value that queue pairs support.
    pub answer_ms: u32,
    /// Retransmissions; at most 6, since some devices take 7 as infinitely many.
    pub retries: u8,
    /// Retransmissions of a packet for which the peer had no buffer (RNR retries); at most 6.
    pub rnr_retry: u8,
    /// Delay that a receiver without buffers requests before a retransmission (RNR timer), in microseconds; rounded up
    /// to a value that queue pairs support.
    pub not_ready_us: u32,
    /// Service level, from 0 to 15; on Ethernet its three low bits are the priority.
    pub service_level: u8,
    /// Traffic class on Ethernet: six bits of DSCP, two of ECN.
    pub traffic_class: u8,
    /// Hop limit of packets with a global address.
    pub hops: u8,
    /// Partition key; 0: the first entry of the port's table.
    pub partition: u16,
    /// Indices of the port's GID table that may be used.
    pub gids: GidPlaces,
}

/// A set of GID table indices, from 0 to 255.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GidPlaces([u64; 4]);

impl NetLimits {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        pairs: 128,
        datagrams_first: 16,
        silence_ns: 120_000_000_000,
        send_depth: 64,
        receive_depth: 192,
        datagram_depth: 256,
        datagram_receives: 192,
        inline_bytes: 220,
        signal_every: 16,
        striped_bytes: 512 << 10,
        copied_bytes: MOST_COPIED_BYTES,
        part_bytes: 1 << 30,
        terms: NetTerms::DEFAULT,
    };

    /// The queue depths to open a port with.
    pub(in crate::provider) fn depths(&self) -> Depths {
        #[allow(clippy::cast_possible_truncation, reason = "some hundreds")]
        let sends = (MOST_POSTED + MOST_OTHERS) as u32 + self.datagram_depth;
        Depths {
            completions: sends.max(self.receive_depth + self.datagram_receives),
            sends: self.send_depth,
            datagrams: self.datagram_depth,
            shared: self.receive_depth,
            datagram_buffers: self.datagram_receives,
            inline_bytes: self.inline_bytes,
        }
    }
}

impl Default for NetLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl NetTerms {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        packet_bytes: 4096,
        reads: 16,
        answer_ms: 67,
        // Not seven: Soft-RoCE treats seven as infinite, not only for RNR retries.
        retries: 6,
        // After about 4 ms without a buffer, 8 ms on some devices, the queue pair breaks; it is connected again when
        // the receiver polls. Seven would be infinite, and would hide that no buffers are posted.
        rnr_retry: 6,
        // Some devices wait twice as long. A long delay would hold up all packets behind the first one without a
        // buffer, although a process that polls returns its buffers within microseconds.
        not_ready_us: 640,
        service_level: 0,
        // DSCP 26 and ECN-capable transport: the configuration of RoCE switches.
        traffic_class: 106,
        // The usual initial hop limit of Internet packets.
        hops: 64,
        partition: 0,
        gids: GidPlaces::ANY,
    };

    /// Largest MTU to set up a device's queue pairs with, in bytes.
    pub(super) fn most_packet_bytes(&self) -> u32 {
        1 << self.packet_bytes.clamp(256, 4096).ilog2()
    }

    /// Largest payload of a packet between user-space ports, in bytes.
    pub(super) fn most_payload_bytes(&self) -> u32 {
        let (least, most, unit) = (MTU_BYTES_MIN, MTU_BYTES_MAX, MTU_UNIT_BYTES);
        self.packet_bytes.clamp(least, most) / unit * unit
    }

    /// The acknowledgement timeout in the form that queue pairs take, the exponent n of 4.096 µs × 2^n, rounded up. At
    /// most 27, so that the exponent can grow after a break.
    pub(super) fn timeout_exp(&self) -> u8 {
        let us = u64::from(self.answer_ms) * 1000;
        let reaches = |power: &u8| 4096 << power >= us * 1000;
        (1..MOST_TIMEOUT_EXP)
            .find(reaches)
            .unwrap_or(MOST_TIMEOUT_EXP)
    }

    /// The delay that a receiver without buffers requests, in the encoding of IBTA vol. 1 section 9.7.5.2.8: 1 is 10
    /// µs, 31 is 491.52 ms, and 0 is 655.36 ms.
    pub(super) fn min_rnr_timer(&self) -> u8 {
        let reaches = |code: &u8| not_ready_us(*code) >= self.not_ready_us;
        (1..32).find(reaches).unwrap_or(0)
    }
}

impl Default for NetTerms {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl GidPlaces {
    /// The set of all indices.
    pub const ANY: Self = Self([0; 4]);

    /// The set of these indices; without any index, the set of all indices.
    #[must_use]
    pub fn of(places: impl Iterator<Item = u8>) -> Self {
        let mut bits = [0; 4];
        for place in places {
            bits[usize::from(place) / 64] |= 1 << (place % 64);
        }
        Self(bits)
    }

    /// Whether an index may be used.
    pub(super) fn has(self, place: u32) -> bool {
        let word = self.0.get(place as usize / 64);
        self == Self::ANY || word.is_some_and(|word| word >> (place % 64) & 1 != 0)
    }
}

/// Microseconds of the RNR timer codes from 1 to 31.
fn not_ready_us(code: u8) -> u32 {
    match code {
        0..5 => 10 * u32::from(code),
        // 60 and 80 µs, doubled with every second code.
        _ => (60 + 20 * u32::from(1 - code % 2)) << ((code - 5) / 2),
    }
}

/// Largest exponent from the settings: 4.096 µs × 2^27 is nine minutes. The field of a queue pair has five bits, so 28
/// to 31 remain for the increments after breaks (`MOST_EXTRA_TIMEOUT` in `pair.rs`).
const MOST_TIMEOUT_EXP: u8 = 27;

#[cfg(test)]
mod tests {
    use super::*;

    fn with_packets(packet_bytes: u32) -> NetTerms {
        NetTerms {
            packet_bytes,
            ..NetTerms::DEFAULT
        }
    }

    #[test]
    fn timeouts_are_rounded_up_to_encodable_values() {
        let timeout_exp = |answer_ms| {
            let terms = NetTerms {
                answer_ms,
                ..NetTerms::DEFAULT
            };
            terms.timeout_exp()
        };
        // 1.05, 67.1, 134.2 ms and so on.
        assert_eq!(
            [1, 2, 67, 68, 134, 135].map(timeout_exp),
            [8, 9, 14, 15, 15, 16]
        );
        assert_eq!((timeout_exp(0), timeout_exp(u32::MAX)), (1, 27));
        let timer = |not_ready_us| {
            let terms = NetTerms {
                not_ready_us,
                ..NetTerms::DEFAULT
            };
            terms.min_rnr_timer()
        };
        // IBTA vol. 1, table of the encoding of the RNR NAK timer field.
        assert_eq!(
            [1, 10, 11, 40, 60, 80, 81, 120, 320, 640, 1280].map(timer),
            [1, 1, 2, 4, 5, 6, 7, 7, 10, 12, 14]
        );
        assert_eq!((timer(491_520), timer(491_521)), (31, 0));
        assert_eq!(NetTerms::DEFAULT.min_rnr_timer(), 12);
    }

    #[test]
    fn between_user_space_ports_packet_sizes_are_multiples_of_64() {
        let most = |bytes| with_packets(bytes).most_payload_bytes();
        assert_eq!(
            [0, 256, 1407, 1408, 9000].map(most),
            [256, 256, 1344, 1408, 4096]
        );
    }

    #[test]
    fn packet_size_is_rounded_down_to_a_power_of_two() {
        let most = |bytes| with_packets(bytes).most_packet_bytes();
        assert_eq!(
            [0, 256, 1500, 4095, 4096, 9000].map(most),
            [256, 256, 1024, 2048, 4096, 4096]
        );
    }

    #[test]
    fn gid_indices_are_the_named_ones_or_any() {
        let some = GidPlaces::of([0, 3, 255].into_iter());
        let has = |places: GidPlaces| [0, 1, 3, 64, 255, 256].map(|place| places.has(place));
        assert_eq!(has(some), [true, false, true, false, true, false]);
        assert_eq!(has(GidPlaces::of(std::iter::empty())), [true; 6]);
    }

    #[test]
    fn completion_queues_hold_all_possible_completions() {
        let depths = NetLimits::DEFAULT.depths();
        assert_eq!(
            (depths.completions, depths.sends, depths.shared),
            (1024, 64, 192)
        );
        let many = NetLimits {
            receive_depth: 2048,
            datagram_receives: 1024,
            ..NetLimits::DEFAULT
        };
        assert_eq!(many.depths().completions, 3072);
    }
}
