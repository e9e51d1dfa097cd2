// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-compare`: compares rmpi with other MPIs and with the machine's limits, in alternating rounds of one run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::compare::bars::Bar;
use bench::compare::picture::picture;
use bench::compare::report::{Comparison, conclude};
use bench::compare::rounds::{self, ComparePlan};
use bench::compare::rows::ROWS;
use bench::compare::{self, CompareRequest, fetch};
use bench::grid::cells::Extent;
use bench::grid::store::GridStore;
use bench::grid::{self, GridRequest};
use bench::hosts::BenchHosts;
use bench::peers::Tuning;
use bench::progress::Progress;
use bench::{Error, files, interrupt, limits, lock, machine, programs, run};
use clap::{Parser, ValueEnum};
use serde::Serialize;

/// Compares rmpi with other MPIs and with what the machine allows.
#[derive(Debug, Parser)]
#[command(name = "rmpi-compare", version, after_help = after_help())]
struct CompareOptions {
    /// Where rmpi is installed; without it the folder above this program's, else target/rmpi
    #[arg(long, value_name = "DIR")]
    rmpi: Option<PathBuf>,
    /// Another build of rmpi to hold this one against: did anything get better or worse?
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Another MPI, for instance mpich5=/opt/mpich (repeat for more)
    #[arg(long = "peer", value_name = "NAME=PREFIX")]
    peers: Vec<String>,
    /// Which settings of the peers
    #[arg(long, value_enum, default_value = "both")]
    settings: CompareSettings,
    /// Hosts, as rmpiexec takes them (a:2,me@b:2): measures between the first two, beside TCP without MPI, and collectives of all ranks.
    /// Without --rows only the group hosts
    #[arg(long, alias = "hosts", value_name = "A:N,B:N", conflicts_with = "grid")]
    host: Option<String>,
    /// How hosts are reached, if not by ssh: as rmpiexec --launcher takes it
    #[arg(long, value_name = "LINE", requires = "host")]
    launcher: Option<String>,
    /// Rows or groups of rows, separated by commas; all without this. Of the grid also operations and sizes, as in coll8+bcast+64K
    #[arg(long, value_name = "ROW,...", value_delimiter = ',')]
    rows: Vec<String>,
    /// How many rounds; without this 7, of the grid 3, and up to 7 of rows that are close
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Every operation in every size (whole, some hours) or in some (short, at most 40 minutes with three peers)
    #[arg(long, value_name = "EXTENT", value_enum)]
    grid: Option<Extent>,
    /// Keep what was measured in this file, and go on from what is there already
    #[arg(long, value_name = "FILE", requires = "grid")]
    resume: Option<PathBuf>,
    /// Only sizes up to this one
    #[arg(long, value_name = "BYTES", requires = "grid", value_parser = size)]
    up_to: Option<usize>,
    /// Measuring time of each cell of the grid
    #[arg(long, value_name = "SECONDS", requires = "grid", default_value_t = grid::plan::SECONDS, value_parser = seconds)]
    seconds: f64,
    /// The longest that one run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Exit with 1 unless every row passes and, with --against, nothing got worse; of the grid: unless nobody else leads
    #[arg(long)]
    check: bool,
    /// Write the report to a file too
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write figures and ratios as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw everybody's figures in relation to rmpi's
    #[arg(long, value_name = "FILE.svg", value_parser = files::plot_name)]
    plot: Option<PathBuf>,
    /// Get MPICH 5, Open MPI 5 and Intel MPI from the Python package index into this folder, and print their --peer options
    #[arg(long, value_name = "DIR")]
    fetch: Option<PathBuf>,
    /// List the rows and what must hold
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompareSettings {
    /// As shipped and at their best
    Both,
    /// As shipped
    Default,
    /// At their best
    Best,
}

fn after_help() -> &'static str {
    "Known peers: mpich5, openmpi5, intel, mpich4, openmpi4; their best settings are known too.\n\n\
     Examples:\n  rmpi-compare --fetch target/peers\n  \
     rmpi-compare --peer mpich5=target/peers/mpich5 --rows latency8,rate8\n  \
     rmpi-compare --peer mpich4=/usr --rows onecore --rounds 9 --markdown RESULTS.md --check\n  \
     rmpi-compare --host n1:2,n2:2 --peer mpich5=target/peers/mpich5 --markdown hosts.md\n  \
     rmpi-compare --rmpi target/rmpi --against /opt/rmpi-before --rows latency8,rate8,crowd --rounds 15\n  \
     rmpi-compare --peer mpich5=target/peers/mpich5 --grid short --resume grid.json --markdown grid.md --plot grid.svg"
}

/// Reads a size such as 8, 64K or 4M.
fn size(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text
            .strip_suffix(['M', 'm'])
            .map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let number = digits
        .parse::<u32>()
        .map_err(|_| "a number of bytes such as 8, 64K or 4M is needed".to_owned())?;
    Ok(number as usize * factor)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 60.0 => Ok(seconds),
        _ => Err("seconds above 0 and up to 60 are needed".to_owned()),
    }
}

fn main() -> ExitCode {
    if limits::serve_if_requested() {
        return ExitCode::SUCCESS;
    }
    if let Some(error) = run::guard_if_requested() {
        eprintln!("{error}");
        return ExitCode::from(127);
    }
    let cli = CompareOptions::parse();
    let done = match &cli.fetch {
        _ if cli.list => list(&cli).and_then(|rows| files::print(&rows).map(|_| ExitCode::SUCCESS)),
        Some(folder) => fetch_peers(folder),
        None => compare_all(&cli),
    };
    done.unwrap_or_else(|error| {
        eprintln!("rmpi-compare: {error}");
        ExitCode::from(2)
    })
}

fn list(cli: &CompareOptions) -> Result<String, Error> {
    if let Some(extent) = cli.grid {
        return Ok(grid::list(&grid::plan::starts(
            extent, &cli.rows, cli.up_to,
        )?));
    }
    let mut text = String::new();
    for row in ROWS {
        let any = |bar: &&[Bar]| {
            let words: Vec<_> = bar.iter().map(|bar| bar.words(row.unit)).collect();
            words.join(" or ")
        };
        let bars: Vec<String> = row.bars.iter().map(any).collect();
        text.push_str(&format!(
            "{:<20}{:<14}{:<42}{}\n",
            row.id,
            row.group,
            row.title,
            bars.join("; ")
        ));
    }
    Ok(text)
}

fn fetch_peers(folder: &Path) -> Result<ExitCode, Error> {
    let peers = fetch::fetch(folder, |what| eprintln!("fetching {what}"))?;
    let lines: String = peers
        .iter()
        .map(|peer| format!("--peer {peer}\n"))
        .collect();
    files::print(&lines)?;
    Ok(ExitCode::SUCCESS)
}

fn compare_all(cli: &CompareOptions) -> Result<ExitCode, Error> {
    for (option, file) in named_files(cli) {
        files::try_writable(option, file)?;
    }
    let hosts = cli.host.as_deref();
    let hosts = hosts.map(|names| BenchHosts::parse(names, cli.launcher.as_deref()));
    let hosts = hosts.transpose()?;
    let work = work_folder(hosts.is_some())?;
    if let Some(extent) = cli.grid {
        return measure_grid(cli, extent, &work);
    }
    let request = CompareRequest {
        hosts,
        ..request(cli, &work)
    };
    let plan = compare::plan(&request, |warning| eprintln!("rmpi-compare: {warning}"))?;
    let obstacles = compare::obstacles(&plan);
    if !obstacles.is_empty() {
        return Err(Error::Usage(format!(
            "{}; choose other rows with --rows (--list lists them)",
            obstacles.join("; ")
        )));
    }
    run::adopt_orphans();
    let comparison = measure(&plan);
    remove_binaries(&work);
    match comparison {
        Err(_) if interrupt::seen() => {
            eprintln!("rmpi-compare: interrupted before anything was measured");
            Ok(ExitCode::from(interrupt::exit_code()))
        }
        Err(error) => Err(error),
        Ok(comparison) => show(cli, &plan, &comparison),
    }
}

/// The folder for the binaries of this run. With hosts, the folder must be readable on all of them, so it is not in the
/// folder for temporary files, which may differ from host to host.
fn work_folder(for_hosts: bool) -> Result<PathBuf, Error> {
    let folder = match for_hosts {
        true => std::env::current_dir()
            .map_err(|e| Error::Usage(format!("cannot use this folder: {e}")))?,
        false => std::env::temp_dir(),
    };
    Ok(folder.join(format!("rmpi-compare.{}", std::process::id())))
}

/// Removes the binaries of this run.
fn remove_binaries(work: &Path) {
    if let Err(error) = std::fs::remove_dir_all(work) {
        eprintln!("rmpi-compare: cannot remove {}: {error}", work.display());
    }
}

/// The files that options name.
fn named_files(cli: &CompareOptions) -> Vec<(&'static str, &Path)> {
    let named = [
        ("--markdown", &cli.markdown),
        ("--json", &cli.json),
        ("--plot", &cli.plot),
    ];
    named
        .into_iter()
        .filter_map(|(option, file)| Some((option, file.as_deref()?)))
        .collect()
}

/// Prints and writes the results, also if the measurement was interrupted, and returns the exit code.
fn show(
    cli: &CompareOptions,
    plan: &ComparePlan,
    comparison: &Comparison,
) -> Result<ExitCode, Error> {
    let text = comparison.markdown(&plan.contenders);
    output(cli, &text, comparison, || picture(comparison, plan.own))?;
    if interrupt::seen() && !comparison.complete {
        eprintln!(
            "rmpi-compare: interrupted: not whole, {} of {} rounds were finished",
            comparison.rounds, comparison.planned
        );
        return Ok(ExitCode::from(interrupt::exit_code()));
    }
    Ok(if cli.check && !comparison.passed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Prints a report, and writes it to the files that options name.
fn output(
    cli: &CompareOptions,
    text: &str,
    figures: &impl Serialize,
    picture: impl Fn() -> String,
) -> Result<(), Error> {
    let printed = files::print(text);
    for (option, file) in named_files(cli) {
        let content = match option {
            "--markdown" => format!("<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->\n{text}"),
            "--json" => serde_json::to_string_pretty(figures)
                .map_err(|e| Error::Program(format!("cannot write JSON: {e}")))?,
            _ => picture(),
        };
        files::write(option, file, &content)?;
    }
    printed.map(|_| ())
}

fn request(cli: &CompareOptions, work: &Path) -> CompareRequest {
    let levels = match cli.settings {
        CompareSettings::Both => vec![],
        CompareSettings::Default => vec![Tuning::Default],
        CompareSettings::Best => vec![Tuning::Best],
    };
    CompareRequest {
        rmpi: cli.rmpi.clone().unwrap_or_else(default_prefix),
        against: cli.against.clone(),
        peers: cli.peers.clone(),
        levels,
        rows: cli.rows.clone(),
        hosts: None,
        rounds: usize::from(cli.rounds.unwrap_or(7)),
        limit: Duration::from_secs(cli.limit),
        work: work.to_owned(),
    }
}

/// The installation that this program belongs to, otherwise the default folder of `cargo xtask install`.
fn default_prefix() -> PathBuf {
    programs::installation()
        .filter(|prefix| prefix.join("bin/rmpiexec").is_file())
        .unwrap_or_else(|| PathBuf::from("target/rmpi"))
}

fn take_lock() -> Result<lock::Lock, Error> {
    lock::take(&lock::path(), || {
        eprintln!(
            "rmpi-compare: another measurement is running on this machine; waiting for its end"
        );
    })
}

fn measure(plan: &ComparePlan) -> Result<Comparison, Error> {
    let _lock = take_lock()?;
    // Signals are handled only from here on: while this process waits for the lock, a signal ends it.
    interrupt::watch()?;
    let machine = machine::describe();
    let progress = Progress::new(rounds::steps(plan));
    progress.show("building");
    rounds::build(plan)?;
    let measured = rounds::measure(plan, |step| {
        progress.show(step);
        progress.step();
    });
    drop(progress);
    Ok(conclude(plan, &measured, machine))
}

fn measure_grid(cli: &CompareOptions, extent: Extent, work: &Path) -> Result<ExitCode, Error> {
    let (request, grid_request) = (
        request(cli, work),
        GridRequest {
            extent,
            seconds: cli.seconds,
            up_to: cli.up_to,
            rounds: cli.rounds.map(usize::from),
        },
    );
    let plan = grid::prepare(&request, &grid_request)?;
    let mut store = GridStore::open(
        cli.resume.as_deref(),
        &grid::header(&request, &grid_request, &plan),
    )?;
    run::adopt_orphans();
    let machine = machine::describe();
    let measured = grid_rounds(&plan, &mut store);
    remove_binaries(work);
    if interrupt::seen() && store.records().is_empty() {
        eprintln!("rmpi-compare: interrupted before anything was measured");
        return Ok(ExitCode::from(interrupt::exit_code()));
    }
    measured?;
    let report = grid::report::conclude(&plan, &store, machine);
    output(cli, &report.markdown(), &report, || {
        grid::picture::picture(&report)
    })?;
    if interrupt::seen() {
        let how = if cli.resume.is_some() {
            "the same command goes on from here"
        } else {
            "with --resume FILE it could go on from here"
        };
        eprintln!("rmpi-compare: interrupted: not whole; {how}");
        return Ok(ExitCode::from(interrupt::exit_code()));
    }
    Ok(if cli.check && !report.passed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn grid_rounds(plan: &grid::plan::GridPlan, store: &mut GridStore) -> Result<(), Error> {
    let _lock = take_lock()?;
    interrupt::watch()?;
    let mut progress = GridProgress(Progress::new(0));
    progress.0.show("building");
    grid::rounds::build(plan)?;
    progress
        .0
        .above(|| eprintln!("rmpi-compare: {}", plan.duration_in_words()));
    grid::rounds::measure(plan, store, &mut progress)
}

/// The progress bar as a [`grid::rounds::Listener`].
struct GridProgress(Progress);

impl grid::rounds::Listener for GridProgress {
    fn expect(&mut self, starts: usize) {
        self.0.expect(starts);
    }

    fn next(&mut self, what: &str) {
        self.0.show(what);
        self.0.step();
    }
}
