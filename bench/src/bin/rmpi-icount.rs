// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-icount`: counts the instructions of `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` for some message sizes, of other
//! calls for small messages, of polls that find nothing, and of the `QMP_start` of a halo, and compares them with their
//! budgets.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::Error;
use bench::icount::{
    self, COMM_BUDGETS, FORMS, IPROBE_BUDGET, ISEND_BUDGET, ISEND_WITHOUT_STACKS, MULTIPLE_BUDGETS,
    MULTIPLE_MORE, PERSISTENT, SIZE_BUDGETS, SIZES, START_BUDGET, SUM_BUDGET, TEST_BUDGET,
    size_aim,
};
use bench::peers::{Installation, Kind, Tuning};
use bench::stats::Summary;
use clap::{Parser, ValueEnum};

/// Counts instructions with callgrind: of `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` of some sizes, of polls in vain, and of `QMP_start`.
#[derive(Debug, Parser)]
#[command(name = "rmpi-icount", version, after_help = EXAMPLES)]
struct IcountOptions {
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
    /// Count, and look at the budget of, one thing alone
    #[arg(long)]
    only: Option<BudgetSubject>,
    /// One JSON line instead of the table
    #[arg(long)]
    json: bool,
    /// Time limit for the program under callgrind
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    limit: u64,
}

const EXAMPLES: &str = "\
Examples:
  rmpi-icount --check
  rmpi-icount --only sizes --json
  rmpi-icount --peer mpich5=target/peers/mpich5 --best";

/// What has a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BudgetSubject {
    /// `MPI_Isend`
    Isend,
    /// `MPI_Isend`, against what it took before tools could be stacked
    Stacks,
    /// `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` together
    Sum,
    /// The three of some sizes, with statuses
    Sizes,
    /// The same at `MPI_THREAD_MULTIPLE`
    Multiple,
    /// The three with 8 bytes and a status, in other communicators than `MPI_COMM_WORLD`
    Comms,
    /// `MPI_Sendrecv`, persistent requests, and tests that find a message
    Forms,
    /// `MPI_Test` and `MPI_Iprobe` that find nothing
    Polls,
    /// `QMP_start` of eight receives and eight sends, without the copying
    Start,
}

/// A line of the table.
struct BudgetRow {
    name: String,
    key: String,
    count: f64,
    budget: Option<(BudgetSubject, f64)>,
    /// The number of instructions that is aimed at, if the budget only keeps the count from growing.
    aim: Option<f64>,
}

fn main() -> ExitCode {
    let cli = IcountOptions::parse();
    match rows(&cli) {
        Ok(rows) => report(&cli, &rows),
        Err(error) => {
            eprintln!("rmpi-icount: {error}");
            ExitCode::from(2)
        }
    }
}

fn rows(cli: &IcountOptions) -> Result<Vec<BudgetRow>, Error> {
    let mpi = match &cli.peer {
        Some(peer) => Installation::parse(peer)?,
        None => Installation::find("rmpi", Kind::Rmpi, &cli.rmpi)?,
    };
    let work = std::env::temp_dir().join(format!("rmpi-icount.{}", std::process::id()));
    let made = std::fs::create_dir_all(&work);
    made.map_err(|e| Error::Program(format!("cannot make {}: {e}", work.display())))?;
    let rows = count(cli, &mpi, &work);
    clean(&work);
    rows
}

fn count(cli: &IcountOptions, mpi: &Installation, work: &Path) -> Result<Vec<BudgetRow>, Error> {
    let limit = Duration::from_secs(cli.limit);
    let mut rows = Vec::new();
    if matches!(
        cli.only,
        None | Some(BudgetSubject::Isend | BudgetSubject::Stacks | BudgetSubject::Sum)
    ) {
        rows.extend(repeated(|| messages(cli, mpi, work, limit))?);
    }
    for trio in trios() {
        if cli.only.is_none_or(|only| only == trio.what) {
            rows.extend(repeated(|| trio.count(cli, mpi, work, limit))?);
        }
    }
    if matches!(cli.only, None | Some(BudgetSubject::Forms)) {
        rows.extend(repeated(|| forms(cli, mpi, work, limit))?);
    }
    if matches!(cli.only, None | Some(BudgetSubject::Polls)) {
        rows.extend(repeated(|| polls(cli, mpi, work, limit))?);
    }
    // No other MPI has `QMP_start`.
    if matches!(cli.only, None | Some(BudgetSubject::Start)) && mpi.kind == Kind::Rmpi {
        rows.push(BudgetRow {
            name: "QMP_start".to_owned(),
            key: "start".to_owned(),
            count: icount::count_start(mpi, work, limit)?.median,
            budget: Some((BudgetSubject::Start, START_BUDGET)),
            aim: None,
        });
    }
    Ok(rows)
}

/// Counts again, at most [`ATTEMPTS`] times, while a count exceeds its budget: if other processes take the CPUs, most
/// messages of a run may be late, and a call that waits for one takes more instructions.
fn repeated<T: AsRef<[BudgetRow]>>(count: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let is_within = |row: &BudgetRow| row.budget.is_none_or(|(_, most)| row.count <= most);
    let mut rows = count()?;
    for _ in 1..ATTEMPTS {
        if rows.as_ref().iter().all(is_within) {
            break;
        }
        rows = count()?;
    }
    Ok(rows)
}

fn messages(
    cli: &IcountOptions,
    mpi: &Installation,
    work: &Path,
    limit: Duration,
) -> Result<[BudgetRow; 4], Error> {
    let counts = icount::count(mpi, level(cli), work, limit, &[])?;
    let isend = match cli.only {
        Some(BudgetSubject::Stacks) => Some((BudgetSubject::Stacks, ISEND_WITHOUT_STACKS)),
        _ => Some((BudgetSubject::Isend, ISEND_BUDGET)),
    };
    Ok([
        row("MPI_Isend", "isend", counts.isend.median, isend),
        row("MPI_Irecv", "irecv", counts.irecv.median, None),
        row("MPI_Wait", "wait", counts.wait.median, None),
        row(
            "all three",
            "sum",
            counts.sum(),
            Some((BudgetSubject::Sum, SUM_BUDGET)),
        ),
    ])
}

/// `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` with a status: the message size, further arguments of the program, and the
/// budget and the aim of the three together.
struct Trio {
    what: BudgetSubject,
    bytes: u32,
    arguments: &'static [&'static str],
    budget: f64,
    aim: Option<f64>,
}

/// All message sizes without threads and at `MPI_THREAD_MULTIPLE`, and 8 bytes in other communicators.
fn trios() -> impl Iterator<Item = Trio> {
    let one = SIZES
        .into_iter()
        .zip(SIZE_BUDGETS)
        .map(|(bytes, budget)| Trio {
            what: BudgetSubject::Sizes,
            bytes,
            arguments: &[],
            budget,
            aim: Some(size_aim(bytes)),
        });
    let multiple = SIZES
        .into_iter()
        .zip(MULTIPLE_BUDGETS)
        .map(|(bytes, budget)| Trio {
            what: BudgetSubject::Multiple,
            bytes,
            arguments: &["multiple"],
            budget,
            aim: Some(size_aim(bytes) + MULTIPLE_MORE),
        });
    let comms = COMM_BUDGETS.into_iter().map(|(arguments, budget)| Trio {
        what: BudgetSubject::Comms,
        bytes: 8,
        arguments,
        budget,
        aim: None,
    });
    one.chain(multiple).chain(comms)
}

impl Trio {
    fn count(
        &self,
        cli: &IcountOptions,
        mpi: &Installation,
        work: &Path,
        limit: Duration,
    ) -> Result<[BudgetRow; 4], Error> {
        let bytes = self.bytes.to_string();
        let arguments: Vec<&str> = [bytes.as_str()]
            .into_iter()
            .chain(self.arguments.iter().copied())
            .collect();
        let counts = icount::count(mpi, level(cli), work, limit, &arguments)?;
        Ok([
            self.row("MPI_Isend", counts.isend.median),
            self.row("MPI_Irecv", counts.irecv.median),
            self.row("MPI_Wait", counts.wait.median),
            BudgetRow {
                budget: Some((self.what, self.budget)),
                aim: self.aim,
                ..self.row("sum", counts.sum())
            },
        ])
    }

    fn row(&self, call: &str, count: f64) -> BudgetRow {
        let name = format!("{call}, {} B", self.bytes);
        let key = format!(
            "{}_{}",
            call.trim_start_matches("MPI_").to_lowercase(),
            self.bytes
        );
        let with_arguments =
            |first: &str, between| [&[first], self.arguments].concat().join(between);
        row(
            &with_arguments(&name, ", "),
            &with_arguments(&key, "_"),
            count,
            None,
        )
    }
}

fn row(name: &str, key: &str, count: f64, budget: Option<(BudgetSubject, f64)>) -> BudgetRow {
    BudgetRow {
        name: name.to_owned(),
        key: key.to_owned(),
        count,
        budget,
        aim: None,
    }
}

fn forms(
    cli: &IcountOptions,
    mpi: &Installation,
    work: &Path,
    limit: Duration,
) -> Result<Vec<BudgetRow>, Error> {
    let found = icount::count_forms(mpi, level(cli), work, limit)?;
    let alone = icount::count_persistent(mpi, level(cli), work, limit)?;
    let rows =
        |of: &[(&str, f64)], counts: &[Summary], (word, key): (&str, &str)| -> Vec<BudgetRow> {
            let row = |((name, most), count): (&(&str, f64), &Summary)| {
                let call = name.trim_start_matches("MPI_").to_lowercase();
                let (name, key) = (format!("{name}, {word}"), format!("{call}_{key}"));
                row(
                    &name,
                    &key,
                    count.median,
                    Some((BudgetSubject::Forms, *most)),
                )
            };
            of.iter().zip(counts).map(row).collect()
        };
    let mut all = rows(&FORMS, &found, ("found", "form"));
    all.extend(rows(&PERSISTENT, &alone, ("nothing else", "alone")));
    Ok(all)
}

fn polls(
    cli: &IcountOptions,
    mpi: &Installation,
    work: &Path,
    limit: Duration,
) -> Result<[BudgetRow; 2], Error> {
    let [test, iprobe] = icount::count_polls(mpi, level(cli), work, limit)?;
    let row = |name, key, count, most| row(name, key, count, Some((BudgetSubject::Polls, most)));
    Ok([
        row("MPI_Test", "test", test.median, TEST_BUDGET),
        row("MPI_Iprobe", "iprobe", iprobe.median, IPROBE_BUDGET),
    ])
}

fn level(cli: &IcountOptions) -> Tuning {
    match cli.best {
        true => Tuning::Best,
        false => Tuning::Default,
    }
}

fn clean(work: &Path) {
    if let Err(error) = std::fs::remove_dir_all(work) {
        eprintln!("rmpi-icount: cannot remove {}: {error}", work.display());
    }
}

fn report(cli: &IcountOptions, rows: &[BudgetRow]) -> ExitCode {
    let within_budget = |row: &BudgetRow| {
        let is_selected = |what| cli.only.is_none_or(|only| only == what);
        row.budget
            .is_none_or(|(what, most)| !is_selected(what) || row.count <= most)
    };
    let within = rows.iter().all(within_budget);
    if cli.json {
        let values = rows
            .iter()
            .map(|row| format!("\"{}\":{},", row.key, row.count));
        println!("{{{}\"within\":{within}}}", values.collect::<String>());
    } else {
        print_table(rows);
    }
    if cli.check && !within {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn print_table(rows: &[BudgetRow]) {
    println!(
        "{:<36}{:>14}{:>10}{:>10}",
        "# call", "instructions", "budget", "aim"
    );
    let shown = |most: Option<f64>| most.map_or_else(|| "-".to_owned(), |most| most.to_string());
    for row in rows {
        let (budget, aim) = (shown(row.budget.map(|(_, most)| most)), shown(row.aim));
        println!("{:<36}{:>14}{budget:>10}{aim:>10}", row.name, row.count);
    }
    println!(
        "# median of warm calls, callees included: messages of 8 bytes, or of so many with a status; MPI_Test and MPI_Iprobe in vain; a halo in 8 directions, but for copying it"
    );
}

const ATTEMPTS: u32 = 4;
