// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-bench`: runs the installed benchmark programs, by this MPI and others, and measures what the machine allows
//! without MPI.

mod options;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use bench::curves::{
    self, ContenderFailure, Curve, CurveContender, CurveData, CurvePlan, MeasureEvent,
};
use bench::files::PrintStatus;
use bench::hosts::BenchHosts;
use bench::peers::{Installation, Kind, Tuning};
use bench::programs::{self, BenchProgram, Over, PROGRAMS, ReportRow};
use bench::progress::Progress;
use bench::{Error, files, interrupt, limits, lock, run, table};
use clap::error::{ContextKind, ErrorKind};
use options::{BenchAction, LimitsOptions, Options};

fn main() -> ExitCode {
    if limits::serve_if_requested() {
        return ExitCode::SUCCESS;
    }
    if let Some(error) = run::guard_if_requested() {
        eprintln!("{error}");
        return ExitCode::from(127);
    }
    let request = match options::read(std::env::args()) {
        Ok(request) => request,
        Err(error) => return report_refusal(&error),
    };
    let prefix = request.prefix.clone();
    let done = match request.what {
        BenchAction::Limits(options) => print_limits(&options),
        BenchAction::Benchmark(program, options, arguments, jobs) => run_program(
            prefix.as_deref(),
            request.ranks,
            &options,
            program,
            arguments,
            jobs,
        ),
    };
    match done {
        Ok(code) => code,
        Err(_) if interrupt::seen() => {
            eprintln!("rmpi-bench: interrupted before anything was measured");
            ExitCode::from(interrupt::exit_code())
        }
        Err(error) => {
            eprintln!("rmpi-bench: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints what is wrong with the command line and returns the exit code. If the command line names a benchmark that
/// does not exist, prints a message of this program instead of clap's.
fn report_refusal(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(given) = error.get(ContextKind::InvalidSubcommand)
    {
        let known: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        let nearest = error
            .get(ContextKind::SuggestedSubcommand)
            .map(|names| names.to_string());
        let nearest = nearest.map_or_else(String::new, |names| format!(" (did you mean {names}?)"));
        eprintln!(
            "rmpi-bench: no benchmark is called \"{given}\"; there are {} and limits{nearest}",
            known.join(", ")
        );
        return ExitCode::from(2);
    }
    // clap prints to standard output or standard error. If that stream is closed, nothing can be reported, so an error
    // is ignored.
    let _printed = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Measures a program: starts it with the launcher of each MPI. If this process is itself a rank that a launcher has
/// started, replaces it by the program.
fn run_program(
    prefix: Option<&Path>,
    ranks: Option<usize>,
    options: &Options,
    program: BenchProgram,
    arguments: Vec<String>,
    jobs: usize,
) -> Result<ExitCode, Error> {
    let prefix = prefix.map(Path::to_owned).or_else(programs::installation);
    let prefix = prefix.ok_or_else(|| {
        Error::Usage("this program is not in an installation (use --prefix)".to_owned())
    })?;
    let binary = existing(prefix.join("libexec/rmpi").join(program.name))?;
    if is_rank() {
        return Err(become_program(options, &binary, arguments));
    }
    if let Some(file) = &options.plot {
        files::try_writable("--plot", file)?;
    }
    let own = Installation::find("rmpi", Kind::Rmpi, &prefix)?;
    let peers: Result<Vec<_>, _> = options
        .peers
        .iter()
        .map(|peer| Installation::parse(peer))
        .collect();
    let peers = peers?;
    let rounds = if peers.is_empty() { 1 } else { 3 };
    let _lock = lock_machine()?;
    // Signals are handled only from here on: while this process waits for the lock, a signal ends it.
    interrupt::watch()?;
    run::adopt_orphans();
    let work = std::env::temp_dir().join(format!("rmpi-bench.{}", std::process::id()));
    let _folder = ScratchFolder::make(&work)?;
    let ranks = ranks.map_or_else(|| default_ranks(&program), |ranks| vec![ranks]);
    let most = ranks.iter().copied().max().unwrap_or(1);
    let contender = |mpi, tuning, binary| CurveContender::new(mpi, tuning, &program, most, binary);
    let mut contenders = vec![contender(own, Tuning::Default, binary)];
    for peer in peers {
        let binary = curves::build(&program, &peer, &work)?;
        contenders.push(contender(peer, options.settings.level(), binary));
    }
    let plan = CurvePlan {
        program,
        ranks,
        options: arguments,
        repeats: jobs,
        hosts: options.host.clone(),
        contenders,
        rounds: options.rounds.map_or(rounds, usize::from),
        guard: std::env::current_exe()
            .map_err(|e| Error::Usage(format!("cannot find this program: {e}")))?,
        work: work.clone(),
    };
    measure(&plan, options)
}

fn default_ranks(program: &BenchProgram) -> Vec<usize> {
    match program.over {
        Over::Jobs => vec![2, 64],
        Over::Sizes | Over::Names => vec![program.ranks],
    }
}

/// Replaces this process, which is a rank, by the program. Returns only if that fails, with the error.
fn become_program(options: &Options, binary: &Path, mut arguments: Vec<String>) -> Error {
    let outside = [
        options.plot.is_some(),
        !options.peers.is_empty(),
        options.rounds.is_some(),
        options.host.is_some(),
    ];
    if outside.contains(&true) {
        return Error::Usage(
            "--plot, --peer, --rounds and --host are for rmpi-bench outside of rmpiexec: it starts the ranks itself".to_owned(),
        );
    }
    if options.json {
        arguments.push("--json".to_owned());
    }
    let error = Command::new(binary).args(arguments).exec();
    Error::Program(format!("cannot run {}: {error}", binary.display()))
}

/// A folder that is removed when this is dropped.
struct ScratchFolder<'a>(&'a Path);

impl<'a> ScratchFolder<'a> {
    fn make(path: &'a Path) -> Result<Self, Error> {
        std::fs::create_dir_all(path).map_err(|e| {
            Error::Usage(format!(
                "cannot make {}: {e} (TMPDIR names another place)",
                path.display()
            ))
        })?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder<'_> {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(self.0) {
            eprintln!("rmpi-bench: cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Runs the measurement. The rows of a single MPI in a single round are printed as they arrive; those of several MPIs
/// or rounds are printed as one table at the end.
fn measure(plan: &CurvePlan, options: &Options) -> Result<ExitCode, Error> {
    let alone = plan.contenders.len() == 1 && plan.rounds == 1;
    let row_by_row = alone && !options.json;
    let runs = plan.rounds * plan.contenders.len();
    let progress = Progress::new(runs);
    let measured = curves::measure(plan, &mut |event| match event {
        MeasureEvent::Begins(round, contender) => {
            let suffix = if alone {
                String::new()
            } else {
                format!(" by {}, round {}", contender.label, round + 1)
            };
            progress.show(&format!("{}{suffix}", plan.program.name));
        }
        MeasureEvent::Head(report) => {
            progress.expect(runs * report.steps.max(1));
            if row_by_row {
                progress.above(|| print(&table::head(&plan.program, report)));
            }
        }
        MeasureEvent::Row(_, row) => {
            progress.step();
            if row_by_row {
                progress.above(|| print(&format!("{}\n", table::row(&plan.program, row))));
            }
            progress.show(&progress_text(plan, row));
        }
        MeasureEvent::OtherLine(line) => progress.above(|| eprintln!("{line}")),
    });
    drop(progress);
    conclude(plan, options, alone, &measured)
}

fn progress_text(plan: &CurvePlan, row: &ReportRow) -> String {
    match plan.program.over {
        Over::Sizes => format!("{}: {} bytes done", plan.program.name, row.size),
        Over::Jobs => format!("{}: {} ranks done", plan.program.name, row.size),
        Over::Names => plan.program.name.to_owned(),
    }
}

/// Prints the remaining output, writes the plot, and returns the exit code.
fn conclude(
    plan: &CurvePlan,
    options: &Options,
    alone: bool,
    measured: &CurveData,
) -> Result<ExitCode, Error> {
    let interrupted = interrupt::seen();
    // After a signal in the first round, the rows measured so far are shown; after a signal in a later round, only
    // finished rounds.
    let part: Vec<Curve> = measured
        .part
        .iter()
        .filter(|_| measured.rounds == 0)
        .cloned()
        .collect();
    let shown: &[Curve] = if alone && measured.curves.is_empty() {
        &part
    } else {
        &measured.curves
    };
    match (options.json, alone) {
        (true, true) => print_report(shown, !interrupted)?,
        (true, false) => print(&format!(
            "{}\n",
            table::json_line(&plan.program, measured, !interrupted)
        )),
        (false, true) => {}
        (false, false) => print(&table::side_by_side(&plan.program, measured)),
    }
    if let Some(file) = options.plot.as_ref().filter(|_| !shown.is_empty()) {
        files::write(
            "--plot",
            file,
            &table::plot(&plan.program, shown, !interrupted),
        )?;
    }
    if interrupted && interrupt::is_reader_gone() {
        return Ok(ExitCode::from(interrupt::exit_code()));
    }
    if interrupted {
        report_interruption(plan, alone, measured);
        return Ok(ExitCode::from(interrupt::exit_code()));
    }
    Ok(failures(measured))
}

fn print_report(curves: &[Curve], complete: bool) -> Result<(), Error> {
    let Some(report) = curves.first().and_then(|curve| curve.reports.first()) else {
        return Ok(());
    };
    let mut report = report.clone();
    report.complete = Some(complete);
    let line = serde_json::to_string(&report);
    let line = line.map_err(|e| Error::Program(format!("cannot write JSON: {e}")))?;
    print(&format!("{line}\n"));
    Ok(())
}

fn report_interruption(plan: &CurvePlan, alone: bool, measured: &CurveData) {
    let rows = measured
        .part
        .as_ref()
        .and_then(|curve| curve.reports.first());
    let (done, of) = rows.map_or((0, 0), |report| (report.rows.len(), report.steps));
    if alone && of > 0 {
        eprintln!("rmpi-bench: interrupted: not whole, {done} of {of} rows were measured");
    } else if alone {
        eprintln!("rmpi-bench: interrupted before the first row");
    } else {
        let rounds = (measured.rounds, plan.rounds);
        eprintln!(
            "rmpi-bench: interrupted: not whole, {} of {} rounds were finished",
            rounds.0, rounds.1
        );
    }
}

/// Reports the failures. A launcher's failure is reported only if there are curves to show, because the launcher's own
/// messages have been passed on already. Returns the exit code for the last failure: the launcher's exit code, or 1 for
/// any other reason. Returns 0 if there was no failure.
fn failures(measured: &CurveData) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (name, why) in &measured.failures {
        match why {
            ContenderFailure::Code(number) => {
                if !measured.curves.is_empty() {
                    eprintln!("rmpi-bench: {name} failed with exit code {number} and is left out");
                }
                code = ExitCode::from(*number);
            }
            ContenderFailure::Other(error) => {
                eprintln!("rmpi-bench: {name}: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Prints `text`; ends the measurement if the output is closed or cannot be written.
fn print(text: &str) {
    match files::print(text) {
        Ok(PrintStatus::Written) => {}
        Ok(PrintStatus::ReaderGone) => interrupt::reader_gone(),
        Err(error) => {
            if !interrupt::seen() {
                eprintln!("rmpi-bench: {error}");
            }
            interrupt::reader_gone();
        }
    }
}

fn existing(path: PathBuf) -> Result<PathBuf, Error> {
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::Usage(format!(
        "{} does not exist; `cargo xtask install --prefix DIR` installs it, and --prefix DIR names the installation",
        path.display()
    )))
}

/// Whether a launcher started this process as a rank.
fn is_rank() -> bool {
    ["RMPI_RANK", "PMI_RANK", "PMIX_RANK"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}

fn lock_machine() -> Result<lock::Lock, Error> {
    lock::take(&lock::path(), || {
        eprintln!(
            "rmpi-bench: another measurement is running on this machine; waiting for its end"
        );
    })
}

fn print_limits(options: &LimitsOptions) -> Result<ExitCode, Error> {
    let seconds = options.seconds;
    let budget = Duration::try_from_secs_f64(seconds).map_err(|_| {
        Error::Usage(format!(
            "--seconds needs a number of seconds, {seconds} was given"
        ))
    })?;
    let mut chosen: Vec<&str> = options.names.iter().map(String::as_str).collect();
    let hosts = options.host.as_deref();
    let hosts = hosts.map(|names| BenchHosts::parse(names, options.launcher.as_deref()));
    let hosts = hosts.transpose()?;
    if chosen.is_empty() {
        chosen = match hosts {
            Some(_) => limits::tcp::names().collect(),
            None => limits::default_names().collect(),
        };
    }
    let _lock = lock_machine()?;
    // Signals are handled only from here on: while this process waits for the lock, a signal ends it.
    interrupt::watch()?;
    let program = std::env::current_exe().unwrap_or_default();
    Ok(measure_limits(&chosen, options.json, |name| match &hosts {
        Some(hosts) => limits::tcp::between(hosts, &program, &[name], budget).map(|it| it.figures),
        None => limits::measure(&program, name, budget),
    }))
}

fn measure_limits(
    names: &[&str],
    json: bool,
    measure: impl Fn(&str) -> Result<Vec<limits::Figure>, Error>,
) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    if !json {
        print(&format!(
            "{:<46}{:>10}{:>12}{:>12}  unit\n",
            "# What", "bytes", "median", "p99"
        ));
    }
    let progress = Progress::new(names.len());
    for (done, name) in names.iter().enumerate() {
        progress.show(name);
        let figures = measure(name);
        if interrupt::seen() {
            drop(progress);
            eprintln!(
                "rmpi-bench: interrupted: not whole, {done} of {} limits were measured",
                names.len()
            );
            return ExitCode::from(interrupt::exit_code());
        }
        progress.step();
        match figures {
            Ok(figures) => {
                progress.above(|| figures.iter().for_each(|figure| print_figure(figure, json)))
            }
            Err(error) => {
                progress.above(|| eprintln!("rmpi-bench: {name}: {error}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn print_figure(figure: &limits::Figure, json: bool) {
    if json {
        print(&limits::json_line(figure));
        return;
    }
    let unit = figure.unit;
    print(&format!(
        "{:<46}{:>10}{:>12}{:>12}  {}\n",
        figure.title,
        figure.size,
        unit.show(figure.median),
        unit.show(figure.p99),
        unit.label()
    ));
}
