// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of variables. A row is an environment variable, an MPI_T control variable, a line of `rmpi-info` and a
//! paragraph of the documentation; there is no other place where a setting is defined.

mod table;

pub use table::{ROWS, Variable};

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which one it is in the program.
    pub variable: Variable,
    /// Its name in the environment.
    pub name: &'static str,
    /// What values it takes.
    pub range: Range,
    /// What it means, in one paragraph.
    pub text: &'static str,
}

/// The values of a row, its default and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// A number.
    Number {
        /// Smallest value.
        least: u64,
        /// Largest value.
        most: u64,
        /// Value if nothing is said.
        default: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// One of some words; the first is the default, the value is its place.
    Words(&'static [&'static str]),
    /// Set by the launcher or read by another program of rmpi: known, not used here.
    Foreign,
}

/// The values that hold in this process.
#[derive(Clone, Debug)]
pub struct Values([u64; ROWS.len()]);

impl Default for Values {
    fn default() -> Self {
        Self(ROWS.map(|row| row.range.default()))
    }
}

impl Values {
    /// Reads the environment: the values, and one sentence for each that was not understood.
    #[must_use]
    pub fn from_environment(
        environment: impl Iterator<Item = (String, String)>,
    ) -> (Self, Vec<String>) {
        let mut values = Self::default();
        let mut complaints = Vec::new();
        for (name, text) in environment.filter(|(name, _)| name.starts_with("RMPI_")) {
            match ROWS.iter().position(|row| row.name == name) {
                None => complaints.push(unknown(&name)),
                Some(at) => match ROWS[at].range.parse(&text) {
                    Some(value) => values.0[at] = value,
                    None => complaints.push(format!(
                        "{name} is \"{text}\", expected {}; the default is used",
                        ROWS[at].range.describe()
                    )),
                },
            }
        }
        (values, complaints)
    }

    /// The value of one variable; for [`Range::Words`] the place of the word.
    #[must_use]
    pub fn get(&self, variable: Variable) -> u64 {
        self.0[variable as usize]
    }
}

impl Range {
    fn default(self) -> u64 {
        match self {
            Self::Number { default, .. } => default,
            Self::Words(_) | Self::Foreign => 0,
        }
    }

    fn parse(self, text: &str) -> Option<u64> {
        match self {
            Self::Number { least, most, .. } => {
                number(text).filter(|value| (least..=most).contains(value))
            }
            Self::Words(words) => words
                .iter()
                .position(|word| word.eq_ignore_ascii_case(text.trim()))
                .map(|at| at as u64),
            Self::Foreign => Some(0),
        }
    }

    /// What values there are, in words.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Number {
                least,
                most,
                default,
                unit,
            } => {
                format!(
                    "a number of {unit} from {least} to {most} (K, M and G may follow; default {default})"
                )
            }
            Self::Words(words) => format!("one of {} (default {})", words.join(", "), words[0]),
            Self::Foreign => "any text".to_owned(),
        }
    }
}

/// A number with an optional binary suffix.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn unknown(name: &str) -> String {
    let nearest = ROWS
        .iter()
        .map(|row| (distance(row.name, name), row.name))
        .min();
    match nearest {
        Some((steps, nearest)) if steps <= 4 => {
            format!("{name} is no variable of rmpi; did you mean {nearest}")
        }
        _ => format!("{name} is no variable of rmpi; docs/variables.md lists them"),
    }
}

/// Edits between two names (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Values, Vec<String>) {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        Values::from_environment(pairs.into_iter())
    }

    #[test]
    fn values_come_from_the_environment_with_suffixes() {
        let (values, complaints) = read(&[
            ("RMPI_EAGER_LIMIT", "4K"),
            ("PATH", "/"),
            ("RMPI_RANK", "0"),
        ]);
        assert_eq!(values.get(Variable::EagerLimit), 4096);
        assert!(complaints.is_empty(), "{complaints:?}");
    }

    #[test]
    fn a_wrong_value_keeps_the_default_and_says_the_range() {
        let (values, complaints) = read(&[("RMPI_EAGER_LIMIT", "10G")]);
        assert_eq!(values.get(Variable::EagerLimit), 8192);
        assert!(
            complaints[0].contains("10G") && complaints[0].contains("from 0 to 8192"),
            "{complaints:?}"
        );
    }

    #[test]
    fn a_misspelt_name_brings_the_nearest() {
        let (_, complaints) = read(&[("RMPI_EAGER_LIMITS", "1")]);
        assert_eq!(
            complaints,
            ["RMPI_EAGER_LIMITS is no variable of rmpi; did you mean RMPI_EAGER_LIMIT"]
        );
        let (_, complaints) = read(&[("RMPI_ZZZZZZZZZZZZZZ", "1")]);
        assert!(complaints[0].contains("docs/variables.md"));
    }

    #[test]
    fn rows_stand_in_the_order_of_their_variables() {
        for (at, row) in ROWS.iter().enumerate() {
            assert_eq!(row.variable as usize, at, "{}", row.name);
            assert!(row.name.starts_with("RMPI_") && !row.text.is_empty());
        }
    }
}
