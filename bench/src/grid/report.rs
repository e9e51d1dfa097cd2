// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of the grid: the means of the groups, the rows in which another MPI leads, the table of all rows, and the
//! failures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::cells::{GridRow, RowGroup};
use super::judge::{GridOutcome, JudgedPair, geometric_mean, judge, summary};
use super::matrix;
use super::plan::{GridPlan, Start};
use super::store::{GridRecord, GridSample, GridStore};
use crate::machine::Description;
use crate::stats::Summary;
use crate::unit::{FigureUnit, three_digits};

/// The comparison of rmpi with one other contender, for one row of the grid.
#[derive(Clone, Debug, Serialize)]
pub struct Opponent {
    /// The other contender's name.
    pub name: String,
    /// Whether it is the old build of rmpi.
    pub is_old: bool,
    /// The figures and the verdict.
    pub judged: JudgedPair,
}

/// One row's outcome.
#[derive(Clone, Debug, Serialize)]
pub struct GridRowResult {
    /// The row's name.
    pub title: String,
    /// The group in whose mean its ratio counts.
    pub group: &'static str,
    /// Its number of ranks and its manner, as text.
    pub family: String,
    /// Its operation.
    pub operation: &'static str,
    /// Its message size in bytes.
    pub bytes: usize,
    /// The unit of its figures; `None` if it has no figure.
    pub unit: Option<FigureUnit>,
    /// rmpi's figures.
    pub own: Option<Summary>,
    /// The comparison with the best peer.
    pub peer: Option<Opponent>,
    /// The comparison with the old build.
    pub old: Option<Opponent>,
    /// The medians of all contenders.
    pub medians: BTreeMap<String, f64>,
}

/// The mean of a group, and for each side the number of rows in which it leads.
#[derive(Clone, Debug, Serialize)]
pub struct Mean {
    /// The group.
    pub group: &'static str,
    /// How many times better rmpi is: the geometric mean over the group's rows.
    pub times_better: f64,
    /// The number of rows in the mean.
    pub rows: usize,
    /// The number of rows in which rmpi leads.
    pub leads: usize,
    /// The number of rows in which the other contender leads.
    pub trails: usize,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct GridReport {
    /// The machine and the time.
    pub machine: Description,
    /// The extent: `short` or `whole`.
    pub extent: &'static str,
    /// The measuring time of a cell, in seconds.
    pub seconds: f64,
    /// The number of rounds with all rows, and the maximum number of rounds of a close row.
    pub rounds: (usize, usize),
    /// Whether all rounds with all rows were finished.
    pub complete: bool,
    /// Each library's version string.
    pub libraries: BTreeMap<String, String>,
    /// For each group, the comparison with the best peer of each row.
    pub against_peers: Vec<Mean>,
    /// For each group, the comparison with the old build.
    pub against_old: Vec<Mean>,
    /// One result per row.
    pub lines: Vec<GridRowResult>,
    /// The number of runs of a contender with both CPUs on one physical core.
    pub on_one_core: usize,
    /// Failed runs: contender, start, reason.
    pub failures: BTreeSet<(String, String, String)>,
}

/// Compares rmpi with the best peer and with the old build in a row, in the rounds before `rounds`.
pub(super) fn opponents(
    plan: &GridPlan,
    store: &GridStore,
    start: &Start,
    row: &GridRow,
    rounds: usize,
) -> Vec<Opponent> {
    let values = |index: usize| {
        let mut values = store.values(&start.name, row, &plan.contenders[index].label());
        values.retain(|value| value.round < rounds);
        values
    };
    let own = values(0);
    let opponent = |index: usize| Opponent {
        name: plan.contenders[index].label(),
        is_old: plan.old == Some(index),
        judged: judge(&own, &values(index)),
    };
    let (old, peers): (Vec<_>, Vec<_>) = (1..plan.contenders.len())
        .map(opponent)
        .filter(|opponent| opponent.judged.other.is_some())
        .partition(|opponent| opponent.is_old);
    best(peers).into_iter().chain(old).collect()
}

/// The best peer: the one against which rmpi has the lowest ratio, over the rounds in which both were measured. A peer
/// with less than half as many such rounds as another peer is left out.
fn best(peers: Vec<Opponent>) -> Option<Opponent> {
    let pairs = |peer: &Opponent| peer.judged.ratio.map_or(0, |ratio| ratio.count);
    let ratio = |peer: &Opponent| {
        peer.judged
            .ratio
            .map_or(f64::INFINITY, |ratio| ratio.median)
    };
    let most = peers.iter().map(pairs).max()?;
    peers
        .into_iter()
        .filter(|peer| 2 * pairs(peer) >= most)
        .min_by(|one, other| ratio(one).total_cmp(&ratio(other)))
}

/// Makes the report from the stored figures.
#[must_use]
pub fn conclude(plan: &GridPlan, store: &GridStore, machine: Description) -> GridReport {
    let rows = plan
        .starts
        .iter()
        .flat_map(|start| start.rows.iter().map(move |row| (start, row)));
    let lines: Vec<GridRowResult> = rows
        .map(|(start, row)| line(plan, store, start, row))
        .collect();
    let samples = || {
        let records = store.records().iter();
        records.flat_map(|record| {
            record
                .samples
                .iter()
                .map(move |(name, sample)| (record, name, sample))
        })
    };
    let failure = |(record, name, sample): (&GridRecord, &String, &GridSample)| {
        Some((name.clone(), record.start.clone(), sample.failure.clone()?))
    };
    let all = |round| {
        plan.starts
            .iter()
            .all(|start| store.has(round, &start.name))
    };
    GridReport {
        machine,
        extent: plan.extent.label(),
        seconds: plan.seconds,
        rounds: (plan.rounds, plan.most_rounds),
        complete: (0..plan.rounds).all(all),
        libraries: samples()
            .filter_map(|(_, name, sample)| Some((name.clone(), sample.library.clone()?)))
            .collect(),
        against_peers: means(&lines, |line| line.peer.as_ref()),
        against_old: means(&lines, |line| line.old.as_ref()),
        on_one_core: samples().filter(|(_, _, sample)| sample.close).count(),
        failures: samples().filter_map(failure).collect(),
        lines,
    }
}

fn line(plan: &GridPlan, store: &GridStore, start: &Start, row: &GridRow) -> GridRowResult {
    let values = |label: &str| store.values(&start.name, row, label);
    let labels = plan.contenders.iter().map(|contender| contender.label());
    let medians = labels.filter_map(|label| {
        let median = summary(&values(&label))?.median;
        Some((label, median))
    });
    let own = plan
        .contenders
        .first()
        .map_or_else(Vec::new, |own| values(&own.label()));
    let units = plan
        .contenders
        .iter()
        .filter_map(|contender| Some(values(&contender.label()).first()?.unit));
    let (old, peers): (Vec<_>, Vec<_>) = opponents(plan, store, start, row, usize::MAX)
        .into_iter()
        .partition(|opponent| opponent.is_old);
    GridRowResult {
        title: row.title(),
        group: row.group.title(),
        family: row.family(),
        operation: row.metric,
        bytes: row.bytes,
        unit: units.into_iter().next(),
        own: summary(&own),
        peer: peers.into_iter().next(),
        old: old.into_iter().next(),
        medians: medians.collect(),
    }
}

type Side = fn(&GridRowResult) -> Option<&Opponent>;

fn means(lines: &[GridRowResult], side: Side) -> Vec<Mean> {
    let mean = |group: RowGroup| {
        let of_group = lines.iter().filter(|line| line.group == group.title());
        let judged: Vec<&JudgedPair> = of_group.filter_map(side).map(|one| &one.judged).collect();
        let count = |outcome| judged.iter().filter(|one| one.outcome == outcome).count();
        let ratios = judged.iter().filter_map(|one| Some(one.ratio?.median));
        Some(Mean {
            group: group.title(),
            times_better: geometric_mean(ratios.clone())?,
            rows: ratios.count(),
            leads: count(GridOutcome::Leads),
            trails: count(GridOutcome::Trails),
        })
    };
    RowGroup::ALL.into_iter().filter_map(mean).collect()
}

impl GridReport {
    /// `true` if all rows were measured and rmpi trails neither a peer nor the old build in any row.
    #[must_use]
    pub fn passed(&self) -> bool {
        let is_behind = |opponent: Option<&Opponent>| {
            opponent.is_some_and(|one| one.judged.outcome == GridOutcome::Trails)
        };
        let trails =
            |line: &GridRowResult| is_behind(line.peer.as_ref()) || is_behind(line.old.as_ref());
        let measured = |line: &GridRowResult| line.own.is_some();
        self.complete
            && self
                .lines
                .iter()
                .all(|line| measured(line) && !trails(line))
    }

    /// The report as text.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text =
            String::from("# The grid: rmpi, operation by operation and size by size\n\n");
        self.head(&mut text);
        if !self.against_peers.is_empty() {
            text.push_str("## Against the best other MPI of each row\n\n");
            self.section(&mut text, &self.against_peers, |line| line.peer.as_ref());
        }
        if !self.against_old.is_empty() {
            text.push_str("## The new build (rmpi) against the old one (rmpi-old)\n\n");
            self.section(&mut text, &self.against_old, |line| line.old.as_ref());
        }
        text.push_str("## All rows at a glance\n\n");
        matrix::write(&mut text, &self.lines);
        text.push_str("\n## All rows\n\n");
        self.all_rows(&mut text);
        self.tail(&mut text);
        text
    }

    fn head(&self, text: &mut String) {
        let machine = &self.machine;
        let _ = writeln!(
            text,
            "{}; {}; Linux {}; {}; commit {}; the {} grid, {} s per cell; {}.",
            machine.machine,
            machine.system,
            machine.kernel,
            machine.date,
            machine.commit,
            self.extent,
            self.seconds,
            self.rounds_in_words(),
        );
        if !self.complete {
            text.push_str("**Not whole: some starts were not measured in every round.**\n");
        }
        if machine.busy() {
            let _ = writeln!(
                text,
                "**The machine was busy when this began: load {:.1}.**",
                machine.load
            );
        }
        if self.on_one_core > 0 {
            let _ = writeln!(
                text,
                "Both CPUs were one physical core in {} starts; such figures are held against each other only.",
                self.on_one_core
            );
        }
        text.push('\n');
        for (name, library) in &self.libraries {
            let _ = writeln!(text, "- {name}: {library}");
        }
        text.push_str(
            "\n\"Times better\" is the median of the ratios within the rounds: above 1 rmpi is better. Somebody leads who is \
             better in all of three to six rounds, or in six of seven, and by more than 3 %.\n\n",
        );
    }

    fn rounds_in_words(&self) -> String {
        match self.rounds {
            (1, 1) => "1 round".to_owned(),
            (rounds, most) if rounds == most => format!("{rounds} rounds"),
            (rounds, most) => format!("{rounds} rounds, up to {most} of rows that are close"),
        }
    }

    /// Writes the means, the counts, and the rows in which the other contender leads.
    fn section(&self, text: &mut String, means: &[Mean], side: Side) {
        text.push_str(
            "| group | times better (geometric mean) | rows | rmpi leads | another leads |\n|---|---|---|---|---|\n",
        );
        for mean in means {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                mean.group,
                three_digits(mean.times_better),
                mean.rows,
                mean.leads,
                mean.trails
            );
        }
        let ratio =
            |line: &GridRowResult| side(line).and_then(|one| Some(one.judged.ratio?.median));
        let trails = |line: &&GridRowResult| {
            side(line).is_some_and(|one| one.judged.outcome == GridOutcome::Trails)
        };
        let mut rows: Vec<&GridRowResult> = self.lines.iter().filter(trails).collect();
        rows.sort_by(|one, other| {
            let of = |line: &GridRowResult| ratio(line).unwrap_or(f64::INFINITY);
            of(one).total_cmp(&of(other))
        });
        if rows.is_empty() {
            let judged = |line: &GridRowResult| {
                side(line).is_some_and(|one| one.judged.outcome != GridOutcome::Missing)
            };
            text.push_str(if self.lines.iter().any(judged) {
                "\nNo other contender leads in any row.\n\n"
            } else {
                "\nAt least three rounds are needed to decide which MPI leads.\n\n"
            });
            return;
        }
        let plural = if rows.len() == 1 { "" } else { "s" };
        let _ = writeln!(
            text,
            "\n### Where another leads: {} row{plural}, the worst first\n",
            rows.len()
        );
        text.push_str(
            "| row | unit | rmpi | the other | | times better |\n|---|---|---|---|---|---|\n",
        );
        for line in rows {
            row(text, line, side(line));
        }
        text.push('\n');
    }

    fn all_rows(&self, text: &mut String) {
        let with_old = !self.against_old.is_empty();
        text.push_str("| row | unit | rmpi | best other | | times better |");
        text.push_str(if with_old {
            " old | times better than old |\n"
        } else {
            "\n"
        });
        text.push_str("|---|---|---|---|---|---|");
        text.push_str(if with_old { "---|---|\n" } else { "\n" });
        for line in &self.lines {
            row(text, line, line.peer.as_ref());
            if with_old {
                let old = line.old.as_ref();
                text.truncate(text.trim_end().len());
                let _ = writeln!(text, " {} | {} |", other(line, old), times(old));
            }
        }
    }

    fn tail(&self, text: &mut String) {
        if self.failures.is_empty() {
            return;
        }
        text.push_str("\n## What did not work\n\n");
        for (name, start, why) in &self.failures {
            let _ = writeln!(text, "- {name}, {start}: {why}");
        }
    }
}

fn row(text: &mut String, line: &GridRowResult, opponent: Option<&Opponent>) {
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} | {} | {} |",
        line.title,
        line.unit.map_or("–", FigureUnit::label),
        shown(line, line.own.as_ref()),
        other(line, opponent),
        opponent.map_or("–", |one| one.name.as_str()),
        times(opponent),
    );
}

/// A figure as text; for bandwidths of messages up to 1 KiB also the messages per second.
fn shown(line: &GridRowResult, summary: Option<&Summary>) -> String {
    let Some((summary, unit)) = summary.zip(line.unit) else {
        return "–".to_owned();
    };
    let figure = unit.show(summary.median);
    if unit != FigureUnit::MegabytesPerSecond || line.bytes == 0 || line.bytes > 1024 {
        return figure;
    }
    let rate = summary.median * 1e6 / line.bytes as f64;
    let per_second = FigureUnit::MessagesPerSecond;
    format!(
        "{figure} ({} {})",
        per_second.show(rate),
        per_second.label()
    )
}

fn other(line: &GridRowResult, opponent: Option<&Opponent>) -> String {
    shown(line, opponent.and_then(|one| one.judged.other.as_ref()))
}

/// The median and the range of the ratios as text, in bold if the other contender leads.
fn times(opponent: Option<&Opponent>) -> String {
    let Some((opponent, ratio)) = opponent.and_then(|one| Some((one, one.judged.ratio?))) else {
        return "–".to_owned();
    };
    let figure = three_digits(ratio.median);
    let spread = match ratio.count {
        1 => " (1 round)".to_owned(),
        count => format!(
            " ({}–{}; {count} rounds)",
            three_digits(ratio.min),
            three_digits(ratio.max)
        ),
    };
    match opponent.judged.outcome {
        GridOutcome::Trails => format!("**{figure}**{spread}"),
        _ => format!("{figure}{spread}"),
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::super::cells::Extent;
    use super::*;
    use crate::compare::rounds::CompareContender;
    use crate::peers::{Installation, Kind, Tuning};

    /// A plan of one start, `pair`, with rmpi, an old build and another MPI.
    pub(in super::super) fn plan(rows: &[GridRow]) -> GridPlan {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for name in ["rmpicc", "rmpiexec", "mpicc", "mpiexec"] {
            std::fs::write(bin.join(name), "").unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(bin.join(name), mode).unwrap();
        }
        let contender = |name: &str, kind, level| CompareContender {
            mpi: Installation::find(name, kind, folder.path()).unwrap(),
            level,
            binaries: folder.path().to_owned(),
        };
        GridPlan {
            extent: Extent::Short,
            starts: vec![Start {
                name: "pair".to_owned(),
                rows: rows.to_vec(),
            }],
            contenders: vec![
                contender("rmpi", Kind::Rmpi, Tuning::Default),
                contender("rmpi-old", Kind::Rmpi, Tuning::Default),
                contender("slow", Kind::Other, Tuning::Best),
                contender("other", Kind::Other, Tuning::Best),
            ],
            old: Some(1),
            seconds: 0.05,
            rounds: 3,
            most_rounds: 7,
            limit: Duration::from_secs(30),
            program: folder.path().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::Manner;
    use super::super::store::testing::record;
    use super::testing::plan;
    use super::*;
    use crate::machine;

    const LATENCY: GridRow = GridRow {
        group: RowGroup::Pair,
        manner: Manner::Messages,
        metric: "latency",
        ranks: 2,
        bytes: 8,
    };
    const ONE_WAY: GridRow = GridRow {
        metric: "oneway",
        ..LATENCY
    };

    fn report(row: GridRow, own: f64, old: f64, slow: Option<f64>, other: f64) -> GridReport {
        let plan = plan(&[row]);
        let mut store = GridStore::default();
        for round in 0..3 {
            let figures = [
                ("rmpi (default)", Some(own)),
                ("rmpi-old (default)", Some(old)),
                ("slow (best)", slow),
                ("other (best)", Some(other)),
            ];
            store.add(record(round, "pair", &row, &figures)).unwrap();
        }
        conclude(&plan, &store, machine::describe())
    }

    #[test]
    fn a_row_is_compared_with_the_best_peer_and_the_old_build() {
        let report = report(LATENCY, 1.0, 1.5, Some(9.0), 0.8);
        let text = report.markdown();
        assert!(
            text.contains("| point to point | 0.800 | 1 | 0 | 1 |"),
            "{text}"
        );
        assert!(
            text.contains("### Where another leads: 1 row, the worst first"),
            "{text}"
        );
        assert!(
            text.contains("| 2 ranks: latency 8 | µs | 1.00 | 0.800 | other (best) | **0.800** (0.800–0.800; 3 rounds) |"),
            "{text}"
        );
        assert!(
            text.contains("| 1.50 | 1.50 (1.50–1.50; 3 rounds) |"),
            "{text}"
        );
        assert!(
            text.contains("No other contender leads in any row."),
            "{text}"
        );
        assert!(!report.passed() && report.complete);
    }

    #[test]
    fn all_rows_are_in_the_matrix_too() {
        let mut report = report(LATENCY, 1.0, 1.5, None, 0.8);
        let mut wide = report.lines[0].clone();
        (wide.bytes, wide.peer) = (1024, None);
        report.lines.push(wide);
        let text = report.markdown();
        let table = "### 2 ranks: messages\n\n| | 8 | 1K |\n|---|---|---|\n| latency | 1.00 · **0.800** | 1.00 |\n";
        assert!(text.contains(table), "{text}");
    }

    #[test]
    fn small_messages_have_messages_per_second_too() {
        let report = report(ONE_WAY, 400.0, 400.0, None, 200.0);
        let text = report.markdown();
        assert!(
            text.contains("| GB/s | 0.400 (50.0 Mmsg/s) | 0.200 (25.0 Mmsg/s) |"),
            "{text}"
        );
        assert!(report.passed());
        assert_eq!(report.against_peers[0].leads, 1);
    }

    #[test]
    fn a_failed_contender_is_reported_and_is_not_the_best() {
        let text = report(LATENCY, 1.0, 1.0, None, 2.0).markdown();
        assert!(
            text.contains("- slow (best), pair: exit status: 9\n"),
            "{text}"
        );
        assert_eq!(text.matches("slow (best)").count(), 1, "{text}");
    }

    #[test]
    fn the_best_peer_has_as_many_rounds_as_the_others() {
        let plan = plan(&[LATENCY]);
        let mut store = GridStore::default();
        for round in 0..5 {
            // The contender with the best figure was measured only once.
            let single_figure = (round == 0).then_some(0.1);
            let figures = [
                ("rmpi (default)", Some(1.0)),
                ("slow (best)", single_figure),
                ("other (best)", Some(2.0)),
            ];
            store
                .add(record(round, "pair", &LATENCY, &figures))
                .unwrap();
        }
        let found = opponents(&plan, &store, &plan.starts[0], &LATENCY, usize::MAX);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "other (best)");
        assert_eq!(found[0].judged.outcome, GridOutcome::Leads);
    }

    #[test]
    fn an_incomplete_measurement_is_reported() {
        let plan = plan(&[LATENCY]);
        let report = conclude(&plan, &GridStore::default(), machine::describe());
        let text = report.markdown();
        assert!(
            text.contains("**Not whole")
                && text.contains("| 2 ranks: latency 8 | – | – | – | – | – |"),
            "{text}"
        );
        assert!(!report.passed());
    }
}
