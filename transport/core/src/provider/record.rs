// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network addresses of a process: its record has a part for each network that it has.
//!
//! | offset | bytes | field | |
//! |-------:|------:|-------|---------------------------------------------------------------------------|
//! |      0 |     1 | form  | [`FORM`] |
//! |      1 |     – | parts | one behind the other: [`RecordPart`] (1), length (1), and this many bytes |
//!
//! Parts of unknown networks are skipped.

use super::{tcp, verbs};

/// The provider that a part of a record is for. Parts for RoCE in software have the format of those for `verbs`, with
/// other addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordPart {
    Verbs = 1,
    Tcp = 2,
    Roce = 3,
    Dpdk = 4,
}

impl RecordPart {
    /// The name of the provider that writes this part.
    pub(super) fn provider(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Tcp => "tcp",
            Self::Roce => "roce",
            Self::Dpdk => "dpdk",
        }
    }
}

/// A record of these parts.
pub(super) fn to_record(parts: &[(RecordPart, Vec<u8>)]) -> Vec<u8> {
    let mut record = vec![FORM];
    for (part, bytes) in parts {
        let length = u8::try_from(bytes.len()).expect("parts are short");
        record.extend([*part as u8, length]);
        record.extend(bytes);
    }
    record
}

/// A part of a record; `None`: the record has no such part, or is malformed.
pub(super) fn part_of(record: &[u8], part: RecordPart) -> Option<&[u8]> {
    let (form, mut rest) = record.split_first()?;
    if *form != FORM {
        return None;
    }
    while let Some(([wire, length], after)) = rest.split_first_chunk() {
        let (bytes, others) = after.split_at_checked(usize::from(*length))?;
        if *wire == part as u8 {
            return Some(bytes);
        }
        rest = others;
    }
    None
}

/// The part that describes the ports, of an adapter or in software; a process has ports of one provider only.
pub(super) fn ports_of(record: &[u8]) -> Option<(RecordPart, &[u8])> {
    let all = [RecordPart::Verbs, RecordPart::Dpdk, RecordPart::Roce];
    all.into_iter()
        .find_map(|part| Some((part, part_of(record, part)?)))
}

/// First byte of a record; no part of a record starts with this byte.
const FORM: u8 = 0x51;
/// Maximum length of a process's record, in bytes.
pub const MOST_RECORD_BYTES: usize = 1 + 2 + verbs::MOST_PART_BYTES + 2 + tcp::MOST_RECORD_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_parts_are_found_in_any_order_and_unknown_parts_skipped() {
        let (one, other) = (vec![1, 2, 3], vec![4]);
        let record = to_record(&[
            (RecordPart::Tcp, one.clone()),
            (RecordPart::Verbs, other.clone()),
        ]);
        assert_eq!(part_of(&record, RecordPart::Tcp), Some(&*one));
        assert_eq!(part_of(&record, RecordPart::Verbs), Some(&*other));
        let mut unknown = record.clone();
        unknown[1] = 77;
        assert_eq!(part_of(&unknown, RecordPart::Tcp), None);
        assert_eq!(part_of(&unknown, RecordPart::Verbs), Some(&*other));
        assert_eq!(ports_of(&record), Some((RecordPart::Verbs, &*other)));
        let program = to_record(&[
            (RecordPart::Tcp, one.clone()),
            (RecordPart::Roce, other.clone()),
        ]);
        assert_eq!(ports_of(&program), Some((RecordPart::Roce, &*other)));
        assert_eq!(
            ports_of(&to_record(&[(RecordPart::Tcp, one.clone())])),
            None
        );
        for length in 0..record.len() {
            assert_eq!(
                part_of(&record[..length], RecordPart::Verbs),
                None,
                "{length}"
            );
        }
        assert_eq!(part_of(&one, RecordPart::Tcp), None);
    }
}
