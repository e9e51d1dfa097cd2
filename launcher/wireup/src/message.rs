// SPDX-License-Identifier: MIT OR Apache-2.0
//! The datagrams of the control socket. One value is one `SOCK_SEQPACKET` datagram:
//!
//! | offset | bytes | field   | range                                                              | why |
//! |-------:|------:|---------|--------------------------------------------------------------------|-----|
//! |      0 |     1 | version | 1                                                                  | a zeroed datagram is invalid |
//! |      1 |     1 | kind    | 1..=11 to the daemon, 129..=136 to a rank                          | a message in the wrong direction is detected |
//! |      2 |     1 | flags   | bit 0 of a hello: a record follows                                 | requests for a missing record fail immediately |
//! |      3 |     1 | zero    | 0                                                                  | room |
//! |      4 |     4 | rank    | little endian; to a rank: the rank that the message is about, or 0 | |
//! |      8 |     8 | value   | little endian; pid, code, job or requested rank, or 0              | |
//! |     16 |     – | rest    | UTF-8, at most 2032 bytes; or a record, at most 256 bytes          | message of an abort or an error, reason of a refusal; network address |
//!
//! Longer text is truncated at a character boundary.

use crate::record::{MAX_RECORD_BYTES, Record};

/// Maximum size of a datagram, in bytes.
pub const MAX_DATAGRAM_BYTES: usize = 2048;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 16;
const HELLO: u8 = 1;
const FINALIZED: u8 = 2;
const ABORT: u8 = 3;
const ASK_SEGMENT: u8 = 4;
const FATAL: u8 = 5;
const PUBLISH: u8 = 6;
const LOOK_UP: u8 = 7;
const QUIET: u8 = 8;
const ASK_MEMORY: u8 = 9;
const MISSING: u8 = 10;
const REMARK: u8 = 11;
const SEGMENT: u8 = 129;
const REFUSED: u8 = 130;
const RECORD: u8 = 131;
const NO_RECORD: u8 = 132;
const ALL_QUIET: u8 = 133;
const LOST: u8 = 134;
const MEMORY: u8 = 135;
const FINALIZED_TOO: u8 = 136;
/// Flag of a hello: a record follows.
const PUBLISHES: u8 = 1;

/// Message from a rank to its daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToDaemon {
    /// `MPI_Init` was called: from now on an exit without [`Self::Finalized`] is a failure of the rank.
    Hello {
        /// The rank.
        rank: u32,
        /// Pid of the process that called `MPI_Init`: if a wrapper started it as a child, this is not the pid of the
        /// process that the daemon started.
        pid: u32,
        /// Whether [`Self::Publish`] follows. If not, requests for this rank's record are answered with
        /// [`ToRank::NoRecord`].
        publishes: bool,
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
        /// Message for the user, possibly empty.
        message: String,
    },
    /// An MPI call failed under an error handler that makes errors fatal: the library ends the job.
    Fatal {
        /// The rank.
        rank: u32,
        /// Error class.
        code: i32,
        /// Error text, which completes a sentence after "was ended by".
        message: String,
    },
    /// The program called an MPI function that this library does not have; if the rank fails, the daemon names the
    /// function in the failure report.
    Missing {
        /// The rank.
        rank: u32,
        /// Name of the function.
        function: String,
    },
    /// A remark about the network. The user sees it once per job, even if several ranks send it.
    Remark {
        /// The rank.
        rank: u32,
        /// The text.
        text: String,
    },
    /// Request for the node segment, from a rank whose inherited descriptors were closed or were used by an MPI program
    /// that the rank ran before.
    AskSegment {
        /// The rank.
        rank: u32,
        /// The job's key, as authentication.
        job: u64,
    },
    /// Network address of this rank. A later record replaces an earlier one; an empty record means that the rank has no
    /// address.
    Publish {
        /// The rank.
        rank: u32,
        /// Its record.
        record: Record,
    },
    /// Request for the address of another rank. Answered by [`ToRank::Record`] as soon as that rank has published, or
    /// by [`ToRank::NoRecord`].
    LookUp {
        /// The requesting rank.
        rank: u32,
        /// The rank whose record is requested.
        of: u32,
    },
    /// All network messages of this rank have been acknowledged, and the rank will send no more. Answered by
    /// [`ToRank::AllQuiet`].
    Quiet {
        /// The rank.
        rank: u32,
    },
    /// Request for a descriptor of a rank's memory. A debugger sends it, not a rank. Answered by [`ToRank::Memory`].
    AskMemory {
        /// The rank whose memory is requested.
        rank: u32,
        /// The job's key, as authentication.
        job: u64,
    },
}

impl ToDaemon {
    /// Encodes the datagram.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello {
                rank,
                pid,
                publishes,
            } => {
                let mut bytes = datagram(HELLO, *rank, u64::from(*pid), b"");
                bytes[FLAGS_AT] = if *publishes { PUBLISHES } else { 0 };
                bytes
            }
            Self::Finalized { rank } => datagram(FINALIZED, *rank, 0, b""),
            Self::Abort {
                rank,
                code,
                message,
            } => datagram(ABORT, *rank, u64::from(code.cast_unsigned()), cut(message)),
            Self::Fatal {
                rank,
                code,
                message,
            } => datagram(FATAL, *rank, u64::from(code.cast_unsigned()), cut(message)),
            Self::Missing { rank, function } => datagram(MISSING, *rank, 0, cut(function)),
            Self::Remark { rank, text } => datagram(REMARK, *rank, 0, cut(text)),
            Self::AskSegment { rank, job } => datagram(ASK_SEGMENT, *rank, *job, b""),
            Self::AskMemory { rank, job } => datagram(ASK_MEMORY, *rank, *job, b""),
            Self::Publish { rank, record } => datagram(PUBLISH, *rank, 0, record.bytes()),
            Self::LookUp { rank, of } => datagram(LOOK_UP, *rank, u64::from(*of), b""),
            Self::Quiet { rank } => datagram(QUIET, *rank, 0, b""),
        }
    }

    /// Decodes a datagram that any process may have written.
    ///
    /// # Errors
    /// When the bytes are not a message of this version and direction.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let parts = DatagramFields::read(bytes)?;
        let rank = parts.rank;
        match parts.kind {
            HELLO => Ok(Self::Hello {
                rank,
                pid: parts.value_u32()?,
                publishes: parts.flags & PUBLISHES != 0,
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
            MISSING => Ok(Self::Missing {
                rank,
                function: parts.text()?,
            }),
            REMARK => Ok(Self::Remark {
                rank,
                text: parts.text()?,
            }),
            ASK_SEGMENT => Ok(Self::AskSegment {
                rank,
                job: parts.value,
            }),
            PUBLISH => Ok(Self::Publish {
                rank,
                record: parts.record()?,
            }),
            LOOK_UP => Ok(Self::LookUp {
                rank,
                of: parts.value_u32()?,
            }),
            QUIET => Ok(Self::Quiet { rank }),
            ASK_MEMORY => Ok(Self::AskMemory {
                rank,
                job: parts.value,
            }),
            kind => Err(DecodeError::Kind { kind }),
        }
    }
}

/// Message from a daemon to a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToRank {
    /// The node segment: its descriptor is attached (`SCM_RIGHTS`).
    Segment,
    /// The request was not granted.
    Refused {
        /// The reason, as text.
        why: String,
    },
    /// Reply to [`ToDaemon::LookUp`].
    Record {
        /// The rank that published it.
        rank: u32,
        /// Its record.
        record: Record,
    },
    /// All ranks are quiet in the MPI program that the receiver runs: no rank needs the receiver's acknowledgements any
    /// more.
    AllQuiet,
    /// A rank has failed and the job continues: no further MPI message arrives from that rank.
    Lost {
        /// The failed rank.
        rank: u32,
        /// What happened, as text.
        why: String,
    },
    /// The sender, a rank that replaces the daemon, has finalized. If this connection closes later, that is no failure.
    Finalized {
        /// The rank that has finalized.
        rank: u32,
    },
    /// Reply to [`ToDaemon::LookUp`]: the requested rank has no record and will have none.
    NoRecord {
        /// The rank that was requested.
        rank: u32,
        /// The reason, as text.
        why: String,
    },
    /// Reply to [`ToDaemon::AskMemory`]: a descriptor for reading the memory of a process of the requested rank. It is
    /// attached (`SCM_RIGHTS`).
    Memory {
        /// Pid of the process.
        pid: u32,
    },
}

impl ToRank {
    /// Encodes the datagram.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Segment => datagram(SEGMENT, 0, 0, b""),
            Self::Refused { why } => datagram(REFUSED, 0, 0, cut(why)),
            Self::Record { rank, record } => datagram(RECORD, *rank, 0, record.bytes()),
            Self::AllQuiet => datagram(ALL_QUIET, 0, 0, b""),
            Self::NoRecord { rank, why } => datagram(NO_RECORD, *rank, 0, cut(why)),
            Self::Lost { rank, why } => datagram(LOST, *rank, 0, cut(why)),
            Self::Finalized { rank } => datagram(FINALIZED_TOO, *rank, 0, b""),
            Self::Memory { pid } => datagram(MEMORY, 0, u64::from(*pid), b""),
        }
    }

    /// Decodes a datagram that any process may have written.
    ///
    /// # Errors
    /// When the bytes are not a message of this version and direction.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let parts = DatagramFields::read(bytes)?;
        match parts.kind {
            SEGMENT => Ok(Self::Segment),
            REFUSED => Ok(Self::Refused { why: parts.text()? }),
            RECORD => Ok(Self::Record {
                rank: parts.rank,
                record: parts.record()?,
            }),
            ALL_QUIET => Ok(Self::AllQuiet),
            NO_RECORD => Ok(Self::NoRecord {
                rank: parts.rank,
                why: parts.text()?,
            }),
            FINALIZED_TOO => Ok(Self::Finalized { rank: parts.rank }),
            MEMORY => Ok(Self::Memory {
                pid: parts.value_u32()?,
            }),
            LOST => Ok(Self::Lost {
                rank: parts.rank,
                why: parts.text()?,
            }),
            kind => Err(DecodeError::Kind { kind }),
        }
    }
}

/// Why a datagram was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Shorter than the header or longer than any message.
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
    /// A number that exceeds the range of its type.
    #[error("control datagram has the value {value}, expected at most 4294967295")]
    Value {
        /// The number.
        value: u64,
    },
    /// Text that is not UTF-8.
    #[error("control datagram has text that is not UTF-8")]
    Text,
    /// A record that is too long.
    #[error("control datagram has a record of {bytes} bytes, expected at most {MAX_RECORD_BYTES}")]
    Record {
        /// Its length.
        bytes: usize,
    },
}

/// Offset of the flags.
const FLAGS_AT: usize = 2;

fn datagram(kind: u8, rank: u32, value: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + rest.len());
    bytes.extend([VERSION, kind, 0, 0]);
    bytes.extend(rank.to_le_bytes());
    bytes.extend(value.to_le_bytes());
    bytes.extend(rest);
    bytes
}

/// The longest prefix of a text that fits in a datagram.
fn cut(text: &str) -> &[u8] {
    let room = text.floor_char_boundary(MAX_DATAGRAM_BYTES - HEAD_BYTES);
    text.as_bytes().get(..room).unwrap_or_default()
}

/// The fields of a datagram.
struct DatagramFields<'a> {
    kind: u8,
    flags: u8,
    rank: u32,
    value: u64,
    rest: &'a [u8],
}

impl<'a> DatagramFields<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let wrong = DecodeError::Length { bytes: bytes.len() };
        if bytes.len() > MAX_DATAGRAM_BYTES {
            return Err(wrong);
        }
        let ([version, kind, flags, _], rest) = bytes.split_first_chunk::<4>().ok_or(wrong)?;
        let (rank, rest) = rest.split_first_chunk().ok_or(wrong)?;
        let (value, rest) = rest.split_first_chunk().ok_or(wrong)?;
        if *version != VERSION {
            return Err(DecodeError::Version { version: *version });
        }
        let (rank, value) = (u32::from_le_bytes(*rank), u64::from_le_bytes(*value));
        Ok(Self {
            kind: *kind,
            flags: *flags,
            rank,
            value,
            rest,
        })
    }

    fn value_u32(&self) -> Result<u32, DecodeError> {
        u32::try_from(self.value).map_err(|_| DecodeError::Value { value: self.value })
    }

    fn text(&self) -> Result<String, DecodeError> {
        std::str::from_utf8(self.rest)
            .map(str::to_owned)
            .map_err(|_| DecodeError::Text)
    }

    fn record(&self) -> Result<Record, DecodeError> {
        let bytes = self.rest.len();
        Record::new(self.rest).ok_or(DecodeError::Record { bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_to_daemon() -> impl Strategy<Value = ToDaemon> {
        let hello = (any::<u32>(), any::<u32>(), any::<bool>());
        let abort = (any::<u32>(), any::<i32>(), "\\PC{0,500}");
        let fatal = (any::<u32>(), any::<i32>(), "\\PC{0,500}");
        let missing = (any::<u32>(), "\\PC{0,100}");
        let remark = (any::<u32>(), "\\PC{0,100}");
        let rank_and_job = (any::<u32>(), any::<u64>());
        prop_oneof![
            hello.prop_map(|(rank, pid, publishes)| ToDaemon::Hello {
                rank,
                pid,
                publishes
            }),
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
            missing.prop_map(|(rank, function)| ToDaemon::Missing { rank, function }),
            remark.prop_map(|(rank, text)| ToDaemon::Remark { rank, text }),
            rank_and_job.prop_map(|(rank, job)| ToDaemon::AskSegment { rank, job }),
            (any::<u32>(), any_record())
                .prop_map(|(rank, record)| ToDaemon::Publish { rank, record }),
            (any::<u32>(), any::<u32>()).prop_map(|(rank, of)| ToDaemon::LookUp { rank, of }),
            any::<u32>().prop_map(|rank| ToDaemon::Quiet { rank }),
            (any::<u32>(), any::<u64>()).prop_map(|(rank, job)| ToDaemon::AskMemory { rank, job }),
        ]
    }

    fn any_to_rank() -> impl Strategy<Value = ToRank> {
        prop_oneof![
            Just(ToRank::Segment),
            Just(ToRank::AllQuiet),
            any::<u32>().prop_map(|pid| ToRank::Memory { pid }),
            any::<u32>().prop_map(|rank| ToRank::Finalized { rank }),
            "\\PC{0,500}".prop_map(|why| ToRank::Refused { why }),
            (any::<u32>(), any_record()).prop_map(|(rank, record)| ToRank::Record { rank, record }),
            (any::<u32>(), "\\PC{0,500}").prop_map(|(rank, why)| ToRank::NoRecord { rank, why }),
        ]
    }

    fn any_record() -> impl Strategy<Value = Record> {
        proptest::collection::vec(any::<u8>(), 0..=MAX_RECORD_BYTES)
            .prop_map(|bytes| Record::new(&bytes).unwrap())
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
    fn a_message_of_the_wrong_direction_is_refused() {
        let segment = ToRank::Segment.encode();
        assert_eq!(
            ToDaemon::decode(&segment),
            Err(DecodeError::Kind { kind: SEGMENT })
        );
        let look_up = ToDaemon::LookUp { rank: 0, of: 1 }.encode();
        assert_eq!(
            ToRank::decode(&look_up),
            Err(DecodeError::Kind { kind: LOOK_UP })
        );
    }

    #[test]
    fn an_overlong_record_error_states_its_length() {
        let record = Record::new(&[7; MAX_RECORD_BYTES]).unwrap();
        let mut bytes = ToDaemon::Publish { rank: 3, record }.encode();
        assert!(ToDaemon::decode(&bytes).is_ok());
        bytes.push(7);
        let wrong = DecodeError::Record {
            bytes: MAX_RECORD_BYTES + 1,
        };
        assert_eq!(ToDaemon::decode(&bytes), Err(wrong));
        bytes[1] = RECORD;
        assert_eq!(ToRank::decode(&bytes), Err(wrong));
        assert_eq!(
            wrong.to_string(),
            "control datagram has a record of 257 bytes, expected at most 256"
        );
    }

    #[test]
    fn a_rank_that_does_not_fit_is_refused() {
        let mut bytes = ToDaemon::LookUp { rank: 3, of: 1 }.encode();
        bytes[12] = 1;
        let value = 1 << 32 | 1;
        assert_eq!(ToDaemon::decode(&bytes), Err(DecodeError::Value { value }));
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
    fn an_overlong_datagram_is_refused() {
        let bytes = vec![VERSION; MAX_DATAGRAM_BYTES + 1];
        let wrong = DecodeError::Length {
            bytes: MAX_DATAGRAM_BYTES + 1,
        };
        assert_eq!(ToDaemon::decode(&bytes), Err(wrong));
        assert_eq!(ToRank::decode(&bytes), Err(wrong));
    }

    proptest! {
        #[test]
        fn messages_to_the_daemon_round_trip(message in any_to_daemon()) {
            prop_assert_eq!(ToDaemon::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn messages_to_a_rank_round_trip(message in any_to_rank()) {
            prop_assert_eq!(ToRank::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..2100),
        ) {
            let _ = ToDaemon::decode(&bytes);
            let _ = ToRank::decode(&bytes);
        }
    }
}
