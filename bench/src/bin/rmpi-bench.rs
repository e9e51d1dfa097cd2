// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-bench`: runs the installed benchmark programs, and measures what the machine allows without MPI.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use bench::programs::{PROGRAMS, Program};
use bench::{Error, limits, lock};
use clap::{Parser, Subcommand};

/// Measures this MPI and this machine.
#[derive(Debug, Parser)]
#[command(name = "rmpi-bench", version, after_help = after_help())]
struct Cli {
    /// Number of ranks (also understood behind the benchmark's name)
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: Option<usize>,
    /// Where rmpi is installed; without it the folder above this program's
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The machine without MPI: cache line, copies, wake-ups
    #[command(after_help = known_limits())]
    Limits {
        /// Which limits; all without a name
        names: Vec<String>,
        /// One JSON line per figure
        #[arg(long)]
        json: bool,
        /// Measuring time per figure
        #[arg(long, value_name = "SECONDS", default_value_t = 0.3)]
        seconds: f64,
    },
    #[command(external_subcommand)]
    Benchmark(Vec<String>),
}

fn known_limits() -> String {
    format!("Limits: {}", limits::names().collect::<Vec<_>>().join(", "))
}

fn after_help() -> String {
    let mut text = String::from("Benchmarks:\n");
    for program in PROGRAMS {
        text.push_str(&format!("  {:<11}{}\n", program.name, program.purpose));
    }
    text.push_str("`rmpi-bench NAME --help` lists a benchmark's options.\n\n");
    text.push_str(
        "Examples:\n  rmpi-bench latency\n  rmpi-bench bandwidth --sizes 64K,1M,4M --json\n",
    );
    text.push_str("  rmpi-bench barrier -n 64\n  rmpi-bench limits line split --json\n");
    text
}

fn main() -> ExitCode {
    if limits::serve_if_asked() {
        return ExitCode::SUCCESS;
    }
    let cli = Cli::parse();
    let done = match &cli.what {
        What::Limits {
            names,
            json,
            seconds,
        } => print_limits(names, *json, *seconds),
        What::Benchmark(words) => run_program(&cli, words),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("rmpi-bench: {error}");
            ExitCode::from(2)
        }
    }
}

/// Takes `-n N` out of the options behind the benchmark's name, where people write it too.
fn take_ranks(options: &mut Vec<String>) -> Result<Option<usize>, Error> {
    let is_flag = |word: &String| ["-n", "-np", "--ranks"].contains(&word.as_str());
    let Some(at) = options.iter().position(is_flag) else {
        return Ok(None);
    };
    let flag = options.remove(at);
    let value = if at < options.len() {
        options.remove(at)
    } else {
        String::new()
    };
    let ranks = value.parse().ok().filter(|ranks| *ranks > 0);
    let wrong = || {
        Error::Usage(format!(
            "{flag} needs a number of ranks, \"{value}\" was given"
        ))
    };
    ranks.ok_or_else(wrong).map(Some)
}

/// Runs a program by the launcher; inside an MPI launch becomes the program itself.
fn run_program(cli: &Cli, words: &[String]) -> Result<ExitCode, Error> {
    let [name, options @ ..] = words else {
        return Err(Error::Usage(
            "which benchmark? (--help lists them)".to_owned(),
        ));
    };
    let program = find_program(name)?;
    let mut options = options.to_vec();
    let ranks = take_ranks(&mut options)?
        .or(cli.ranks)
        .unwrap_or(program.ranks);
    let prefix = prefix(cli.prefix.as_deref())?;
    let binary = existing(prefix.join("libexec/rmpi").join(program.name))?;
    if is_rank() {
        let error = Command::new(&binary).args(options).exec();
        return Err(Error::Program(format!(
            "cannot run {}: {error}",
            binary.display()
        )));
    }
    let launcher = existing(prefix.join("bin/rmpiexec"))?;
    let _lock = lock_machine()?;
    let status = Command::new(&launcher)
        .args(["--quiet", "-n", &ranks.to_string()])
        .arg(binary)
        .args(options)
        .status();
    let status =
        status.map_err(|e| Error::Program(format!("cannot run {}: {e}", launcher.display())))?;
    Ok(ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
    ))
}

fn find_program(name: &str) -> Result<Program, Error> {
    PROGRAMS
        .into_iter()
        .find(|program| program.name == name)
        .ok_or_else(|| {
            let known: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
            Error::Usage(format!(
                "no benchmark is called \"{name}\"; there are {} and limits",
                known.join(", ")
            ))
        })
}

fn prefix(given: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(prefix) = given {
        return Ok(prefix.to_owned());
    }
    let me = std::env::current_exe().and_then(std::fs::canonicalize);
    let me =
        me.map_err(|e| Error::Usage(format!("cannot find the installation: {e} (use --prefix)")))?;
    me.parent()
        .and_then(Path::parent)
        .map(Path::to_owned)
        .ok_or_else(|| {
            Error::Usage(format!(
                "{} is not in an installation (use --prefix)",
                me.display()
            ))
        })
}

fn existing(path: PathBuf) -> Result<PathBuf, Error> {
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::Usage(format!(
        "{} does not exist; `cargo xtask install --prefix DIR` makes it, --prefix DIR says where",
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

fn print_limits(names: &[String], json: bool, seconds: f64) -> Result<ExitCode, Error> {
    let budget = Duration::try_from_secs_f64(seconds).map_err(|_| {
        Error::Usage(format!(
            "--seconds needs a number of seconds, {seconds} was given"
        ))
    })?;
    let mut chosen: Vec<&str> = names.iter().map(String::as_str).collect();
    if chosen.is_empty() {
        chosen = limits::names().collect();
    }
    let _lock = lock_machine()?;
    Ok(measure_limits(&chosen, budget, json))
}

fn measure_limits(names: &[&str], budget: Duration, json: bool) -> ExitCode {
    let program = std::env::current_exe().unwrap_or_default();
    let mut code = ExitCode::SUCCESS;
    if !json {
        println!(
            "{:<46}{:>10}{:>12}{:>12}  unit",
            "# What", "bytes", "median", "p99"
        );
    }
    for name in names {
        match limits::measure(&program, name, budget) {
            Ok(figures) if json => figures.iter().for_each(limits::print_json),
            Ok(figures) => figures.iter().for_each(print_figure),
            Err(error) => {
                eprintln!("rmpi-bench: {name}: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn print_figure(figure: &limits::Figure) {
    let unit = figure.unit;
    println!(
        "{:<46}{:>10}{:>12}{:>12}  {}",
        figure.title,
        figure.size,
        unit.show(figure.median),
        unit.show(figure.p99),
        unit.label()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_number_of_ranks_may_stand_behind_the_name() {
        let mut options = words("--json -n 4 --sizes 8");
        assert_eq!(take_ranks(&mut options).unwrap(), Some(4));
        assert_eq!(options, words("--json --sizes 8"));
        assert_eq!(take_ranks(&mut options).unwrap(), None);
    }

    #[test]
    fn a_wrong_number_of_ranks_is_told() {
        for line in ["-n", "-n 0", "-np many"] {
            let error = take_ranks(&mut words(line)).unwrap_err().to_string();
            assert!(error.contains("needs a number of ranks"), "{error}");
        }
    }

    #[test]
    fn an_unknown_benchmark_is_told_with_the_known_ones() {
        let error = find_program("latncy").unwrap_err().to_string();
        assert!(
            error.contains("latncy") && error.contains("latency, bandwidth"),
            "{error}"
        );
    }

    #[test]
    fn options_of_a_benchmark_are_left_to_it() {
        let cli = Cli::try_parse_from(["rmpi-bench", "-n", "3", "latency", "--help"]).unwrap();
        assert_eq!(cli.ranks, Some(3));
        assert!(matches!(cli.what, What::Benchmark(words) if words == ["latency", "--help"]));
    }
}
