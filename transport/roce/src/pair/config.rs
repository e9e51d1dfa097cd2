// SPDX-License-Identifier: MIT OR Apache-2.0
//! The attributes of a reliable queue pair, and their checks.

use std::fmt;
use std::net::SocketAddr;

use crate::format::DEFAULT_PARTITION;
use crate::psn::Psn;

/// Attributes of a queue pair: values that both ends agree on, and local limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// QPN of this queue pair, 24 bits.
    pub number: u32,
    /// QPN of the peer, 24 bits.
    pub remote_number: u32,
    /// Destination of all packets. Packets are accepted from any port of this IP address.
    pub to: SocketAddr,
    /// PSN of the first packet that this end sends (`sq_psn` in verbs).
    pub sq_psn: Psn,
    /// PSN of the first packet that the peer sends (`rq_psn` in verbs).
    pub rq_psn: Psn,
    /// Path MTU; both ends must use the same value. If it is not a power of two, `peer_is_rmpi` is required.
    pub path_mtu: PathMtu,
    /// P_Key.
    pub partition: u16,
    /// Largest number of work requests that are posted or whose completions were not polled, 1 to 65,536.
    pub send_depth: u32,
    /// Largest number of unacknowledged packets, 1 to 65,536; congestion reduces the number that is allowed.
    pub window_packets: u32,
    /// A round trip longer than this, in nanoseconds, counts as congestion; 0: round trips are ignored.
    pub target_delay_ns: u64,
    /// Largest number of response packets of one read request, 1 to 65,536. A longer read is split, so the window
    /// applies to reads too.
    pub read_packets: u32,
    /// Largest number of outstanding reads and atomic operations (`max_rd_atomic` in verbs), 1 to 255; at most the
    /// peer's `responder_depth`.
    pub initiator_depth: u8,
    /// Number of the peer's latest reads and atomic operations that are recorded, so that the peer can repeat them
    /// (`max_dest_rd_atomic` in verbs), 1 to 255.
    pub responder_depth: u8,
    /// Code of the response timeout that is used until a round trip was measured, 1 to 31: the timeout is 4.096 µs ×
    /// 2^`timeout`. 0: infinite, and no round trip is measured.
    pub timeout: u8,
    /// Maximum number of consecutive timeouts after which a packet is sent again, 0 to 7. At the next timeout a peer of
    /// another implementation is given up.
    pub retry_count: u8,
    /// Whether the peer runs this engine too, as both ends found out when they connected. If so, `silence_ns` is used
    /// instead of `retry_count`.
    pub peer_is_rmpi: bool,
    /// Whether selective repeat is used: packets received out of order are kept, and only missing packets are sent
    /// again. Both ends must use the same value; `true` requires `peer_is_rmpi`. With selective repeat at most 256 PSNs
    /// are outstanding.
    pub selective_repeat: bool,
    /// Whether the last packet of a read response may be padded with zeros to a whole packet, if another read response
    /// follows: a carrier can send both in one batch, whose packets are of one length. `true` requires
    /// `selective_repeat`; ends with selective repeat accept such packets always.
    pub pads_responses: bool,
    /// Whether the peer shares its cores with other processes, so the peer is sometimes not scheduled for a while. If
    /// so, `shared_floor_ns` is used instead of `floor_ns`.
    pub peer_shares_cores: bool,
    /// Lower limit of the response timeout in nanoseconds.
    pub floor_ns: u64,
    /// Lower limit of the response timeout in nanoseconds, for a peer that shares its cores.
    pub shared_floor_ns: u64,
    /// Upper limit of the response timeout in nanoseconds, however often the timeout was doubled.
    pub ceiling_ns: u64,
    /// Time in nanoseconds after which an rmpi peer is given up if it sends nothing while a request is outstanding, or
    /// if one packet does not arrive although others do.
    pub silence_ns: u64,
    /// Delay in nanoseconds of an acknowledgement that the peer did not request: it is sent after the next requests, or
    /// when this time has passed. 0: only requested acknowledgements are sent. Either both ends have 0, or both have
    /// other values, which require `peer_is_rmpi`.
    pub ack_delay_ns: u64,
    /// Maximum number of consecutive RNR NAKs after which the packet is sent again (`rnr_retry` in verbs), 0 to 6; at
    /// the next RNR NAK the request fails. 7: unlimited.
    pub rnr_retry: u8,
    /// Timer code of the RNR NAKs that this end sends (`min_rnr_timer` in verbs), 0 to 31; [`rnr_timer_ns`] converts it
    /// to nanoseconds.
    ///
    /// [`rnr_timer_ns`]: crate::format::rnr_timer_ns
    pub min_rnr_timer: u8,
}

/// Largest payload of one packet: a power of two from 256 to 4,096 bytes (IBTA vol. 1 section 9.7). Between rmpi ends
/// it may be any multiple of 64 bytes in this range, so that packets fill the frames of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu(u16);

/// An attribute is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the field.
    pub field: &'static str,
    /// The value.
    pub given: u32,
    /// The smallest valid value.
    pub least: u32,
    /// The largest valid value.
    pub most: u32,
}

impl Config {
    /// Defaults for a peer of another implementation, as users of `rdma_rxe` choose them: path MTU 1,024 bytes, 128
    /// packets in the window, 16 reads, a first timeout of 67 ms, 7 retries, unlimited RNR retries. Later timeouts are
    /// at least 5 ms (200 ms if the peer shares its cores) and at most 2 s; an rmpi peer may send nothing for 30 s. A
    /// round trip above 500 µs counts as congestion.
    pub fn new(number: u32, remote_number: u32, to: SocketAddr) -> Self {
        Self {
            number,
            remote_number,
            to,
            sq_psn: Psn::new(0),
            rq_psn: Psn::new(0),
            path_mtu: PathMtu::BYTES_1024,
            partition: DEFAULT_PARTITION,
            send_depth: 256,
            window_packets: 128,
            target_delay_ns: 500_000,
            read_packets: 32,
            initiator_depth: 16,
            responder_depth: 16,
            timeout: 14,
            retry_count: 7,
            peer_is_rmpi: false,
            selective_repeat: false,
            pads_responses: false,
            peer_shares_cores: false,
            floor_ns: 5_000_000,
            shared_floor_ns: 200_000_000,
            ceiling_ns: 2_000_000_000,
            silence_ns: 30_000_000_000,
            ack_delay_ns: 0,
            rnr_retry: 7,
            min_rnr_timer: 12,
        }
    }

    /// Checks that all attributes are in their ranges.
    ///
    /// # Errors
    /// The first attribute that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mtu_bytes = self.path_mtu.bytes();
        let mtu_bytes_max = match self.peer_is_rmpi {
            true => mtu_bytes,
            false => 1 << mtu_bytes.ilog2(),
        };
        let ranges = [
            ("path_mtu", mtu_bytes, 256, mtu_bytes_max),
            ("number", self.number, 0, Psn::MASK),
            ("remote_number", self.remote_number, 0, Psn::MASK),
            ("send_depth", self.send_depth, 1, 1 << 16),
            ("window_packets", self.window_packets, 1, 1 << 16),
            ("read_packets", self.read_packets, 1, 1 << 16),
            ("initiator_depth", self.initiator_depth.into(), 1, 255),
            ("responder_depth", self.responder_depth.into(), 1, 255),
            ("timeout", self.timeout.into(), 0, 31),
            ("retry_count", self.retry_count.into(), 0, 7),
            ("rnr_retry", self.rnr_retry.into(), 0, 7),
            ("min_rnr_timer", self.min_rnr_timer.into(), 0, 31),
            (
                "selective_repeat",
                self.selective_repeat.into(),
                0,
                self.peer_is_rmpi.into(),
            ),
            (
                "pads_responses",
                self.pads_responses.into(),
                0,
                self.selective_repeat.into(),
            ),
            (
                "ack_delay_ns",
                u32::from(self.ack_delay_ns != 0),
                0,
                self.peer_is_rmpi.into(),
            ),
        ];
        let wrong = ranges
            .into_iter()
            .find(|(_, given, least, most)| !(least..=most).contains(&given));
        wrong.map_or(Ok(()), |(field, given, least, most)| {
            Err(ConfigError {
                field,
                given,
                least,
                most,
            })
        })
    }

    /// The first response timeout in nanoseconds; `None`: infinite.
    pub(super) fn timeout_ns(&self) -> Option<u64> {
        (self.timeout != 0).then(|| 4096 << self.timeout)
    }
}

impl PathMtu {
    /// 256 bytes.
    pub const BYTES_256: Self = Self(256);
    /// 1,024 bytes, the largest power of two for Ethernet with an MTU of 1,500 bytes.
    pub const BYTES_1024: Self = Self(1024);
    /// 4,096 bytes.
    pub const BYTES_4096: Self = Self(4096);

    /// A path MTU of this many bytes; `None`: not a multiple of 64 bytes, or out of range.
    pub fn new(bytes: u32) -> Option<Self> {
        let is_valid = (256..=4096).contains(&bytes) && bytes.is_multiple_of(64);
        u16::try_from(bytes).ok().filter(|_| is_valid).map(Self)
    }

    /// The largest payload in bytes.
    pub fn bytes(self) -> u32 {
        self.0.into()
    }

    /// Number of packets of a message of `message_bytes` bytes, at least one.
    pub(super) fn packets(self, message_bytes: u32) -> u32 {
        message_bytes.div_ceil(self.bytes()).max(1)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            given,
            least,
            most,
        } = self;
        write!(
            f,
            "{field} of the queue pair is {given}, expected {least} to {most}"
        )
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_error_names_the_field_out_of_range() {
        let usual = Config::new(1, 2, "10.0.0.1:4791".parse().unwrap());
        assert_eq!(usual.check(), Ok(()));
        let wrong = Config {
            timeout: 32,
            ..usual
        };
        let error = wrong.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "timeout of the queue pair is 32, expected 0 to 31"
        );
    }

    #[test]
    fn only_rmpi_peers_may_have_a_path_mtu_between_powers_of_two() {
        let between = Config {
            path_mtu: PathMtu::new(1408).unwrap(),
            peer_is_rmpi: true,
            ..Config::new(1, 2, "10.0.0.1:4791".parse().unwrap())
        };
        assert_eq!(between.check(), Ok(()));
        let foreign = Config {
            peer_is_rmpi: false,
            ..between
        };
        let error = foreign.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "path_mtu of the queue pair is 1408, expected 256 to 1024"
        );
    }

    #[test]
    fn a_path_mtu_is_a_multiple_of_64_bytes() {
        let valid = [0, 192, 256, 257, 320, 4096, 4160].map(|bytes| PathMtu::new(bytes).is_some());
        assert_eq!(valid, [false, false, true, false, true, true, false]);
    }

    #[test]
    fn empty_message_is_one_packet() {
        let mtu = PathMtu::BYTES_256;
        let packets = [0, 1, 256, 257, 512].map(|bytes| mtu.packets(bytes));
        assert_eq!(packets, [1, 1, 1, 2, 2]);
    }
}
