// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the headers of a packet to send.

use super::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, ImmDt, PacketSet, Reth};

/// The BTH and the extension headers of a packet, contiguous.
///
/// The caller adds the extension headers of the opcode, in the order of the table in `opcode.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    bytes: [u8; Self::BYTES_MAX],
    len: u8,
}

impl Headers {
    /// Length of the longest headers in bytes: BTH, AETH and selective acknowledgement.
    pub const BYTES_MAX: usize = Bth::BYTES + Aeth::BYTES + PacketSet::BYTES_MAX;

    /// No headers.
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; Self::BYTES_MAX],
        len: 0,
    };

    /// Headers that consist of a BTH only.
    pub fn new(bth: &Bth) -> Self {
        let mut headers = Self::EMPTY;
        headers.begin(bth);
        headers
    }

    /// Adds a RETH.
    #[must_use]
    pub fn reth(mut self, reth: &Reth) -> Self {
        self.push(|bytes| reth.write(bytes));
        self
    }

    /// Adds an AETH.
    #[must_use]
    pub fn aeth(mut self, aeth: &Aeth) -> Self {
        self.push(|bytes| aeth.write(bytes));
        self
    }

    /// Adds an AtomicETH.
    #[must_use]
    pub fn atomic(mut self, atomic: &AtomicEth) -> Self {
        self.push(|bytes| atomic.write(bytes));
        self
    }

    /// Adds an AtomicAckETH.
    #[must_use]
    pub fn atomic_ack(mut self, ack: &AtomicAckEth) -> Self {
        self.push(|bytes| ack.write(bytes));
        self
    }

    /// Adds immediate data.
    #[must_use]
    pub fn immediate(mut self, immediate: &ImmDt) -> Self {
        self.push(|bytes| immediate.write(bytes));
        self
    }

    /// Adds a DETH.
    #[must_use]
    pub fn deth(mut self, deth: &Deth) -> Self {
        self.push(|bytes| deth.write(bytes));
        self
    }

    /// Adds a selective acknowledgement; only if both ends have agreed on selective repeat.
    #[must_use]
    pub fn sack(mut self, ahead: &PacketSet) -> Self {
        self.push_sack(ahead);
        self
    }

    /// The bytes written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Copies the headers to the front of `buffer` and returns their length in bytes; `None`: the buffer is too short.
    pub fn write_to(&self, buffer: &mut [u8]) -> Option<usize> {
        let bytes = self.as_bytes();
        buffer.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(bytes.len())
    }

    /// Clears the headers and writes a BTH. A queue pair writes its headers in place instead of copying them, since a
    /// copy of bytes that were just written one by one fails store forwarding and stalls.
    pub(crate) fn begin(&mut self, bth: &Bth) {
        self.len = 0;
        self.push(|bytes| bth.write(bytes));
    }

    /// Adds a selective acknowledgement.
    pub(crate) fn push_sack(&mut self, ahead: &PacketSet) {
        let (bytes, len) = ahead.write();
        let room = self.bytes.get_mut(usize::from(self.len)..);
        let room = room.and_then(|room| room.get_mut(..len));
        if let (Some(room), Ok(more)) = (room, u8::try_from(len)) {
            room.copy_from_slice(&bytes[..len]);
            self.len += more;
        }
    }

    /// Adds a header. A header that does not fit is left out; the headers of every opcode fit.
    pub(crate) fn push<const N: usize>(&mut self, write: impl FnOnce(&mut [u8; N])) {
        let room = self.bytes.get_mut(usize::from(self.len)..);
        let room = room.and_then(<[u8]>::first_chunk_mut);
        debug_assert!(room.is_some(), "no opcode has so many headers");
        if let (Some(room), Ok(more)) = (room, u8::try_from(N)) {
            write(room);
            self.len += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Opcode;
    use super::*;

    #[test]
    fn headers_are_written_only_if_they_fit() {
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
