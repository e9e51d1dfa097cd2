// SPDX-License-Identifier: MIT OR Apache-2.0
//! The MPI libraries that are compared: where their commands are, and which settings make them fastest.
//!
//! The settings come from the peers' documentation and variable lists and from trials; other variants were not better.
//! Each case has a default (an untuned command line) and, if one is known, a best setting:
//!
//! | case | MPICH 5 (4: the same, without throttle variables) | Open MPI 4 and 5 | Intel MPI |
//! |---|---|---|---|
//! | two ranks, default | `-bind-to core` | `--map-by core --bind-to core` | nothing: it pins by itself |
//! | two ranks, best | also `MPIR_CVAR_NOLOCAL=1 UCX_TLS=self,sm` | also UCX over shared memory (without an InfiniBand device only with `pml_ucx_tls` and `pml_ucx_devices` set to `any`) | `I_MPI_FABRICS=shm I_MPI_SHM=bdw_avx2` |
//! | one CPU, default | `-bind-to none` | `--oversubscribe --bind-to none` | nothing |
//! | one CPU, best | also the throttle variables | also `mpi_yield_when_idle` | `I_MPI_PIN=0 I_MPI_FABRICS=shm I_MPI_WAIT_MODE=1` |
//! | many ranks, default | nothing | `--oversubscribe` | nothing |
//! | many ranks, best | `-bind-to core` and the throttle variables | as on one CPU | as on one CPU |
//! | hosts, default | nothing | nothing | nothing |
//! | hosts, best | `MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp` (4: `UCX_TLS=tcp,self`) | `--bind-to none --mca pml ob1 --mca btl tcp,self` | `I_MPI_FABRICS=ofi FI_PROVIDER=tcp I_MPI_PIN=0` |
//! | many ranks on hosts, default | nothing | `--oversubscribe` | nothing |
//! | many ranks on hosts, best | as on hosts, and the throttle variables | as on one CPU | as on hosts, with shared memory and `I_MPI_THREAD_YIELD=3` |
//!
//! rmpi has one setting, the default, which has no options.
//!
//! The best settings for hosts are those for TCP. The options for the hosts themselves, and for the remote shell:
//!
//! | | hosts | remote shell |
//! |---|---|---|
//! | rmpi, and MPIs that are not known here | `--host A:N,B:N` | `--launcher LINE` |
//! | MPICH, Intel MPI | `-hosts A,B -ppn N`; MPICH with different numbers of ranks per host: `-hosts A:N,B:M` | `-launcher ssh`; for another remote shell `-launcher rsh -launcher-exec FILE` |
//! | Open MPI | `--host A:N,B:N`; with the same number N > 1 of ranks on each host also `--map-by ppr:N:node`, because otherwise all ranks are placed on the first host | nothing for `ssh`; for another remote shell `--prtemca plm_ssh_agent FILE` (4: `--mca plm_rsh_agent FILE`) |
//!
//! Only rmpi and MPIs that are not known here get options for login names and IPv6 addresses; Intel MPI has none for
//! different numbers of ranks per host. An MPI that lacks a needed option is left out, and the reason is reported
//! ([`Kind::missing_option`]).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::hosts::{BenchHost, BenchHosts};
use crate::machine;

/// Which MPI is installed in a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// rmpi.
    Rmpi,
    /// MPICH 5.
    Mpich5,
    /// Open MPI 5.
    Openmpi5,
    /// Intel MPI.
    Intel,
    /// MPICH 4, as Debian packages it.
    Mpich4,
    /// Open MPI 4, as Debian packages it.
    Openmpi4,
    /// Any other MPI, which is measured without options.
    Other,
}

/// The CPUs and hosts that the ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Two ranks, each with a CPU.
    TwoRanks,
    /// Two ranks on one CPU.
    OneCpu,
    /// Many more ranks than CPUs.
    Crowd,
    /// Ranks on several hosts.
    Hosts,
    /// Many more ranks than CPUs on each of several hosts.
    CrowdOnHosts,
}

/// Which settings an MPI is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tuning {
    /// The settings as shipped.
    Default,
    /// The best settings known.
    Best,
}

impl Tuning {
    /// Its name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Best => "best",
        }
    }
}

/// Launcher options and environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Options of `mpiexec`.
    pub options: &'static [&'static str],
    /// Environment variables of the launcher, which passes them on to the ranks.
    pub environment: &'static [(&'static str, &'static str)],
}

const fn setting(
    options: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
) -> Option<Setting> {
    Some(Setting {
        options,
        environment,
    })
}

const MPICH_THROTTLE: &[(&str, &str)] = &[
    ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "1"),
];
const MPICH_UCX: &[(&str, &str)] = &[("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "self,sm")];
const OPENMPI_UCX: &[&str] = &[
    "--map-by",
    "core",
    "--bind-to",
    "core",
    "--mca",
    "pml",
    "ucx",
    "--mca",
    "pml_ucx_tls",
    "any",
    "--mca",
    "pml_ucx_devices",
    "any",
    "-x",
    "UCX_TLS=self,sm",
];
const OPENMPI_YIELD: &[&str] = &[
    "--oversubscribe",
    "--bind-to",
    "none",
    "--mca",
    "mpi_yield_when_idle",
    "1",
];
const INTEL_SHM: &[(&str, &str)] = &[("I_MPI_FABRICS", "shm"), ("I_MPI_SHM", "bdw_avx2")];
const INTEL_WAIT: &[(&str, &str)] = &[
    ("I_MPI_PIN", "0"),
    ("I_MPI_FABRICS", "shm"),
    ("I_MPI_WAIT_MODE", "1"),
];
const MPICH5_TCP: &[(&str, &str)] = &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")];
const MPICH4_TCP: &[(&str, &str)] = &[("UCX_TLS", "tcp,self")];
const OPENMPI_TCP: &[&str] = &[
    "--bind-to",
    "none",
    "--mca",
    "pml",
    "ob1",
    "--mca",
    "btl",
    "tcp,self",
];
const MPICH5_CROWD_TCP: &[(&str, &str)] = &[
    ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "1"),
    ("MPIR_CVAR_CH4_NETMOD", "ofi"),
    ("FI_PROVIDER", "tcp"),
];
const INTEL_CROWD_TCP: &[(&str, &str)] = &[
    ("I_MPI_FABRICS", "shm:ofi"),
    ("FI_PROVIDER", "tcp"),
    ("I_MPI_PIN", "0"),
    ("I_MPI_THREAD_YIELD", "3"),
];
const INTEL_TCP: &[(&str, &str)] = &[
    ("I_MPI_FABRICS", "ofi"),
    ("FI_PROVIDER", "tcp"),
    ("I_MPI_PIN", "0"),
];

impl Kind {
    /// The names of the known peers and their kinds, in the order of the tables.
    pub const PEERS: [(&'static str, Self); 5] = [
        ("mpich5", Self::Mpich5),
        ("openmpi5", Self::Openmpi5),
        ("intel", Self::Intel),
        ("mpich4", Self::Mpich4),
        ("openmpi4", Self::Openmpi4),
    ];

    /// The kind whose name a peer's name begins with.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        let known = Self::PEERS
            .iter()
            .find(|(prefix, _)| name.starts_with(prefix));
        known.map_or(Self::Other, |(_, kind)| *kind)
    }

    /// The setting for a case; `None` if there is no best setting besides the default.
    #[must_use]
    pub fn setting(self, case: Case, level: Tuning) -> Option<Setting> {
        match (self, case, level) {
            (Self::Rmpi | Self::Other | Self::Intel, _, Tuning::Default) => setting(&[], &[]),
            (Self::Rmpi | Self::Other, _, Tuning::Best) => None,
            (Self::Mpich5 | Self::Mpich4, ..) => self.mpich(case, level),
            (Self::Openmpi5 | Self::Openmpi4, ..) => Self::openmpi(case, level),
            (Self::Intel, Case::TwoRanks, Tuning::Best) => setting(&[], INTEL_SHM),
            (Self::Intel, Case::OneCpu | Case::Crowd, Tuning::Best) => setting(&[], INTEL_WAIT),
            (Self::Intel, Case::Hosts, Tuning::Best) => setting(&[], INTEL_TCP),
            (Self::Intel, Case::CrowdOnHosts, Tuning::Best) => setting(&[], INTEL_CROWD_TCP),
        }
    }

    fn mpich(self, case: Case, level: Tuning) -> Option<Setting> {
        match (case, level) {
            (Case::TwoRanks, Tuning::Default) => setting(&["-bind-to", "core"], &[]),
            (Case::TwoRanks, Tuning::Best) => setting(&["-bind-to", "core"], MPICH_UCX),
            (Case::OneCpu, Tuning::Default) => setting(&["-bind-to", "none"], &[]),
            (Case::Crowd | Case::Hosts | Case::CrowdOnHosts, Tuning::Default) => setting(&[], &[]),
            (Case::Hosts | Case::CrowdOnHosts, Tuning::Best) if self == Self::Mpich4 => {
                setting(&[], MPICH4_TCP)
            }
            (Case::CrowdOnHosts, Tuning::Best) => setting(&[], MPICH5_CROWD_TCP),
            (Case::Hosts, Tuning::Best) => setting(&[], MPICH5_TCP),
            (_, Tuning::Best) if self == Self::Mpich4 => None,
            (Case::OneCpu, Tuning::Best) => setting(&["-bind-to", "none"], MPICH_THROTTLE),
            (Case::Crowd, Tuning::Best) => setting(&["-bind-to", "core"], MPICH_THROTTLE),
        }
    }

    const fn openmpi(case: Case, level: Tuning) -> Option<Setting> {
        match (case, level) {
            (Case::TwoRanks, Tuning::Default) => {
                setting(&["--map-by", "core", "--bind-to", "core"], &[])
            }
            (Case::TwoRanks, Tuning::Best) => setting(OPENMPI_UCX, &[]),
            (Case::OneCpu, Tuning::Default) => {
                setting(&["--oversubscribe", "--bind-to", "none"], &[])
            }
            (Case::Crowd | Case::CrowdOnHosts, Tuning::Default) => {
                setting(&["--oversubscribe"], &[])
            }
            (Case::OneCpu | Case::Crowd | Case::CrowdOnHosts, Tuning::Best) => {
                setting(OPENMPI_YIELD, &[])
            }
            (Case::Hosts, Tuning::Default) => setting(&[], &[]),
            (Case::Hosts, Tuning::Best) => setting(OPENMPI_TCP, &[]),
        }
    }

    /// If this kind's launcher has no option for a property of these hosts: the property, and what to do about it.
    /// `None` if the launcher has all options that these hosts need.
    #[must_use]
    pub fn missing_option(self, hosts: &BenchHosts) -> Option<String> {
        if matches!(self, Self::Rmpi | Self::Other) {
            return None;
        }
        let with_user = hosts.list().iter().find(|host| host.user.is_some());
        if let Some(host) = with_user {
            return Some(format!(
                "it has no option for the user of {}: name the user in ~/.ssh/config or with --launcher \"ssh -l USER\"",
                host.label()
            ));
        }
        if let Some(host) = hosts.list().iter().find(|host| host.name.contains(':')) {
            return Some(format!(
                "it has no option for the IPv6 address {}: give the host a name",
                host.name
            ));
        }
        let is_uneven = self == Self::Intel && hosts.ranks_each().is_none();
        is_uneven.then(|| {
            "it has no option for different numbers of ranks: give all hosts the same number"
                .to_owned()
        })
    }

    /// The launcher's arguments for these hosts and their ranks. `script` is the remote shell if `--launcher` is given.
    fn host_arguments(self, hosts: &BenchHosts, script: &Path) -> Vec<String> {
        [
            self.placement_arguments(hosts),
            self.shell_arguments(hosts, script),
        ]
        .concat()
    }

    fn placement_arguments(self, hosts: &BenchHosts) -> Vec<String> {
        let list = |word: fn(&BenchHost) -> String| {
            let words = hosts.list().iter().map(word);
            words.collect::<Vec<_>>().join(",")
        };
        let with_ranks = || list(|host| host.with_ranks(host.ranks));
        match (self, hosts.ranks_each()) {
            (Self::Rmpi | Self::Other, _) => {
                let all = list(|host| match host.ranks {
                    1 => host.label(),
                    ranks => host.with_ranks(ranks),
                });
                vec!["--host".to_owned(), all]
            }
            (Self::Mpich5 | Self::Mpich4 | Self::Intel, Some(each)) => {
                let words = ["-hosts", &list(BenchHost::label), "-ppn", &each.to_string()];
                words.map(str::to_owned).to_vec()
            }
            (Self::Mpich5 | Self::Mpich4 | Self::Intel, None) => {
                vec!["-hosts".to_owned(), with_ranks()]
            }
            (Self::Openmpi5 | Self::Openmpi4, Some(each @ 2..)) => {
                let mapping = format!("ppr:{each}:node");
                ["--host", &with_ranks(), "--map-by", &mapping]
                    .map(str::to_owned)
                    .to_vec()
            }
            (Self::Openmpi5 | Self::Openmpi4, _) => vec!["--host".to_owned(), with_ranks()],
        }
    }

    fn shell_arguments(self, hosts: &BenchHosts, script: &Path) -> Vec<String> {
        let before: &[&str] = match (self, hosts.launcher()) {
            (Self::Mpich5 | Self::Mpich4 | Self::Intel, None) => &["-launcher", "ssh"],
            (_, None) => return Vec::new(),
            (Self::Rmpi | Self::Other, Some(line)) => {
                return ["--launcher", line].map(str::to_owned).to_vec();
            }
            (Self::Mpich5 | Self::Mpich4 | Self::Intel, Some(_)) => {
                &["-launcher", "rsh", "-launcher-exec"]
            }
            (Self::Openmpi5, Some(_)) => &["--prtemca", "plm_ssh_agent"],
            (Self::Openmpi4, Some(_)) => &["--mca", "plm_rsh_agent"],
        };
        let words = before.iter().map(|word| (*word).to_owned());
        let script = hosts.launcher().map(|_| script.display().to_string());
        words.chain(script).collect()
    }

    /// The suffix that Debian gives to the commands, because several MPIs share a prefix there.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Mpich4 => ".mpich",
            Self::Openmpi4 => ".openmpi",
            _ => "",
        }
    }
}

/// An installed MPI.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Its name in tables.
    pub name: String,
    /// Which MPI it is.
    pub kind: Kind,
    prefix: PathBuf,
    mpicc: PathBuf,
    mpiexec: PathBuf,
}

impl Installation {
    /// Finds the commands of an MPI below a prefix.
    ///
    /// # Errors
    /// When a command does not exist; the error names its path.
    pub fn find(name: &str, kind: Kind, prefix: &Path) -> Result<Self, Error> {
        let (cc, exec) = match kind {
            Kind::Rmpi => ("rmpicc", "rmpiexec"),
            _ => ("mpicc", "mpiexec"),
        };
        let command = |word: &str| find_command(prefix, word, kind);
        Ok(Self {
            name: name.to_owned(),
            kind,
            mpicc: command(cc)?,
            mpiexec: command(exec)?,
            prefix: prefix.to_owned(),
        })
    }

    /// Reads `NAME=PREFIX`.
    ///
    /// # Errors
    /// When the text is not of that form, or no MPI is installed there.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (name, prefix) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(
            || {
                let known: Vec<_> = Kind::PEERS.iter().map(|(name, _)| *name).collect();
                Error::Usage(format!(
                    "\"{text}\" is not of the form NAME=PREFIX (known names: {}; any other is measured without options)",
                    known.join(", ")
                ))
            },
        )?;
        Self::find(name, Kind::of_name(name), Path::new(prefix))
    }

    /// Its compiler wrapper.
    #[must_use]
    pub fn mpicc(&self) -> &Path {
        &self.mpicc
    }

    /// Environment variables that the commands of this installation need.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        match self.kind {
            Kind::Openmpi4 | Kind::Openmpi5 => vec![
                text("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                text("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ],
            Kind::Intel => vec![
                text("I_MPI_ROOT", &self.prefix.to_string_lossy()),
                text(
                    "LD_LIBRARY_PATH",
                    &self.prefix.join("lib").to_string_lossy(),
                ),
            ],
            _ => Vec::new(),
        }
    }

    /// The command line of the launcher with a setting and a number of ranks; the caller appends the program. With
    /// `mask`, `taskset` confines launcher and ranks to that CPU.
    #[must_use]
    pub fn launcher(&self, setting: Setting, ranks: usize, mask: Option<usize>) -> Command {
        let mut command = match mask {
            None => Command::new(&self.mpiexec),
            Some(cpu) => {
                let mut taskset = Command::new("taskset");
                taskset.args(["-c", &cpu.to_string()]).arg(&self.mpiexec);
                taskset
            }
        };
        command
            .envs(self.environment())
            .envs(setting.environment.iter().copied());
        command
            .args(setting.options)
            .args(["-n", &ranks.to_string()]);
        command
    }

    /// The command line of the launcher for all ranks of `hosts`; the caller appends the program. `script` is the path
    /// of a file with the text of [`BenchHosts::script`], if there is such a text.
    ///
    /// # Errors
    /// When this MPI has no option for a property of the hosts.
    pub fn launcher_over(
        &self,
        setting: Setting,
        hosts: &BenchHosts,
        script: &Path,
    ) -> Result<Command, Error> {
        if let Some(why) = self.kind.missing_option(hosts) {
            return Err(Error::Usage(why));
        }
        let mut command = Command::new(&self.mpiexec);
        command
            .envs(self.environment())
            .envs(setting.environment.iter().copied());
        command
            .args(setting.options)
            .args(self.kind.host_arguments(hosts, script))
            .args(["-n", &hosts.ranks().to_string()]);
        Ok(command)
    }
}

fn find_command(prefix: &Path, word: &str, kind: Kind) -> Result<PathBuf, Error> {
    let with_suffix = prefix.join("bin").join(format!("{word}{}", kind.suffix()));
    let plain = prefix.join("bin").join(word);
    let found = [with_suffix, plain.clone()]
        .into_iter()
        .find(|path| path.is_file());
    let found = found.ok_or_else(|| {
        Error::Usage(format!(
            "no MPI is installed there: {} does not exist (`{}` makes one)",
            plain.display(),
            match kind {
                Kind::Rmpi => "cargo xtask install --prefix DIR",
                _ => "cargo xtask peers",
            }
        ))
    })?;
    std::path::absolute(&found).map_err(|e| Error::io(format!("cannot use {}", found.display()), e))
}

/// Whether `taskset` can be used to confine ranks to a CPU.
#[must_use]
pub fn can_mask() -> bool {
    machine::find_in_path("taskset").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: [Case; 5] = [
        Case::TwoRanks,
        Case::OneCpu,
        Case::Crowd,
        Case::Hosts,
        Case::CrowdOnHosts,
    ];

    #[test]
    fn every_kind_has_a_default_in_every_case() {
        let peers = Kind::PEERS.iter().map(|(_, kind)| *kind);
        for kind in peers.chain([Kind::Rmpi, Kind::Other]) {
            for case in CASES {
                assert!(
                    kind.setting(case, Tuning::Default).is_some(),
                    "{kind:?} {case:?}"
                );
            }
        }
    }

    #[test]
    fn the_best_setting_differs_from_the_default() {
        for (name, kind) in Kind::PEERS {
            for case in CASES {
                let best = kind.setting(case, Tuning::Best);
                assert_ne!(best, kind.setting(case, Tuning::Default), "{name} {case:?}");
            }
        }
    }

    #[test]
    fn rmpi_gets_no_option() {
        for case in CASES {
            assert_eq!(
                Kind::Rmpi.setting(case, Tuning::Default),
                Some(Setting::default())
            );
            assert_eq!(Kind::Rmpi.setting(case, Tuning::Best), None);
        }
    }

    fn over(kind: Kind, launcher: Option<&str>) -> String {
        over_these("n1,n2", kind, launcher)
    }

    fn over_these(names: &str, kind: Kind, launcher: Option<&str>) -> String {
        let hosts = BenchHosts::parse(names, launcher).unwrap();
        kind.host_arguments(&hosts, Path::new("/shared/shell"))
            .join(" ")
    }

    #[test]
    fn every_peer_gets_its_own_arguments_for_hosts() {
        for (kind, words) in [
            (Kind::Rmpi, "--host n1,n2"),
            (Kind::Other, "--host n1,n2"),
            (Kind::Mpich5, "-hosts n1,n2 -ppn 1 -launcher ssh"),
            (Kind::Mpich4, "-hosts n1,n2 -ppn 1 -launcher ssh"),
            (Kind::Intel, "-hosts n1,n2 -ppn 1 -launcher ssh"),
            (Kind::Openmpi5, "--host n1:1,n2:1"),
            (Kind::Openmpi4, "--host n1:1,n2:1"),
        ] {
            assert_eq!(over(kind, None), words, "{kind:?}");
        }
    }

    #[test]
    fn several_ranks_of_open_mpi_are_spread_over_the_hosts() {
        let words = over_these("n1:4,n2:4", Kind::Openmpi5, None);
        assert_eq!(words, "--host n1:4,n2:4 --map-by ppr:4:node");
        let uneven = over_these("n1:4,n2:3", Kind::Openmpi5, None);
        assert_eq!(uneven, "--host n1:4,n2:3");
    }

    #[test]
    fn every_peer_gets_its_own_arguments_for_numbers_of_ranks() {
        for (kind, even, uneven) in [
            (Kind::Rmpi, "--host n1:2,n2:2", "--host n1:2,n2"),
            (Kind::Mpich5, "-hosts n1,n2 -ppn 2", "-hosts n1:2,n2:1"),
            (Kind::Intel, "-hosts n1,n2 -ppn 2", ""),
            (Kind::Openmpi5, "--host n1:2,n2:2", "--host n1:2,n2:1"),
        ] {
            assert!(
                over_these("n1:2,n2:2", kind, None).starts_with(even),
                "{kind:?}"
            );
            let words = over_these("n1:2,n2", kind, None);
            assert!(words.starts_with(uneven), "{kind:?}: {words}");
        }
    }

    #[test]
    fn a_missing_option_of_a_peer_is_reported() {
        let missing = |kind: Kind, names: &str| {
            let hosts = BenchHosts::parse(names, None).unwrap();
            kind.missing_option(&hosts).unwrap_or_default()
        };
        for names in ["me@n1,n2", "n1:2,n2", "::1,n2"] {
            assert_eq!(missing(Kind::Rmpi, names), "");
            assert_eq!(missing(Kind::Other, names), "");
        }
        assert!(missing(Kind::Mpich5, "n1,me@n2").contains("the user of me@n2"));
        assert!(missing(Kind::Openmpi5, "n1,fe80::1").contains("IPv6 address fe80::1"));
        assert!(missing(Kind::Intel, "n1:2,n2").contains("different numbers"));
        for kind in [Kind::Mpich4, Kind::Openmpi4] {
            assert_eq!(missing(kind, "n1:2,n2"), "");
        }
        assert_eq!(missing(Kind::Intel, "n1:2,n2:2"), "");
    }

    #[test]
    fn every_peer_gets_its_own_arguments_for_another_remote_shell() {
        let hydra = "-hosts n1,n2 -ppn 1 -launcher rsh -launcher-exec /shared/shell";
        for (kind, words) in [
            (Kind::Rmpi, "--host n1,n2 --launcher ssh -i key"),
            (Kind::Mpich5, hydra),
            (Kind::Mpich4, hydra),
            (Kind::Intel, hydra),
            (
                Kind::Openmpi5,
                "--host n1:1,n2:1 --prtemca plm_ssh_agent /shared/shell",
            ),
            (
                Kind::Openmpi4,
                "--host n1:1,n2:1 --mca plm_rsh_agent /shared/shell",
            ),
        ] {
            assert_eq!(over(kind, Some("ssh -i key")), words, "{kind:?}");
        }
    }

    #[test]
    fn names_may_go_on_after_the_kind() {
        assert_eq!(Kind::of_name("mpich5-built-here"), Kind::Mpich5);
        assert_eq!(Kind::of_name("unknown"), Kind::Other);
    }

    #[test]
    fn a_wrong_peer_is_reported() {
        let message = Installation::parse("mpich5").unwrap_err().to_string();
        assert!(
            message.contains("NAME=PREFIX") && message.contains("openmpi4"),
            "{message}"
        );
        let message = Installation::parse("mpich5=/nonexistent")
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("/nonexistent/bin/mpicc does not exist"),
            "{message}"
        );
    }
}
