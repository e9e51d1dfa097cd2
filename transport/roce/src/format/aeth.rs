// SPDX-License-Identifier: MIT OR Apache-2.0
//! The acknowledge extended transport header, AETH. IBTA vol. 1 section 9.7.5.
//!
//! | offset | bits | field    | meaning |
//! |-------:|-----:|----------|------------------------------------------------------|
//! |      0 |    1 | reserved | 0 |
//! |      0 |    2 | type     | 0 ACK, 1 RNR NAK, 2 reserved, 3 NAK |
//! |      0 |    5 | value    | ACK: credits (31: not used); RNR: timer; NAK: reason |
//! |      1 |   24 | MSN      | messages that the responder has completed |

use super::{read_u24, write_u24};

/// The header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Outcome of the request that the response acknowledges.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

/// Outcome reported by a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Positive acknowledgement.
    Ack {
        /// Credit code, 0 to 31: it stands for the number of receive buffers that are left; 31: credits are not used.
        credits: u8,
    },
    /// RNR NAK: there is no receive buffer now.
    RnrNak {
        /// Code of the time that the requester waits before it sends the packet again, 0 to 31; [`rnr_timer_ns`]
        /// converts it to nanoseconds.
        timer: u8,
    },
    /// The packet is refused for this reason.
    Nak(Nak),
    /// A reserved value.
    Reserved {
        /// The whole syndrome byte.
        code: u8,
    },
}

/// The reason why a packet is refused. IBTA vol. 1 section 9.7.5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nak {
    /// PSN sequence error: packets before the refused packet are missing.
    Sequence,
    /// Invalid request.
    InvalidRequest,
    /// Remote access error: key, bounds or rights are wrong.
    RemoteAccess,
    /// Remote operational error.
    RemoteOperation,
    /// Invalid RD request: used only with reliable datagrams, which are not implemented.
    InvalidDatagram,
}

impl Aeth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 4;

    /// Parses a header.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let [code, msn @ ..] = *bytes;
        Self {
            syndrome: Syndrome::parse(code),
            msn: read_u24(msn),
        }
    }

    /// Writes the header.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        let [a, b, c] = write_u24(self.msn);
        *bytes = [self.syndrome.code(), a, b, c];
    }
}

impl Syndrome {
    /// An acknowledgement without credits.
    pub const UNLIMITED: Self = Self::Ack { credits: 31 };

    /// Parses the syndrome byte.
    pub fn parse(code: u8) -> Self {
        let value = code & 0x1f;
        match (code >> 5, value) {
            (0, credits) => Self::Ack { credits },
            (1, timer) => Self::RnrNak { timer },
            (3, 0) => Self::Nak(Nak::Sequence),
            (3, 1) => Self::Nak(Nak::InvalidRequest),
            (3, 2) => Self::Nak(Nak::RemoteAccess),
            (3, 3) => Self::Nak(Nak::RemoteOperation),
            (3, 4) => Self::Nak(Nak::InvalidDatagram),
            _ => Self::Reserved { code },
        }
    }

    /// The syndrome byte on the wire.
    pub fn code(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::RnrNak { timer } => 0x20 | timer & 0x1f,
            Self::Nak(Nak::Sequence) => 0x60,
            Self::Nak(Nak::InvalidRequest) => 0x61,
            Self::Nak(Nak::RemoteAccess) => 0x62,
            Self::Nak(Nak::RemoteOperation) => 0x63,
            Self::Nak(Nak::InvalidDatagram) => 0x64,
            Self::Reserved { code } => code,
        }
    }
}

/// The time of an RNR NAK timer code, in nanoseconds; only the low 5 bits of the code count. IBTA vol. 1 section
/// 9.7.5.2.8, table 45.
pub fn rnr_timer_ns(timer: u8) -> u64 {
    HUNDREDTHS_OF_MS[usize::from(timer & 0x1f)] * 10_000
}

const HUNDREDTHS_OF_MS: [u64; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
    1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_round_trip() {
        for code in 0..=u8::MAX {
            assert_eq!(Syndrome::parse(code).code(), code);
        }
        assert_eq!(Syndrome::UNLIMITED.code(), 0x1f);
    }

    #[test]
    fn rnr_timers_match_the_specification() {
        let known = [
            (0, 655_360_000),
            (1, 10_000),
            (12, 640_000),
            (31, 491_520_000),
        ];
        for (timer, ns) in known {
            assert_eq!(rnr_timer_ns(timer), ns);
        }
    }

    #[test]
    fn the_message_number_has_24_bits() {
        let wire = [0x62, 1, 2, 3];
        let aeth = Aeth::parse(&wire);
        assert_eq!(aeth.syndrome, Syndrome::Nak(Nak::RemoteAccess));
        assert_eq!(aeth.msn, 0x01_0203);
        let mut again = [0; Aeth::BYTES];
        aeth.write(&mut again);
        assert_eq!(again, wire);
    }
}
