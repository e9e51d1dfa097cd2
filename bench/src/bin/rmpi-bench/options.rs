// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `rmpi-bench`: a subcommand for each benchmark. It has options that are passed on to the
//! benchmark, and options for this program: which MPIs are measured, and what is output.

use std::path::PathBuf;

use bench::peers::Tuning;
use bench::programs::{BenchProgram, Over, PROGRAMS};
use bench::{files, limits};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};

/// The parsed command line.
pub(crate) struct BenchRequest {
    /// Number of ranks.
    pub(crate) ranks: Option<usize>,
    /// Where rmpi is installed.
    pub(crate) prefix: Option<PathBuf>,
    /// What to do.
    pub(crate) what: BenchAction,
}

pub(crate) enum BenchAction {
    Limits(LimitsOptions),
    /// A program, the options for this program, the arguments for the benchmark, and the number of jobs.
    Benchmark(BenchProgram, Options, Vec<String>, usize),
}

#[derive(Args)]
pub(crate) struct LimitsOptions {
    /// Which limits; all without a name, with --host those between hosts
    pub(crate) names: Vec<String>,
    /// Two hosts, for the limits between hosts
    #[arg(long, alias = "hosts", value_name = "A,B")]
    pub(crate) host: Option<String>,
    /// How they are reached, if not by ssh: as rmpiexec --launcher takes it
    #[arg(long, value_name = "LINE", requires = "host")]
    pub(crate) launcher: Option<String>,
    /// One JSON line per figure
    #[arg(long)]
    pub(crate) json: bool,
    /// Measuring time per figure
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3)]
    pub(crate) seconds: f64,
}

// The options of every benchmark.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// One JSON line instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the result too
    #[arg(long, value_name = "FILE.svg", value_parser = files::plot_name)]
    pub(crate) plot: Option<PathBuf>,
    /// How many rounds; their median counts (1; with --peer 3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: Option<u16>,
    /// Hosts for the ranks, as rmpiexec --host takes them: n1,n2
    #[arg(
        long,
        alias = "hosts",
        value_name = "HOST,...",
        conflicts_with = "peers"
    )]
    pub(crate) host: Option<String>,
    /// Another MPI in the same rounds, for instance mpich5=/opt/mpich (repeat for more)
    #[arg(long = "peer", value_name = "NAME=PREFIX")]
    pub(crate) peers: Vec<String>,
    /// Which settings of the peers
    #[arg(long, value_enum, default_value = "best")]
    pub(crate) settings: BenchSettings,
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum BenchSettings {
    /// As shipped
    Default,
    /// At their best
    #[default]
    Best,
}

impl BenchSettings {
    pub(crate) const fn level(self) -> Tuning {
        match self {
            Self::Default => Tuning::Default,
            Self::Best => Tuning::Best,
        }
    }
}

// The options that the C program gets. The program checks their values; obvious errors are reported here, before
// anything starts.
#[derive(Args, Default)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct Measuring {
    /// Message sizes in bytes (suffixes K and M are powers of 1024)
    #[arg(long, value_name = "A,B,...", value_parser = sizes)]
    pub(crate) sizes: Option<String>,
    /// Sizes MIN, 2 MIN, 4 MIN, ... up to MAX
    #[arg(short = 'm', value_name = "MIN:MAX")]
    pub(crate) range: Option<String>,
    /// Iterations per size; without it as many as fit into --seconds
    #[arg(short = 'i', value_name = "N")]
    pub(crate) iterations: Option<u32>,
    /// Warm-up iterations before them
    #[arg(short = 'x', value_name = "N")]
    pub(crate) warm_up: Option<u32>,
    /// Measuring time per size
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Messages in flight
    #[arg(long, value_name = "N")]
    pub(crate) window: Option<u32>,
    /// Distinct buffers the messages rotate over; 1: always the same
    #[arg(long, value_name = "N")]
    pub(crate) buffers: Option<u32>,
    /// Where the buffers come from: aligned_alloc or MPI_Alloc_mem
    #[arg(long, value_name = "heap|mpi", value_parser = ["heap", "mpi"])]
    pub(crate) alloc: Option<String>,
    /// Check every payload byte in an extra pass that is not timed
    #[arg(long)]
    pub(crate) validate: bool,
}

impl Measuring {
    /// The arguments for the C program.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([name.to_owned(), value]);
            }
        };
        add("--sizes", self.sizes.clone());
        add("-m", self.range.clone());
        add("-i", self.iterations.map(|n| n.to_string()));
        add("-x", self.warm_up.map(|n| n.to_string()));
        add("--seconds", self.seconds.map(|n| n.to_string()));
        add("--window", self.window.map(|n| n.to_string()));
        add("--buffers", self.buffers.map(|n| n.to_string()));
        add("--alloc", self.alloc.clone());
        if self.validate {
            words.push("--validate".to_owned());
        }
        words
    }
}

/// Checks a list of sizes as the C programs read it.
fn sizes(text: &str) -> Result<String, String> {
    let size = |word: &str| {
        let digits = word.trim_end_matches(['K', 'k', 'M', 'm']);
        digits.parse::<u32>().is_ok() && word.len() - digits.len() <= 1
    };
    match text.split(',').find(|word| !size(word)) {
        None => Ok(text.to_owned()),
        Some(wrong) => Err(format!(
            "\"{wrong}\" is no size; sizes are written like 8,64K,4M"
        )),
    }
}

fn ranks(text: &str) -> Result<usize, String> {
    let value = text.parse::<usize>().ok();
    let good = value.filter(|ranks| *ranks > 0);
    good.ok_or_else(|| "a number of ranks from 1 on is expected".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok();
    let good = value.filter(|seconds| *seconds > 0.0 && *seconds <= 3600.0);
    good.ok_or_else(|| "a number of seconds above 0, at most 3600, is expected".to_owned())
}

/// The default number of jobs for each number of ranks.
const JOBS: u16 = 10;

/// Reads the command line.
pub(crate) fn read(words: impl IntoIterator<Item = String>) -> Result<BenchRequest, clap::Error> {
    // `-np` is common, but clap would read it as two one-letter options, so it is replaced by `-n`.
    let words = words.into_iter().map(|word| match word.as_str() {
        "-np" | "--np" => "-n".to_owned(),
        _ => word,
    });
    let matches = command().try_get_matches_from(words)?;
    let what = match matches.subcommand() {
        Some(("limits", options)) => BenchAction::Limits(LimitsOptions::from_arg_matches(options)?),
        Some((name, options)) => benchmark(name, options)?,
        None => {
            return Err(command().error(
                ErrorKind::MissingSubcommand,
                "which benchmark? (--help lists them)",
            ));
        }
    };
    let inner = matches.subcommand().map_or(&matches, |(_, inner)| inner);
    Ok(BenchRequest {
        ranks: inner.get_one::<usize>("ranks").copied(),
        prefix: inner.get_one::<PathBuf>("prefix").cloned(),
        what,
    })
}

fn benchmark(name: &str, matches: &ArgMatches) -> Result<BenchAction, clap::Error> {
    let program = PROGRAMS.into_iter().find(|program| program.name == name);
    let program = program.ok_or_else(|| command().error(ErrorKind::InvalidSubcommand, name))?;
    let mut words = match program.over {
        Over::Sizes => Measuring::from_arg_matches(matches)?.words(),
        Over::Jobs | Over::Names => Vec::new(),
    };
    let given = program
        .flags
        .iter()
        .filter(|(flag, _)| matches.get_flag(flag));
    words.extend(given.map(|(flag, _)| format!("--{flag}")));
    let jobs = match program.over {
        Over::Jobs => matches.get_one::<u16>("jobs").copied().unwrap_or(JOBS),
        Over::Sizes | Over::Names => 1,
    };
    let options = Options::from_arg_matches(matches)?;
    Ok(BenchAction::Benchmark(
        program,
        options,
        words,
        usize::from(jobs),
    ))
}

/// The definition of the command line, from the table of programs.
pub(crate) fn command() -> Command {
    let limits = Command::new("limits")
        .about("The machine without MPI: cache line, copies, wake-ups")
        .after_help(format!(
            "Limits: {}; between hosts {}",
            limits::names().collect::<Vec<_>>().join(", "),
            limits::tcp::names().collect::<Vec<_>>().join(", ")
        ));
    Command::new("rmpi-bench")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Measures this MPI and this machine")
        .subcommand_required(true)
        .subcommand_value_name("BENCHMARK")
        .subcommand_help_heading("Benchmarks")
        .disable_help_subcommand(true)
        .after_help(
            "`rmpi-bench BENCHMARK --help` lists a benchmark's options.\n\nExamples:\n  rmpi-bench latency\n  \
             rmpi-bench bandwidth --sizes 64K,1M,4M --json\n  rmpi-bench barrier -n 64\n  \
             rmpi-bench latency --host n1,n2\n  \
             rmpi-bench latency --peer mpich5=target/peers/mpich5 --plot latency.svg\n  \
             rmpi-bench limits line split --json\n  \
             rmpi-bench limits tcp --host n1,n2",
        )
        .arg(
            Arg::new("ranks")
                .short('n')
                .long("ranks")
                .value_name("N")
                .value_parser(ranks)
                .global(true)
                .help("Number of ranks (also behind the benchmark's name)"),
        )
        .arg(
            Arg::new("prefix")
                .long("prefix")
                .value_name("DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .global(true)
                .help("Where rmpi is installed; without it the folder above this program's"),
        )
        .subcommands(PROGRAMS.iter().map(subcommand))
        .subcommand(LimitsOptions::augment_args(limits))
}

fn subcommand(program: &BenchProgram) -> Command {
    let mut command = Options::augment_args(Command::new(program.name).about(program.purpose));
    for (flag, help) in program.flags {
        command = command.arg(
            Arg::new(*flag)
                .long(*flag)
                .action(ArgAction::SetTrue)
                .help(*help),
        );
    }
    match program.over {
        Over::Sizes => Measuring::augment_args(command),
        Over::Jobs => command.arg(
            Arg::new("jobs")
                .short('i')
                .value_name("N")
                .value_parser(clap::value_parser!(u16).range(1..))
                .help(format!("Jobs of each number of ranks (default {JOBS})")),
        ),
        Over::Names => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<BenchRequest, clap::Error> {
        read(line.split_whitespace().map(str::to_owned))
    }

    fn words(line: &str) -> Vec<String> {
        match parse(line) {
            Ok(BenchRequest {
                what: BenchAction::Benchmark(_, _, words, _),
                ..
            }) => words,
            Ok(_) => panic!("{line}: no benchmark"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_number_of_ranks_may_stand_before_or_behind_the_name() {
        for line in [
            "rmpi-bench -n 4 ring",
            "rmpi-bench ring -n 4",
            "rmpi-bench ring -np 4",
            "rmpi-bench ring --ranks=4",
        ] {
            assert_eq!(parse(line).unwrap().ranks, Some(4), "{line}");
        }
        assert_eq!(parse("rmpi-bench ring").unwrap().ranks, None);
        assert!(parse("rmpi-bench ring -n 0").is_err());
    }

    #[test]
    fn hosts_are_for_the_launcher_and_exclude_peers() {
        let line = "rmpi-bench latency --sizes 8 --host n1,n2";
        let BenchAction::Benchmark(_, options, words, _) = parse(line).unwrap().what else {
            panic!("{line}: no benchmark")
        };
        assert_eq!(options.host.as_deref(), Some("n1,n2"));
        assert_eq!(words, ["--sizes", "8"]);
        assert!(parse("rmpi-bench latency --host n1,n2 --peer mpich5=/opt").is_err());
    }

    #[test]
    fn limits_are_measured_here_or_between_two_hosts() {
        let line = "rmpi-bench limits tcp --host n1,n2";
        let BenchAction::Limits(options) = parse(line).unwrap().what else {
            panic!("{line}: no limits")
        };
        assert_eq!(
            (options.host.as_deref(), options.launcher.as_deref()),
            (Some("n1,n2"), None)
        );
        assert_eq!(options.names, ["tcp"]);
        assert!(parse("rmpi-bench limits --launcher rsh").is_err());
    }

    #[test]
    fn a_program_gets_its_own_options_and_no_others() {
        let line =
            "rmpi-bench bandwidth --json --sizes 8,64K -x 3 --one-at-a-time --validate --rounds 2";
        assert_eq!(
            words(line),
            [
                "--sizes",
                "8,64K",
                "-x",
                "3",
                "--validate",
                "--one-at-a-time"
            ]
        );
        assert!(words("rmpi-bench startup -i 3").is_empty());
        let error = parse("rmpi-bench memory --sizes 8")
            .map(|_| ())
            .unwrap_err();
        assert!(error.to_string().contains("--sizes"), "{error}");
    }

    #[test]
    fn the_error_for_a_misspelt_option_names_the_nearest() {
        let error = parse("rmpi-bench latency --size 8")
            .map(|_| ())
            .unwrap_err();
        assert!(error.to_string().contains("--sizes"), "{error}");
        let error = parse("rmpi-bench latency --plto x.svg")
            .map(|_| ())
            .unwrap_err();
        assert!(error.to_string().contains("--plot"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_reported_before_anything_starts() {
        let error = parse("rmpi-bench latency --sizes 8,many")
            .map(|_| ())
            .unwrap_err();
        assert!(error.to_string().contains("\"many\" is no size"), "{error}");
        for line in [
            "--seconds 0",
            "--seconds soon",
            "--alloc stack",
            "--rounds 0",
        ] {
            assert!(
                parse(&format!("rmpi-bench latency {line}")).is_err(),
                "{line}"
            );
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }
}
