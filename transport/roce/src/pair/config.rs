// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two ends agree on before they talk, and the limits of one end.

use std::fmt;
use std::net::SocketAddr;

use crate::format::DEFAULT_PARTITION;
use crate::psn::Psn;

/// What a queue pair is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its own number, 24 bits.
    pub number: u32,
    /// Number of the peer's, 24 bits.
    pub remote_number: u32,
    /// Where packets go; those that come must be from this IP address, from any port.
    pub to: SocketAddr,
    /// Number of the first packet that it sends.
    pub our_first: Psn,
    /// Number of the first packet that the peer sends.
    pub their_first: Psn,
    /// Most payload of a packet; both ends must name the same.
    pub path_mtu: PathMtu,
    /// P_Key.
    pub partition: u16,
    /// Work requests that are posted or whose completions were not polled, 1 to 65,536.
    pub send_depth: u32,
    /// Packets that are sent and not acknowledged, 1 to 65,536; fewer while there is congestion.
    pub window_packets: u32,
    /// A longer round trip counts as congestion; 0: none does.
    pub target_delay_ns: u64,
    /// A longer read travels as several of at most so many packets each, 1 to 65,536: so the window holds for reads too.
    pub read_packets: u32,
    /// Reads and atomic operations under way; at most what the peer has as `responder_depth`. 1 to 255.
    pub initiator_depth: u8,
    /// Reads and atomic operations of the peer that can come again, 1 to 255.
    pub responder_depth: u8,
    /// How long an answer may take until the round trip was measured: 4.096 µs × 2^timeout, 1 to 31; 0: for ever, and nothing is
    /// measured.
    pub timeout: u8,
    /// How often a foreign peer may leave packets without an answer, 0 to 7.
    pub retry_count: u8,
    /// The peer runs this engine too; both ends know it from how they met. Then `silence_ns` counts and not `retry_count`.
    pub peer_is_ours: bool,
    /// What comes ahead of a packet that is missing is kept, and only what is missing is sent again; both ends must be told the same,
    /// and it needs a peer of ours. At most 256 packet numbers are under way then.
    pub selective_repeat: bool,
    /// The peer has no core for itself, so that it may not run for a while: `shared_floor_ns` counts and not `floor_ns`.
    pub peer_shares_cores: bool,
    /// The least time after which an answer is overdue.
    pub floor_ns: u64,
    /// The same for a peer that shares its cores.
    pub shared_floor_ns: u64,
    /// The most time after which an answer is overdue, however often none came.
    pub ceiling_ns: u64,
    /// How long a peer of ours may give no sign of life while something is asked of it.
    pub silence_ns: u64,
    /// How long an acknowledgement may wait that nobody has asked for: it leaves behind the next request, or then. 0: nobody sends
    /// them; both ends must have it or not.
    pub ack_delay_ns: u64,
    /// How often the peer may have no receive buffer, 0 to 6; 7: for ever.
    pub not_ready_retries: u8,
    /// What the peer is told to wait when there is no receive buffer, a code of 0 to 31; [`not_ready_ns`] says how long it is.
    ///
    /// [`not_ready_ns`]: crate::format::not_ready_ns
    pub not_ready_timer: u8,
}

/// Most payload of one packet. IBTA vol. 1 section 9.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMtu {
    /// 256 bytes.
    Bytes256,
    /// 512 bytes.
    Bytes512,
    /// 1,024 bytes, the most for Ethernet of 1,500.
    Bytes1024,
    /// 2,048 bytes.
    Bytes2048,
    /// 4,096 bytes.
    Bytes4096,
}

/// A number that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the field.
    pub field: &'static str,
    /// What was given.
    pub given: u32,
    /// The least.
    pub least: u32,
    /// The most.
    pub most: u32,
}

impl Config {
    /// Settings for a foreign peer, as `rdma_rxe` and its users have them: path MTU 1,024, 128 packets under way, 16 reads, 67 ms
    /// for the first answer, 7 retries, and a peer without a buffer is waited for. An answer is overdue after 5 ms at least,
    /// 200 ms if the peer shares its cores, and 2 s at most; a peer of ours may be silent for 30 s. A round trip above 500 µs is
    /// congestion.
    pub fn new(number: u32, remote_number: u32, to: SocketAddr) -> Self {
        Self {
            number,
            remote_number,
            to,
            our_first: Psn::new(0),
            their_first: Psn::new(0),
            path_mtu: PathMtu::Bytes1024,
            partition: DEFAULT_PARTITION,
            send_depth: 256,
            window_packets: 128,
            target_delay_ns: 500_000,
            read_packets: 32,
            initiator_depth: 16,
            responder_depth: 16,
            timeout: 14,
            retry_count: 7,
            peer_is_ours: false,
            selective_repeat: false,
            peer_shares_cores: false,
            floor_ns: 5_000_000,
            shared_floor_ns: 200_000_000,
            ceiling_ns: 2_000_000_000,
            silence_ns: 30_000_000_000,
            ack_delay_ns: 0,
            not_ready_retries: 7,
            not_ready_timer: 12,
        }
    }

    /// Checks all ranges.
    ///
    /// # Errors
    /// The first number that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("number", self.number, 0, Psn::MASK),
            ("remote_number", self.remote_number, 0, Psn::MASK),
            ("send_depth", self.send_depth, 1, 1 << 16),
            ("window_packets", self.window_packets, 1, 1 << 16),
            ("read_packets", self.read_packets, 1, 1 << 16),
            ("initiator_depth", self.initiator_depth.into(), 1, 255),
            ("responder_depth", self.responder_depth.into(), 1, 255),
            ("timeout", self.timeout.into(), 0, 31),
            ("retry_count", self.retry_count.into(), 0, 7),
            ("not_ready_retries", self.not_ready_retries.into(), 0, 7),
            ("not_ready_timer", self.not_ready_timer.into(), 0, 31),
            (
                "selective_repeat",
                self.selective_repeat.into(),
                0,
                self.peer_is_ours.into(),
            ),
            (
                "ack_delay_ns",
                u32::from(self.ack_delay_ns != 0),
                0,
                self.peer_is_ours.into(),
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

    /// How long the first answer may take; `None`: for ever.
    pub(super) fn timeout_ns(&self) -> Option<u64> {
        (self.timeout != 0).then(|| 4096 << self.timeout)
    }
}

impl PathMtu {
    /// The length.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Bytes256 => 256,
            Self::Bytes512 => 512,
            Self::Bytes1024 => 1024,
            Self::Bytes2048 => 2048,
            Self::Bytes4096 => 4096,
        }
    }

    /// How many packets a message has: one at least.
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
    fn a_number_out_of_range_is_named() {
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
    fn nothing_is_one_packet() {
        let mtu = PathMtu::Bytes256;
        let packets = [0, 1, 256, 257, 512].map(|bytes| mtu.packets(bytes));
        assert_eq!(packets, [1, 1, 1, 2, 2]);
    }
}
