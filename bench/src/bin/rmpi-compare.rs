// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-compare`: rmpi, other MPIs and the machine's limits in alternating rounds of one run.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::compare::bars::ROWS;
use bench::compare::report::{Comparison, conclude};
use bench::compare::rounds::{self, Plan};
use bench::compare::{self, Wish, fetch};
use bench::peers::Level;
use bench::{Error, limits, lock, machine, run};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

/// Compares rmpi with other MPIs and with what the machine allows.
#[derive(Debug, Parser)]
#[command(name = "rmpi-compare", version, after_help = after_help())]
struct Cli {
    /// Where rmpi is installed
    #[arg(long, value_name = "DIR", default_value = "target/rmpi")]
    rmpi: PathBuf,
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
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// The longest that one run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    limit: u64,
    /// Exit with 1 unless every row passes
    #[arg(long)]
    check: bool,
    /// Write the report to a file too
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write figures and ratios as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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
     rmpi-compare --peer mpich4=/usr --rows onecore --rounds 9 --markdown RESULTS.md --check"
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
        _ if cli.list => {
            list();
            Ok(ExitCode::SUCCESS)
        }
        Some(folder) => fetch_peers(folder),
        None => compare_all(&cli),
    };
    done.unwrap_or_else(|error| {
        eprintln!("rmpi-compare: {error}");
        ExitCode::from(2)
    })
}

fn list() {
    for row in ROWS {
        let bars: Vec<String> = row
            .bars
            .iter()
            .map(|bar| {
                bar.iter()
                    .map(|bar| bar.words(row.unit))
                    .collect::<Vec<_>>()
                    .join(" or ")
            })
            .collect();
        println!(
            "{:<18}{:<14}{:<42}{}",
            row.id,
            row.group,
            row.title,
            bars.join("; ")
        );
    }
}

fn fetch_peers(folder: &Path) -> Result<ExitCode, Error> {
    let peers = fetch::fetch(folder, |what| eprintln!("fetching {what}"))?;
    for peer in peers {
        println!("--peer {peer}");
    }
    Ok(ExitCode::SUCCESS)
}

fn compare_all(cli: &Cli) -> Result<ExitCode, Error> {
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
    let comparison = comparison?;
    let text = comparison.markdown(&plan.contenders);
    print!("{text}");
    if let Some(file) = &cli.markdown {
        write(
            file,
            &format!("<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->\n{text}"),
        )?;
    }
    if let Some(file) = &cli.json {
        let json = serde_json::to_string_pretty(&comparison);
        write(
            file,
            &json.map_err(|e| Error::Program(format!("cannot write JSON: {e}")))?,
        )?;
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
        rmpi: cli.rmpi.clone(),
        peers: cli.peers.clone(),
        levels,
        rows: cli.rows.clone(),
        rounds: cli.rounds.max(1),
        limit: Duration::from_secs(cli.limit.max(1)),
        work: work.to_owned(),
    }
}

fn measure(plan: &Plan) -> Result<Comparison, Error> {
    let _lock = lock::take(&lock::path(), || {
        eprintln!(
            "rmpi-compare: another measurement is running on this machine; waiting for its end"
        );
    })?;
    let machine = machine::describe();
    rounds::build(plan)?;
    let progress = progress(rounds::steps(plan));
    let measured = rounds::measure(plan, |step| {
        progress.set_message(step.to_owned());
        progress.inc(1);
    });
    progress.finish_and_clear();
    Ok(conclude(plan, &measured, machine))
}

/// A bar on a terminal, nothing elsewhere.
fn progress(steps: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(file, text)
        .map_err(|e| Error::Program(format!("cannot write {}: {e}", file.display())))
}
