// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is compared and what must hold: one table of runs, one of rows.
//!
//! A run is one start of a program; its report gives one or more rows. A row has a limit of the machine, where one is
//! known, and bars: all of them must hold, and each holds if one of its alternatives does.

use crate::icount::{ISEND_BUDGET, SUM_BUDGET};
use crate::peers::Case;
use crate::unit::Unit;

/// Where the ranks of a run may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Two ranks on two CPUs, whose distance matters.
    Pair,
    /// Two ranks on two CPUs, at any distance.
    Apart,
    /// Launcher and two ranks are confined to one CPU from outside.
    MaskAround,
    /// Each rank is confined to one CPU behind the launcher's back.
    MaskBehind,
    /// More ranks than CPUs.
    Crowd,
    /// One of two ranks runs under callgrind.
    Counted,
}

impl Placement {
    /// Which of the peers' settings applies.
    #[must_use]
    pub const fn case(self) -> Case {
        match self {
            Self::Pair | Self::Apart | Self::Counted => Case::TwoRanks,
            Self::MaskAround | Self::MaskBehind => Case::OneCpu,
            Self::Crowd => Case::Crowd,
        }
    }
}

/// One start of a program.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Its name.
    pub id: &'static str,
    /// The program, in `bench/NAME.c`.
    pub program: &'static str,
    /// Its options, beside `--json`.
    pub options: &'static [&'static str],
    /// How many ranks.
    pub ranks: usize,
    /// Where they may live.
    pub placement: Placement,
    /// How often it is started per round; the median counts.
    pub repeats: usize,
}

/// How a row's figure comes from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The report's median of a size.
    Size(usize),
    /// The whole run from start to finish, in ms.
    Wall,
}

/// The limit that a row is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOf {
    /// A figure of that name.
    Figure(&'static str),
    /// The time that one message takes at the bandwidth of that figure.
    TimeOf(&'static str),
    /// What rmpi itself takes in the row of that name.
    Own(&'static str),
}

impl LimitOf {
    /// The name of the figure; `None`: the limit is none of the machine's.
    #[must_use]
    pub const fn figure(self) -> Option<&'static str> {
        match self {
            Self::Figure(name) | Self::TimeOf(name) => Some(name),
            Self::Own(_) => None,
        }
    }
}

/// One condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// The ratio to the limit: at most so much for times, at least so much for rates.
    Limit(f64),
    /// So many times better than the best peer; 1 means better at all.
    Peer(f64),
    /// At most this figure.
    Value(f64),
}

/// One line of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in `--rows`.
    pub id: &'static str,
    /// Rows that are chosen together.
    pub group: &'static str,
    /// What it is, in words.
    pub title: &'static str,
    /// The run that it comes from.
    pub run: &'static str,
    /// How.
    pub source: Source,
    /// Its unit.
    pub unit: Unit,
    /// Its limit.
    pub limit: Option<LimitOf>,
    /// Its bars: all must hold, each by one alternative. None: shown only.
    pub bars: &'static [&'static [Bar]],
}

const fn pair(id: &'static str, program: &'static str, options: &'static [&'static str]) -> Run {
    Run {
        id,
        program,
        options,
        ranks: 2,
        placement: Placement::Pair,
        repeats: 1,
    }
}

const fn one_cpu(id: &'static str, placement: Placement) -> Run {
    let options = &["--sizes", "8", "--seconds", "0.3"];
    Run {
        id,
        program: "latency",
        options,
        ranks: 2,
        placement,
        repeats: 1,
    }
}

const fn crowd(id: &'static str, program: &'static str, options: &'static [&'static str]) -> Run {
    Run {
        id,
        program,
        options,
        ranks: 64,
        placement: Placement::Crowd,
        repeats: 1,
    }
}

/// Few ranks for each core: all of them may be awake at a time.
const fn eight(id: &'static str, options: &'static [&'static str]) -> Run {
    Run {
        ranks: 8,
        ..crowd(id, "ring", options)
    }
}

const SMALL: &[&str] = &["--sizes", "8", "--seconds", "1"];
const LARGE: &[&str] = &["--sizes", "64K,1M,4M", "--seconds", "0.3"];
const LARGE_SINGLE: &[&str] = &[
    "--sizes",
    "64K,1M,4M",
    "--seconds",
    "0.3",
    "--one-at-a-time",
];

/// The peers use persistent requests of MPI, which is what such programs would otherwise use.
const HALO: &[&str] = &[
    "--sizes",
    "1K,4K,16K,64K,256K",
    "--seconds",
    "0.3",
    "--alloc",
    "mpi",
];

/// All runs.
pub const RUNS: &[Run] = &[
    pair("latency", "latency", &["--sizes", "8,1K,64K"]),
    pair("rate", "rate", &["--sizes", "8"]),
    pair("bandwidth", "bandwidth", LARGE),
    pair("single", "bandwidth", LARGE_SINGLE),
    pair("bibw", "bibw", LARGE),
    one_cpu("onecore-around", Placement::MaskAround),
    one_cpu("onecore-behind", Placement::MaskBehind),
    crowd("ring", "ring", SMALL),
    eight("ring8", SMALL),
    eight("ring8-test", &["--sizes", "8", "--seconds", "1", "--test"]),
    eight(
        "ring8-testall",
        &["--sizes", "8", "--seconds", "1", "--testall"],
    ),
    eight(
        "ring8-iprobe",
        &["--sizes", "8", "--seconds", "1", "--iprobe"],
    ),
    crowd(
        "ring64-test",
        "ring",
        &["--sizes", "8", "--seconds", "1", "--test"],
    ),
    crowd(
        "ring64-testall",
        "ring",
        &["--sizes", "8", "--seconds", "1", "--testall"],
    ),
    crowd(
        "ring64-iprobe",
        "ring",
        &["--sizes", "8", "--seconds", "1", "--iprobe"],
    ),
    crowd("barrier", "barrier", &["--seconds", "1"]),
    crowd("allreduce", "allreduce", SMALL),
    crowd(
        "allreduce-large",
        "allreduce",
        &["--sizes", "64K", "--seconds", "1"],
    ),
    crowd("alltoall", "alltoall", SMALL),
    crowd("bcast", "bcast", SMALL),
    crowd(
        "bcast-root0",
        "bcast",
        &["--sizes", "8", "--seconds", "1", "--root-0"],
    ),
    Run {
        placement: Placement::Apart,
        ..pair("halo2", "halo", HALO)
    },
    Run {
        ranks: 8,
        ..crowd("halo8", "halo", HALO)
    },
    Run {
        ranks: 16,
        ..crowd("halo16", "halo", HALO)
    },
    Run {
        repeats: 3,
        placement: Placement::Apart,
        ..pair("startup2", "startup", &[])
    },
    crowd("startup64", "startup", &[]),
    crowd("memory", "memory", &[]),
    Run {
        placement: Placement::Counted,
        ..pair("count", "isend_count", &[])
    },
];

const fn row(
    id: &'static str,
    group: &'static str,
    title: &'static str,
    from: (&'static str, Source),
    unit: Unit,
) -> Row {
    Row {
        id,
        group,
        title,
        run: from.0,
        source: from.1,
        unit,
        limit: None,
        bars: &[],
    }
}

impl Row {
    const fn held(self, limit: &'static str, bars: &'static [&'static [Bar]]) -> Self {
        Self {
            limit: Some(LimitOf::Figure(limit)),
            bars,
            ..self
        }
    }

    /// Polling is held against the same ring by `MPI_Recv`, and against the peers.
    const fn beside(self, row: &'static str) -> Self {
        Self {
            limit: Some(LimitOf::Own(row)),
            bars: &[&[Bar::Limit(1.5)], &[Bar::Peer(1.0)]],
            ..self
        }
    }

    const fn must(self, bars: &'static [&'static [Bar]]) -> Self {
        Self { bars, ..self }
    }
}

const K: usize = 1 << 10;
const M: usize = 1 << 20;
const LATENCY: &str = "latency";
const PAIR: &str = "pair";
const CROWD: &str = "crowd";
const POLLING: &str = "polling";
/// Either clearly ahead of every peer, or at the machine's limit.
const BANDWIDTH: &[&[Bar]] = &[&[Bar::Peer(1.15), Bar::Limit(0.95)]];
const BETTER: &[&[Bar]] = &[&[Bar::Peer(1.0)]];
const ONE_CPU: &[&[Bar]] = &[&[Bar::Limit(1.2)]];
const AHEAD: &[&[Bar]] = &[&[Bar::Peer(1.0)]];
const THRICE: &[&[Bar]] = &[&[Bar::Peer(3.0)]];
const FIFTH_MORE: &[&[Bar]] = &[&[Bar::Peer(1.2)]];
const HALF_MORE: &[&[Bar]] = &[&[Bar::Peer(1.5)]];
const FIVE_TIMES: &[&[Bar]] = &[&[Bar::Peer(5.0)]];

const fn bandwidth(id: &'static str, title: &'static str, run: &'static str, size: usize) -> Row {
    row(
        id,
        PAIR,
        title,
        (run, Source::Size(size)),
        Unit::MegabytesPerSecond,
    )
}

const fn time(
    id: &'static str,
    group: &'static str,
    title: &'static str,
    run: &'static str,
    size: usize,
) -> Row {
    row(id, group, title, (run, Source::Size(size)), Unit::Us)
}

const fn count(id: &'static str, title: &'static str, index: usize) -> Row {
    row(
        id,
        "instructions",
        title,
        ("count", Source::Size(index)),
        Unit::Instructions,
    )
}

/// All rows, in the order of the tables.
pub const ROWS: &[Row] = &[
    time("latency8", PAIR, "latency 8 B", LATENCY, 8)
        .held("line", &[&[Bar::Limit(1.25)], &[Bar::Peer(1.0)]]),
    time("latency1k", PAIR, "latency 1 KiB", LATENCY, K).held("block", &[]),
    Row {
        limit: Some(LimitOf::TimeOf("split.65536")),
        ..time("latency64k", PAIR, "latency 64 KiB", LATENCY, 64 * K)
    }
    .must(BETTER),
    row(
        "rate8",
        PAIR,
        "rate 8 B",
        ("rate", Source::Size(8)),
        Unit::MessagesPerSecond,
    )
    .held("slots", HALF_MORE),
    bandwidth("bandwidth64k", "bandwidth 64 KiB", "bandwidth", 64 * K)
        .held("split.65536", BANDWIDTH),
    bandwidth("bandwidth1m", "bandwidth 1 MiB", "bandwidth", M).held("split.1048576", BANDWIDTH),
    bandwidth("bandwidth4m", "bandwidth 4 MiB", "bandwidth", 4 * M)
        .held("split.4194304", BANDWIDTH),
    bandwidth("single64k", "one at a time 64 KiB", "single", 64 * K).held("split.65536", BANDWIDTH),
    bandwidth("single1m", "one at a time 1 MiB", "single", M).held("split.1048576", BANDWIDTH),
    bandwidth("single4m", "one at a time 4 MiB", "single", 4 * M).held("split.4194304", BANDWIDTH),
    bandwidth("bibw64k", "both ways 64 KiB", "bibw", 64 * K).held("memcpy.65536", &[]),
    bandwidth("bibw1m", "both ways 1 MiB", "bibw", M).held("memcpy.1048576", &[]),
    bandwidth("bibw4m", "both ways 4 MiB", "bibw", 4 * M).held("memcpy.4194304", &[]),
    time(
        "onecore-around",
        "onecore",
        "8 B on one CPU, mask around the launcher",
        "onecore-around",
        8,
    )
    .held("yield", ONE_CPU),
    time(
        "onecore-behind",
        "onecore",
        "8 B on one CPU, mask behind the launcher",
        "onecore-behind",
        8,
    )
    .held("yield", ONE_CPU),
    time("ring64", CROWD, "64 ranks: ring, one hop", "ring", 8).held("ring64", THRICE),
    time(
        "ring64-test",
        POLLING,
        "64 ranks: ring, polling with MPI_Test",
        "ring64-test",
        8,
    )
    .beside("ring64"),
    time(
        "ring64-testall",
        POLLING,
        "64 ranks: ring, MPI_Testall",
        "ring64-testall",
        8,
    )
    .beside("ring64"),
    time(
        "ring64-iprobe",
        POLLING,
        "64 ranks: ring, MPI_Iprobe",
        "ring64-iprobe",
        8,
    )
    .beside("ring64"),
    time("ring8", POLLING, "8 ranks: ring, one hop", "ring8", 8).must(AHEAD),
    time(
        "ring8-test",
        POLLING,
        "8 ranks: ring, polling with MPI_Test",
        "ring8-test",
        8,
    )
    .beside("ring8"),
    time(
        "ring8-testall",
        POLLING,
        "8 ranks: ring, MPI_Testall",
        "ring8-testall",
        8,
    )
    .beside("ring8"),
    time(
        "ring8-iprobe",
        POLLING,
        "8 ranks: ring, MPI_Iprobe",
        "ring8-iprobe",
        8,
    )
    .beside("ring8"),
    time("barrier64", CROWD, "64 ranks: barrier", "barrier", 0).held("barrier64", THRICE),
    time(
        "allreduce8",
        CROWD,
        "64 ranks: allreduce 8 B",
        "allreduce",
        8,
    )
    .held("barrier64", THRICE),
    time(
        "allreduce64k",
        CROWD,
        "64 ranks: allreduce 64 KiB",
        "allreduce-large",
        64 * K,
    )
    .must(HALF_MORE),
    time("alltoall8", CROWD, "64 ranks: alltoall 8 B", "alltoall", 8).must(HALF_MORE),
    time(
        "bcast8",
        CROWD,
        "64 ranks: bcast 8 B, root goes round",
        "bcast",
        8,
    ),
    time(
        "bcast8-root0",
        CROWD,
        "64 ranks: bcast 8 B, root 0",
        "bcast-root0",
        8,
    ),
    time(
        "halo2-1k",
        "halo",
        "2 ranks: halo exchange, faces of 1 KiB",
        "halo2",
        K,
    )
    .must(BETTER),
    time(
        "halo2-4k",
        "halo",
        "2 ranks: halo exchange, faces of 4 KiB",
        "halo2",
        4 * K,
    )
    .must(FIFTH_MORE),
    time(
        "halo2-16k",
        "halo",
        "2 ranks: halo exchange, faces of 16 KiB",
        "halo2",
        16 * K,
    )
    .must(FIFTH_MORE),
    time(
        "halo2-64k",
        "halo",
        "2 ranks: halo exchange, faces of 64 KiB",
        "halo2",
        64 * K,
    )
    .must(FIFTH_MORE),
    time(
        "halo2-256k",
        "halo",
        "2 ranks: halo exchange, faces of 256 KiB",
        "halo2",
        256 * K,
    )
    .must(BETTER),
    time(
        "halo8-1k",
        "halo",
        "8 ranks: halo exchange, faces of 1 KiB",
        "halo8",
        K,
    )
    .must(BETTER),
    time(
        "halo8-4k",
        "halo",
        "8 ranks: halo exchange, faces of 4 KiB",
        "halo8",
        4 * K,
    )
    .must(HALF_MORE),
    time(
        "halo8-16k",
        "halo",
        "8 ranks: halo exchange, faces of 16 KiB",
        "halo8",
        16 * K,
    )
    .must(HALF_MORE),
    time(
        "halo8-64k",
        "halo",
        "8 ranks: halo exchange, faces of 64 KiB",
        "halo8",
        64 * K,
    )
    .must(HALF_MORE),
    time(
        "halo8-256k",
        "halo",
        "8 ranks: halo exchange, faces of 256 KiB",
        "halo8",
        256 * K,
    )
    .must(BETTER),
    time(
        "halo16-1k",
        "halo",
        "16 ranks: halo exchange, faces of 1 KiB",
        "halo16",
        K,
    )
    .must(BETTER),
    time(
        "halo16-4k",
        "halo",
        "16 ranks: halo exchange, faces of 4 KiB",
        "halo16",
        4 * K,
    )
    .must(HALF_MORE),
    time(
        "halo16-16k",
        "halo",
        "16 ranks: halo exchange, faces of 16 KiB",
        "halo16",
        16 * K,
    )
    .must(HALF_MORE),
    time(
        "halo16-64k",
        "halo",
        "16 ranks: halo exchange, faces of 64 KiB",
        "halo16",
        64 * K,
    )
    .must(HALF_MORE),
    time(
        "halo16-256k",
        "halo",
        "16 ranks: halo exchange, faces of 256 KiB",
        "halo16",
        256 * K,
    )
    .must(BETTER),
    row(
        "startup2",
        "startup",
        "hello world, 2 ranks",
        ("startup2", Source::Wall),
        Unit::Ms,
    )
    .held("spawn2", FIVE_TIMES),
    row(
        "startup64",
        "startup",
        "hello world, 64 ranks",
        ("startup64", Source::Wall),
        Unit::Ms,
    )
    .held("spawn64", FIVE_TIMES),
    row(
        "memory64",
        "memory",
        "64 ranks: private dirty after init",
        ("memory", Source::Size(0)),
        Unit::Kib,
    )
    .must(&[&[Bar::Value(1536.0)]]),
    row(
        "memory64-pss",
        "memory",
        "64 ranks: Pss after init",
        ("memory", Source::Size(1)),
        Unit::Kib,
    ),
    row(
        "memory64-talk",
        "memory",
        "64 ranks: Pss after all pairs",
        ("memory", Source::Size(3)),
        Unit::Kib,
    ),
    count("isend", "MPI_Isend 8 B", 0).must(&[&[Bar::Value(ISEND_BUDGET)]]),
    count("irecv", "MPI_Irecv 8 B", 1),
    count("wait", "MPI_Wait, message there", 2),
    count("isend-irecv-wait", "the three together", 3).must(&[&[Bar::Value(SUM_BUDGET)]]),
];

impl Bar {
    /// The condition in words.
    #[must_use]
    pub fn words(self, unit: Unit) -> String {
        match self {
            Self::Limit(factor) if unit.smaller_is_better() => format!("≤ {factor} × limit"),
            Self::Limit(factor) => format!("≥ {factor} × limit"),
            Self::Peer(1.0) => "better than every peer".to_owned(),
            Self::Peer(factor) => format!("≥ {factor} × better than every peer"),
            Self::Value(most) => format!("≤ {} {}", unit.show(most), unit.label()),
        }
    }
}

/// The run of a row.
#[must_use]
pub fn run_of(row: &Row) -> &'static Run {
    let run = RUNS.iter().find(|run| run.id == row.run);
    run.expect("a test checks that every row has its run")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limits, programs};
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let rows: BTreeSet<_> = ROWS.iter().map(|row| row.id).collect();
        let runs: BTreeSet<_> = RUNS.iter().map(|run| run.id).collect();
        assert_eq!((rows.len(), runs.len()), (ROWS.len(), RUNS.len()));
    }

    #[test]
    fn every_row_has_its_run_and_every_run_a_row_and_a_program() {
        for row in ROWS {
            assert_eq!(run_of(row).id, row.run);
        }
        for run in RUNS {
            assert!(ROWS.iter().any(|row| row.run == run.id), "{}", run.id);
            let source = programs::sources().join(format!("{}.c", run.program));
            assert!(source.is_file(), "{}", source.display());
        }
    }

    #[test]
    fn every_limit_of_a_row_can_be_measured() {
        let limits = ROWS.iter().filter_map(|row| row.limit);
        for figure in limits.clone().filter_map(LimitOf::figure) {
            let name = figure.split('.').next().unwrap();
            assert!(limits::names().any(|known| known == name), "{name}");
        }
        for limit in limits {
            if let LimitOf::Own(row) = limit {
                assert!(ROWS.iter().any(|known| known.id == row), "{row}");
            }
        }
    }

    #[test]
    fn a_bar_against_a_limit_has_one() {
        for row in ROWS {
            let against_limit = row
                .bars
                .iter()
                .flat_map(|bar| bar.iter())
                .any(|bar| matches!(bar, Bar::Limit(_)));
            assert!(!against_limit || row.limit.is_some(), "{}", row.id);
        }
    }

    #[test]
    fn what_must_hold_of_a_crowd_stands_here() {
        let bar = |id: &str| ROWS.iter().find(|row| row.id == id).unwrap().bars[0][0];
        for id in ["ring64", "barrier64", "allreduce8"] {
            assert_eq!(bar(id), Bar::Peer(3.0), "{id}");
        }
        for id in ["alltoall8", "allreduce64k"] {
            assert_eq!(bar(id), Bar::Peer(1.5), "{id}");
        }
        for id in ["startup2", "startup64"] {
            assert_eq!(bar(id), Bar::Peer(5.0), "{id}");
        }
        for id in ["halo8-4k", "halo8-64k", "halo16-4k", "halo16-64k"] {
            assert_eq!(bar(id), Bar::Peer(1.5), "{id}");
        }
        for id in ["halo2-4k", "halo2-16k", "halo2-64k"] {
            assert_eq!(bar(id), Bar::Peer(1.2), "{id}");
        }
        assert_eq!(bar("memory64"), Bar::Value(1536.0));
        let crowd = ROWS.iter().filter(|row| row.group == CROWD);
        assert!(crowd.into_iter().all(|row| run_of(row).ranks == 64));
    }

    #[test]
    fn bars_read_well() {
        assert_eq!(Bar::Limit(1.25).words(Unit::Us), "≤ 1.25 × limit");
        assert_eq!(
            Bar::Limit(0.95).words(Unit::MegabytesPerSecond),
            "≥ 0.95 × limit"
        );
        assert_eq!(Bar::Value(1536.0).words(Unit::Kib), "≤ 1536 KiB");
    }
}
