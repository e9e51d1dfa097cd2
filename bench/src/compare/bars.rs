// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of the comparison's tables: runs, rows and bars; `rows` has the tables.
//!
//! A run is one start of a program; its report gives one or more rows. A row has a limit of the machine, where one is
//! known, and bars: all of them must hold, and each holds if one of its alternatives does.

use crate::limits::Figure;
use crate::peers::Case;
use crate::unit::FigureUnit;

/// Where the ranks of a run are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Two ranks on two CPUs, whose distance matters.
    Pair,
    /// Two ranks on two CPUs, at any distance.
    Apart,
    /// Launcher and two ranks are confined to one CPU from outside.
    MaskAround,
    /// Each rank confines itself to one CPU; the launcher does not see it.
    MaskBehind,
    /// More ranks than CPUs.
    Crowd,
    /// One of two ranks runs under callgrind.
    Counted,
    /// A rank on each of two hosts.
    Hosts,
    /// The same, and rmpi sends RoCE in datagrams of UDP.
    HostsOverUdp,
    /// As many ranks on each host as were asked for.
    AllHosts,
    /// Two ranks of rmpi here that send frames of DPDK over a link of shared memory.
    OverMemif,
    /// The same over the two devices of `RMPI_DPDK`.
    OverDevices,
    /// Two ranks of rmpi here that send RoCE in datagrams of UDP.
    OverUdp,
}

impl Placement {
    /// Which of the peers' settings applies.
    #[must_use]
    pub const fn case(self) -> Case {
        match self {
            Self::Pair
            | Self::Apart
            | Self::Counted
            | Self::OverMemif
            | Self::OverDevices
            | Self::OverUdp => Case::TwoRanks,
            Self::MaskAround | Self::MaskBehind => Case::OneCpu,
            Self::Crowd => Case::Crowd,
            Self::Hosts | Self::HostsOverUdp => Case::Hosts,
            Self::AllHosts => Case::CrowdOnHosts,
        }
    }

    /// Whether no peer can do the same.
    #[must_use]
    pub const fn is_for_rmpi_alone(self) -> bool {
        matches!(self, Self::OverMemif | Self::OverDevices | Self::OverUdp)
    }

    /// Whether it needs hosts.
    #[must_use]
    pub const fn is_between_hosts(self) -> bool {
        matches!(self, Self::Hosts | Self::HostsOverUdp | Self::AllHosts)
    }
}

/// One start of a program.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRun {
    /// Its name.
    pub id: &'static str,
    /// The program, in `bench/NAME.c`.
    pub program: &'static str,
    /// Its options, beside `--json`.
    pub options: &'static [&'static str],
    /// How many ranks; on all hosts as many as these have.
    pub ranks: usize,
    /// Where they are placed.
    pub placement: Placement,
    /// How often it is started per round; the median counts.
    pub repeats: usize,
}

/// How a row's figure comes from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureSource {
    /// The report's median of a size.
    Size(usize),
    /// The whole run from start to finish, in ms.
    Wall,
}

/// The limit that a row is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOf {
    /// A figure of that name.
    Figure(&'static str),
    /// The highest of some figures, all of them rates.
    BestOf(&'static [&'static str]),
    /// The time that so many messages take at the bandwidth of that figure.
    TimeOf(&'static str, usize),
    /// What rmpi itself takes in the row of that name.
    Own(&'static str),
}

impl LimitOf {
    /// The names of the figures; none: the limit is none of the machine's.
    #[must_use]
    pub const fn figures(&self) -> &[&'static str] {
        match self {
            Self::Figure(name) | Self::TimeOf(name, _) => std::slice::from_ref(name),
            Self::BestOf(names) => names,
            Self::Own(_) => &[],
        }
    }

    /// The limit in the unit of the row, from what was measured; `None`: its figure was not.
    #[must_use]
    pub fn value(&self, measured: &[Figure]) -> Option<f64> {
        let wanted = |figure: &&Figure| self.figures().contains(&figure.id.as_str());
        let figures = measured.iter().filter(wanted);
        let best = figures.max_by(|one, other| one.median.total_cmp(&other.median))?;
        Some(match self {
            // Bytes per (megabyte per second) are microseconds.
            Self::TimeOf(_, messages) => (best.size * messages) as f64 / best.median,
            _ => best.median,
        })
    }
}

/// One condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// The ratio to the limit: at most so much for times, at least so much for rates.
    Limit(f64),
    /// At most so much above the limit, in the unit of the row.
    Above(f64),
    /// So many times better than the best peer; 1 means better at all.
    Peer(f64),
    /// At least as good as the best peer.
    Level,
    /// At most this figure.
    Value(f64),
}

/// One line of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct CompareRow {
    /// Its name in `--rows`.
    pub id: &'static str,
    /// Rows that are chosen together.
    pub group: &'static str,
    /// What it is, in words.
    pub title: &'static str,
    /// The run that it comes from.
    pub run: &'static str,
    /// How.
    pub source: FigureSource,
    /// Its unit.
    pub unit: FigureUnit,
    /// Its limit.
    pub limit: Option<LimitOf>,
    /// Its bars: all must hold, each by one alternative. None: shown only.
    pub bars: &'static [&'static [Bar]],
}

impl Bar {
    /// The condition in words.
    #[must_use]
    pub fn words(self, unit: FigureUnit) -> String {
        match self {
            Self::Limit(factor) if unit.smaller_is_better() => format!("≤ {factor} × limit"),
            Self::Limit(factor) => format!("≥ {factor} × limit"),
            Self::Above(more) => format!("≤ limit + {more} {}", unit.label()),
            Self::Peer(1.0) => "better than every peer".to_owned(),
            Self::Peer(factor) => format!("≥ {factor} × better than every peer"),
            Self::Level => "no peer better".to_owned(),
            Self::Value(most) => format!("≤ {} {}", unit.show(most), unit.label()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_read_well() {
        assert_eq!(Bar::Limit(1.25).words(FigureUnit::Us), "≤ 1.25 × limit");
        assert_eq!(
            Bar::Limit(0.95).words(FigureUnit::MegabytesPerSecond),
            "≥ 0.95 × limit"
        );
        assert_eq!(Bar::Value(1536.0).words(FigureUnit::Kib), "≤ 1536 KiB");
        assert_eq!(Bar::Level.words(FigureUnit::Us), "no peer better");
        assert_eq!(Bar::Above(0.2).words(FigureUnit::Us), "≤ limit + 0.2 µs");
    }

    fn copies(id: &str, median: f64) -> Figure {
        Figure {
            id: id.to_owned(),
            title: String::new(),
            unit: FigureUnit::MegabytesPerSecond,
            size: 65536,
            median,
            p99: 0.0,
            best: 0.0,
            worst: 0.0,
            batches: 1,
        }
    }

    #[test]
    fn a_limit_is_a_figure_the_best_of_some_or_the_time_at_a_bandwidth() {
        let measured = [
            copies("split.65536", 16384.0),
            copies("read.65536", 20000.0),
        ];
        let value = |limit: LimitOf| limit.value(&measured);
        assert_eq!(value(LimitOf::Figure("split.65536")), Some(16384.0));
        assert_eq!(value(LimitOf::TimeOf("split.65536", 1)), Some(4.0));
        assert_eq!(value(LimitOf::TimeOf("split.65536", 3)), Some(12.0));
        let best = LimitOf::BestOf(&["split.65536", "read.65536", "memcpy.65536"]);
        assert_eq!(value(best), Some(20000.0));
        assert_eq!(value(LimitOf::Figure("memcpy.65536")), None);
        assert_eq!(value(LimitOf::Own("ring8")), None);
    }
}
