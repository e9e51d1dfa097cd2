// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only table of control variables. A row is an environment variable, an MPI_T control variable, a line of
//! `rmpi-info` and a paragraph of the documentation. Settings are defined nowhere else.

mod collectives;
pub mod events;
mod kinds;
pub mod launch;
pub(crate) mod live;
mod pvar_handle;
pub mod pvars;
pub mod settings;
mod table;
pub mod tool_sessions;
pub(crate) mod traffic;
mod tuning;

pub use kinds::{Category, Scope, Verbosity};
pub use table::{ROWS, Variable};

/// One row of the table of control variables.
#[derive(Clone, Copy, Debug)]
pub struct ControlVariable {
    /// Identifier of the row in the program.
    pub variable: Variable,
    /// Name in the environment.
    pub name: &'static str,
    /// Category of the variable.
    pub category: Category,
    /// Verbosity level of the variable.
    pub verbosity: Verbosity,
    /// Scope of the variable.
    pub scope: Scope,
    /// Permitted values.
    pub range: Range,
    /// Description, in one paragraph.
    pub text: &'static str,
}

/// The permitted values of a row, with its default and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// A number.
    Number {
        /// Smallest value.
        least: u64,
        /// Largest value.
        most: u64,
        /// Default value.
        default: u64,
        /// Unit; empty: the number has none.
        unit: &'static str,
    },
    /// One of several words. The first is the default; the value is the index of the word.
    Words(&'static [&'static str]),
    /// A comma-separated list of some of these names. Bit `i` of the value is set if the list contains name `i` of
    /// `all`.
    Names {
        /// All names, at most 64.
        all: &'static [&'static str],
        /// Default list.
        default: &'static str,
    },
    /// A comma-separated list of items; empty by default. Only its text is stored; its number is 0.
    List(ListItem),
    /// A text that is parsed where it is used; empty by default. The string here describes the permitted texts.
    Text(&'static str),
    /// A variable that is not used in this library: the launcher sets it, or another program of rmpi reads it.
    Foreign,
}

/// The type of a list's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListItem {
    /// A network device by its name. A colon and the number of one of its ports may follow.
    Device,
    /// An index into a table of GIDs.
    GidPlace,
    /// An interface of a host by its name or address, or a network such as `10.1.0.0/16`.
    Interface,
    /// A range of TCP or UDP ports.
    PortRange,
}

/// The values of all control variables in this process.
#[derive(Clone, Debug)]
pub struct VariableValues {
    numbers: [u64; ROWS.len()],
    /// Index of the row and the text, for each variable of [`Range::List`], [`Range::Names`] or [`Range::Text`] that
    /// was set.
    texts: Vec<(usize, String)>,
}

impl Default for VariableValues {
    fn default() -> Self {
        Self {
            numbers: ROWS.map(|row| row.range.default()),
            texts: Vec::new(),
        }
    }
}

impl VariableValues {
    /// Reads the environment. Returns the values, and a warning for each invalid variable.
    #[must_use]
    pub fn from_environment(
        environment: impl Iterator<Item = (String, String)>,
    ) -> (Self, Vec<String>) {
        let mut values = Self::default();
        let mut warnings = Vec::new();
        for (name, text) in environment.filter(|(name, _)| name.starts_with("RMPI_")) {
            match ROWS.iter().position(|row| row.name == name) {
                None => warnings.push(unknown(&name)),
                Some(at) => match ROWS[at].range.parse(&text) {
                    Some(value) => values.set(at, value, text),
                    None => warnings.push(format!(
                        "{name} is \"{text}\", expected {}{}; the default is used",
                        ROWS[at].range.describe(),
                        ROWS[at].range.remark(&text)
                    )),
                },
            }
        }
        (values, warnings)
    }

    /// Sets the value of one row, whose `text` was parsed to `value`.
    fn set(&mut self, at: usize, value: u64, text: String) {
        self.numbers[at] = value;
        if ROWS[at].range.is_text() {
            self.texts.push((at, text));
        }
    }

    /// The value of one variable; for [`Range::Words`], the index of the word.
    #[must_use]
    pub fn get(&self, variable: Variable) -> u64 {
        self.numbers[variable as usize]
    }

    /// Whether a name is in a list of [`Range::Names`].
    #[must_use]
    pub fn has(&self, variable: Variable, name: &str) -> bool {
        let Range::Names { all, .. } = ROWS[variable as usize].range else {
            return false;
        };
        let at = all.iter().position(|other| *other == name);
        at.is_some_and(|at| self.get(variable) >> at & 1 != 0)
    }

    /// The text of a variable of [`Range::List`], [`Range::Names`] or [`Range::Text`]: as it was set, or the default.
    #[must_use]
    pub fn text(&self, variable: Variable) -> &str {
        let at = variable as usize;
        let given = self.texts.iter().rev().find(|(other, _)| *other == at);
        match (given, ROWS[at].range) {
            (Some((_, text)), _) => text,
            (None, Range::Names { default, .. }) => default,
            _ => "",
        }
    }
}

impl Range {
    fn default(self) -> u64 {
        match self {
            Self::Number { default, .. } => default,
            Self::Names { all, default } => names(all, default).unwrap_or(0),
            Self::Words(_) | Self::List(_) | Self::Text(_) | Self::Foreign => 0,
        }
    }

    fn is_text(self) -> bool {
        matches!(self, Self::Names { .. } | Self::List(_) | Self::Text(_))
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
            Self::Names { all, .. } => names(all, text).filter(|bits| *bits != 0),
            Self::List(item) => {
                let fits = text.len() < MAX_TEXT_BYTES;
                (fits && items(text).all(|text| item.is_one(text))).then_some(0)
            }
            Self::Text(_) => (text.len() < MAX_TEXT_BYTES).then_some(0),
            Self::Foreign => Some(0),
        }
    }

    /// A hint for the user why a text does not parse; empty if the reason is obvious.
    fn remark(self, text: &str) -> String {
        match self {
            Self::Names { all, .. } => match items(text).find(|item| place(all, item).is_none()) {
                Some(wrong) => format!("; {wrong} is none of them{}", suggestion(all, wrong)),
                None => "; it is empty".to_owned(),
            },
            Self::List(item) => match items(text).find(|text| !item.is_one(text)) {
                Some(wrong) => format!("; {wrong} is none"),
                None => too_long(text),
            },
            Self::Text(_) => too_long(text),
            _ => String::new(),
        }
    }

    /// The permitted values, for display.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Number {
                least,
                most,
                default,
                unit,
            } => {
                let of = match unit {
                    "" => String::new(),
                    unit => format!(" of {unit}"),
                };
                // Numbers in other units may have these suffixes too; they are not shown because they are not usual
                // with such units.
                let suffixes = match unit {
                    "bytes" => "K, M and G may follow; ",
                    _ => "",
                };
                format!("a number{of} from {least} to {most} ({suffixes}default {default})")
            }
            Self::Words(words) => format!("one of {} (default {})", words.join(", "), words[0]),
            Self::Names { all, default } => {
                format!(
                    "a list of some of {} (with commas between; default {default})",
                    all.join(", ")
                )
            }
            Self::List(item) => format!(
                "a list of {} (with commas between; default any)",
                item.describe()
            ),
            Self::Text(what) => what.to_owned(),
            Self::Foreign => "any text".to_owned(),
        }
    }
}

impl ListItem {
    fn describe(self) -> &'static str {
        match self {
            Self::Device => "devices, each NAME or NAME:PORT with a port from 1 to 255",
            Self::GidPlace => "places from 0 to 255",
            Self::Interface => "interfaces, each NAME, ADDRESS or ADDRESS/BITS",
            Self::PortRange => "FIRST-LAST, ports from 1 to 65535",
        }
    }

    fn is_one(self, text: &str) -> bool {
        match self {
            Self::Device => {
                let (name, port) = text.split_once(':').unwrap_or((text, "1"));
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
                let is_port = port.parse::<u8>().is_ok_and(|port| port > 0);
                !name.is_empty() && name.bytes().all(fits) && is_port
            }
            Self::GidPlace => text.parse::<u8>().is_ok(),
            Self::Interface => {
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/@".contains(&byte);
                text.bytes().all(fits)
            }
            Self::PortRange => wireup::port_range(text).is_some(),
        }
    }
}

/// The hint for a text that is valid except for its length.
fn too_long(text: &str) -> String {
    let (bytes, most) = (text.len(), MAX_TEXT_BYTES - 1);
    format!("; it has {bytes} bytes, at most {most} are allowed")
}

/// Size of the text of a list, including its final NUL.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The items of a list.
pub fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// The value of a list of names: a bit for each name in it. `None`: a name does not exist.
fn names(all: &[&str], text: &str) -> Option<u64> {
    items(text).try_fold(0, |bits, item| Some(bits | 1 << place(all, item)?))
}

fn place(all: &[&str], name: &str) -> Option<usize> {
    all.iter()
        .position(|other| other.eq_ignore_ascii_case(name))
}

/// A hint with the most similar name, if its edit distance is at most 2; else empty.
fn suggestion(all: &[&str], wrong: &str) -> String {
    let nearest = all.iter().map(|name| (distance(name, wrong), name)).min();
    match nearest {
        Some((steps, name)) if steps <= 2 => format!(", did you mean {name}"),
        _ => String::new(),
    }
}

/// Parses a number with an optional binary suffix (K, M, G), or hexadecimal digits after `0x`.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
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

/// Edit distance of two names (Levenshtein).
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

    fn read(pairs: &[(&str, &str)]) -> (VariableValues, Vec<String>) {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        VariableValues::from_environment(pairs.into_iter())
    }

    #[test]
    fn numbers_from_the_environment_accept_size_suffixes() {
        let (values, warnings) = read(&[
            ("RMPI_EAGER_LIMIT", "4K"),
            ("PATH", "/"),
            ("RMPI_RANK", "0"),
        ]);
        assert_eq!(values.get(Variable::EagerLimit), 4096);
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn an_invalid_value_keeps_the_default_and_warns_with_the_range() {
        let (values, warnings) = read(&[("RMPI_EAGER_LIMIT", "10G")]);
        assert_eq!(values.get(Variable::EagerLimit), 8192);
        assert!(
            warnings[0].contains("10G") && warnings[0].contains("from 0 to 8192"),
            "{warnings:?}"
        );
    }

    #[test]
    fn a_misspelt_variable_suggests_the_nearest_name() {
        let (_, warnings) = read(&[("RMPI_EAGER_LIMITS", "1")]);
        assert_eq!(
            warnings,
            ["RMPI_EAGER_LIMITS is no variable of rmpi; did you mean RMPI_EAGER_LIMIT"]
        );
        let (_, warnings) = read(&[("RMPI_ZZZZZZZZZZZZZZ", "1")]);
        assert!(warnings[0].contains("docs/variables.md"));
    }

    const PROVIDERS: Range = Range::Names {
        all: &["self", "shm", "verbs"],
        default: "self,shm",
    };

    #[test]
    fn a_list_setting_is_a_set_of_names() {
        assert_eq!(PROVIDERS.default(), 0b011);
        for (text, value) in [
            ("verbs", 0b100),
            (" SHM , self,", 0b011),
            ("shm,shm", 0b010),
            ("verbs,self,shm", 0b111),
        ] {
            assert_eq!(PROVIDERS.parse(text), Some(value), "{text}");
        }
        for text in ["", " , ", "verb", "shm;verbs", "shm verbs"] {
            assert_eq!(PROVIDERS.parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_invalid_list_item_suggests_the_nearest_name() {
        assert_eq!(
            PROVIDERS.describe(),
            "a list of some of self, shm, verbs (with commas between; default self,shm)"
        );
        assert_eq!(
            PROVIDERS.remark("shm,verb"),
            "; verb is none of them, did you mean verbs"
        );
        assert_eq!(PROVIDERS.remark("tcp,shm"), "; tcp is none of them");
        assert_eq!(PROVIDERS.remark(","), "; it is empty");
    }

    #[test]
    fn a_device_setting_has_a_name_and_an_optional_port() {
        let range = Range::List(ListItem::Device);
        for text in ["", "mlx5_0", "mlx5_0:1, mlx5_1:255", "rxe0,", "hfi1_0.2"] {
            assert_eq!(range.parse(text), Some(0), "{text}");
        }
        for text in [
            "mlx5_0:0",
            "mlx5_0:256",
            ":1",
            "mlx5 0",
            "a,b:",
            "a:1:2",
            "a/b",
        ] {
            assert_eq!(range.parse(text), None, "{text}");
        }
        assert_eq!(range.remark("a,b:0"), "; b:0 is none");
    }

    #[test]
    fn a_list_setting_has_names_and_text() {
        let (values, warnings) = read(&[
            ("RMPI_PROVIDERS", "Verbs"),
            ("RMPI_NET_DEVICES", "mlx5_0:1, mlx5_1"),
        ]);
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(values.has(Variable::Providers, "verbs"));
        assert!(!values.has(Variable::Providers, "shm"));
        assert_eq!(values.text(Variable::Providers), "Verbs");
        assert_eq!(values.text(Variable::NetDevices), "mlx5_0:1, mlx5_1");
        let (values, warnings) = read(&[("RMPI_PROVIDERS", "shm,verb")]);
        assert_eq!(
            warnings,
            [
                "RMPI_PROVIDERS is \"shm,verb\", expected a list of some of self, shm, verbs, tcp, roce, dpdk (with commas between; default \
                 self,shm,verbs,tcp); verb is none of them, did you mean verbs; the default is used"
            ]
        );
        assert!(values.has(Variable::Providers, "shm") && values.has(Variable::Providers, "verbs"));
        assert_eq!(values.text(Variable::Providers), "self,shm,verbs,tcp");
        assert_eq!(values.text(Variable::NetDevices), "");
        assert!(!values.has(Variable::Providers, "roce") && !values.has(Variable::Wait, "auto"));
    }

    #[test]
    fn setting_rows_are_in_the_order_of_their_variables() {
        for (at, row) in ROWS.iter().enumerate() {
            assert_eq!(row.variable as usize, at, "{}", row.name);
            assert!(row.name.starts_with("RMPI_") && !row.text.is_empty());
        }
    }
}
