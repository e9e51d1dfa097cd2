// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of the comparison's tables: runs, rows and bars. The tables are in `rows`, `between` and `frames`.
//!
//! A run is one start of a program; its report gives one or more rows. A row may have a limit, usually a figure of the
//! machine, and bars. All bars of a row must hold; a bar holds if one of its alternatives holds.

use crate::limits::Figure;
use crate::peers::Case;
use crate::unit::FigureUnit;

/// Where the ranks of a run are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Two ranks on two CPUs; rounds in which both CPUs are on one physical core are reported separately.
    Pair,
    /// Two ranks on two CPUs, wherever these are.
    Apart,
    /// Two ranks on one CPU: the launcher runs under `taskset`, and the ranks inherit the launcher's affinity mask.
    MaskAround,
    /// Two ranks on one CPU: the launcher starts each rank through `taskset`, so the launcher itself has another
    /// affinity mask.
    MaskBehind,
    /// More ranks than CPUs.
    Crowd,
    /// Two ranks, one of them under callgrind.
    Counted,
    /// One rank on each of two hosts.
    Hosts,
    /// One rank on each of two hosts; rmpi sends RoCE in UDP datagrams.
    HostsOverUdp,
    /// Ranks on all hosts, with the number of ranks that was requested for each host.
    AllHosts,
    /// Two ranks of rmpi on this host that send DPDK frames over shared memory (memif).
    OverMemif,
    /// Two ranks of rmpi on this host that send DPDK frames over the two devices of `RMPI_DPDK`.
    OverDevices,
    /// Two ranks of rmpi on this host that send RoCE in UDP datagrams.
    OverUdp,
}

impl Placement {
    /// The case for which the launcher's settings are chosen ([`Kind::setting`](crate::peers::Kind::setting)).
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

    /// Whether only rmpi can run with this placement.
    #[must_use]
    pub const fn is_rmpi_only(self) -> bool {
        matches!(self, Self::OverMemif | Self::OverDevices | Self::OverUdp)
    }

    /// Whether this placement needs hosts.
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
    /// Its options, besides `--json`.
    pub options: &'static [&'static str],
    /// The number of ranks, except with [`Placement::AllHosts`], where the hosts' numbers of ranks count.
    pub ranks: usize,
    /// Where they are placed.
    pub placement: Placement,
    /// How often it is started per round; the median of these starts counts.
    pub repeats: usize,
}

/// How a row's figure is taken from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureSource {
    /// The median of this size in the report.
    Size(usize),
    /// The whole run from start to finish, in ms.
    Wall,
}

/// What a row is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOf {
    /// The machine's figure of this name.
    Figure(&'static str),
    /// The highest of these figures of the machine, all of them bandwidths.
    BestOf(&'static [&'static str]),
    /// The time in µs that this number of messages takes at the bandwidth of this figure.
    TimeOf(&'static str, usize),
    /// rmpi's own figure in the row of this name.
    Own(&'static str),
}

impl LimitOf {
    /// The names of the machine's figures that the limit is taken from; empty for a row of rmpi.
    #[must_use]
    pub const fn figures(&self) -> &[&'static str] {
        match self {
            Self::Figure(name) | Self::TimeOf(name, _) => std::slice::from_ref(name),
            Self::BestOf(names) => names,
            Self::Own(_) => &[],
        }
    }

    /// The limit in the unit of the row, from the measured figures; `None` if none of its figures was measured.
    #[must_use]
    pub fn value(&self, measured: &[Figure]) -> Option<f64> {
        let is_named = |figure: &&Figure| self.figures().contains(&figure.id.as_str());
        let figures = measured.iter().filter(is_named);
        let best = figures.max_by(|one, other| one.median.total_cmp(&other.median))?;
        Some(match self {
            // Bytes divided by megabytes per second give microseconds.
            Self::TimeOf(_, messages) => (best.size * messages) as f64 / best.median,
            _ => best.median,
        })
    }
}

/// One condition on a row's figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// The ratio to the limit: at most this factor for times, at least this factor for rates.
    Limit(f64),
    /// At most this much above the limit, in the unit of the row.
    Above(f64),
    /// At least this many times better than the best peer. With 1, a figure equal to the peer's is not enough.
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
    /// The name of its group: with this name, `--rows` selects all rows of the group.
    pub group: &'static str,
    /// Its name in reports.
    pub title: &'static str,
    /// The id of the run that it comes from.
    pub run: &'static str,
    /// How its figure is taken from the run.
    pub source: FigureSource,
    /// Its unit.
    pub unit: FigureUnit,
    /// Its limit, if it has one.
    pub limit: Option<LimitOf>,
    /// Its bars, each a list of alternatives. All bars must hold, each by at least one alternative. Empty: the row is
    /// only shown.
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
    fn bars_have_short_texts() {
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
