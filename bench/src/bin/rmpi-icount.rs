// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-icount`: instructions of an 8-byte `MPI_Isend`, `MPI_Irecv` and `MPI_Wait`, held against their budget.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::Error;
use bench::icount::{self, Counts, ISEND_BUDGET, SUM_BUDGET};
use bench::peers::{Installation, Kind, Level};
use clap::Parser;

/// Counts the instructions of an 8-byte `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` with callgrind.
#[derive(Debug, Parser)]
#[command(name = "rmpi-icount", version)]
struct Cli {
    /// Where rmpi is installed
    #[arg(long, value_name = "DIR", default_value = "target/rmpi")]
    rmpi: PathBuf,
    /// Count another MPI instead, for instance mpich5=/opt/mpich
    #[arg(long, value_name = "NAME=PREFIX")]
    peer: Option<String>,
    /// With the peer's best settings instead of its defaults
    #[arg(long)]
    best: bool,
    /// Exit with 1 if a budget is exceeded
    #[arg(long)]
    check: bool,
    /// With --check: look at the budget of `MPI_Isend` (isend) or of all three calls (sum) alone
    #[arg(long, value_name = "isend|sum", requires = "check", value_parser = ["isend", "sum"])]
    only: Option<String>,
    /// One JSON line instead of the table
    #[arg(long)]
    json: bool,
    /// Time limit for the program under callgrind
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    limit: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match counts(&cli) {
        Ok(counts) => report(&cli, &counts),
        Err(error) => {
            eprintln!("rmpi-icount: {error}");
            ExitCode::from(2)
        }
    }
}

fn counts(cli: &Cli) -> Result<Counts, Error> {
    let mpi = match &cli.peer {
        Some(peer) => Installation::parse(peer)?,
        None => Installation::find("rmpi", Kind::Rmpi, &cli.rmpi)?,
    };
    let level = if cli.best {
        Level::Best
    } else {
        Level::Default
    };
    let work = std::env::temp_dir().join(format!("rmpi-icount.{}", std::process::id()));
    let made = std::fs::create_dir_all(&work);
    made.map_err(|e| Error::Program(format!("cannot make {}: {e}", work.display())))?;
    let counts = icount::count(&mpi, level, &work, Duration::from_secs(cli.limit));
    clean(&work);
    counts
}

fn clean(work: &Path) {
    if let Err(error) = std::fs::remove_dir_all(work) {
        eprintln!("rmpi-icount: cannot remove {}: {error}", work.display());
    }
}

fn report(cli: &Cli, counts: &Counts) -> ExitCode {
    let rows = [
        ("MPI_Isend", counts.isend.median, Some(ISEND_BUDGET)),
        ("MPI_Irecv", counts.irecv.median, None),
        ("MPI_Wait", counts.wait.median, None),
        ("all three", counts.sum(), Some(SUM_BUDGET)),
    ];
    let asked = |name: &str| match cli.only.as_deref() {
        Some("isend") => name == "MPI_Isend",
        Some(_) => name == "all three",
        None => true,
    };
    let within = rows
        .iter()
        .filter(|(name, ..)| asked(name))
        .all(|(_, count, budget)| budget.is_none_or(|budget| *count <= budget));
    if cli.json {
        println!(
            "{{\"isend\":{},\"irecv\":{},\"wait\":{},\"sum\":{},\"within\":{within}}}",
            counts.isend.median,
            counts.irecv.median,
            counts.wait.median,
            counts.sum()
        );
    } else {
        println!("{:<12}{:>14}{:>10}", "# 8 bytes", "instructions", "budget");
        for (name, count, budget) in rows {
            let budget = budget.map_or_else(|| "-".to_owned(), |budget| budget.to_string());
            println!("{name:<12}{count:>14}{budget:>10}");
        }
        println!(
            "# median of {} warm calls, callees included",
            counts.isend.count
        );
    }
    if cli.check && !within {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
