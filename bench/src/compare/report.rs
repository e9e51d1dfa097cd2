// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a comparison: verdicts first, then the medians of all contenders, then failures. It is written as
//! Markdown, which is readable in a terminal too, or as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::bars::{self, CompareRow, LimitOf};
use super::change::{self, Change};
use super::judge::{JudgedRow, RowFigures, Verdict, judge};
use super::rounds::{CLOSE_BELOW_US, CompareContender, CompareData, ComparePlan};
use super::rows::ROWS;
use crate::hosts::words_of;
use crate::machine::Description;
use crate::stats::Summary;
use crate::unit::{FigureUnit, three_digits};

/// One row's outcome.
#[derive(Debug, Serialize)]
pub struct RowResult {
    /// The row.
    pub id: &'static str,
    /// Its name in reports.
    pub title: &'static str,
    /// Its unit.
    pub unit: FigureUnit,
    /// Its bars as text.
    pub bars: Vec<String>,
    /// The peer, with its setting, that has the best median; `None` if no peer has a figure.
    pub best_peer: Option<String>,
    /// rmpi's figures, ratios and the verdict.
    pub judged: JudgedRow,
    /// The median and the spread of each contender, with the contender's name.
    pub contenders: Vec<(String, Option<Summary>)>,
}

/// The hosts that the measurement was between, and the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostSetup {
    /// The hosts' names.
    pub hosts: Vec<String>,
    /// The number of ranks on all hosts, in collectives.
    pub ranks: u32,
    /// The command line of `--launcher`, if it is given.
    pub launcher: Option<String>,
    /// The provider of rmpi's messages, as its library reports it: `tcp` or `verbs`; `None` if it reported none.
    pub interconnect: Option<String>,
    /// The addresses between which TCP or UDP was measured without MPI.
    pub raw: Option<[String; 2]>,
}

/// The whole comparison.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The machine and the time.
    pub machine: Description,
    /// The hosts, if the measurement was between hosts.
    pub between: Option<HostSetup>,
    /// Each library's version string.
    pub libraries: Vec<(String, String)>,
    /// The number of planned rounds.
    pub planned: usize,
    /// The number of finished rounds.
    pub rounds: usize,
    /// Whether all planned rounds were finished.
    pub complete: bool,
    /// Whether contenders other than builds of rmpi took part.
    pub with_peers: bool,
    /// The one-way times of a cache line between the runs, in µs.
    pub line: Option<Summary>,
    /// The results of the rounds with the CPUs on different physical cores.
    pub rows: Vec<RowResult>,
    /// Rows with bars that were not measured: they need hosts, and no hosts were named.
    pub not_run: Vec<RowResult>,
    /// The results of the rounds with both CPUs on one physical core; rows without such rounds are left out.
    pub close: Vec<RowResult>,
    /// The new build of rmpi compared with the old one; empty if there is no old one.
    pub changes: Vec<Change>,
    /// Failed runs: contender, run, reason.
    pub failures: Vec<(String, String, String)>,
}

/// Makes the comparison's results from the measured data.
#[must_use]
pub fn conclude(plan: &ComparePlan, measured: &CompareData, machine: Description) -> Comparison {
    let results = |close: bool| {
        plan.rows
            .iter()
            .map(move |row| row_result(plan, measured, row, close))
    };
    let has_figures =
        |line: &RowResult| line.contenders.iter().any(|(_, summary)| summary.is_some());
    let libraries = measured.libraries.iter();
    let mut failures: Vec<(String, String, String)> = Vec::new();
    for (contender, run, why) in &measured.failures {
        let failure = (contender.clone(), (*run).to_owned(), why.clone());
        if !failures.contains(&failure) {
            failures.push(failure);
        }
    }
    Comparison {
        machine,
        between: between(plan, measured),
        libraries: libraries
            .map(|(name, text)| (name.clone(), text.clone()))
            .collect(),
        planned: plan.rounds,
        rounds: measured.rounds,
        complete: measured.rounds == plan.rounds,
        with_peers: plan.contenders.len() > builds_of_rmpi(plan),
        line: Summary::of(&measured.lines),
        rows: results(false).collect(),
        not_run: plan
            .left_out
            .iter()
            .filter_map(|row| not_run(row))
            .collect(),
        close: results(true).filter(has_figures).collect(),
        changes: change::changes(plan, measured),
        failures,
    }
}

fn between(plan: &ComparePlan, measured: &CompareData) -> Option<HostSetup> {
    let hosts = plan.hosts.as_ref()?;
    let own = plan.own.map(|own| &plan.contenders[own].mpi.name);
    Some(HostSetup {
        hosts: hosts.labels(),
        ranks: hosts.ranks(),
        launcher: hosts.launcher().map(str::to_owned),
        interconnect: own.and_then(|own| measured.carriers.get(own).cloned()),
        raw: measured.addresses.clone(),
    })
}

/// The result of a row that needs hosts and was not measured; `None` if the row has no bars.
fn not_run(row: &CompareRow) -> Option<RowResult> {
    let judged = JudgedRow {
        verdict: Verdict::NeedsHosts,
        ..judge(row, &RowFigures::default())
    };
    (!row.bars.is_empty()).then(|| RowResult {
        id: row.id,
        title: row.title,
        unit: row.unit,
        bars: row.bars.iter().map(|bar| words(bar, row.unit)).collect(),
        best_peer: None,
        judged,
        contenders: Vec::new(),
    })
}

/// The number of contenders that are builds of rmpi.
fn builds_of_rmpi(plan: &ComparePlan) -> usize {
    [plan.own, plan.old].into_iter().flatten().count()
}

fn row_result(
    plan: &ComparePlan,
    measured: &CompareData,
    row: &'static CompareRow,
    close: bool,
) -> RowResult {
    let values = |contender: usize| measured.row(row, Some(contender), close);
    let median = |contender: usize| {
        let values: Vec<f64> = values(contender).into_iter().flatten().collect();
        Summary::of(&values)
    };
    let best = best_peer(plan, row, median);
    let series = RowFigures {
        own: plan.own.map_or_else(Vec::new, values),
        limit: limit(plan, measured, row, close),
        peer: best.map_or_else(Vec::new, values),
    };
    let label = |index: usize| plan.contenders[index].label();
    RowResult {
        id: row.id,
        title: row.title,
        unit: row.unit,
        bars: row.bars.iter().map(|bar| words(bar, row.unit)).collect(),
        best_peer: best.map(label),
        judged: judge(row, &series),
        contenders: (0..plan.contenders.len())
            .map(|index| (label(index), median(index)))
            .collect(),
    }
}

/// The figures of a row's limit, one entry per round.
fn limit(
    plan: &ComparePlan,
    measured: &CompareData,
    row: &CompareRow,
    close: bool,
) -> Vec<Option<f64>> {
    match row.limit {
        None => Vec::new(),
        Some(LimitOf::Own(id)) => {
            let other = ROWS.iter().find(|row| row.id == id);
            let own = other.zip(plan.own);
            own.map_or_else(Vec::new, |(row, own)| measured.row(row, Some(own), close))
        }
        Some(_) => measured.row(row, None, close),
    }
}

/// The contender with the best median in this row, builds of rmpi excepted.
fn best_peer(
    plan: &ComparePlan,
    row: &CompareRow,
    median: impl Fn(usize) -> Option<Summary>,
) -> Option<usize> {
    let peers =
        (0..plan.contenders.len()).filter(|index| ![plan.own, plan.old].contains(&Some(*index)));
    let medians = peers.filter_map(|index| Some((index, median(index)?.median)));
    let better = |one: &(usize, f64), other: &(usize, f64)| {
        if row.unit.smaller_is_better() {
            one.1.total_cmp(&other.1)
        } else {
            other.1.total_cmp(&one.1)
        }
    };
    medians.min_by(better).map(|(index, _)| index)
}

fn words(alternatives: &[bars::Bar], unit: FigureUnit) -> String {
    alternatives
        .iter()
        .map(|bar| bar.words(unit))
        .collect::<Vec<_>>()
        .join(" or ")
}

impl Comparison {
    /// Whether all rounds were finished and every row with a bar passed. If there is an old build of rmpi, the rounds
    /// must also show for every row that the new build is not worse (too few rounds show nothing). If the old build is
    /// the only other contender, bars do not count, because there is no peer to compare with.
    #[must_use]
    pub fn passed(&self) -> bool {
        let good = |line: &RowResult| matches!(line.judged.verdict, Verdict::Pass | Verdict::Shown);
        let bars = !self.judges_bars() || self.rows.iter().all(good);
        bars && self.complete && self.changes.iter().all(Change::is_harmless)
    }

    const fn judges_bars(&self) -> bool {
        self.with_peers || self.changes.is_empty()
    }

    /// The title of the report.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.between {
            Some(HostSetup { hosts, .. }) => format!(
                "rmpi and other MPIs between hosts {}, in one run",
                words_of(hosts)
            ),
            None => "rmpi and other MPIs on one machine, in one run".to_owned(),
        }
    }

    /// The report as text.
    #[must_use]
    pub fn markdown(&self, contenders: &[CompareContender]) -> String {
        let mut text = format!("# {}\n\n", self.title());
        self.head(&mut text);
        if !self.changes.is_empty() {
            change::table(&mut text, &self.changes);
        }
        if self.judges_bars() {
            text.push_str("## What must hold\n\n");
            ratios(&mut text, self.rows.iter().chain(&self.not_run), true);
        } else {
            text.push_str("## The new build and the machine\n\n");
            ratios(&mut text, &self.rows, false);
        }
        text.push_str("\n## Medians (min–max) of all contenders\n\n");
        medians(&mut text, &self.rows, contenders);
        if !self.close.is_empty() {
            let below = CLOSE_BELOW_US * 1e3;
            let _ = write!(
                text,
                "\n## Rounds with both CPUs on one physical core (raw line below {below:.0} ns), shown apart\n\n"
            );
            ratios(&mut text, &self.close, false);
            text.push('\n');
            medians(&mut text, &self.close, contenders);
        }
        self.tail(&mut text);
        text
    }

    fn head(&self, text: &mut String) {
        let machine = &self.machine;
        let _ = writeln!(
            text,
            "{}; {}; Linux {}; {}; commit {}; {} round{}.",
            machine.machine,
            machine.system,
            machine.kernel,
            machine.date,
            machine.commit,
            self.planned,
            if self.planned == 1 { "" } else { "s" }
        );
        if !self.complete {
            let _ = writeln!(
                text,
                "**Not whole: interrupted in round {} of {}; {}.**",
                self.rounds + 1,
                self.planned,
                match self.rounds {
                    0 => "what there is of the first is shown".to_owned(),
                    1 => "one round counts".to_owned(),
                    rounds => format!("{rounds} rounds count"),
                }
            );
        }
        if machine.busy() {
            let _ = writeln!(
                text,
                "**The machine was busy when this began: load {:.1}.**",
                machine.load
            );
        }
        if let Some(line) = &self.line {
            let _ = writeln!(
                text,
                "Raw cache line between the runs, one way: {} µs ({}–{}).",
                three_digits(line.median),
                three_digits(line.min),
                three_digits(line.max)
            );
        }
        if let Some(between) = &self.between {
            let _ = writeln!(text, "{}", between.words());
        }
        text.push('\n');
        for (name, library) in &self.libraries {
            let _ = writeln!(text, "- {name}: {library}");
        }
        text.push('\n');
    }

    fn tail(&self, text: &mut String) {
        if self.failures.is_empty() {
            return;
        }
        text.push_str("\n## What did not work\n\n");
        for (contender, run, why) in &self.failures {
            let _ = writeln!(text, "- {contender}, {run}: {why}");
        }
    }
}

impl HostSetup {
    /// The hosts and the network as a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        let hosts = words_of(&self.hosts);
        let shell = self.launcher.as_deref().unwrap_or("ssh");
        let carrier = match &self.interconnect {
            Some(carrier) => format!("rmpi's messages went over {carrier}"),
            None => "what carried rmpi's messages is not known".to_owned(),
        };
        let raw = match &self.raw {
            Some([from, to]) => {
                format!("; the limit is TCP without MPI from {from} to {to}")
            }
            None => String::new(),
        };
        let ranks = match self.ranks {
            2 => String::new(),
            ranks => format!("; {ranks} ranks on all of them"),
        };
        format!("Hosts {hosts}, reached by `{shell}`: {carrier}{raw}{ranks}.")
    }
}

/// Writes the table of ratios; with `with_verdicts` also the bars and the verdicts.
fn ratios<'a>(
    text: &mut String,
    lines: impl IntoIterator<Item = &'a RowResult>,
    with_verdicts: bool,
) {
    text.push_str("| row | unit | limit | rmpi | rmpi ÷ limit | best peer | times better |");
    text.push_str(if with_verdicts {
        " must hold | |\n"
    } else {
        "\n"
    });
    text.push_str("|---|---|---|---|---|---|---|");
    text.push_str(if with_verdicts { "---|---|\n" } else { "\n" });
    for line in lines {
        let judged = &line.judged;
        let _ = write!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            line.title,
            line.unit.label(),
            shown(line.unit, judged.limit.as_ref()),
            shown(line.unit, judged.own.as_ref()),
            ratio(judged.to_limit.as_ref()),
            line.best_peer.as_deref().unwrap_or("–"),
            ratio(judged.better.as_ref()),
        );
        if with_verdicts {
            let _ = write!(
                text,
                " {} | {} |",
                line.bars.join("; "),
                judged.verdict.label()
            );
        }
        text.push('\n');
    }
}

fn medians(text: &mut String, lines: &[RowResult], contenders: &[CompareContender]) {
    text.push_str("| row | unit |");
    for contender in contenders {
        let _ = write!(text, " {} |", contender.label());
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(contenders.len()));
    text.push('\n');
    for line in lines {
        let _ = write!(text, "| {} | {} |", line.title, line.unit.label());
        let best = best_median(line);
        for (_, summary) in &line.contenders {
            let cell = shown(line.unit, summary.as_ref());
            let bold = summary.is_some_and(|summary| Some(summary.median) == best);
            let _ = if bold {
                write!(text, " **{cell}** |")
            } else {
                write!(text, " {cell} |")
            };
        }
        text.push('\n');
    }
}

fn best_median(line: &RowResult) -> Option<f64> {
    let medians = line
        .contenders
        .iter()
        .filter_map(|(_, summary)| Some((*summary)?.median));
    medians.reduce(|one, other| line.unit.better(one, other))
}

/// Median and spread; only the median if there is only one value.
pub(super) fn shown(unit: FigureUnit, summary: Option<&Summary>) -> String {
    let Some(summary) = summary else {
        return "–".to_owned();
    };
    if summary.count == 1 {
        return unit.show(summary.median);
    }
    format!(
        "{} ({}–{})",
        unit.show(summary.median),
        unit.show(summary.min),
        unit.show(summary.max)
    )
}

fn ratio(summary: Option<&Summary>) -> String {
    let Some(summary) = summary else {
        return "–".to_owned();
    };
    if summary.count == 1 {
        return format!("{} (1 round)", three_digits(summary.median));
    }
    format!(
        "{} ({}–{}; {} rounds)",
        three_digits(summary.median),
        three_digits(summary.min),
        three_digits(summary.max),
        summary.count
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_figure_has_no_spread() {
        let one = Summary::of(&[2.0]).unwrap();
        assert_eq!(shown(FigureUnit::Us, Some(&one)), "2.00");
        let more = Summary::of(&[2.0, 3.0, 4.0]).unwrap();
        assert_eq!(shown(FigureUnit::Us, Some(&more)), "3.00 (2.00–4.00)");
        assert_eq!(shown(FigureUnit::Us, None), "–");
    }

    #[test]
    fn hosts_and_network_are_named() {
        let mut between = HostSetup {
            hosts: vec!["n1".to_owned(), "n2".to_owned()],
            ranks: 2,
            launcher: None,
            interconnect: Some("tcp".to_owned()),
            raw: Some(["10.77.0.1".to_owned(), "10.77.0.2".to_owned()]),
        };
        assert_eq!(
            between.words(),
            "Hosts n1 and n2, reached by `ssh`: rmpi's messages went over tcp; the limit is TCP without MPI from 10.77.0.1 to \
             10.77.0.2."
        );
        between.interconnect = None;
        between.launcher = Some("ssh -i key".to_owned());
        between.raw = None;
        let mut more = between.clone();
        (more.ranks, more.hosts[1]) = (6, "n2, n3".to_owned());
        assert!(more.words().ends_with("not known; 6 ranks on all of them."));
        assert_eq!(
            between.words(),
            "Hosts n1 and n2, reached by `ssh -i key`: what carried rmpi's messages is not known."
        );
    }

    #[test]
    fn a_row_that_needs_hosts_is_shown_with_its_bars() {
        let row = |id: &str| ROWS.iter().find(|row| row.id == id).unwrap();
        let line = not_run(row("hosts-latency8")).unwrap();
        let mut text = String::new();
        ratios(&mut text, [&line], true);
        assert!(
            text.ends_with(
                "| two hosts: latency 8 B | µs | – | – | – | – | – | ≤ 1.15 × limit; better than every peer | not run: needs --host |\n"
            ),
            "{text}"
        );
        assert!(not_run(row("hosts-latency0")).is_none());
    }

    #[test]
    fn alternatives_are_joined_by_or() {
        let row = ROWS.iter().find(|row| row.id == "bandwidth1m").unwrap();
        assert_eq!(
            words(row.bars[0], row.unit),
            "≥ 1.15 × better than every peer or ≥ 0.95 × limit"
        );
    }
}
