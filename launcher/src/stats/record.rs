// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the records that the tool library in a rank (`launcher/stats/rmpi_stats.c`) appends. Their format, in native
//! byte order:
//!
//! | words of 8 bytes     | |
//! |----------------------|-----|
//! | 9                    | header: magic, size of the record in bytes, rank and pid, outcome and signal, elapsed nanoseconds, CPU nanoseconds, maximum memory in bytes, nanoseconds without timing of calls, number of variables |
//! | for each variable 8  | NUL-terminated name (56 bytes), whether its values are doubles, number of values |
//! | and 1 for each value | |

const MAGIC: u64 = 0x3173_7461_7473_2d72;
const WORD: usize = 8;
const NAME_BYTES: usize = 56;

/// How a rank's use of MPI ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RankOutcome {
    /// By `MPI_Finalize`.
    Finalized,
    /// The process exited without `MPI_Finalize`.
    Left,
    /// The process was killed by this signal.
    Killed(u32),
    /// Unknown: the record was written by `MPI_Pcontrol(2)`, and no later record was written.
    SoFar,
}

/// The values of a variable.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Values {
    /// Integers.
    Whole(Vec<u64>),
    /// Floating-point numbers.
    Real(Vec<f64>),
}

impl Values {
    /// Sum of the values.
    #[allow(clippy::cast_precision_loss, reason = "for people and charts")]
    pub(super) fn sum(&self) -> f64 {
        match self {
            Self::Whole(all) => {
                all.iter()
                    .fold(0, |sum: u64, value| sum.saturating_add(*value)) as f64
            }
            Self::Real(all) => all.iter().sum(),
        }
    }
}

/// Record of one process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StatsRecord {
    pub(super) rank: u32,
    pub(super) pid: u32,
    pub(super) ending: RankOutcome,
    pub(super) elapsed_s: f64,
    pub(super) cpu_s: f64,
    pub(super) memory_bytes: u64,
    /// Part of the elapsed time during which calls were not timed, in seconds.
    pub(super) off_s: f64,
    pub(super) variables: Vec<(String, Values)>,
}

/// Parses all records of a file. An invalid record ends the list, since its length is unknown.
pub(super) fn read(mut bytes: &[u8]) -> Vec<StatsRecord> {
    let mut records = Vec::new();
    while let Some((record, rest)) = next(bytes) {
        records.push(record);
        bytes = rest;
    }
    records
}

fn next(bytes: &[u8]) -> Option<(StatsRecord, &[u8])> {
    let mut reader = RecordReader(bytes);
    if reader.long()? != MAGIC {
        return None;
    }
    let length = usize::try_from(reader.long()?).ok()?;
    let rest = bytes.get(length..)?;
    let mut reader = RecordReader(bytes.get(2 * WORD..length)?);
    let (rank, pid) = reader.two()?;
    let ending = match reader.two()? {
        (1, _) => RankOutcome::Finalized,
        (2, _) => RankOutcome::Left,
        (3, signal) => RankOutcome::Killed(signal),
        (4, _) => RankOutcome::SoFar,
        _ => return None,
    };
    let (elapsed_s, cpu_s) = (reader.seconds()?, reader.seconds()?);
    let memory_bytes = reader.long()?;
    let off_s = reader.seconds()?;
    let count = reader.long()?;
    let mut variables = Vec::new();
    for _ in 0..count {
        variables.push(reader.variable()?);
    }
    let record = StatsRecord {
        rank,
        pid,
        ending,
        elapsed_s,
        cpu_s,
        memory_bytes,
        off_s,
        variables,
    };
    Some((record, rest))
}

/// The rest of a record that is being parsed.
struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn long(&mut self) -> Option<u64> {
        self.take(WORD)?.try_into().ok().map(u64::from_ne_bytes)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(WORD / 2)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn two(&mut self) -> Option<(u32, u32)> {
        Some((self.number()?, self.number()?))
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "below a microsecond after a hundred days"
    )]
    fn seconds(&mut self) -> Option<f64> {
        Some(self.long()? as f64 * 1e-9)
    }

    fn variable(&mut self) -> Option<(String, Values)> {
        let name = self.take(NAME_BYTES)?;
        let name = name.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8_lossy(name).into_owned();
        let (is_real, count) = self.two()?;
        let bytes = self.take(WORD.checked_mul(usize::try_from(count).ok()?)?)?;
        let values = bytes
            .chunks_exact(WORD)
            .filter_map(|word| word.try_into().ok());
        let values = match is_real {
            0 => Values::Whole(values.map(u64::from_ne_bytes).collect()),
            _ => Values::Real(values.map(f64::from_ne_bytes).collect()),
        };
        Some((name, values))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes a record as the tool does.
    pub(in crate::stats) fn bytes_of(record: &StatsRecord) -> Vec<u8> {
        let (ending, signal) = match record.ending {
            RankOutcome::Finalized => (1_u32, 0),
            RankOutcome::Left => (2, 0),
            RankOutcome::Killed(signal) => (3, signal),
            RankOutcome::SoFar => (4, 0),
        };
        let mut body = Vec::new();
        for pair in [(record.rank, record.pid), (ending, signal)] {
            body.extend(pair.0.to_ne_bytes());
            body.extend(pair.1.to_ne_bytes());
        }
        for seconds in [record.elapsed_s, record.cpu_s] {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            body.extend(((seconds * 1e9).round() as u64).to_ne_bytes());
        }
        body.extend(record.memory_bytes.to_ne_bytes());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        body.extend(((record.off_s * 1e9).round() as u64).to_ne_bytes());
        body.extend((record.variables.len() as u64).to_ne_bytes());
        for (name, values) in &record.variables {
            let mut padded = name.clone().into_bytes();
            padded.resize(NAME_BYTES, 0);
            body.extend(padded);
            let (is_real, values): (u32, Vec<[u8; 8]>) = match values {
                Values::Whole(all) => (0, all.iter().map(|value| value.to_ne_bytes()).collect()),
                Values::Real(all) => (1, all.iter().map(|value| value.to_ne_bytes()).collect()),
            };
            body.extend(is_real.to_ne_bytes());
            body.extend(u32::try_from(values.len()).unwrap().to_ne_bytes());
            body.extend(values.concat());
        }
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend((body.len() as u64 + 16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    pub(in crate::stats) fn record(rank: u32) -> StatsRecord {
        StatsRecord {
            rank,
            pid: 4711_u32.wrapping_add(rank),
            ending: RankOutcome::Finalized,
            elapsed_s: 2.0,
            cpu_s: 1.5,
            memory_bytes: 1 << 20,
            off_s: 0.0,
            variables: vec![
                ("messages".into(), Values::Whole(vec![3, 4])),
                ("time".into(), Values::Real(vec![0.25])),
            ],
        }
    }

    #[test]
    fn appended_records_are_read() {
        let mut killed = record(7);
        killed.ending = RankOutcome::Killed(15);
        let bytes = [bytes_of(&record(3)), bytes_of(&killed)].concat();
        assert_eq!(read(&bytes), [record(3), killed]);
        assert_eq!(record(3).variables[0].1.sum(), 7.0);
    }

    #[test]
    fn truncated_and_malformed_records_are_skipped() {
        let bytes = [bytes_of(&record(3)), bytes_of(&record(4))].concat();
        assert_eq!(read(&bytes[..bytes.len() - 1]), [record(3)]);
        let mut wrong = bytes_of(&record(3));
        wrong[24] = 9;
        assert_eq!(read(&wrong), []);
        // The record claims more values than it has bytes.
        let mut long = bytes_of(&record(3));
        let at = long.len() - 12;
        long[at..at + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(read(&long), []);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(noise: Vec<u8>, at in 0_usize..300, value: u8) {
            let mut bytes = bytes_of(&record(3));
            let place = at % bytes.len();
            bytes[place] = value;
            bytes.extend(noise);
            let _ = read(&bytes);
        }
    }
}
