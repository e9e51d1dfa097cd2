// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one benchmark program with one or more MPIs, in rounds. Each round runs all MPIs in turn, and each round begins
//! with a different MPI.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::compare::start::{cleanly, start};
use crate::peers::{Case, Installation, Kind, Setting, Tuning};
use crate::programs::{BenchProgram, BenchReport, Over, ReportLine, ReportRow};
use crate::run::{self, OutputLine};
use crate::stats::Summary;
use crate::unit::FigureUnit;
use crate::{Error, interrupt, machine};

/// An MPI that is measured.
#[derive(Clone, Debug)]
pub struct CurveContender {
    /// Its name in tables and plots.
    pub label: String,
    /// Where it is installed.
    pub mpi: Installation,
    /// The launcher's options and environment.
    pub setting: Setting,
    /// The program, built with this MPI's compiler wrapper.
    pub binary: PathBuf,
}

impl CurveContender {
    /// An MPI with the settings of `level` for `ranks` ranks, or with its default settings if `level` has none.
    #[must_use]
    pub fn new(
        mpi: Installation,
        level: Tuning,
        program: &BenchProgram,
        ranks: usize,
        binary: PathBuf,
    ) -> Self {
        let case = match program.name {
            "onecore" => Case::OneCpu,
            _ if ranks > machine::cpus().count() => Case::Crowd,
            _ => Case::TwoRanks,
        };
        let best = mpi.kind.setting(case, level);
        let label = match (&best, mpi.kind) {
            (_, Kind::Rmpi) => mpi.name.clone(),
            (Some(_), _) => format!("{} ({})", mpi.name, level.label()),
            (None, _) => format!("{} ({})", mpi.name, Tuning::Default.label()),
        };
        let setting = best.or_else(|| mpi.kind.setting(case, Tuning::Default));
        Self {
            label,
            setting: setting.unwrap_or_default(),
            mpi,
            binary,
        }
    }
}

/// The plan of a measurement.
#[derive(Debug)]
pub struct CurvePlan {
    /// The program.
    pub program: BenchProgram,
    /// Numbers of ranks. A program with [`Over::Jobs`] runs with each of them, the other programs with the first one.
    pub ranks: Vec<usize>,
    /// The program's options.
    pub options: Vec<String>,
    /// In a program with [`Over::Jobs`]: the number of jobs for each number of ranks.
    pub repeats: usize,
    /// The value of rmpi's `--host`; `None`: all ranks run on this host.
    pub hosts: Option<String>,
    /// The MPIs that are measured.
    pub contenders: Vec<CurveContender>,
    /// The number of rounds.
    pub rounds: usize,
    /// This binary, which starts the launchers ([`run::guarded`]).
    pub guard: PathBuf,
    /// A folder for the launchers' temporary files.
    pub work: PathBuf,
}

/// An event of a running measurement.
#[derive(Debug)]
pub enum MeasureEvent<'a> {
    /// The run of a contender begins, in this round (counted from 0).
    Begins(usize, &'a CurveContender),
    /// The head of the contender's report.
    Head(&'a BenchReport),
    /// A row was measured.
    Row(&'a BenchReport, &'a ReportRow),
    /// Any other line of output of a program or a launcher.
    OtherLine(&'a str),
}

/// The figures of one contender: one report per finished round.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The contender's name.
    pub label: String,
    /// One report per round, in the order of the rounds.
    pub reports: Vec<BenchReport>,
}

/// The results of a measurement.
#[derive(Debug)]
pub struct CurveData {
    /// The curves in the order of the plan's contenders. A contender without a report has no curve.
    pub curves: Vec<Curve>,
    /// The contenders that failed, and why.
    pub failures: Vec<(String, ContenderFailure)>,
    /// The number of finished rounds.
    pub rounds: usize,
    /// If a signal ended a contender's run: the incomplete report of this run.
    pub part: Option<Curve>,
}

/// Why a contender has no figures.
#[derive(Debug)]
pub enum ContenderFailure {
    /// Its launcher exited with this code; the error messages have been passed on.
    Code(u8),
    /// There is another reason.
    Other(Error),
}

/// Runs all rounds, and calls `on_event` for each event. A contender that fails is left out of later rounds.
pub fn measure(plan: &CurvePlan, on_event: &mut impl FnMut(MeasureEvent<'_>)) -> CurveData {
    let mut curves: Vec<Curve> = plan
        .contenders
        .iter()
        .map(|contender| Curve {
            label: contender.label.clone(),
            reports: Vec::new(),
        })
        .collect();
    let mut failures: Vec<(usize, ContenderFailure)> = Vec::new();
    let mut part = None;
    let mut rounds = 0;
    'rounds: for round in 0..plan.rounds {
        for turn in 0..plan.contenders.len() {
            let index = (turn + round) % plan.contenders.len();
            if failures.iter().any(|(failed, _)| *failed == index) {
                continue;
            }
            let contender = &plan.contenders[index];
            on_event(MeasureEvent::Begins(round, contender));
            let mut report = None;
            let outcome = one_run(plan, contender, &mut report, on_event);
            if interrupt::seen() {
                let label = contender.label.clone();
                part = report.map(|report| Curve {
                    label,
                    reports: vec![report],
                });
                break 'rounds;
            }
            match (outcome, report) {
                (Ok(()), Some(report)) => curves[index].reports.push(report),
                (Ok(()), None) => failures.push((index, ContenderFailure::Other(no_output()))),
                (Err(failure), _) => failures.push((index, failure)),
            }
        }
        rounds += 1;
    }
    for curve in &mut curves {
        curve.reports.truncate(rounds);
    }
    curves.retain(|curve| !curve.reports.is_empty());
    let named =
        |(index, why): (usize, ContenderFailure)| (plan.contenders[index].label.clone(), why);
    CurveData {
        curves,
        failures: failures.into_iter().map(named).collect(),
        rounds,
        part,
    }
}

fn no_output() -> Error {
    Error::Program("the program printed nothing that can be read".to_owned())
}

fn one_run(
    plan: &CurvePlan,
    contender: &CurveContender,
    report: &mut Option<BenchReport>,
    on_event: &mut impl FnMut(MeasureEvent<'_>),
) -> Result<(), ContenderFailure> {
    if plan.program.over == Over::Jobs {
        return jobs(plan, contender, report, on_event).map_err(ContenderFailure::Other);
    }
    let mut command = launcher(plan, contender, plan.ranks.first().copied().unwrap_or(1));
    command.args(&plan.options).arg("--lines");
    let mut command = run::guarded(&plan.guard, &command);
    let mut code = None;
    let outcome = cleanly(|| {
        let status = run::run_lines(&mut command, |line| handle_line(line, report, on_event))?;
        code = Some(
            status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1),
        );
        match status.success() {
            true => Ok(()),
            false => Err(Error::Program(status.to_string())),
        }
    });
    match (outcome, code) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(code)) => Err(ContenderFailure::Code(code)),
        (Err(error), None) => Err(ContenderFailure::Other(error)),
    }
}

fn launcher(plan: &CurvePlan, contender: &CurveContender, ranks: usize) -> Command {
    let mut command = contender.mpi.launcher(contender.setting, ranks, None);
    if contender.mpi.kind == Kind::Rmpi {
        command.arg("--quiet");
        if let Some(hosts) = &plan.hosts {
            command.args(["--host", hosts]);
        }
    } else {
        // Temporary files of a killed launcher are removed with this folder.
        command.env("TMPDIR", &plan.work);
    }
    command.arg(&contender.binary);
    command
}

fn handle_line(
    output: OutputLine,
    report: &mut Option<BenchReport>,
    on_event: &mut impl FnMut(MeasureEvent<'_>),
) {
    let line = match output {
        OutputLine::Out(line) => line,
        // After an interruption, lines on standard error are dropped: they are the launchers' messages about it.
        OutputLine::Err(_) if interrupt::seen() => return,
        OutputLine::Err(line) => return on_event(MeasureEvent::OtherLine(&line)),
    };
    match (BenchReport::parse_line(&line), report.as_mut()) {
        (Some(ReportLine::Head(head)), _) => on_event(MeasureEvent::Head(report.insert(head))),
        (Some(ReportLine::Row(row)), Some(report)) => {
            on_event(MeasureEvent::Row(report, &row));
            report.rows.push(row);
        }
        _ if line.trim().is_empty() => {}
        _ => on_event(MeasureEvent::OtherLine(&line)),
    }
}

/// Times jobs of hello world from start to finish, with each number of ranks. With `--json`, one more job per number of
/// ranks reports the time in `MPI_Init`.
fn jobs(
    plan: &CurvePlan,
    contender: &CurveContender,
    report: &mut Option<BenchReport>,
    on_event: &mut impl FnMut(MeasureEvent<'_>),
) -> Result<(), Error> {
    let limit = Duration::from_secs(120);
    for ranks in plan.ranks.iter().copied() {
        let mut with_times = launcher(plan, contender, ranks);
        with_times.arg("--json");
        let job = start(&plan.guard, &with_times, limit)?;
        let job_report = BenchReport::parse(&job.stdout)?;
        if report.is_none() {
            on_event(MeasureEvent::Head(
                report.insert(head_of_jobs(plan, &job_report)),
            ));
        }
        let mut milliseconds = Vec::new();
        for _ in 0..plan.repeats {
            let outcome = start(&plan.guard, &launcher(plan, contender, ranks), limit)?;
            milliseconds.push(outcome.elapsed.as_secs_f64() * 1e3);
        }
        let (Some(summary), Some(report)) = (Summary::of(&milliseconds), report.as_mut()) else {
            return Err(no_output());
        };
        let row = row_of_jobs(ranks, &summary, job_report.median(0).unwrap_or(f64::NAN));
        on_event(MeasureEvent::Row(report, &row));
        report.rows.push(row);
    }
    Ok(())
}

fn head_of_jobs(plan: &CurvePlan, job_report: &BenchReport) -> BenchReport {
    BenchReport {
        title: "Start to end (ms)".to_owned(),
        unit: FigureUnit::Ms,
        ranks: plan.ranks.iter().copied().max().unwrap_or(0),
        machine: Some(machine::describe().machine),
        steps: plan.ranks.len(),
        extras: vec!["MPI_Init (ms)".to_owned()],
        rows: Vec::new(),
        ..job_report.clone()
    }
}

fn row_of_jobs(ranks: usize, summary: &Summary, init_ms: f64) -> ReportRow {
    ReportRow {
        size: ranks,
        name: None,
        median: summary.median,
        p99: Some(summary.p99),
        best: Some(summary.min),
        worst: Some(summary.max),
        iterations: Some(summary.count as u64),
        batches: Some(summary.count as u64),
        warm_up: Some(1),
        extras: vec![init_ms],
    }
}

/// One row of a curve over all its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurveRow {
    /// Bytes, ranks or the row number, as in [`ReportRow::size`].
    pub size: usize,
    /// Its name, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The summary of the medians of all rounds.
    #[serde(flatten)]
    pub summary: Summary,
}

impl Curve {
    /// The rows over all rounds, in the order in which they were measured.
    #[must_use]
    pub fn rows(&self) -> Vec<CurveRow> {
        let Some(first) = self.reports.first() else {
            return Vec::new();
        };
        let summary = |row: &ReportRow| {
            let values: Vec<f64> = self
                .reports
                .iter()
                .filter_map(|report| report.median(row.size))
                .collect();
            Summary::of(&values)
        };
        let row = |row: &ReportRow| {
            Some(CurveRow {
                size: row.size,
                name: row.name.clone(),
                summary: summary(row)?,
            })
        };
        first.rows.iter().filter_map(row).collect()
    }
}

/// Builds the program with an MPI's compiler wrapper, in a subfolder of `folder`, and returns its path.
///
/// # Errors
/// When the compiler fails, with its message.
pub fn build(program: &BenchProgram, mpi: &Installation, folder: &Path) -> Result<PathBuf, Error> {
    let folder = folder.join(&mpi.name);
    std::fs::create_dir_all(&folder)
        .map_err(|e| Error::io(format!("cannot make {}", folder.display()), e))?;
    let binary = folder.join(program.name);
    crate::programs::compile(mpi.mpicc(), &mpi.environment(), program.name, &binary)?;
    Ok(binary)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(medians: &[f64]) -> BenchReport {
        let rows: Vec<String> = medians
            .iter()
            .enumerate()
            .map(|(index, median)| format!("{{\"size\":{},\"median\":{median}}}", 8 << index))
            .collect();
        let text = format!(
            "{{\"benchmark\":\"latency\",\"unit\":\"us\",\"ranks\":2,\"library\":\"x\",\"rows\":[{}]}}",
            rows.join(",")
        );
        BenchReport::parse(&text).unwrap()
    }

    #[test]
    fn a_curve_is_the_median_of_its_rounds() {
        let curve = Curve {
            label: "rmpi".to_owned(),
            reports: vec![
                report(&[1.0, 4.0]),
                report(&[3.0, 5.0]),
                report(&[2.0, 9.0]),
            ],
        };
        let rows = curve.rows();
        let medians: Vec<(usize, f64)> = rows
            .iter()
            .map(|row| (row.size, row.summary.median))
            .collect();
        assert_eq!(medians, [(8, 2.0), (16, 5.0)]);
        assert_eq!((rows[1].summary.min, rows[1].summary.max), (4.0, 9.0));
    }

    #[test]
    fn rows_and_other_lines_are_distinguished() {
        let (mut report_so_far, mut others, mut rows) = (None, Vec::new(), 0);
        let lines = [
            OutputLine::Out("MPI startup(): a warning".to_owned()),
            OutputLine::Out(serde_json::to_string(&report(&[])).unwrap()),
            OutputLine::Out("{\"size\":8,\"median\":1}".to_owned()),
            OutputLine::Out(String::new()),
            OutputLine::Err("oops".to_owned()),
        ];
        for line in lines {
            handle_line(line, &mut report_so_far, &mut |event| match event {
                MeasureEvent::OtherLine(text) => others.push(text.to_owned()),
                MeasureEvent::Row(..) => rows += 1,
                _ => {}
            });
        }
        assert_eq!(others, ["MPI startup(): a warning", "oops"]);
        assert_eq!((rows, report_so_far.unwrap().rows.len()), (1, 1));
    }
}
