// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurement: in each round all runs, and in each run all contenders in turn, so that other load on the machine
//! affects all of them alike.
//!
//! On a virtual machine two CPUs may be moved onto one physical core for a while: a cache line then goes over three to
//! five times faster, and nothing that was measured so can be compared with what was not. So the line is measured between
//! the runs of pairs; a run before and after which it differed is repeated, and a sample records on which side it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::bars::{CompareRow, FigureSource, LimitOf, Placement, ProgramRun};
use super::between;
use super::frames::GROUPS as OVER_DPDK;
use super::rows::ROWS;
use super::start::start;
use crate::hosts::BenchHosts;
use crate::limits::{Figure, RUN_WORD, frames, tcp};
use crate::peers::{Installation, Kind, Setting, Tuning};
use crate::programs::BenchReport;
use crate::stats::Summary;
use crate::{Error, icount, interrupt, machine, programs, run};

/// A cache line that takes less than this, in µs one way, does not leave the core.
pub const CLOSE_BELOW_US: f64 = 0.070;
/// How often a run is repeated because the CPUs moved meanwhile.
const TRIES: usize = 3;
/// After so many consecutive failures a contender is left out of that run.
const PATIENCE: usize = 2;
const PROBE_MS: u32 = 30;
const LIMIT_MS: u32 = 150;

/// An MPI with a setting.
#[derive(Clone, Debug)]
pub struct CompareContender {
    /// The MPI.
    pub mpi: Installation,
    /// Its settings.
    pub level: Tuning,
    /// Where its binaries lie.
    pub binaries: PathBuf,
}

impl CompareContender {
    /// Its name in tables.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} ({})", self.mpi.name, self.level.label())
    }
}

/// The plan of a measurement.
#[derive(Debug)]
pub struct ComparePlan {
    /// Ours first, if it is there.
    pub contenders: Vec<CompareContender>,
    /// The index of ours.
    pub own: Option<usize>,
    /// The index of the other build of ours.
    pub old: Option<usize>,
    /// Which rows.
    pub rows: Vec<&'static CompareRow>,
    /// Rows that were wanted too and need hosts, where none are named.
    pub left_out: Vec<&'static CompareRow>,
    /// The runs of the rows.
    pub runs: Vec<&'static ProgramRun>,
    /// The number of rounds.
    pub rounds: usize,
    /// The longest that one run may take.
    pub limit: Duration,
    /// This binary: it measures the limits in a process of its own, between hosts also there.
    pub program: PathBuf,
    /// Hosts for the runs that need them.
    pub hosts: Option<BenchHosts>,
    /// Where the script for another remote shell than `ssh` lies, if one is named.
    pub script: PathBuf,
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct RunSample {
    /// Row by row.
    pub values: BTreeMap<&'static str, f64>,
    /// Whether both CPUs were one core meanwhile.
    pub close: bool,
}

/// A run and who made it; limits have no contender.
type Key = (&'static str, Option<usize>);

/// The results of a measurement.
#[derive(Debug, Default)]
pub struct CompareData {
    samples: BTreeMap<Key, Vec<Option<RunSample>>>,
    /// What did not work: contender, run, reason.
    pub failures: Vec<(String, &'static str, String)>,
    /// The version string of each contender's library.
    pub libraries: BTreeMap<String, String>,
    /// The transport that each contender reported for messages between hosts.
    pub carriers: BTreeMap<String, String>,
    /// The addresses of both hosts that the raw connection had last.
    pub addresses: Option<[String; 2]>,
    /// The cache line between runs, in µs.
    pub lines: Vec<f64>,
    /// The number of finished rounds.
    pub rounds: usize,
}

impl CompareData {
    /// A row's figures, one place per round; only rounds with the CPUs `close`, or only the others.
    #[must_use]
    pub fn row(&self, row: &CompareRow, contender: Option<usize>, close: bool) -> Vec<Option<f64>> {
        let samples = self
            .samples
            .get(&(row.run, contender))
            .map_or(&[][..], Vec::as_slice);
        let value = |sample: &RunSample| sample.values.get(row.id).copied();
        let wanted = |sample: &&RunSample| sample.close == close;
        samples
            .iter()
            .map(|sample| sample.as_ref().filter(wanted).and_then(value))
            .collect()
    }

    fn push(&mut self, key: Key, sample: Option<RunSample>) {
        self.samples.entry(key).or_default().push(sample);
    }

    /// Keeps the finished rounds alone. Of a first round that was not finished, what there is of it.
    fn cut(&mut self) {
        if self.rounds == 0 {
            return;
        }
        for samples in self.samples.values_mut() {
            samples.truncate(self.rounds);
        }
    }

    fn gave_up(&self, key: Key) -> bool {
        let samples = self.samples.get(&key).map_or(&[][..], Vec::as_slice);
        samples.len() >= PATIENCE && samples.iter().rev().take(PATIENCE).all(Option::is_none)
    }
}

/// Builds what the plan needs.
///
/// # Errors
/// When the compiler fails, with its message.
pub fn build(plan: &ComparePlan) -> Result<(), Error> {
    write_script(plan)?;
    for contender in &plan.contenders {
        fs::create_dir_all(&contender.binaries)
            .map_err(|e| Error::io(format!("cannot make {}", contender.binaries.display()), e))?;
        for run in plan
            .runs
            .iter()
            .filter(|run| run.placement != Placement::Counted)
        {
            let binary = contender.binaries.join(run.program);
            if !binary.exists() {
                let environment = contender.mpi.environment();
                programs::compile(contender.mpi.mpicc(), &environment, run.program, &binary)?;
            }
        }
    }
    Ok(())
}

/// For peers that take one word for a remote shell.
fn write_script(plan: &ComparePlan) -> Result<(), Error> {
    let Some(text) = plan.hosts.as_ref().and_then(BenchHosts::script) else {
        return Ok(());
    };
    let executable = fs::Permissions::from_mode(0o755);
    let folder = plan.script.parent().unwrap_or(&plan.script);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&plan.script, text))
        .and_then(|()| fs::set_permissions(&plan.script, executable))
        .map_err(|e| Error::io(format!("cannot write {}", plan.script.display()), e))
}

/// Runs all rounds; `tell` is called with the name of each step. After a signal only the finished rounds are returned.
pub fn measure(plan: &ComparePlan, mut tell: impl FnMut(&str)) -> CompareData {
    let mut measured = CompareData::default();
    for round in 0..plan.rounds {
        for run in &plan.runs {
            RoundRun {
                plan,
                run,
                round,
                measured: &mut measured,
            }
            .measure(&mut tell);
            if interrupt::seen() {
                measured.cut();
                return measured;
            }
        }
        measured.rounds += 1;
    }
    measured
}

/// How many times `tell` will be called.
#[must_use]
pub fn steps(plan: &ComparePlan) -> usize {
    let takes_part = |run: &ProgramRun| {
        let has_setting = |contender: &&CompareContender| setting_of(contender, run).is_some();
        plan.contenders.iter().filter(has_setting).count()
    };
    let (counted, others): (Vec<_>, Vec<_>) = plan
        .runs
        .iter()
        .partition(|run| run.placement == Placement::Counted);
    let of = |runs: Vec<&&'static ProgramRun>| {
        runs.into_iter().map(|run| takes_part(run)).sum::<usize>()
    };
    of(counted) + of(others) * plan.rounds
}

fn setting_of(contender: &CompareContender, run: &ProgramRun) -> Option<Setting> {
    if run.placement.is_for_rmpi_alone() && contender.mpi.kind != Kind::Rmpi {
        return None;
    }
    contender
        .mpi
        .kind
        .setting(run.placement.case(), contender.level)
}

/// One run of one round.
struct RoundRun<'a> {
    plan: &'a ComparePlan,
    run: &'static ProgramRun,
    round: usize,
    measured: &'a mut CompareData,
}

impl RoundRun<'_> {
    fn measure(&mut self, tell: &mut impl FnMut(&str)) {
        if self.run.placement == Placement::Counted && self.round > 0 {
            return;
        }
        let contenders = self.plan.contenders.len();
        let mut line = self.probe();
        for turn in 0..contenders {
            if interrupt::seen() {
                return;
            }
            // Each round begins with another contender.
            let index = (turn + self.round) % contenders;
            let contender = &self.plan.contenders[index];
            if setting_of(contender, self.run).is_none() {
                continue;
            }
            tell(&format!(
                "round {}: {} with {}",
                self.round + 1,
                self.run.id,
                contender.label()
            ));
            // The limits stand beside ours; without ours, beside the first.
            if index == self.plan.own.unwrap_or(0) {
                let limits = self.settled(&mut line, Self::limits);
                self.keep((self.run.id, None), "the machine", limits);
            }
            let key = (self.run.id, Some(index));
            if self.measured.gave_up(key) {
                self.measured.push(key, None);
                continue;
            }
            let sample = self.settled(&mut line, |group| group.contend(index));
            self.keep(key, &contender.label(), sample);
        }
    }

    fn keep(&mut self, key: Key, who: &str, outcome: Result<RunSample, Error>) {
        if interrupt::seen() {
            // It may have been ended by us, which is no failure of its own.
            return;
        }
        let sample = match outcome {
            Ok(sample) => Some(sample),
            Err(error) => {
                self.measured
                    .failures
                    .push((who.to_owned(), self.run.id, error.to_string()));
                None
            }
        };
        self.measured.push(key, sample);
    }

    /// Measures until the CPUs were on the same side before and after.
    fn settled(
        &mut self,
        line: &mut Option<f64>,
        mut measure: impl FnMut(&mut Self) -> Result<BTreeMap<&'static str, f64>, Error>,
    ) -> Result<RunSample, Error> {
        for _ in 0..TRIES {
            let before = line.take();
            let values = measure(self);
            *line = self.probe();
            let sides = [before, *line].map(|line| line.is_some_and(|us| us < CLOSE_BELOW_US));
            let values = values?;
            if sides[0] == sides[1] {
                return Ok(RunSample {
                    values,
                    close: sides[0],
                });
            }
        }
        Err(Error::Limit(
            "the CPUs moved between physical cores in every try".to_owned(),
        ))
    }

    /// The cache line now; `None` where it does not matter.
    fn probe(&mut self) -> Option<f64> {
        if self.run.placement != Placement::Pair {
            return None;
        }
        let line = line_now(&self.plan.program)?;
        self.measured.lines.push(line);
        Some(line)
    }

    fn rows(&self) -> impl Iterator<Item = &'static CompareRow> {
        let chosen = self.plan.rows.clone();
        let run = self.run.id;
        chosen.into_iter().filter(move |row| row.run == run)
    }

    /// The limits of this run's rows, in the rows' units.
    fn limits(&mut self) -> Result<BTreeMap<&'static str, f64>, Error> {
        let limits: Vec<(&CompareRow, LimitOf)> = self
            .rows()
            .filter_map(|row| Some((row, row.limit?)))
            .collect();
        let names: BTreeSet<_> = limits
            .iter()
            .flat_map(|(_, limit)| limit.figures())
            .copied()
            .collect();
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let names: Vec<_> = names.into_iter().collect();
        let figures = match self.run.placement {
            placement if placement.is_between_hosts() => self.raw(&names)?,
            _ => figures(&self.plan.program, &names, LIMIT_MS)?,
        };
        Ok(limits
            .into_iter()
            .filter_map(|(row, limit)| Some((row.id, limit.value(&figures)?)))
            .collect())
    }

    /// What TCP allows between the hosts.
    fn raw(&mut self, names: &[&str]) -> Result<Vec<Figure>, Error> {
        let budget = Duration::from_millis(LIMIT_MS.into());
        let raw = tcp::between(&self.hosts()?.pair(), &self.plan.program, names, budget)?;
        self.measured.addresses = Some(raw.addresses);
        Ok(raw.figures)
    }

    fn hosts(&self) -> Result<&BenchHosts, Error> {
        let hosts = self.plan.hosts.as_ref();
        hosts.ok_or_else(|| Error::Usage("no hosts are named (--host A,B)".to_owned()))
    }

    fn contend(&mut self, index: usize) -> Result<BTreeMap<&'static str, f64>, Error> {
        let contender = &self.plan.contenders[index];
        if self.run.placement == Placement::Counted {
            return self.count(contender);
        }
        let mut samples: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for _ in 0..self.run.repeats {
            for (row, value) in self.start(contender)? {
                samples.entry(row).or_default().push(value);
            }
        }
        let median = |values: Vec<f64>| Summary::of(&values).map(|summary| summary.median);
        Ok(samples
            .into_iter()
            .filter_map(|(row, values)| Some((row, median(values)?)))
            .collect())
    }

    fn start(&mut self, contender: &CompareContender) -> Result<Vec<(&'static str, f64)>, Error> {
        let command = self.command(contender)?;
        let limit = match self.run.placement {
            // Some take half a minute until all ranks are there.
            Placement::AllHosts => self.plan.limit * 4,
            _ => self.plan.limit,
        };
        let outcome = start(&self.plan.program, &command, limit)?;
        let wall_ms = outcome.elapsed.as_secs_f64() * 1e3;
        if self.rows().all(|row| row.source == FigureSource::Wall) {
            return Ok(self.rows().map(|row| (row.id, wall_ms)).collect());
        }
        let report = BenchReport::parse(&outcome.stdout)?;
        self.measured
            .libraries
            .insert(contender.mpi.name.clone(), report.library.clone());
        let is_usual = matches!(self.run.placement, Placement::Hosts | Placement::AllHosts);
        if let Some(carrier) = report.carrier.as_ref().filter(|_| is_usual) {
            self.measured
                .carriers
                .insert(contender.mpi.name.clone(), carrier.clone());
        }
        let value = |row: &CompareRow| match row.source {
            FigureSource::Size(size) => report.median(size),
            FigureSource::Wall => Some(wall_ms),
        };
        Ok(self
            .rows()
            .filter_map(|row| Some((row.id, value(row)?)))
            .collect())
    }

    fn command(&self, contender: &CompareContender) -> Result<Command, Error> {
        let setting = setting_of(contender, self.run)
            .ok_or_else(|| Error::Usage("there is no such setting".to_owned()))?;
        let mut command = match self.run.placement {
            Placement::Hosts | Placement::HostsOverUdp => {
                let pair = self.hosts()?.pair();
                let mpi = &contender.mpi;
                mpi.launcher_over(setting, &pair, &self.plan.script)?
            }
            Placement::AllHosts => {
                let mpi = &contender.mpi;
                mpi.launcher_over(setting, self.hosts()?, &self.plan.script)?
            }
            _ => self.launcher_here(contender, setting),
        };
        command
            .arg(contender.binaries.join(self.run.program))
            .args(self.run.options);
        if self.rows().any(|row| row.source != FigureSource::Wall) {
            command.arg("--json");
        }
        if contender.mpi.kind == Kind::Rmpi {
            command.envs(self.networks()?);
        }
        Ok(command)
    }

    /// Variables of rmpi that choose its networks.
    fn networks(&self) -> Result<Vec<(&'static str, String)>, Error> {
        let over = |providers: &str| ("RMPI_PROVIDERS", providers.to_owned());
        Ok(match self.run.placement {
            Placement::HostsOverUdp => vec![over("shm,roce")],
            Placement::OverUdp => vec![over("roce")],
            Placement::OverMemif => vec![over("dpdk"), ("RMPI_DPDK", frames::memif_ports())],
            Placement::OverDevices => vec![over("dpdk"), ("RMPI_DPDK", frames::configured()?)],
            _ => Vec::new(),
        })
    }

    fn launcher_here(&self, contender: &CompareContender, setting: Setting) -> Command {
        let cpu = machine::cpus().first();
        let around = (self.run.placement == Placement::MaskAround).then_some(cpu);
        let mut command = contender.mpi.launcher(setting, self.run.ranks, around);
        if self.run.placement == Placement::MaskBehind {
            command.args(["taskset", "-c", &cpu.to_string()]);
        }
        // What a launcher leaves there when it is killed goes away with our binaries. Between hosts it stays each one's own.
        command.env("TMPDIR", &contender.binaries);
        command
    }

    fn count(&self, contender: &CompareContender) -> Result<BTreeMap<&'static str, f64>, Error> {
        let counts = icount::count(
            &contender.mpi,
            contender.level,
            &contender.binaries,
            self.plan.limit * 4,
            self.run.options,
        )?;
        let medians = [
            counts.isend.median,
            counts.irecv.median,
            counts.wait.median,
            counts.sum(),
        ];
        let value = |row: &CompareRow| match row.source {
            FigureSource::Size(index) => medians.get(index).copied(),
            FigureSource::Wall => None,
        };
        Ok(self
            .rows()
            .filter_map(|row| Some((row.id, value(row)?)))
            .collect())
    }
}

/// The cache line between two CPUs now, in µs; `None` where there is one CPU. `program` is this binary.
pub(crate) fn line_now(program: &Path) -> Option<f64> {
    machine::cpus().two()?;
    let figures = figures(program, &["line"], PROBE_MS).ok()?;
    Some(figures.first()?.median)
}

/// Measures limits in a process of its own, which may bind itself and die as it likes.
fn figures(program: &Path, names: &[&str], milliseconds: u32) -> Result<Vec<Figure>, Error> {
    let mut command = Command::new(program);
    command
        .arg(RUN_WORD)
        .arg(milliseconds.to_string())
        .args(names);
    let outcome = run::run(&mut command, Duration::from_secs(60))?;
    if let Some(complaint) = outcome.complaint() {
        return Err(Error::Limit(format!("limits: {complaint}")));
    }
    let figures: Vec<Figure> = outcome
        .stdout
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if figures.is_empty() {
        return Err(Error::Limit(outcome.stderr.trim().replace('\n', "; ")));
    }
    Ok(figures)
}

/// The rows that are wanted.
#[derive(Debug)]
pub struct RowSelection {
    /// Those that can be measured.
    pub rows: Vec<&'static CompareRow>,
    /// Those that need hosts, where none are named.
    pub left_out: Vec<&'static CompareRow>,
}

/// The rows that are chosen by names, groups or nothing at all: then all but those over DPDK, or where hosts are named those that need
/// them. Bars that are for other hosts than these are left out.
///
/// # Errors
/// When a name is neither a row nor a group, or all that is wanted needs hosts.
pub fn choose_rows(words: &[String], hosts: Option<&BenchHosts>) -> Result<RowSelection, Error> {
    let with_hosts = hosts.is_some();
    let known = |word: &String| ROWS.iter().any(|row| row.id == word || row.group == word);
    if let Some(wrong) = words.iter().find(|word| !known(word)) {
        let mut groups: Vec<_> = ROWS.iter().map(|row| row.group).collect();
        groups.dedup();
        let rows: Vec<_> = ROWS.iter().map(|row| row.id).collect();
        return Err(Error::Usage(format!(
            "no row is called \"{wrong}\"; groups are {}, rows {}",
            groups.join(", "),
            rows.join(", ")
        )));
    }
    let needs_hosts = |row: &&CompareRow| between::GROUPS.contains(&row.group);
    let named = |row: &&CompareRow| words.iter().any(|word| row.id == word || row.group == word);
    let wanted = |row: &&CompareRow| match words.is_empty() {
        true => row.group == between::GROUP || !with_hosts && !OVER_DPDK.contains(&row.group),
        false => named(row),
    };
    let wanted = ROWS.iter().filter(wanted);
    let (left_out, rows): (Vec<_>, Vec<_>) =
        wanted.partition(|row| needs_hosts(row) && !with_hosts);
    match rows.first() {
        None => Err(Error::Usage(format!(
            "{} is measured between two hosts: name them with --host A,B",
            words.join(", ")
        ))),
        Some(_) => {
            let has_bars = hosts.is_none_or(between::has_bars);
            let rows = rows.into_iter().map(|row| match has_bars {
                true => row,
                false => between::shown(row),
            });
            Ok(RowSelection {
                rows: rows.collect(),
                left_out,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(words: &[&str]) -> Vec<&'static str> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let chosen = choose_rows(&words, None).unwrap();
        chosen.rows.iter().map(|row| row.id).collect()
    }

    #[test]
    fn rows_are_chosen_by_name_and_by_group() {
        assert_eq!(ids(&["rate8", "latency8"]), ["latency8", "rate8"]);
        assert_eq!(ids(&["onecore"]), ["onecore-around", "onecore-behind"]);
        assert_eq!(ids(&["memif-rate8", "dpdk-rate8"]).len(), 2);
        let others = |row: &&CompareRow| !OVER_DPDK.contains(&row.group);
        let usual = ROWS.iter().filter(others).count();
        assert_eq!(ids(&[]).len() + between::ROWS.len(), usual);
    }

    #[test]
    fn rows_between_hosts_are_chosen_where_there_are_hosts() {
        let hosts = BenchHosts::parse("n1,n2", None).unwrap();
        let chosen = |words: &[&str], with_hosts: bool| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            choose_rows(&words, with_hosts.then_some(&hosts))
        };
        let ids = |rows: &[&CompareRow]| rows.iter().map(|row| row.id).collect::<Vec<_>>();
        let all = chosen(&[], true).unwrap();
        assert!(all.rows.iter().all(|row| row.group == "hosts") && all.left_out.is_empty());
        let in_group = between::ROWS.iter().filter(|row| row.group == "hosts");
        assert_eq!(all.rows.len(), in_group.count());
        let udp = chosen(&["udp"], true).unwrap();
        assert_eq!(udp.rows.len() + all.rows.len(), between::ROWS.len());
        let both = chosen(&["rate8", "hosts-latency8"], true).unwrap();
        assert_eq!(ids(&both.rows), ["rate8", "hosts-latency8"]);
        let without = chosen(&["rate8", "hosts-latency8"], false).unwrap();
        assert_eq!(
            (ids(&without.rows), ids(&without.left_out)),
            (vec!["rate8"], vec!["hosts-latency8"])
        );
        assert_eq!(
            chosen(&[], false).unwrap().left_out.len(),
            between::ROWS.len()
        );
        let error = chosen(&["hosts"], false).unwrap_err().to_string();
        assert!(
            error.contains("hosts is measured between two hosts") && error.contains("--host A,B"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_row_is_told_with_the_known_ones() {
        let error = choose_rows(&["latncy".to_owned()], None)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("latncy") && error.contains("latency8"),
            "{error}"
        );
    }

    #[test]
    fn rounds_on_one_core_stand_apart() {
        let row = ROWS.iter().find(|row| row.id == "latency8").unwrap();
        let sample = |value, close| {
            Some(RunSample {
                values: BTreeMap::from([("latency8", value)]),
                close,
            })
        };
        let mut measured = CompareData::default();
        for sample in [sample(0.2, false), sample(0.1, true), None] {
            measured.push(("latency", Some(0)), sample);
        }
        assert_eq!(measured.row(row, Some(0), false), [Some(0.2), None, None]);
        assert_eq!(measured.row(row, Some(0), true), [None, Some(0.1), None]);
    }

    #[test]
    fn a_round_that_was_not_finished_does_not_count() {
        let row = ROWS.iter().find(|row| row.id == "latency8").unwrap();
        let sample = |value| {
            Some(RunSample {
                values: BTreeMap::from([("latency8", value)]),
                close: false,
            })
        };
        let mut measured = CompareData::default();
        measured.push(("latency", Some(0)), sample(1.0));
        measured.cut();
        assert_eq!(measured.row(row, Some(0), false), [Some(1.0)]);
        measured.rounds = 1;
        measured.push(("latency", Some(0)), sample(2.0));
        measured.cut();
        assert_eq!(measured.row(row, Some(0), false), [Some(1.0)]);
    }

    #[test]
    fn a_contender_that_fails_twice_in_a_row_is_not_asked_again() {
        let mut measured = CompareData::default();
        let key = ("barrier", Some(3));
        let good = || {
            Some(RunSample {
                values: BTreeMap::new(),
                close: false,
            })
        };
        for (sample, gave_up) in [(None, false), (good(), false), (None, false), (None, true)] {
            measured.push(key, sample);
            assert_eq!(measured.gave_up(key), gave_up);
        }
    }
}
