// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-compare`: rmpi, other MPIs and the machine's limits in alternating rounds of one run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::compare::bars::{Bar, ROWS};
use bench::compare::picture::picture;
use bench::compare::report::{Comparison, conclude};
use bench::compare::rounds::{self, Plan};
use bench::compare::{self, Wish, fetch};
use bench::peers::Level;
use bench::progress::Progress;
use bench::{Error, files, interrupt, limits, lock, machine, programs, run};
use clap::{Parser, ValueEnum};

/// Compares rmpi with other MPIs and with what the machine allows.
#[derive(Debug, Parser)]
#[command(name = "rmpi-compare", version, after_help = after_help())]
struct Cli {
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
    settings: Settings,
    /// Rows or groups of rows, separated by commas; all without this
    #[arg(long, value_name = "ROW,...", value_delimiter = ',')]
    rows: Vec<String>,
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// The longest that one run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Exit with 1 unless every row passes and, with --against, nothing got worse
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
enum Settings {
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
     rmpi-compare --rmpi target/rmpi --against /opt/rmpi-before --rows latency8,rate8,crowd --rounds 15"
}

fn main() -> ExitCode {
    if limits::serve_if_asked() {
        return ExitCode::SUCCESS;
    }
    if let Some(error) = run::guard_if_asked() {
        eprintln!("{error}");
        return ExitCode::from(127);
    }
    let cli = Cli::parse();
    let done = match &cli.fetch {
        _ if cli.list => files::print(&list()).map(|_| ExitCode::SUCCESS),
        Some(folder) => fetch_peers(folder),
        None => compare_all(&cli),
    };
    done.unwrap_or_else(|error| {
        eprintln!("rmpi-compare: {error}");
        ExitCode::from(2)
    })
}

fn list() -> String {
    let mut text = String::new();
    for row in ROWS {
        let any = |bar: &&[Bar]| {
            let words: Vec<_> = bar.iter().map(|bar| bar.words(row.unit)).collect();
            words.join(" or ")
        };
        let bars: Vec<String> = row.bars.iter().map(any).collect();
        text.push_str(&format!(
            "{:<18}{:<14}{:<42}{}\n",
            row.id,
            row.group,
            row.title,
            bars.join("; ")
        ));
    }
    text
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

fn compare_all(cli: &Cli) -> Result<ExitCode, Error> {
    for (option, file) in named_files(cli) {
        files::try_writable(option, file)?;
    }
    let work = std::env::temp_dir().join(format!("rmpi-compare.{}", std::process::id()));
    let plan = compare::plan(&wish(cli, &work), |warning| {
        eprintln!("rmpi-compare: {warning}")
    })?;
    let obstacles = compare::obstacles(&plan);
    if !obstacles.is_empty() {
        return Err(Error::Usage(format!(
            "{}; choose other rows with --rows (--list lists them)",
            obstacles.join("; ")
        )));
    }
    run::adopt_orphans();
    let comparison = measure(&plan);
    // The binaries of this run are of no use to anybody else.
    if let Err(error) = std::fs::remove_dir_all(&work) {
        eprintln!("rmpi-compare: cannot remove {}: {error}", work.display());
    }
    match comparison {
        Err(_) if interrupt::seen() => {
            eprintln!("rmpi-compare: interrupted before anything was measured");
            Ok(ExitCode::from(interrupt::exit_code()))
        }
        Err(error) => Err(error),
        Ok(comparison) => show(cli, &plan, &comparison),
    }
}

/// The files that options name.
fn named_files(cli: &Cli) -> Vec<(&'static str, &Path)> {
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

/// Prints and writes what was measured, also where it is not whole.
fn show(cli: &Cli, plan: &Plan, comparison: &Comparison) -> Result<ExitCode, Error> {
    let text = comparison.markdown(&plan.contenders);
    let printed = files::print(&text);
    for (option, file) in named_files(cli) {
        let content = match option {
            "--markdown" => format!("<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->\n{text}"),
            "--json" => serde_json::to_string_pretty(comparison)
                .map_err(|e| Error::Program(format!("cannot write JSON: {e}")))?,
            _ => picture(comparison, plan.own),
        };
        files::write(option, file, &content)?;
    }
    printed?;
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

fn wish(cli: &Cli, work: &Path) -> Wish {
    let levels = match cli.settings {
        Settings::Both => vec![],
        Settings::Default => vec![Level::Default],
        Settings::Best => vec![Level::Best],
    };
    Wish {
        rmpi: cli.rmpi.clone().unwrap_or_else(usual_prefix),
        against: cli.against.clone(),
        peers: cli.peers.clone(),
        levels,
        rows: cli.rows.clone(),
        rounds: usize::from(cli.rounds),
        limit: Duration::from_secs(cli.limit),
        work: work.to_owned(),
    }
}

/// The installation that this program is in, else where `cargo xtask install` puts one.
fn usual_prefix() -> PathBuf {
    programs::installation()
        .filter(|prefix| prefix.join("bin/rmpiexec").is_file())
        .unwrap_or_else(|| PathBuf::from("target/rmpi"))
}

fn measure(plan: &Plan) -> Result<Comparison, Error> {
    let _lock = lock::take(&lock::path(), || {
        eprintln!(
            "rmpi-compare: another measurement is running on this machine; waiting for its end"
        );
    })?;
    // Not before the lock: who waits for it may be ended like any program.
    interrupt::watch()?;
    let machine = machine::describe();
    let progress = Progress::new(rounds::steps(plan));
    progress.tell("building");
    rounds::build(plan)?;
    let measured = rounds::measure(plan, |step| {
        progress.tell(step);
        progress.step();
    });
    drop(progress);
    Ok(conclude(plan, &measured, machine))
}
