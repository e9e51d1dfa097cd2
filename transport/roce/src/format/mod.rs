// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wire format. All fields are big endian, except for the ICRC. IBTA vol. 1 chapter 9, annex A17 (RoCEv2).
//!
//! | part              |    bytes | defined in |
//! |-------------------|---------:|-------------------------------------------------------------------|
//! | IPv4 or IPv6      | 20 or 40 | `network.rs` |
//! | UDP               |        8 | `network.rs`, to port [`PORT`] |
//! | BTH               |       12 | `bth.rs` |
//! | extension headers |   0 – 36 | `extended.rs`, `aeth.rs`, `selective.rs`; per opcode: `opcode.rs` |
//! | payload           | 0 – 4096 | |
//! | pad               |    0 – 3 | zeros, so that payload and pad are a multiple of 4 |
//! | ICRC              |        4 | `icrc.rs` |
//!
//! The parsers check all lengths, and never panic.

mod aeth;
mod bth;
mod build;
mod extended;
mod network;
mod opcode;
mod packet;
mod selective;

pub use aeth::{Aeth, Nak, Syndrome, rnr_timer_ns};
pub use bth::Bth;
pub(crate) use bth::pad_of;
pub use build::Headers;
pub use extended::{AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, Reth};
pub use network::{NetworkError, NetworkHeaders};
pub use opcode::{MessagePosition, Opcode, OpcodeClass, Service};
pub(crate) use packet::CNP_BYTES;
pub use packet::{Malformed, Packet};
pub use selective::PacketSet;

/// The UDP port of RoCEv2, annex A17.3.2.2.
pub const PORT: u16 = 4791;
/// Largest payload of one packet in bytes: the largest path MTU.
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// Number of bytes by which this engine lets a datagram exceed the path MTU. Such a datagram is as long on the wire as
/// the longest packet of a reliable queue pair, which has a RETH and immediate data instead of the DETH. Path MTU
/// probes have this length. Adapters send and accept only datagrams that are at most as long as the path MTU.
pub const DATAGRAM_BYTES_MORE: usize = Reth::BYTES + ImmDt::BYTES - Deth::BYTES;
/// Length in bytes of the ICRC that follows each packet.
pub const ICRC_BYTES: usize = 4;
/// The default partition, with full membership.
pub const DEFAULT_PARTITION: u16 = 0xffff;

/// The 24-bit number in three big-endian bytes.
fn read_u24(bytes: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])
}

/// The low 24 bits of a number as three big-endian bytes.
fn write_u24(number: u32) -> [u8; 3] {
    let [_, a, b, c] = number.to_be_bytes();
    [a, b, c]
}
