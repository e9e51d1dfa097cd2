// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the grid: each has an operation, a number of ranks, a manner (how the calls follow each other,
//! [`Manner`]) and a number of bytes.

use clap::ValueEnum;

use plot::bytes;

/// How much of the grid is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Extent {
    /// Some sizes of every operation
    Short,
    /// Every size
    Whole,
}

impl Extent {
    /// Its name on the command line.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Whole => "whole",
        }
    }
}

/// A group of rows, for whose ratios the report has a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowGroup {
    /// Two ranks, point to point.
    Pair,
    /// Several pairs of ranks at the same time, point to point.
    Pairs,
    /// Collectives of two ranks.
    Coll2,
    /// Collectives of eight ranks with a fixed root.
    Rooted8,
    /// The other collectives of eight ranks.
    Others8,
    /// Collectives of 32 ranks.
    Coll32,
    /// Collectives of 64 ranks.
    Coll64,
}

impl RowGroup {
    /// All groups, in the order of the tables.
    pub const ALL: [Self; 7] = [
        Self::Pair,
        Self::Pairs,
        Self::Coll2,
        Self::Rooted8,
        Self::Others8,
        Self::Coll32,
        Self::Coll64,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Pair => "point to point",
            Self::Pairs => "point to point, 8 ranks",
            Self::Coll2 => "collectives, 2 ranks",
            Self::Rooted8 => "collectives with a fixed root, 8 ranks",
            Self::Others8 => "other collectives, 8 ranks",
            Self::Coll32 => "collectives, 32 ranks",
            Self::Coll64 => "collectives, 64 ranks",
        }
    }

    /// The words of `--rows` that select the group.
    const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Pair => &["pair"],
            Self::Pairs => &["pairs8"],
            Self::Coll2 => &["coll2"],
            Self::Rooted8 => &["coll8", "rooted8"],
            Self::Others8 => &["coll8", "others8"],
            Self::Coll32 => &["coll32"],
            Self::Coll64 => &["coll64"],
        }
    }

    const fn of_collectives(ranks: usize, rooted: bool) -> Self {
        match ranks {
            2 => Self::Coll2,
            8 if rooted => Self::Rooted8,
            8 => Self::Others8,
            32 => Self::Coll32,
            _ => Self::Coll64,
        }
    }
}

/// How the calls of an operation follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Messages between pairs.
    Messages,
    /// Messages between pairs, with `MPI_THREAD_MULTIPLE`.
    Threads,
    /// Collectives directly after each other; rank 0 is the root.
    Together,
    /// Collectives with a barrier before each of them; the barrier's time does not count. Rank 0 is the root.
    Apart,
    /// Collectives whose root changes from call to call.
    Roots,
}

impl Manner {
    /// Its name in `--rows` and in titles.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Threads => "threads",
            Self::Together => "together",
            Self::Apart => "apart",
            Self::Roots => "roots",
        }
    }

    /// The program that measures it, and its options.
    #[must_use]
    pub const fn program(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Messages => ("grid_pair", &[]),
            Self::Threads => ("grid_pair", &["--threads"]),
            Self::Together => ("grid_coll", &[]),
            Self::Apart => ("grid_coll", &["--apart"]),
            Self::Roots => ("grid_coll", &["--roots"]),
        }
    }
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridRow {
    /// The group in whose mean its ratio counts.
    pub group: RowGroup,
    /// How it is measured.
    pub manner: Manner,
    /// The operation, by its name in the program.
    pub metric: &'static str,
    /// The number of ranks.
    pub ranks: usize,
    /// The message size in bytes.
    pub bytes: usize,
}

impl GridRow {
    /// Its unique name.
    #[must_use]
    pub fn title(&self) -> String {
        let bytes = if self.has_no_payload() {
            String::new()
        } else {
            format!(" {}", label(self.bytes))
        };
        let manner = match self.manner {
            Manner::Messages => String::new(),
            Manner::Threads => ", MPI_THREAD_MULTIPLE".to_owned(),
            other => format!(", {}", other.label()),
        };
        format!("{} ranks: {}{bytes}{manner}", self.ranks, self.metric)
    }

    /// The title of the row's table: number of ranks and manner.
    #[must_use]
    pub fn family(&self) -> String {
        let what = match self.manner {
            Manner::Messages => "messages",
            Manner::Threads => "messages at MPI_THREAD_MULTIPLE",
            Manner::Together => "collectives from rank 0, one directly after the other",
            Manner::Apart => "collectives from rank 0, a barrier before each",
            Manner::Roots => "collectives, the root changes",
        };
        format!("{} ranks: {what}", self.ranks)
    }

    fn has_no_payload(&self) -> bool {
        self.metric.ends_with("barrier")
    }

    /// Whether a word of `--rows` selects the row. If the word has parts joined by `+`, each part must select the row.
    #[must_use]
    pub fn is_selected_by(&self, word: &str) -> bool {
        word.split('+').all(|part| self.has_word(part))
    }

    fn has_word(&self, word: &str) -> bool {
        self.group.words().contains(&word)
            || self.manner.label() == word
            || self.metric == word
            || self.metric.split('-').any(|part| part == word)
            || (!self.has_no_payload() && label(self.bytes) == word)
    }

    /// The words that select it, except for its size.
    pub(super) fn words(&self) -> impl Iterator<Item = &'static str> {
        let words = self.group.words().iter().copied();
        words
            .chain([self.manner.label()])
            .chain(self.metric.split('-'))
    }

    /// The bytes that the buffers of all ranks take.
    fn memory(&self) -> u64 {
        let ranks = self.ranks as u64;
        let blocks = match self.metric.trim_start_matches('i') {
            "alltoall" | "alltoallv" => 2 * ranks,
            "gather" | "gatherv" | "scatter" | "scatterv" | "allgather" | "allgatherv"
            | "reduce_scatter" => 1 + ranks,
            "halo" => 16,
            _ => 2,
        };
        blocks * ranks * self.bytes as u64
    }
}

/// Maximum memory (bytes) that the buffers of a row may take over all ranks.
const MOST_MEMORY: u64 = 4 << 30;

/// A size as options are written, for instance 64K.
pub(super) fn label(size: usize) -> String {
    bytes(size as f64)
}

/// The rows that are measured by one start of a program, and the name of this start.
pub(super) struct Family {
    pub(super) name: String,
    pub(super) rows: Vec<GridRow>,
}

const PLAIN: &[&str] = &["latency", "oneway", "bothways"];
const FORMS: &[&str] = &[
    "latency-unaligned",
    "oneway-unaligned",
    "bothways-unaligned",
    "latency-cold",
    "oneway-cold",
    "latency-anysource",
    "latency-posted",
    "latency-strided",
    "latency-ssend",
    "sendrecv",
    "persistent",
    "halo",
];
const TWO: &[&str] = &["latency", "oneway"];
const PAIRS: &[&str] = &["latency", "oneway", "halo"];
const ROOTED: &[&str] = &[
    "bcast", "gather", "gatherv", "scatter", "scatterv", "reduce",
];
const OTHERS: &[&str] = &[
    "barrier",
    "allreduce",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "reduce_scatter",
    "scan",
    "exscan",
];
const NONBLOCKING_ROOTED: &[&str] = &["ibcast", "igather", "iscatter", "ireduce"];
const NONBLOCKING: &[&str] = &["ibarrier", "iallreduce", "iallgather", "ialltoall"];

const K: usize = 1 << 10;
const M: usize = 1 << 20;

/// `first` and its multiples by powers of `factor`, up to `last`.
fn powers(first: usize, factor: usize, last: usize) -> Vec<usize> {
    std::iter::successors(Some(first), |size| Some(size * factor))
        .take_while(|size| *size <= last)
        .collect()
}

/// A list of message sizes, which depends on the extent.
#[derive(Clone, Copy)]
enum Sizes {
    Plain,
    Forms,
    Pairs,
    Collectives,
    Fewer,
    Crowd,
}

impl Sizes {
    fn of(self, extent: Extent) -> Vec<usize> {
        let short: &[usize] = match self {
            Self::Plain => &[
                0,
                1,
                8,
                16,
                48,
                64,
                256,
                K,
                4 * K,
                8 * K,
                16 * K,
                64 * K,
                256 * K,
                M,
                4 * M,
            ],
            Self::Forms => &[8, K, 64 * K, M],
            Self::Pairs | Self::Fewer => &[8, K, 64 * K],
            Self::Collectives => &[8, 64, K, 8 * K, 64 * K, M],
            Self::Crowd => &[4, K, 16 * K],
        };
        match (extent, self) {
            (Extent::Short, _) => short.to_vec(),
            (_, Self::Plain) => std::iter::once(0).chain(powers(1, 2, 4 * M)).collect(),
            (_, Self::Forms) => powers(8, 2, 4 * M),
            (_, Self::Pairs) => powers(1, 4, M),
            (_, Self::Collectives | Self::Fewer) => powers(4, 2, M),
            (_, Self::Crowd) => powers(4, 4, 64 * K),
        }
    }
}

/// The message sizes with which an operation is measured: 0 for a barrier, all of `sizes` for a latency, and for any
/// other operation those above 0.
fn fitting(metric: &str, sizes: &[usize]) -> Vec<usize> {
    if metric.ends_with("barrier") {
        return vec![0];
    }
    let least = usize::from(!metric.starts_with("latency"));
    sizes
        .iter()
        .copied()
        .filter(|size| *size >= least)
        .collect()
}

fn family(
    name: String,
    group: RowGroup,
    manner: Manner,
    ranks: usize,
    metrics: &[&'static str],
    sizes: &[usize],
) -> Family {
    let row = |metric: &'static str, bytes| GridRow {
        group,
        manner,
        metric,
        ranks,
        bytes,
    };
    let rows = metrics.iter().flat_map(|metric| {
        let sizes = fitting(metric, sizes);
        sizes.into_iter().map(move |bytes| row(metric, bytes))
    });
    Family {
        name,
        rows: rows.filter(|row| row.memory() <= MOST_MEMORY).collect(),
    }
}

/// All rows of an extent, grouped by start.
pub(super) fn families(extent: Extent) -> Vec<Family> {
    let pair = |name: &str, group, manner, ranks, metrics, sizes: Sizes| {
        family(
            name.to_owned(),
            group,
            manner,
            ranks,
            metrics,
            &sizes.of(extent),
        )
    };
    let mut all = vec![
        pair(
            "pair",
            RowGroup::Pair,
            Manner::Messages,
            2,
            PLAIN,
            Sizes::Plain,
        ),
        pair(
            "pair-forms",
            RowGroup::Pair,
            Manner::Messages,
            2,
            FORMS,
            Sizes::Forms,
        ),
        pair(
            "pair-threads",
            RowGroup::Pair,
            Manner::Threads,
            2,
            TWO,
            Sizes::Forms,
        ),
        pair(
            "pairs8",
            RowGroup::Pairs,
            Manner::Messages,
            8,
            PAIRS,
            Sizes::Pairs,
        ),
    ];
    for ranks in [2, 8] {
        all.extend(blocking(extent, ranks, Sizes::Collectives));
        all.extend(further(extent, ranks, Sizes::Fewer));
    }
    for ranks in [32, 64] {
        all.extend(blocking(extent, ranks, Sizes::Crowd));
        if extent == Extent::Whole {
            all.extend(further(extent, ranks, Sizes::Crowd));
        }
    }
    all
}

/// Blocking collectives with rank 0 as the root, directly after each other and with barriers between them.
fn blocking(extent: Extent, ranks: usize, sizes: Sizes) -> Vec<Family> {
    let sizes = sizes.of(extent);
    let mut all = Vec::new();
    for manner in [Manner::Together, Manner::Apart] {
        for (kind, metrics) in [("rooted", ROOTED), ("others", OTHERS)] {
            let name = format!("coll{ranks}-{}-{kind}", manner.label());
            let group = RowGroup::of_collectives(ranks, kind == "rooted");
            all.push(family(name, group, manner, ranks, metrics, &sizes));
        }
    }
    all
}

/// Collectives with changing roots, and nonblocking collectives.
fn further(extent: Extent, ranks: usize, sizes: Sizes) -> Vec<Family> {
    let sizes = sizes.of(extent);
    let of = |kind: &str, rooted, manner, metrics| {
        let group = RowGroup::of_collectives(ranks, rooted);
        let name = format!("coll{ranks}-{kind}");
        family(name, group, manner, ranks, metrics, &sizes)
    };
    vec![
        of("roots", false, Manner::Roots, ROOTED),
        of(
            "nonblocking-rooted",
            true,
            Manner::Together,
            NONBLOCKING_ROOTED,
        ),
        of("nonblocking", false, Manner::Together, NONBLOCKING),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn rows(extent: Extent) -> Vec<GridRow> {
        families(extent)
            .into_iter()
            .flat_map(|family| family.rows)
            .collect()
    }

    #[test]
    fn names_of_rows_and_of_starts_are_unique() {
        for extent in [Extent::Short, Extent::Whole] {
            let rows = rows(extent);
            let titles: BTreeSet<String> = rows.iter().map(GridRow::title).collect();
            assert_eq!(titles.len(), rows.len());
            let families = families(extent);
            let names: BTreeSet<&String> = families.iter().map(|family| &family.name).collect();
            assert_eq!(names.len(), families.len());
        }
    }

    #[test]
    fn the_short_grid_has_selected_sizes() {
        let sizes = |metric: &str| {
            let rows = rows(Extent::Short).into_iter();
            let rows = rows.filter(|row| row.metric == metric && row.manner == Manner::Messages);
            rows.filter(|row| row.ranks == 2)
                .map(|row| row.bytes)
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes("latency").len(), 15);
        assert_eq!(sizes("latency")[..5], [0, 1, 8, 16, 48]);
        assert_eq!(sizes("oneway")[0], 1);
        assert_eq!(sizes("oneway").last(), Some(&(4 * M)));
    }

    #[test]
    fn the_whole_grid_has_every_power_of_two() {
        let rows = rows(Extent::Whole);
        let has = |metric: &str, ranks: usize, bytes: usize| {
            rows.iter()
                .any(|row| (row.metric, row.ranks, row.bytes) == (metric, ranks, bytes))
        };
        assert!((0..=22).all(|power| has("bothways", 2, 1 << power)));
        assert!((2..=20).all(|power| has("exscan", 8, 1 << power)));
        assert!((1..=8).all(|power| has("ialltoall", 64, 1 << (2 * power))));
        assert!(rows.len() > 2000, "{}", rows.len());
    }

    #[test]
    fn rows_take_at_most_4_gib() {
        let sizes = [M, 64 * M, 128 * M];
        let kept = family(
            String::new(),
            RowGroup::Coll2,
            Manner::Together,
            8,
            OTHERS,
            &sizes,
        );
        let most = |metric: &str| {
            let rows = kept.rows.iter().filter(|row| row.metric == metric);
            rows.map(|row| row.bytes).max()
        };
        // The buffers of each of 8 ranks have 2 x 8 blocks in alltoall, 9 in allgather and 2 in allreduce.
        assert_eq!(most("alltoall"), Some(M));
        assert_eq!(most("allgather"), Some(M));
        assert_eq!(most("allreduce"), Some(128 * M));
        assert_eq!(most("barrier"), Some(0));
        for row in rows(Extent::Whole) {
            assert!(row.memory() <= MOST_MEMORY, "{row:?}");
        }
    }

    #[test]
    fn sums_have_whole_floats_and_strided_messages_whole_strips() {
        for row in rows(Extent::Whole) {
            let least = if row.metric == "latency-strided" {
                8
            } else {
                4
            };
            let collective = row.manner.program().0 == "grid_coll";
            if collective || row.metric == "latency-strided" {
                assert_eq!(row.bytes % least, 0, "{row:?}");
            }
        }
    }

    #[test]
    fn words_select_groups_operations_manners_and_sizes() {
        let row = GridRow {
            group: RowGroup::Rooted8,
            manner: Manner::Apart,
            metric: "bcast",
            ranks: 8,
            bytes: 64 * K,
        };
        for word in [
            "coll8",
            "rooted8",
            "bcast",
            "apart",
            "64K",
            "coll8+bcast+64K",
        ] {
            assert!(row.is_selected_by(word), "{word}");
        }
        for word in ["coll2", "ibcast", "coll8+8", ""] {
            assert!(!row.is_selected_by(word), "{word}");
        }
        assert_eq!(row.title(), "8 ranks: bcast 64K, apart");
        let cold = GridRow {
            metric: "latency-cold",
            ..row
        };
        assert!(cold.is_selected_by("latency") && cold.is_selected_by("cold"));
    }
}
