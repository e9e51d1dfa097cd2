// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of `cargo xtask`: a table, from which help texts are made and in which names are looked up.

/// A command of `cargo xtask`.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// What follows the name on the command line.
    pub(crate) usage: &'static str,
    /// One line for the overview.
    pub(crate) summary: &'static str,
    /// The paragraphs that `--help` adds.
    pub(crate) details: &'static str,
}

/// Every command, in the order in which a newcomer needs them.
pub(crate) const STAGES: &[Stage] = &[
    Stage {
        name: "demo",
        usage: "",
        summary: "set up, build, install into target/rmpi and run a 64-rank program",
        details: "\
Starts from a fresh clone: installs the system packages that are missing, builds and installs
into target/rmpi, compiles ci/demo/hello.c with rmpicc, runs it with `rmpiexec -n 64` and prints
the latency and the bandwidth table of this machine.",
    },
    Stage {
        name: "test",
        usage: "[STAGE...] [-- FILTER...]",
        summary: "set up and run every test, or only the stages named",
        details: "\
Stages, in order of cost:
  tidy     formatting, clippy, house rules, generated files, documentation
  unit     unit, integration and documentation tests of every crate
  model    every interleaving of the shared-memory ring, by loom
  abi      symbols, header, wrappers and struct sizes of the installed library
  ranks    the C programs of ci/ranks under rmpiexec
  debuggers  gdb with the installed launcher and its ranks
  docs     the commands of README and of the pages in docs/
  icount   instructions of MPI_Isend, MPI_Irecv and QMP_start against their budgets
  faults   limits, filters and full disks; ranks and launchers that die at random moments
  softroce Soft-RoCE between two devices of an emulated machine, and between two machines
  hosts    hosts made of namespaces on this machine, and jobs over several of them
  suites   programs that other people wrote, and binaries that other MPIs built
Only when it is named:
  deaths   a thousand deaths, and a gibibyte of output from each rank
  deaths-over-hosts  a thousand faults of jobs over four hosts
  soak     random traffic: an hour on a simulated network, ten minutes over Soft-RoCE with loss and reordering; jobs of 10,000 hosts

A failed stage does not stop the ones after it. The last line counts: `N passed, N failed`.

Options:
  --mpi PREFIX   for the stage `ranks` alone: run the programs on the MPI installed there
                 (its bin/mpicc and bin/mpiexec), to hold the tests themselves against another MPI
  --late SEED    for the stage `ranks` alone: the ranks of every program sleep around their MPI calls,
                 each differently, as on a busy machine; another seed is another order of events
  --hosts N      for the stages `ranks` and `suites`: distribute the ranks of every job over N hosts made of namespaces
  --kernel 6.12  for the stage `softroce`: the newer kernel (100 MiB more to fetch), not 6.1
  -- FILTER...   for the stage `ranks` alone: only the programs whose name contains one of these;
                 for the stage `hosts` alone: only these checks, by their functions in ci/hosts;
                 for the stage `suites` alone: only these parts of it (exchange, launchers, openmpi, debugged, mpich, mpi4py,
                 rsmpi, fftw, p4est, valgrind)",
    },
    Stage {
        name: "install",
        usage: "[--prefix DIR]",
        summary: "build for use and install (default prefix: target/rmpi)",
        details: "\
Builds the library, the launcher and the compiler wrappers in release mode and copies them into
DIR/bin, DIR/lib, DIR/include. The installed tree can be moved as a whole.",
    },
    Stage {
        name: "setup",
        usage: "[STAGE...]",
        summary: "install the system packages that are missing (for all stages, or the ones named)",
        details: "\
Uses apt-get if the user is root or sudo needs no password; otherwise it prints the command to
type. Does nothing if everything is installed. `demo` and `test` call it themselves.",
    },
    Stage {
        name: "codegen",
        usage: "[--check]",
        summary: "generate entry points, header, version script and coverage from mpi.api",
        details: "\
Writes the files under runtime/abi/gen. With --check it writes nothing and fails when one of them
differs from the table.",
    },
    Stage {
        name: "tidy",
        usage: "",
        summary: "check the house rules that no other tool checks",
        details: "\
Licence lines, files that may hold unsafe code or import atomics, lengths of files and functions, nesting,
order of the layers, pairs of memory orders, heads of crates, leftovers. `cargo xtask test tidy` adds
rustfmt, clippy, `codegen --check` and rustdoc.",
    },
    Stage {
        name: "softroce",
        usage: "[OPTION...] -- COMMAND...",
        summary: "run a command in a virtual machine that has RDMA devices (Soft-RoCE)",
        details: "\
Boots Debian's kernel in QEMU, emulated in software, with this machine's files as its root: the
same paths, the same folder, HOME and PATH. Needs apt on x86-64, for the archive of Debian 12: what
is missing (about 90 MiB) is fetched into target/vm, nothing is installed, root is not needed.
The command's output is shown as it arrives, its input is empty, its exit code is returned. 124: the
time was over; 125: there was no machine, or it died. `sh -c '...'` makes one command of several.

The command finds two rxe devices at the ends of a veth pair, so that packets cross a network device, and
these variables:
  RXE_A, RXE_B              the devices (with --two RXE_B is empty: the other guest has its own)
  RXE_A_ADDR, RXE_B_ADDR    their IPv4 addresses (with --two RXE_B_ADDR is the other guest's)
  RXE_A_DEV, RXE_B_DEV      the network devices below them
  RXE_GID                   the index of the IPv4 GID, RoCE v2, the same on both
  VM_ROLE, VM_SHARE         one, a or b; the folder that --share named, else one that is removed with the guest
Two guests are the hosts a and b: `ssh b` on a, and `ssh a` on b, need no password.
What it writes goes to memory and is lost, except below the folder that is shared.

Options:
  --kernel 6.1|6.12   6.1 (default) varies less in speed, 6.12 behaves as newer kernels do
  --two               two guests on one wire, started when they reach each other. After -- stands
                      a command for guest a, and guest b is there until it has ended; or a second one
                      for guest b. Each is a line of shell in quotes
  --mtu BYTES         Ethernet MTU, default 1500 (RoCE packets of 1024); 4200 gives 4096
  --cards             two network cards (82574L) on one wire, behind an IOMMU, at 0000:00:10.0 and 11.0, for
                      DPDK; 256 huge pages need --memory 2048
  --netem WORDS       tc netem on every device that sends, for example \"loss 1%\"
  --share DIR         a folder that the guest may write to, at the same path
  --cpus N            processors, default 2 (with --two 1 each)
  --memory MIB        memory, default 1024
  --timeout SECONDS   for the whole run, default 300
  --bench             no command: rmpi-bench beside the bare verbs and perftest, in turn; with --two
                      between the guests, with ranks that are started by ssh. After -- how many pairs for the latency (7), rounds for the bandwidth (3), and bytes of a
                      message (8); seven rounds need --timeout 900
  --soak MINUTES      no command: random traffic while packets are lost and reordered; every
                      byte and every order is checked. A seed may follow after --, else it is a new one
  --log FILE          add the messages of the guest's kernel to FILE

Examples:
  cargo xtask softroce -- ibv_devinfo
  cargo xtask softroce -- sh -c 'ibv_rc_pingpong -d $RXE_A -g $RXE_GID & sleep 1;
      ibv_rc_pingpong -d $RXE_B -g $RXE_GID $RXE_A_ADDR'
  cargo xtask softroce --two -- 'ibv_rc_pingpong -d $RXE_A -g $RXE_GID' \\
      'sleep 2; ibv_rc_pingpong -d $RXE_A -g $RXE_GID $RXE_B_ADDR'
  cargo xtask softroce --two -- 'target/rmpi/bin/rmpiexec --host a,b -n 64 ./program'",
    },
    Stage {
        name: "hosts",
        usage: "[-n N] [--keep DIR] [--] [COMMAND...]",
        summary: "run a command among hosts made of namespaces on this machine, to try launching over several",
        details: "\
Makes a temporary world of N hosts (default 4, up to 64) called n1 to nN, runs the command in it, on n0, and returns its
code. Without a command: a shell. Each host has processes, network, name, /tmp, /dev/shm and /run of its own, and shares
all other files and the processors. Nothing outside is changed, and nothing is left, however it ends.

Works as root, and for others where the system allows user namespaces; where it does not, the sysctl that forbids it is
named. In each host there is an sshd, if openssh-server is installed: `ssh n3 hostname` works from every host. Elsewhere
`lab-rsh` stands in for ssh, on n0 alone.

Addresses are 10.77.0.3 and fd77::3 for n3 (254 for n0). n3 and n3.lab have both, n3-4 and n3-6 one of them.

The command finds these in PATH:
  at HOST COMMAND...    a command in a host, without network; the code is the command's
  lab COMMAND HOST...    cut, mend, drop, kill, power-off, freeze, thaw, left: see `lab help`
and these variables:
  LAB_HOSTS             the names, with blanks
  LAB_RSH               how to get to a host: rmpiexec --launcher \"$LAB_RSH\"

Options:
  -n N          how many hosts
  --keep DIR    a folder below /tmp or /dev/shm that all hosts shall see. The repository, the build folder and the folder
                that the command starts in are kept without this option

Examples:
  cargo xtask hosts -n 2 -- sh -c '$LAB_RSH n2 hostname; lab cut n2; at n1 ping -c 1 n2'
  cargo xtask hosts",
    },
    Stage {
        name: "bench",
        usage: "[NAME [OPTION...]]",
        summary: "install and run rmpi-bench (latency, bandwidth, bibw, rate, ...)",
        details: "\
Without a name: latency and bandwidth. `cargo xtask bench -- --help` shows rmpi-bench's own help.",
    },
    Stage {
        name: "compare",
        usage: "[--peer NAME=PREFIX...] [OPTION...]",
        summary: "measure this MPI against others, in turn, in one run",
        details: "\
Installs into target/rmpi first, then runs rmpi-compare. `--against PREFIX` compares this build
with another one of rmpi, `--plot FILE.svg` draws. `cargo xtask compare -- --help` shows every
option; `cargo xtask peers` fetches other MPIs to compare with.",
    },
    Stage {
        name: "peers",
        usage: "[DIR]",
        summary: "fetch other MPIs (MPICH, Open MPI, Intel MPI) from PyPI into DIR",
        details: "\
Makes one Python environment per MPI under DIR (default: target/peers) and prints the prefixes
that `cargo xtask compare --peer NAME=PREFIX` takes.",
    },
];

/// The stage called `name`, or a message that names the nearest one.
pub(crate) fn find(name: &str) -> Result<&'static Stage, String> {
    if let Some(stage) = STAGES.iter().find(|stage| stage.name == name) {
        return Ok(stage);
    }
    let names = STAGES.iter().map(|stage| stage.name);
    Err(unknown("stage", name, names, "cargo xtask --help"))
}

/// The message for an unknown name: `unknown stage `tets`: did you mean `test`?`. If no name is near, it lists all and
/// names the command `help`.
pub(crate) fn unknown<'a>(
    kind: &str,
    given: &str,
    known: impl Iterator<Item = &'a str> + Clone,
    help: &str,
) -> String {
    match nearest(given, known.clone()) {
        Some(name) => format!("unknown {kind} `{given}`: did you mean `{name}`?"),
        None => {
            let all: Vec<_> = known.collect();
            format!(
                "unknown {kind} `{given}`: there are {} ({help})",
                all.join(", ")
            )
        }
    }
}

/// The overview that `cargo xtask --help` prints.
pub(crate) fn overview() -> String {
    let mut text = String::from("Usage: cargo xtask STAGE [OPTION...]\n\nStages:\n");
    for stage in STAGES {
        text += &format!("  {:<9}{}\n", stage.name, stage.summary);
    }
    text += "\n`cargo xtask STAGE --help` describes one of them.\n\
             In a fresh clone: `cargo xtask demo`, then `cargo xtask test`.";
    text
}

impl Stage {
    /// The text that `cargo xtask NAME --help` prints, for the command with the name NAME.
    pub(crate) fn help(&self) -> String {
        let usage = format!("Usage: cargo xtask {} {}", self.name, self.usage);
        format!(
            "{}\n\n{}.\n\n{}",
            usage.trim_end(),
            capital(self.summary),
            self.details
        )
    }
}

/// The known name nearest to `given`; `None` if no name is near.
fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|name| (distance(given, name), name))
        .filter(|&(steps, name)| steps <= 1 + name.len() / 3)
        .min_by_key(|&(steps, _)| steps)
        .map(|(_, name)| name)
}

/// The edit distance: how many characters must be changed, added, removed or swapped with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for i in 0..=from.len() {
        for j in 0..=to.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
                change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1)
            };
            let swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
            if swapped {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[from.len()][to.len()]
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().to_string() + chars.as_str()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_is_found() {
        assert_eq!(find("demo").map(|stage| stage.name), Ok("demo"));
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest_one() {
        let message = find("tets").map(|stage| stage.name).unwrap_err();
        assert_eq!(message, "unknown stage `tets`: did you mean `test`?");
    }

    #[test]
    fn a_strange_name_gets_the_whole_list() {
        let message = find("frobnicate").map(|stage| stage.name).unwrap_err();
        assert!(
            message.contains("there are demo, test, install"),
            "{message}"
        );
    }

    #[test]
    fn distance_counts_changes_and_swaps() {
        assert_eq!(distance("tidy", "tidy"), 0);
        assert_eq!(distance("tdiy", "tidy"), 1);
        assert_eq!(distance("", "abi"), 3);
        assert_eq!(distance("benhc", "bench"), 1);
    }

    #[test]
    fn help_names_every_stage() {
        let text = overview();
        assert!(STAGES.iter().all(|stage| text.contains(stage.name)));
        assert!(
            STAGES
                .iter()
                .all(|stage| stage.help().contains(stage.usage))
        );
    }
}
