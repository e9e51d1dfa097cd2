// SPDX-License-Identifier: MIT OR Apache-2.0
//! The headers of a packet that is to be sent.

use super::packet::CNP_BYTES;
use super::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, ImmDt, PacketSet, Reth};

/// BTH and extension headers, one behind the other.
///
/// The caller adds those that the opcode has, in the order of the table in `opcode.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    bytes: [u8; Self::BYTES_MAX],
    len: u8,
}

impl Headers {
    /// The longest: BTH, AETH and what has come ahead.
    pub const BYTES_MAX: usize = Bth::BYTES + Aeth::BYTES + PacketSet::BYTES_MAX;

    /// A BTH alone.
    pub fn new(bth: &Bth) -> Self {
        let headers = Self {
            bytes: [0; Self::BYTES_MAX],
            len: 0,
        };
        headers.with(|bytes| bth.write(bytes))
    }

    /// Adds a RETH.
    #[must_use]
    pub fn reth(self, reth: &Reth) -> Self {
        self.with(|bytes| reth.write(bytes))
    }

    /// Adds an AETH.
    #[must_use]
    pub fn aeth(self, aeth: &Aeth) -> Self {
        self.with(|bytes| aeth.write(bytes))
    }

    /// Adds an AtomicETH.
    #[must_use]
    pub fn atomic(self, atomic: &AtomicEth) -> Self {
        self.with(|bytes| atomic.write(bytes))
    }

    /// Adds an AtomicAckETH.
    #[must_use]
    pub fn atomic_ack(self, ack: &AtomicAckEth) -> Self {
        self.with(|bytes| ack.write(bytes))
    }

    /// Adds immediate data.
    #[must_use]
    pub fn immediate(self, immediate: &ImmDt) -> Self {
        self.with(|bytes| immediate.write(bytes))
    }

    /// Adds a DETH.
    #[must_use]
    pub fn deth(self, deth: &Deth) -> Self {
        self.with(|bytes| deth.write(bytes))
    }

    /// Adds what has come ahead; only between ends that have agreed on it.
    #[must_use]
    pub fn ahead(mut self, ahead: &PacketSet) -> Self {
        let (bytes, len) = ahead.write();
        let room = self.bytes.get_mut(usize::from(self.len)..);
        let room = room.and_then(|room| room.get_mut(..len));
        if let (Some(room), Ok(more)) = (room, u8::try_from(len)) {
            room.copy_from_slice(&bytes[..len]);
            self.len += more;
        }
        self
    }

    /// Adds the 16 reserved bytes of a CNP.
    #[must_use]
    pub fn reserved(self) -> Self {
        self.with(|bytes| *bytes = [0; CNP_BYTES])
    }

    /// What was written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Writes them to the front of `buffer`; answers how many bytes, or `None` if it is too short.
    pub fn write_to(&self, buffer: &mut [u8]) -> Option<usize> {
        let bytes = self.as_bytes();
        buffer.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(bytes.len())
    }

    /// Adds a header; one for which there is no room is left out, which no opcode's headers are.
    fn with<const N: usize>(mut self, write: impl FnOnce(&mut [u8; N])) -> Self {
        let room = self.bytes.get_mut(usize::from(self.len)..);
        let room = room.and_then(<[u8]>::first_chunk_mut);
        debug_assert!(room.is_some(), "no opcode has so many headers");
        if let (Some(room), Ok(more)) = (room, u8::try_from(N)) {
            write(room);
            self.len += more;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::Opcode;
    use super::*;

    #[test]
    fn headers_are_written_where_there_is_room() {
        let bth = Bth {
            opcode: Opcode::datagram(false),
            ..Bth::parse(&[0; 12]).unwrap()
        };
        let deth = Deth { key: 1, source: 2 };
        let headers = Headers::new(&bth).deth(&deth);
        assert_eq!(headers.as_bytes().len(), 20);
        let mut buffer = [0; 21];
        assert_eq!(headers.write_to(&mut buffer), Some(20));
        assert_eq!(buffer[..20], *headers.as_bytes());
        assert_eq!(headers.write_to(&mut buffer[..19]), None);
    }

    #[test]
    fn the_longest_headers_of_any_opcode_fit() {
        let opcodes = (0..=u8::MAX).filter_map(Opcode::parse);
        let longest = opcodes.map(Opcode::extension_bytes).max().unwrap();
        assert!(Bth::BYTES + longest <= Headers::BYTES_MAX);
    }
}
