// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake by which two connected processes prove that they are of one job, and identify each other. The
//! connecting process is the *caller*, the connected process the *host*. Numbers are little endian:
//!
//! | message | sender | bytes | content |
//! |---------|--------|------:|-----|
//! | HELLO   | caller |    48 | `rmpi-tcp`, version (2), 0 or for a [rail](super::rail) 1 (2), the host's number for the caller (4), the identity of the host, from its record (8), attempt (4), the host's last attempt that the caller has welcomed (4), nonce (16) |
//! | RIDDLE  | host   |    28 | `rmpi-tcp`, version (2), [`HandshakeVerdict`] (2), nonce (16) |
//! | PROOF   | caller |    24 | MAC (16), the caller's acknowledgement of the host's stream: next (4), returned (2); connections that the caller allows with the host (2) |
//! | WELCOME | host   |    24 | MAC (16), [`HandshakeVerdict`] (1), connections that the host allows with the caller, 0 if PROOF has 0 (1), the host's acknowledgement of the caller's stream: returned (2), next (4) |
//!
//! For a rail the attempts in HELLO and the acknowledgements are 0. A process that does not support rails sends 0
//! connections, and rejects a HELLO for a rail. After a WELCOME with verdict [`HandshakeVerdict::Joined`] both streams
//! begin. A MAC is computed with the keys of the two jobs over the name of the side that makes it, all of HELLO, the
//! host's nonce and the bytes after the MAC. So a MAC proves the key for this connection only, in one direction, and
//! does not reveal the key. A number in HELLO does not identify the caller to every process: two processes of another
//! job may use the same number for different callers. The caller proves first: a port scanner gets no information.

use std::fmt;
use std::hash::Hasher;

use session::Ack;
use siphasher::sip128::{Hasher128, SipHasher24};

use super::secrets::StreamKey;

/// Protocol version; other versions are incompatible.
pub(super) const VERSION: u16 = 5;
pub(super) const HELLO_BYTES: usize = 48;
pub(super) const RIDDLE_BYTES: usize = 28;
pub(super) const PROOF_BYTES: usize = 24;
pub(super) const WELCOME_BYTES: usize = 24;

const MAGIC: [u8; 8] = *b"rmpi-tcp";

/// The first message of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) from: u32,
    /// The identity of the intended host, from its [`TcpAddress`](super::address::TcpAddress).
    pub(super) to: u64,
    /// Number of the attempt, among the caller's attempts to connect to this host.
    pub(super) attempt: u32,
    /// The host's last attempt that the caller has welcomed.
    pub(super) welcomed: u32,
    /// Whether the connection is to be a rail beside the line.
    pub(super) is_rail: bool,
    pub(super) nonce: [u64; 2],
}

/// The answer of the host to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeVerdict {
    /// The caller may continue.
    Joined,
    /// The host is calling the caller, or has called it, and that call has precedence.
    Yield,
    /// The host is not the process that the caller expects.
    NotMe,
    /// The number of this attempt is not higher than that of an earlier attempt by the caller, or the caller's
    /// acknowledgement is invalid.
    Old,
    /// The host has given the caller up. Only in a WELCOME.
    GivenUp,
    /// The host does not need this rail. Only in a WELCOME.
    NoRail,
}

impl HandshakeVerdict {
    fn number(self) -> u16 {
        self as u16
    }

    fn of(number: u16) -> Option<Self> {
        let all = [
            Self::Joined,
            Self::Yield,
            Self::NotMe,
            Self::Old,
            Self::GivenUp,
            Self::NoRail,
        ];
        all.into_iter().find(|verdict| verdict.number() == number)
    }
}

/// A fault in a message of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeFault {
    /// The message is not of this protocol.
    Garbage,
    /// The message is of this other version of the protocol.
    Version(u16),
    /// A wrong key.
    Key,
}

/// The key of a pair of processes, derived from the keys of their two jobs. If both are of one job, that job's key is
/// used twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PairKey([u8; 16]);

impl PairKey {
    pub(super) fn new(ours: StreamKey, theirs: StreamKey) -> Self {
        let (ours, theirs) = (ours.bytes(), theirs.bytes());
        let mut hasher = SipHasher24::new_with_key(&ours.min(theirs));
        hasher.write(b"rmpi-tcp keys");
        hasher.write(&ours.max(theirs));
        Self(hasher.finish128().as_bytes())
    }
}

impl fmt::Debug for PairKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Keys(..)")
    }
}

/// The side that makes a MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MacSide {
    Caller,
    Host,
}

impl Hello {
    pub(super) fn to_bytes(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        bytes[10] = self.is_rail.into();
        put(&mut bytes, 12, &self.from.to_le_bytes());
        put(&mut bytes, 16, &self.to.to_le_bytes());
        put(&mut bytes, 24, &self.attempt.to_le_bytes());
        put(&mut bytes, 28, &self.welcomed.to_le_bytes());
        put_nonce(&mut bytes, 32, self.nonce);
        bytes
    }

    pub(super) fn of(bytes: &[u8; HELLO_BYTES]) -> Result<Self, HandshakeFault> {
        check_front(bytes)?;
        let is_rail = match u16_at(bytes, 10) {
            0 => false,
            1 => true,
            _ => return Err(HandshakeFault::Garbage),
        };
        Ok(Self {
            is_rail,
            from: u32_at(bytes, 12),
            to: u64_at(bytes, 16),
            attempt: u32_at(bytes, 24),
            welcomed: u32_at(bytes, 28),
            nonce: [u64_at(bytes, 32), u64_at(bytes, 40)],
        })
    }
}

/// The host's reply to HELLO.
pub(super) fn riddle(verdict: HandshakeVerdict, nonce: [u64; 2]) -> [u8; RIDDLE_BYTES] {
    let mut bytes = [0; RIDDLE_BYTES];
    put(&mut bytes, 0, &MAGIC);
    put(&mut bytes, 8, &VERSION.to_le_bytes());
    put(&mut bytes, 10, &verdict.number().to_le_bytes());
    put_nonce(&mut bytes, 12, nonce);
    bytes
}

pub(super) fn of_riddle(
    bytes: &[u8; RIDDLE_BYTES],
) -> Result<(HandshakeVerdict, [u64; 2]), HandshakeFault> {
    check_front(bytes)?;
    let verdict = HandshakeVerdict::of(u16_at(bytes, 10)).ok_or(HandshakeFault::Garbage)?;
    Ok((verdict, [u64_at(bytes, 12), u64_at(bytes, 20)]))
}

/// The last message of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) verdict: HandshakeVerdict,
    pub(super) ack: Ack,
    /// Number of connections that the host allows with the caller.
    pub(super) rails: u8,
}

/// Values exchanged before the proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandshakeContext {
    pub(super) keys: PairKey,
    pub(super) hello: Hello,
    /// The host's nonce.
    pub(super) nonce: [u64; 2],
}

impl HandshakeContext {
    /// The PROOF. `rails`: number of connections that the caller allows with the host.
    pub(super) fn proof(&self, ack: Ack, rails: u8) -> [u8; PROOF_BYTES] {
        let mut bytes = [0; PROOF_BYTES];
        put(&mut bytes, 16, &ack.next.to_le_bytes());
        put(&mut bytes, 20, &ack.returned.to_le_bytes());
        bytes[22] = rails;
        self.seal(MacSide::Caller, &mut bytes);
        bytes
    }

    pub(super) fn of_proof(&self, bytes: &[u8; PROOF_BYTES]) -> Result<(Ack, u8), HandshakeFault> {
        self.check(MacSide::Caller, bytes)?;
        let ack = Ack {
            next: u32_at(bytes, 16),
            beyond: 0,
            returned: u16_at(bytes, 20),
        };
        Ok((ack, bytes[22]))
    }

    /// The WELCOME. `rails`: number of connections that the host allows with the caller; 0 if the caller has sent 0.
    pub(super) fn welcome(
        &self,
        verdict: HandshakeVerdict,
        ack: Ack,
        rails: u8,
    ) -> [u8; WELCOME_BYTES] {
        let mut bytes = [0; WELCOME_BYTES];
        put(&mut bytes, 16, &verdict.number().to_le_bytes());
        bytes[17] = rails;
        put(&mut bytes, 18, &ack.returned.to_le_bytes());
        put(&mut bytes, 20, &ack.next.to_le_bytes());
        self.seal(MacSide::Host, &mut bytes);
        bytes
    }

    pub(super) fn of_welcome(
        &self,
        bytes: &[u8; WELCOME_BYTES],
    ) -> Result<Welcome, HandshakeFault> {
        self.check(MacSide::Host, bytes)?;
        let verdict = HandshakeVerdict::of(bytes[16].into()).ok_or(HandshakeFault::Garbage)?;
        let ack = Ack {
            next: u32_at(bytes, 20),
            beyond: 0,
            returned: u16_at(bytes, 18),
        };
        let rails = bytes[17];
        Ok(Welcome {
            verdict,
            ack,
            rails,
        })
    }

    fn seal(&self, maker: MacSide, bytes: &mut [u8]) {
        let mac = self.mac(maker, &bytes[MAC_BYTES..]);
        bytes[..MAC_BYTES].copy_from_slice(&mac);
    }

    fn check(&self, maker: MacSide, bytes: &[u8]) -> Result<(), HandshakeFault> {
        let mac = self.mac(maker, &bytes[MAC_BYTES..]);
        // Compares all bytes, so that the duration reveals nothing.
        let differs = mac.iter().zip(bytes).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differs == 0 {
            Ok(())
        } else {
            Err(HandshakeFault::Key)
        }
    }

    fn mac(&self, maker: MacSide, content: &[u8]) -> [u8; MAC_BYTES] {
        let mut hasher = SipHasher24::new_with_key(&self.keys.0);
        hasher.write(match maker {
            MacSide::Caller => b"caller",
            MacSide::Host => b"host  ",
        });
        hasher.write(&self.hello.to_bytes());
        for word in self.nonce {
            hasher.write(&word.to_le_bytes());
        }
        hasher.write(content);
        hasher.finish128().as_bytes()
    }
}

const MAC_BYTES: usize = 16;
/// Start of HELLO and RIDDLE in all versions: the magic word and the version.
const FRONT_BYTES: usize = 10;

/// The version in the start of a HELLO or RIDDLE, if it is not [`VERSION`]. It is checked early, since messages of
/// other versions may be shorter than those of this version and would never be complete.
pub(super) fn foreign_version(begun: &[u8]) -> Option<u16> {
    match check_front(begun.get(..FRONT_BYTES)?) {
        Err(HandshakeFault::Version(version)) => Some(version),
        _ => None,
    }
}

fn check_front(bytes: &[u8]) -> Result<(), HandshakeFault> {
    if bytes[..8] != MAGIC {
        return Err(HandshakeFault::Garbage);
    }
    match u16_at(bytes, 8) {
        VERSION => Ok(()),
        other => Err(HandshakeFault::Version(other)),
    }
}

fn put(bytes: &mut [u8], at: usize, source: &[u8]) {
    bytes[at..at + source.len()].copy_from_slice(source);
}

fn put_nonce(bytes: &mut [u8], at: usize, nonce: [u64; 2]) {
    put(bytes, at, &nonce[0].to_le_bytes());
    put(bytes, at + 8, &nonce[1].to_le_bytes());
}

/// The little-endian number at offset `at`. Panics if it does not lie inside `bytes`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        from: 3,
        to: 9,
        attempt: 0x0102_0304,
        welcomed: 5,
        is_rail: false,
        nonce: [11, 12],
    };
    const ACK: Ack = Ack {
        next: 0xfeed_beef,
        beyond: 0,
        returned: 0xabcd,
    };

    fn keys(ours: u128, theirs: u128) -> PairKey {
        PairKey::new(StreamKey::new(ours), StreamKey::new(theirs))
    }

    fn context() -> HandshakeContext {
        HandshakeContext {
            keys: keys(7, 7),
            hello: HELLO,
            nonce: [21, 22],
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for is_rail in [false, true] {
            let hello = Hello { is_rail, ..HELLO };
            assert_eq!(Hello::of(&hello.to_bytes()), Ok(hello));
        }
        for verdict in [
            HandshakeVerdict::Joined,
            HandshakeVerdict::Yield,
            HandshakeVerdict::NotMe,
            HandshakeVerdict::Old,
            HandshakeVerdict::GivenUp,
            HandshakeVerdict::NoRail,
        ] {
            let reply = riddle(verdict, [1, 2]);
            assert_eq!(of_riddle(&reply), Ok((verdict, [1, 2])));
            let welcome = Welcome {
                verdict,
                ack: ACK,
                rails: 3,
            };
            let bytes = context().welcome(verdict, ACK, 3);
            assert_eq!(context().of_welcome(&bytes), Ok(welcome));
        }
        assert_eq!(context().of_proof(&context().proof(ACK, 4)), Ok((ACK, 4)));
    }

    #[test]
    fn a_proof_is_valid_for_one_key_one_pair_and_one_connection() {
        let proof = context().proof(ACK, 2);
        let hello = |change: fn(&mut Hello)| {
            let mut hello = HELLO;
            change(&mut hello);
            HandshakeContext { hello, ..context() }
        };
        let with = |keys| HandshakeContext { keys, ..context() };
        let others = [
            with(keys(7, 8)),
            // Each of the 128 bits matters.
            with(keys(7 | 1 << 127, 7 | 1 << 127)),
            with(keys(7 | 1 << 32, 7 | 1 << 32)),
            HandshakeContext {
                nonce: [21, 23],
                ..context()
            },
            hello(|it| it.from = 4),
            hello(|it| it.to = 8),
            hello(|it| it.attempt += 1),
            hello(|it| it.is_rail = true),
            hello(|it| it.nonce[0] = 0),
        ];
        for other in others {
            assert_eq!(
                other.of_proof(&proof),
                Err(HandshakeFault::Key),
                "{other:?}"
            );
        }
        for at in 0..PROOF_BYTES {
            let mut bad = proof;
            bad[at] ^= 4;
            assert_eq!(
                context().of_proof(&bad),
                Err(HandshakeFault::Key),
                "byte {at}"
            );
        }
        // A MAC of one side is not valid for the other.
        assert_eq!(context().of_welcome(&proof), Err(HandshakeFault::Key));
        assert_eq!(keys(1, 2), keys(2, 1));
        assert_ne!(keys(1, 2), keys(1, 1));
        assert_eq!(format!("{:?}", keys(1, 2)), "Keys(..)");
    }

    #[test]
    fn foreign_handshakes_and_versions_are_recognized() {
        let mut bytes = HELLO.to_bytes();
        bytes[8] = 9;
        assert_eq!(Hello::of(&bytes), Err(HandshakeFault::Version(9)));
        assert_eq!(foreign_version(&bytes[..FRONT_BYTES]), Some(9));
        assert_eq!(foreign_version(&bytes[..FRONT_BYTES - 1]), None);
        let mut other = HELLO.to_bytes();
        other[10] = 2;
        assert_eq!(Hello::of(&other), Err(HandshakeFault::Garbage));
        bytes[0] = b'G';
        assert_eq!(Hello::of(&bytes), Err(HandshakeFault::Garbage));
        assert_eq!(foreign_version(&bytes), None);
        assert_eq!(foreign_version(&HELLO.to_bytes()), None);
        let mut reply = riddle(HandshakeVerdict::Joined, [0; 2]);
        reply[10] = 200;
        assert_eq!(of_riddle(&reply), Err(HandshakeFault::Garbage));
    }
}
