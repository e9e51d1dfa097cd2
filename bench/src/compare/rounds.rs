// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurement: each round has all runs (except that instructions are counted only in the first round), and each
//! run has all contenders in turn, so that other load on the machine affects all contenders alike.
//!
//! On a virtual machine two CPUs may be moved onto one physical core for a while. A cache line is then transferred
//! three to five times faster, and figures from that time cannot be compared with others. So the time of a cache line
//! is measured before and after each run of a pair. A run during which the CPUs moved is repeated, and a sample records
//! whether both CPUs were on one core.

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

/// If the one-way time of a cache line (µs) is below this, both CPUs count as being on one physical core.
pub const CLOSE_BELOW_US: f64 = 0.070;
/// How often a run is tried in a round if the CPUs move during each try.
const TRIES: usize = 3;
/// After this number of consecutive failures a contender is left out of a run in later rounds.
const MAX_FAILURES: usize = 2;
const PROBE_MS: u32 = 30;
const LIMIT_MS: u32 = 150;

/// An MPI with a setting.
#[derive(Clone, Debug)]
pub struct CompareContender {
    /// The MPI.
    pub mpi: Installation,
    /// Which of its settings is used.
    pub level: Tuning,
    /// The folder of its binaries.
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
    /// The contenders; rmpi is the first, if it is installed.
    pub contenders: Vec<CompareContender>,
    /// The index of rmpi, if it takes part.
    pub own: Option<usize>,
    /// The index of the old build of rmpi, if there is one.
    pub old: Option<usize>,
    /// The rows that are measured.
    pub rows: Vec<&'static CompareRow>,
    /// Requested rows that are left out: they need hosts, and no hosts are named.
    pub left_out: Vec<&'static CompareRow>,
    /// The runs of the rows.
    pub runs: Vec<&'static ProgramRun>,
    /// The number of rounds.
    pub rounds: usize,
    /// The time limit of one run.
    pub limit: Duration,
    /// The path of this binary. It is started again to measure the limits, on this machine or on the hosts.
    pub program: PathBuf,
    /// Hosts for the runs that need them.
    pub hosts: Option<BenchHosts>,
    /// The path for the script of the remote shell, which is written if `--launcher` is given.
    pub script: PathBuf,
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct RunSample {
    /// The figure of each row, by the row's id.
    pub values: BTreeMap<&'static str, f64>,
    /// Whether both CPUs were on one physical core.
    pub close: bool,
}

/// A run's id and the contender's index; `None` for the limits.
type Key = (&'static str, Option<usize>);

/// The results of a measurement.
#[derive(Debug, Default)]
pub struct CompareData {
    samples: BTreeMap<Key, Vec<Option<RunSample>>>,
    /// Failed runs: contender, run, reason.
    pub failures: Vec<(String, &'static str, String)>,
    /// The version string of each contender's library.
    pub libraries: BTreeMap<String, String>,
    /// The provider that each contender reported for messages between hosts.
    pub carriers: BTreeMap<String, String>,
    /// The addresses of both ends of the last connection that was measured without MPI.
    pub addresses: Option<[String; 2]>,
    /// The one-way times of a cache line between runs, in µs.
    pub lines: Vec<f64>,
    /// The number of finished rounds.
    pub rounds: usize,
}

impl CompareData {
    /// A row's figures, one entry per round. If `close`, only rounds with both CPUs on one physical core count;
    /// otherwise only the other rounds. The entry of a round that does not count or has no figure is `None`.
    #[must_use]
    pub fn row(&self, row: &CompareRow, contender: Option<usize>, close: bool) -> Vec<Option<f64>> {
        let samples = self
            .samples
            .get(&(row.run, contender))
            .map_or(&[][..], Vec::as_slice);
        let value = |sample: &RunSample| sample.values.get(row.id).copied();
        let is_wanted = |sample: &&RunSample| sample.close == close;
        samples
            .iter()
            .map(|sample| sample.as_ref().filter(is_wanted).and_then(value))
            .collect()
    }

    fn push(&mut self, key: Key, sample: Option<RunSample>) {
        self.samples.entry(key).or_default().push(sample);
    }

    /// Drops the samples of the unfinished round; if it is the first round, keeps them.
    fn cut(&mut self) {
        if self.rounds == 0 {
            return;
        }
        for samples in self.samples.values_mut() {
            samples.truncate(self.rounds);
        }
    }

    fn has_given_up(&self, key: Key) -> bool {
        let samples = self.samples.get(&key).map_or(&[][..], Vec::as_slice);
        samples.len() >= MAX_FAILURES
            && samples.iter().rev().take(MAX_FAILURES).all(Option::is_none)
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

/// Writes the script for peers whose remote shell must be a single word.
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

/// Runs all rounds; `on_step` is called with the name of each step. After a signal, returns only the finished rounds;
/// if there is none, the samples of the unfinished first round.
pub fn measure(plan: &ComparePlan, mut on_step: impl FnMut(&str)) -> CompareData {
    let mut measured = CompareData::default();
    for round in 0..plan.rounds {
        for run in &plan.runs {
            RoundRun {
                plan,
                run,
                round,
                measured: &mut measured,
            }
            .measure(&mut on_step);
            if interrupt::seen() {
                measured.cut();
                return measured;
            }
        }
        measured.rounds += 1;
    }
    measured
}

/// How many times `on_step` will be called.
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
    if run.placement.is_rmpi_only() && contender.mpi.kind != Kind::Rmpi {
        return None;
    }
    contender
        .mpi
        .kind
        .setting(run.placement.case(), contender.level)
}

/// One run in one round.
struct RoundRun<'a> {
    plan: &'a ComparePlan,
    run: &'static ProgramRun,
    round: usize,
    measured: &'a mut CompareData,
}

impl RoundRun<'_> {
    fn measure(&mut self, on_step: &mut impl FnMut(&str)) {
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
            on_step(&format!(
                "round {}: {} with {}",
                self.round + 1,
                self.run.id,
                contender.label()
            ));
            // The limits are measured just before rmpi, or before the contender with index 0 if rmpi does not take
            // part.
            if index == self.plan.own.unwrap_or(0) {
                let limits = self.until_settled(&mut line, Self::limits);
                self.record((self.run.id, None), "the machine", limits);
            }
            let key = (self.run.id, Some(index));
            if self.measured.has_given_up(key) {
                self.measured.push(key, None);
                continue;
            }
            let sample = self.until_settled(&mut line, |group| group.contender_figures(index));
            self.record(key, &contender.label(), sample);
        }
    }

    fn record(&mut self, key: Key, contender: &str, outcome: Result<RunSample, Error>) {
        if interrupt::seen() {
            // The signal may have ended the run; this does not count as a failure of the contender.
            return;
        }
        let sample = match outcome {
            Ok(sample) => Some(sample),
            Err(error) => {
                self.measured
                    .failures
                    .push((contender.to_owned(), self.run.id, error.to_string()));
                None
            }
        };
        self.measured.push(key, sample);
    }

    /// Calls `measure` until the two CPUs were on one core both before and after the call, or on two cores both times.
    /// If the run's placement is not [`Placement::Pair`], calls `measure` once. An error if `measure` fails, or after
    /// [`TRIES`] calls in which the CPUs moved.
    fn until_settled(
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

    /// Measures the one-way time of a cache line (µs); `None` if the run's placement is not [`Placement::Pair`], or the
    /// time cannot be measured.
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
            placement if placement.is_between_hosts() => self.between_hosts(&names)?,
            _ => figures(&self.plan.program, &names, LIMIT_MS)?,
        };
        Ok(limits
            .into_iter()
            .filter_map(|(row, limit)| Some((row.id, limit.value(&figures)?)))
            .collect())
    }

    /// Measures TCP or UDP between the hosts, without MPI.
    fn between_hosts(&mut self, names: &[&str]) -> Result<Vec<Figure>, Error> {
        let budget = Duration::from_millis(LIMIT_MS.into());
        let limits = tcp::between(&self.hosts()?.pair(), &self.plan.program, names, budget)?;
        self.measured.addresses = Some(limits.addresses);
        Ok(limits.figures)
    }

    fn hosts(&self) -> Result<&BenchHosts, Error> {
        let hosts = self.plan.hosts.as_ref();
        hosts.ok_or_else(|| Error::Usage("no hosts are named (--host A,B)".to_owned()))
    }

    fn contender_figures(&mut self, index: usize) -> Result<BTreeMap<&'static str, f64>, Error> {
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
            // The limit is longer here, because some MPIs take half a minute to start all ranks.
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
        let is_default_network =
            matches!(self.run.placement, Placement::Hosts | Placement::AllHosts);
        if let Some(carrier) = report.carrier.as_ref().filter(|_| is_default_network) {
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

    /// The variables of rmpi that select its providers for this run.
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
        // Temporary files of a killed launcher are removed with the binaries. Runs between hosts keep the hosts' own
        // TMPDIR.
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

/// Measures the one-way time of a cache line between two CPUs (µs); `None` if this process may use only one CPU or the
/// measurement fails. `program` is this binary.
pub(crate) fn line_now(program: &Path) -> Option<f64> {
    machine::cpus().two()?;
    let figures = figures(program, &["line"], PROBE_MS).ok()?;
    Some(figures.first()?.median)
}

/// Measures limits in a separate process, whose affinity and crashes do not affect this one.
fn figures(program: &Path, names: &[&str], milliseconds: u32) -> Result<Vec<Figure>, Error> {
    let mut command = Command::new(program);
    command
        .arg(RUN_WORD)
        .arg(milliseconds.to_string())
        .args(names);
    let outcome = run::run(&mut command, Duration::from_secs(60))?;
    if let Some(failure) = outcome.failure() {
        return Err(Error::Limit(format!("limits: {failure}")));
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

/// The requested rows.
#[derive(Debug)]
pub struct RowSelection {
    /// The rows that can be measured.
    pub rows: Vec<&'static CompareRow>,
    /// The rows that are left out: they need hosts, and no hosts are named.
    pub left_out: Vec<&'static CompareRow>,
}

/// Selects rows by the names of rows and groups. Without any name, selects the group `hosts` if hosts are given,
/// otherwise all rows except those over DPDK. Rows that need hosts are left out if none are given. Bars that do not
/// apply to the given hosts are dropped.
///
/// # Errors
/// When a name is neither a row nor a group, or all requested rows need hosts and none are given.
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
    let is_requested = |row: &&CompareRow| match words.is_empty() {
        true => row.group == between::GROUP || !with_hosts && !OVER_DPDK.contains(&row.group),
        false => named(row),
    };
    let requested = ROWS.iter().filter(is_requested);
    let (left_out, rows): (Vec<_>, Vec<_>) =
        requested.partition(|row| needs_hosts(row) && !with_hosts);
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
        let by_default = ROWS.iter().filter(others).count();
        assert_eq!(ids(&[]).len() + between::ROWS.len(), by_default);
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
    fn the_error_for_an_unknown_row_names_the_known_ones() {
        let error = choose_rows(&["latncy".to_owned()], None)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("latncy") && error.contains("latency8"),
            "{error}"
        );
    }

    #[test]
    fn rounds_on_one_core_are_separate() {
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
    fn an_unfinished_round_does_not_count() {
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
    fn a_contender_that_fails_twice_in_a_row_is_not_run_again() {
        let mut measured = CompareData::default();
        let key = ("barrier", Some(3));
        let good = || {
            Some(RunSample {
                values: BTreeMap::new(),
                close: false,
            })
        };
        for (sample, has_given_up) in [(None, false), (good(), false), (None, false), (None, true)]
        {
            measured.push(key, sample);
            assert_eq!(measured.has_given_up(key), has_given_up);
        }
    }
}
