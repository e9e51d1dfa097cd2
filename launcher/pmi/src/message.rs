// SPDX-License-Identifier: MIT OR Apache-2.0
//! The datagrams of the control socket. One value is one `SOCK_SEQPACKET` datagram:
//!
//! | offset | bytes | field   | range                                    | why |
//! |-------:|------:|---------|------------------------------------------|-----|
//! |      0 |     1 | version | 1                                        | zeros are no message |
//! |      1 |     1 | kind    | 1..=5 to the daemon, 129..=130 to a rank | a message sent the wrong way is seen |
//! |      2 |     2 | zero    | 0                                        | room |
//! |      4 |     4 | rank    | little endian; 0 to a rank               | |
//! |      8 |     8 | value   | pid, code or job, little endian          | |
//! |     16 |     – | text    | UTF-8, at most 2032 bytes                | message of an abort or an error, reason of a refusal |
//!
//! Longer text is cut at a character when it is written.

/// No datagram is longer.
pub const MAX_DATAGRAM_BYTES: usize = 2048;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 16;
const HELLO: u8 = 1;
const FINALIZED: u8 = 2;
const ABORT: u8 = 3;
const ASK_SEGMENT: u8 = 4;
const FATAL: u8 = 5;
const SEGMENT: u8 = 129;
const REFUSED: u8 = 130;

/// What a rank says to its daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToDaemon {
    /// `MPI_Init` was called: from now on an exit without [`Self::Finalized`] is a failure.
    Hello {
        /// The rank.
        rank: u32,
        /// Its process id; a wrapper's child has another one than the process that was started.
        pid: u32,
    },
    /// `MPI_Finalize` is done.
    Finalized {
        /// The rank.
        rank: u32,
    },
    /// `MPI_Abort` was called.
    Abort {
        /// The rank.
        rank: u32,
        /// The code of the call.
        code: i32,
        /// What to tell the user, possibly empty.
        message: String,
    },
    /// An MPI call failed where errors are fatal: the library ends the job.
    Fatal {
        /// The rank.
        rank: u32,
        /// The class of the error.
        code: i32,
        /// The error, to stand behind "was ended by".
        message: String,
    },
    /// The inherited descriptors did not survive, or were those of an MPI program that the same rank ran before: please
    /// send the segment.
    AskSegment {
        /// The rank.
        rank: u32,
        /// The job's key, as proof.
        job: u64,
    },
}

impl ToDaemon {
    /// The datagram.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { rank, pid } => datagram(HELLO, *rank, u64::from(*pid), ""),
            Self::Finalized { rank } => datagram(FINALIZED, *rank, 0, ""),
            Self::Abort {
                rank,
                code,
                message,
            } => datagram(ABORT, *rank, u64::from(code.cast_unsigned()), message),
            Self::Fatal {
                rank,
                code,
                message,
            } => datagram(FATAL, *rank, u64::from(code.cast_unsigned()), message),
            Self::AskSegment { rank, job } => datagram(ASK_SEGMENT, *rank, *job, ""),
        }
    }

    /// Reads a datagram that any process may have written.
    ///
    /// # Errors
    /// When the bytes are no message of this version and direction.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let parts = Parts::read(bytes)?;
        let rank = parts.rank;
        match parts.kind {
            HELLO => Ok(Self::Hello {
                rank,
                pid: parts.value_u32()?,
            }),
            FINALIZED => Ok(Self::Finalized { rank }),
            ABORT => {
                let code = parts.value_u32()?.cast_signed();
                Ok(Self::Abort {
                    rank,
                    code,
                    message: parts.text()?,
                })
            }
            FATAL => Ok(Self::Fatal {
                rank,
                code: parts.value_u32()?.cast_signed(),
                message: parts.text()?,
            }),
            ASK_SEGMENT => Ok(Self::AskSegment {
                rank,
                job: parts.value,
            }),
            kind => Err(DecodeError::Kind { kind }),
        }
    }
}

/// What a daemon says to a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToRank {
    /// Here is the node segment: its descriptor travels with the datagram (`SCM_RIGHTS`).
    Segment,
    /// The request was not granted.
    Refused {
        /// The reason, in words.
        why: String,
    },
}

impl ToRank {
    /// The datagram.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Segment => datagram(SEGMENT, 0, 0, ""),
            Self::Refused { why } => datagram(REFUSED, 0, 0, why),
        }
    }

    /// Reads a datagram that any process may have written.
    ///
    /// # Errors
    /// When the bytes are no message of this version and direction.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let parts = Parts::read(bytes)?;
        match parts.kind {
            SEGMENT => Ok(Self::Segment),
            REFUSED => Ok(Self::Refused { why: parts.text()? }),
            kind => Err(DecodeError::Kind { kind }),
        }
    }
}

/// Why a datagram was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Shorter than the head or longer than any message.
    #[error("control datagram has {bytes} bytes, expected {HEAD_BYTES} to {MAX_DATAGRAM_BYTES}")]
    Length {
        /// Bytes received.
        bytes: usize,
    },
    /// Another version.
    #[error("control datagram has version {version}, expected {VERSION}")]
    Version {
        /// The version byte.
        version: u8,
    },
    /// Not a message of this direction.
    #[error("control datagram is of kind {kind}, which is unknown here")]
    Kind {
        /// The kind byte.
        kind: u8,
    },
    /// A number that does not fit its field.
    #[error("control datagram has the value {value}, expected at most 4294967295")]
    Value {
        /// The number.
        value: u64,
    },
    /// Text that is not UTF-8.
    #[error("control datagram has text that is not UTF-8")]
    Text,
}

fn datagram(kind: u8, rank: u32, value: u64, text: &str) -> Vec<u8> {
    let room = text.floor_char_boundary(MAX_DATAGRAM_BYTES - HEAD_BYTES);
    let text = text.get(..room).unwrap_or("");
    let mut bytes = Vec::with_capacity(HEAD_BYTES + text.len());
    bytes.extend([VERSION, kind, 0, 0]);
    bytes.extend(rank.to_le_bytes());
    bytes.extend(value.to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// A datagram taken apart.
struct Parts<'a> {
    kind: u8,
    rank: u32,
    value: u64,
    text: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let wrong = DecodeError::Length { bytes: bytes.len() };
        if bytes.len() > MAX_DATAGRAM_BYTES {
            return Err(wrong);
        }
        let ([version, kind, ..], rest) = bytes.split_first_chunk::<4>().ok_or(wrong)?;
        let (rank, rest) = rest.split_first_chunk().ok_or(wrong)?;
        let (value, text) = rest.split_first_chunk().ok_or(wrong)?;
        if *version != VERSION {
            return Err(DecodeError::Version { version: *version });
        }
        let (rank, value) = (u32::from_le_bytes(*rank), u64::from_le_bytes(*value));
        Ok(Self {
            kind: *kind,
            rank,
            value,
            text,
        })
    }

    fn value_u32(&self) -> Result<u32, DecodeError> {
        u32::try_from(self.value).map_err(|_| DecodeError::Value { value: self.value })
    }

    fn text(&self) -> Result<String, DecodeError> {
        std::str::from_utf8(self.text)
            .map(str::to_owned)
            .map_err(|_| DecodeError::Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_to_daemon() -> impl Strategy<Value = ToDaemon> {
        let hello = (any::<u32>(), any::<u32>());
        let abort = (any::<u32>(), any::<i32>(), "\\PC{0,500}");
        let fatal = (any::<u32>(), any::<i32>(), "\\PC{0,500}");
        let ask = (any::<u32>(), any::<u64>());
        prop_oneof![
            hello.prop_map(|(rank, pid)| ToDaemon::Hello { rank, pid }),
            any::<u32>().prop_map(|rank| ToDaemon::Finalized { rank }),
            abort.prop_map(|(rank, code, message)| ToDaemon::Abort {
                rank,
                code,
                message
            }),
            fatal.prop_map(|(rank, code, message)| ToDaemon::Fatal {
                rank,
                code,
                message
            }),
            ask.prop_map(|(rank, job)| ToDaemon::AskSegment { rank, job }),
        ]
    }

    #[test]
    fn every_truncation_of_a_head_is_refused() {
        let whole = ToDaemon::Finalized { rank: 7 }.encode();
        assert_eq!(whole.len(), HEAD_BYTES);
        for bytes in 0..HEAD_BYTES {
            assert_eq!(
                ToDaemon::decode(&whole[..bytes]),
                Err(DecodeError::Length { bytes })
            );
        }
    }

    #[test]
    fn a_message_sent_the_wrong_way_is_refused() {
        let segment = ToRank::Segment.encode();
        assert_eq!(
            ToDaemon::decode(&segment),
            Err(DecodeError::Kind { kind: SEGMENT })
        );
        let hello = ToDaemon::Hello { rank: 0, pid: 1 }.encode();
        assert_eq!(
            ToRank::decode(&hello),
            Err(DecodeError::Kind { kind: HELLO })
        );
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let message = "ä".repeat(MAX_DATAGRAM_BYTES);
        let bytes = ToDaemon::Abort {
            rank: 1,
            code: -1,
            message,
        }
        .encode();
        assert_eq!(bytes.len(), MAX_DATAGRAM_BYTES);
        let Ok(ToDaemon::Abort {
            code: -1, message, ..
        }) = ToDaemon::decode(&bytes)
        else {
            panic!("an abort was written");
        };
        assert_eq!(
            message.chars().count(),
            (MAX_DATAGRAM_BYTES - HEAD_BYTES) / 2
        );
    }

    #[test]
    fn too_long_a_datagram_is_refused() {
        let bytes = vec![VERSION; MAX_DATAGRAM_BYTES + 1];
        let wrong = DecodeError::Length {
            bytes: MAX_DATAGRAM_BYTES + 1,
        };
        assert_eq!(ToDaemon::decode(&bytes), Err(wrong));
        assert_eq!(ToRank::decode(&bytes), Err(wrong));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in any_to_daemon()) {
            prop_assert_eq!(ToDaemon::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn a_refusal_is_decoded(why in "\\PC{0,500}") {
            let refused = ToRank::Refused { why };
            prop_assert_eq!(ToRank::decode(&refused.encode()), Ok(refused));
        }

        #[test]
        fn any_bytes_are_answered_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..2100),
        ) {
            let _ = ToDaemon::decode(&bytes);
            let _ = ToRank::decode(&bytes);
        }
    }
}
