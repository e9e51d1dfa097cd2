// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network address of a rank, as bytes that only the ranks interpret, not the daemon.

/// Maximum size of a record, in bytes.
pub const MAX_RECORD_BYTES: usize = 256;

/// Record that a rank publishes about itself, of at most [`MAX_RECORD_BYTES`] bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record(Box<[u8]>);

impl Record {
    /// A record of these bytes; `None` if there are too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= MAX_RECORD_BYTES).then(|| Self(bytes.into()))
    }

    /// The bytes of the record.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the empty record, which means that the rank has no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_beyond_the_maximum_length_are_rejected() {
        let longest = Record::new(&[1; MAX_RECORD_BYTES]).unwrap();
        assert_eq!(longest.bytes(), [1; MAX_RECORD_BYTES]);
        assert_eq!(Record::new(&[1; MAX_RECORD_BYTES + 1]), None);
        assert!(Record::new(&[]).unwrap().is_empty() && !longest.is_empty());
    }
}
