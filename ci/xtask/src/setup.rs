// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask setup`: the system packages that building and testing need.

use crate::process::{capture, seconds};
use crate::stage::unknown;
use crate::tree::{command, find_program};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// One thing that must be on the machine.
struct Need {
    what: &'static str,
    probe: Probe,
    /// Debian's packages that contain it.
    apt: &'static [&'static str],
    /// What needs it: stages of `cargo xtask test`, or other commands of `cargo xtask`.
    stages: &'static [&'static str],
}

/// How to find out whether it is installed.
enum Probe {
    Program(&'static str),
    /// A shell command, which succeeds if it is installed.
    Shell(&'static str),
}

const ALL: &str = "all";

const NEEDS: &[Need] = &[
    Need {
        what: "a C compiler",
        probe: Probe::Program("cc"),
        apt: &["gcc", "libc6-dev"],
        stages: &[ALL],
    },
    Need {
        what: "a C++ compiler",
        probe: Probe::Program("c++"),
        apt: &["g++"],
        stages: &["abi", "docs", "suites"],
    },
    Need {
        what: "a Fortran compiler",
        probe: Probe::Program("gfortran"),
        apt: &["gfortran"],
        stages: &["abi", "ranks", "docs", "suites"],
    },
    Need {
        what: "CMake",
        probe: Probe::Program("cmake"),
        apt: &["cmake"],
        stages: &["abi", "docs"],
    },
    Need {
        what: "make",
        probe: Probe::Program("make"),
        apt: &["make"],
        stages: &["abi", "docs", "suites"],
    },
    Need {
        what: "pkg-config",
        probe: Probe::Program("pkg-config"),
        apt: &["pkg-config"],
        stages: &["abi", "docs"],
    },
    Need {
        what: "Valgrind",
        probe: Probe::Program("valgrind"),
        apt: &["valgrind"],
        stages: &["icount", "suites"],
    },
    Need {
        what: "gdb",
        probe: Probe::Program("gdb"),
        apt: &["gdb"],
        stages: &["debuggers", "docs"],
    },
    Need {
        what: "gdbserver",
        probe: Probe::Program("gdbserver"),
        apt: &["gdbserver"],
        stages: &["debuggers"],
    },
    Need {
        what: "Python with venv and pip",
        probe: Probe::Shell("python3 -c 'import venv, ensurepip'"),
        apt: &["python3", "python3-venv", "python3-pip"],
        stages: &["suites", "peers", "compare"],
    },
    Need {
        what: "zlib with its header",
        probe: Probe::Shell("printf '#include <zlib.h>\\n' | cc -E -o /dev/null -"),
        apt: &["zlib1g-dev"],
        stages: &["suites"],
    },
    Need {
        what: "the headers of Python",
        probe: Probe::Shell(
            "test -f $(python3 -c 'import sysconfig; print(sysconfig.get_path(\"include\"))')/Python.h",
        ),
        apt: &["python3-dev"],
        stages: &["suites"],
    },
    Need {
        what: "tools for namespaces",
        probe: Probe::Shell("command -v unshare && command -v nsenter && command -v setpriv"),
        apt: &["util-linux"],
        stages: &["hosts", "deaths-over-hosts"],
    },
    Need {
        what: "ip",
        probe: Probe::Shell("PATH=$PATH:/usr/sbin:/sbin; command -v ip"),
        apt: &["iproute2"],
        stages: &["hosts", "deaths-over-hosts"],
    },
    Need {
        what: "nft",
        probe: Probe::Shell("PATH=$PATH:/usr/sbin:/sbin; command -v nft"),
        apt: &["nftables"],
        stages: &["hosts", "deaths-over-hosts"],
    },
    Need {
        // The server is optional for users other than root, and on a machine with systemd, which would start an
        // installed server and so open the machine itself to the network. In both cases the probe succeeds without the
        // server.
        what: "an SSH server",
        probe: Probe::Shell(
            "PATH=$PATH:/usr/sbin:/sbin
             test \"$(id -u)\" != 0 || test -d /run/systemd/system || command -v sshd",
        ),
        apt: &["openssh-server", "openssh-client"],
        stages: &["hosts", "deaths-over-hosts"],
    },
    Need {
        what: "DPDK with its static libraries",
        // DPDK is optional on systems without apt-get: there the probe succeeds without it.
        probe: Probe::Shell(
            "! command -v apt-get || { command -v pkg-config && test -e $(pkg-config --variable=libdir libdpdk)/librte_eal.a; }",
        ),
        apt: &["libdpdk-dev", "libsystemd-dev", "pkg-config"],
        stages: &["hosts"],
    },
    Need {
        what: "Wireshark's tshark",
        probe: Probe::Program("tshark"),
        apt: &["tshark"],
        stages: &["soak"],
    },
    Need {
        // Slurm is optional in the same cases as the SSH server, and on systems without apt-get.
        what: "Slurm",
        probe: Probe::Shell(
            "PATH=$PATH:/usr/sbin:/sbin
             test \"$(id -u)\" != 0 || test -d /run/systemd/system || ! command -v apt-get ||
                { command -v slurmctld && command -v slurmd && command -v srun && command -v munged && ls /usr/lib/*/pmix2/lib/libpmix.so; }",
        ),
        apt: &["slurmctld", "slurmd", "slurm-client", "munge", "libpmix-dev"],
        stages: &["hosts"],
    },
];

/// The stages that `setup` accepts.
const STAGES: &[&str] = &[
    "demo",
    "bench",
    "compare",
    "peers",
    "install",
    "tidy",
    "unit",
    "model",
    "abi",
    "ranks",
    "debuggers",
    "docs",
    "icount",
    "faults",
    "softroce",
    "hosts",
    "suites",
    "deaths",
    "deaths-over-hosts",
    "soak",
];

/// `cargo xtask setup [STAGE...]`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    for name in args {
        if !STAGES.contains(&name.as_str()) {
            return Err(unknown(
                "stage",
                name,
                STAGES.iter().copied(),
                "cargo xtask setup --help",
            ));
        }
    }
    let stages: Vec<&str> = if args.is_empty() {
        STAGES.to_vec()
    } else {
        args.iter().map(String::as_str).collect()
    };
    let start = Instant::now();
    if ensure(&stages)? {
        println!(
            "setup: everything is there now ({})",
            seconds(start.elapsed())
        );
    } else {
        println!("setup: nothing is missing");
    }
    Ok(())
}

/// Makes sure that everything these stages need is installed; returns `true` if it has installed something.
pub(crate) fn ensure(stages: &[&str]) -> Result<bool, String> {
    let rust = rust_components(stages)?;
    let missing: Vec<&Need> = needed(stages)
        .filter(|need| !need.probe.is_there())
        .collect();
    if missing.is_empty() {
        return Ok(rust);
    }
    let packages: Vec<&str> = missing
        .iter()
        .flat_map(|need| need.apt.iter().copied())
        .collect();
    let what = missing
        .iter()
        .map(|need| need.what)
        .collect::<Vec<_>>()
        .join(", ");
    let Some(apt) = SystemApt::find() else {
        return Err(format!("missing: {what}\n{}", line_to_type(&packages)));
    };
    println!("setup: installing {what} ({})", packages.join(" "));
    apt.install(&packages)?;
    let still: Vec<&str> = missing
        .iter()
        .filter(|need| !need.probe.is_there())
        .map(|need| need.what)
        .collect();
    if still.is_empty() {
        return Ok(true);
    }
    let (still, packages) = (still.join(", "), packages.join(" "));
    Err(format!(
        "still missing after installing {packages}: {still}"
    ))
}

fn needed<'a>(stages: &'a [&'a str]) -> impl Iterator<Item = &'static Need> + 'a {
    let is_needed = |need: &Need| need.stages.iter().any(|s| *s == ALL || stages.contains(s));
    NEEDS.iter().filter(move |need| is_needed(need))
}

impl Probe {
    fn is_there(&self) -> bool {
        match self {
            Self::Program(name) => find_program(name).is_some(),
            Self::Shell(line) => {
                let mut shell = command("sh");
                shell.args(["-c", line]);
                capture(shell, Duration::from_secs(30), |_| ()).is_ok_and(|done| done.success())
            }
        }
    }
}

/// Makes sure that rustfmt and clippy are installed; if they are missing, installs them with rustup and returns `true`.
fn rust_components(stages: &[&str]) -> Result<bool, String> {
    let components = [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];
    let missing: Vec<&str> = components
        .iter()
        .filter(|(program, _)| stages.contains(&"tidy") && find_program(program).is_none())
        .map(|&(_, component)| component)
        .collect();
    if missing.is_empty() {
        return Ok(false);
    }
    let line = format!("rustup component add {}", missing.join(" "));
    if find_program("rustup").is_none() {
        return Err(format!(
            "missing: {} (with rustup: {line})",
            missing.join(", ")
        ));
    }
    let mut rustup = command("rustup");
    rustup.args(["component", "add"]).args(&missing);
    let done = capture(rustup, APT_LIMIT, |_| ())?;
    if done.success() {
        Ok(true)
    } else {
        Err(format!("`{line}` failed:\n{}", done.stderr))
    }
}

/// apt-get, run as root or through sudo without a password.
struct SystemApt {
    sudo: bool,
}

impl SystemApt {
    fn find() -> Option<Self> {
        find_program("apt-get")?;
        if fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0) {
            return Some(Self { sudo: false });
        }
        find_program("sudo")?;
        let mut sudo = command("sudo");
        sudo.args(["-n", "true"]);
        let silent =
            capture(sudo, Duration::from_secs(10), |_| ()).is_ok_and(|done| done.success());
        silent.then_some(Self { sudo: true })
    }

    /// Installs packages; if that fails, updates the package lists and tries once more.
    fn install(&self, packages: &[&str]) -> Result<(), String> {
        let mut args = vec!["install", "-y", "--no-install-recommends"];
        args.extend(packages);
        if self.get(&args).is_ok() {
            return Ok(());
        }
        // Old package lists are the usual cause on a fresh machine or in a container.
        let update = self.get(&["update"]);
        self.get(&args).map_err(|why| {
            let offline = if update.is_err() { OFFLINE } else { "" };
            format!("{why}{offline}\n{}", line_to_type(packages))
        })
    }

    fn get(&self, args: &[&str]) -> Result<(), String> {
        let mut apt = if self.sudo {
            command("sudo")
        } else {
            command("env")
        };
        if self.sudo {
            apt.args(["-n", "env"]);
        }
        apt.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]);
        // Another apt-get may hold the lock, for instance if the machine updates itself when it starts.
        apt.args(["-o", "DPkg::Lock::Timeout=120"]).args(args);
        let done = capture(apt, APT_LIMIT, |_| ())?;
        if done.success() {
            return Ok(());
        }
        let lines: Vec<&str> = done.stderr.lines().chain(done.stdout.lines()).collect();
        let errors = lines.iter().filter(|line| line.starts_with("E:")).copied();
        Err(format!(
            "apt-get {} failed: {}",
            args[0],
            errors.collect::<Vec<_>>().join(" ")
        ))
    }
}

/// The command by which an administrator can install the packages.
fn line_to_type(packages: &[&str]) -> String {
    let has = |name| find_program(name).is_some();
    let names = packages.join(" ");
    if has("apt-get") {
        format!("type: sudo apt-get update && sudo apt-get install -y {names}")
    } else {
        format!(
            "install what Debian calls {names} with this system's package manager, then try again"
        )
    }
}

/// Whether `cargo NAME` works. Stages call this before they use a subcommand that is optional.
pub(crate) fn has_subcommand(name: &str) -> bool {
    let file = format!("cargo-{name}");
    find_program(&file).is_some_and(|file| {
        Command::new(file)
            .args([name, "--version"])
            .output()
            .is_ok_and(|done| done.status.success())
    })
}

const APT_LIMIT: Duration = Duration::from_secs(900);
const OFFLINE: &str = "\nthe package lists cannot be read either: is this machine connected?";

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(stages: &[&str]) -> Vec<&'static str> {
        needed(stages)
            .flat_map(|need| need.apt.iter().copied())
            .collect()
    }

    #[test]
    fn the_demo_needs_a_c_compiler_and_nothing_else() {
        assert_eq!(packages(&["demo"]), ["gcc", "libc6-dev"]);
    }

    #[test]
    fn a_stage_adds_what_it_needs() {
        assert!(packages(&["icount"]).contains(&"valgrind"));
        assert!(packages(&["suites"]).contains(&"python3-venv"));
        assert!(packages(&["ranks"]).contains(&"gfortran"));
        assert!(!packages(&["ranks"]).contains(&"valgrind"));
    }

    #[test]
    fn every_stage_of_the_table_is_accepted() {
        for need in NEEDS {
            for stage in need.stages {
                assert!(*stage == ALL || STAGES.contains(stage), "{stage}");
            }
        }
    }

    #[test]
    fn a_missing_program_is_seen_as_missing() {
        assert!(Probe::Program("sh").is_there());
        assert!(!Probe::Program("no-program-has-this-name").is_there());
        assert!(!Probe::Shell("exit 1").is_there());
    }

    #[test]
    fn the_line_to_type_names_the_packages() {
        assert!(line_to_type(&["valgrind", "cmake"]).contains("valgrind cmake"));
    }

    #[test]
    fn a_misspelt_stage_gets_the_nearest() {
        let error = run(&["rank".into()]).unwrap_err();
        assert_eq!(error, "unknown stage `rank`: did you mean `ranks`?");
    }
}
