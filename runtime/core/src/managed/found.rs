// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects from the environment variables which launcher has started this process.
//!
//! The order of precedence is: an open PMI socket, PMIx, a PMI port. The socket is first because a launcher that was
//! started inside another job passes on that job's variables, but not the descriptor of its socket.

use std::os::fd::OwnedFd;

use crate::Error;
use crate::managed::PmiClient;

/// The value of `RMPI_PMI`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PmiSetting {
    Auto,
    One,
    Two,
    Pmix,
    /// The process is a singleton, whatever the values of the variables are.
    Disabled,
}

impl PmiSetting {
    pub(crate) fn of(number: u64) -> Self {
        match number {
            1 => Self::One,
            2 => Self::Two,
            3 => Self::Pmix,
            4 => Self::Disabled,
            _ => Self::Auto,
        }
    }
}

/// How this process reaches the server of its launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PmiAddress {
    /// Over an inherited socket.
    Socket {
        number: i32,
        version: pmi::Version,
        rank: u32,
        size: u32,
    },
    /// Over TCP at the host and port on which the server listens.
    Port { port: String, id: u32 },
    /// Through the PMIx library.
    Pmix,
    /// The process has no server.
    None,
}

/// The environment and the descriptors that a process has inherited.
pub(crate) trait Inherited {
    /// The value of an environment variable; `None`: it is not set.
    fn text(&self, variable: &str) -> Option<String>;
    /// Whether a descriptor is an open socket.
    fn is_socket(&self, number: i32) -> bool;
}

impl PmiAddress {
    /// Detects how the server is reached.
    ///
    /// # Errors
    /// When the process is one of several and cannot reach the others; the error message states what to change.
    pub(crate) fn detect(setting: PmiSetting, environment: &impl Inherited) -> Result<Self, Error> {
        // A child process of a rank has the variables of the rank, but its socket is closed. A process that a launcher
        // has started inside a rank has those variables too, but an open socket of its own.
        let is_child = environment
            .text(USED_VARIABLE)
            .is_some_and(|text| text == used(environment));
        let found = match setting {
            PmiSetting::Disabled => return Ok(Self::None),
            _ if is_child => {
                let version = match setting {
                    PmiSetting::Two => pmi::Version::Two,
                    _ => pmi::Version::One,
                };
                return Ok(socket(environment, version).unwrap_or(Self::None));
            }
            PmiSetting::Auto => socket(environment, pmi::Version::One)
                .or_else(|| pmix(environment))
                .or_else(|| port(environment)),
            PmiSetting::One => socket(environment, pmi::Version::One).or_else(|| port(environment)),
            PmiSetting::Two => socket(environment, pmi::Version::Two),
            PmiSetting::Pmix => pmix(environment),
        };
        match (found, setting) {
            (Some(found), _) => Ok(found),
            (None, PmiSetting::Auto) => match companions(environment) {
                Some(description) => Err(Error::Boot(description)),
                None => Ok(Self::None),
            },
            (None, _) => Err(Error::Boot(format!(
                "RMPI_PMI asks for {}, and no launcher has given its address",
                match setting {
                    PmiSetting::One =>
                        "pmi1: neither PMI_FD, PMI_RANK and PMI_SIZE nor PMI_PORT and PMI_ID are set",
                    PmiSetting::Two => "pmi2: PMI_FD, PMI_RANK and PMI_SIZE are not set",
                    _ => "pmix: PMIX_NAMESPACE and PMIX_RANK are not set",
                }
            ))),
        }
    }

    /// Describes the server for display; `None`: there is no server.
    pub(crate) fn description(&self, environment: &impl Inherited) -> Option<String> {
        let text = |name: &str| environment.text(name).unwrap_or_default();
        match self {
            Self::Socket {
                number,
                version,
                rank,
                size,
            } => {
                let version = match version {
                    pmi::Version::One => "PMI-1",
                    pmi::Version::Two => "PMI-2",
                };
                Some(format!(
                    "{version} over descriptor {number}, as rank {rank} of {size}"
                ))
            }
            Self::Port { port, id } => Some(format!("PMI-1 at {port}, as process {id}")),
            Self::Pmix => Some(format!(
                "PMIx, as rank {} of {}",
                text("PMIX_RANK"),
                text("PMIX_NAMESPACE")
            )),
            Self::None => None,
        }
    }

    /// Number of processes of the job; 1 if it is not known before the server is contacted.
    pub(crate) fn size(&self, environment: &impl Inherited) -> u32 {
        match self {
            Self::Socket { size, .. } => *size,
            Self::None => 1,
            Self::Port { .. } | Self::Pmix => ["OMPI_COMM_WORLD_SIZE", STEP_TASKS]
                .iter()
                .find_map(|name| number(environment, name))
                .unwrap_or(1),
        }
    }

    /// Connects to the server; `None`: there is no server. `own` takes over an inherited descriptor.
    ///
    /// # Errors
    /// When the connection fails, or the server's reply is invalid.
    pub(crate) fn begin(
        self,
        own: impl FnOnce(i32) -> Option<OwnedFd>,
    ) -> Result<Option<PmiClient>, Error> {
        let failed = |error: pmi::Error| Error::Boot(error.to_string());
        match self {
            Self::None => Ok(None),
            Self::Pmix => {
                let client = pmix::Client::begin();
                let client = client.map_err(|error| Error::Boot(error.to_string()))?;
                Ok(Some(PmiClient::Pmix(Box::new(client))))
            }
            Self::Port { port, id } => {
                let client = pmi::Client::connect(&port, id).map_err(failed)?;
                Ok(Some(PmiClient::Pmi(client)))
            }
            Self::Socket {
                number,
                version,
                rank,
                size,
            } => {
                let not_open =
                    || Error::Boot(format!("PMI_FD is {number}, which is no open socket"));
                let stream = own(number).ok_or_else(not_open)?;
                let client = pmi::Client::begin(stream, version, rank, size).map_err(failed)?;
                Ok(Some(PmiClient::Pmi(client)))
            }
        }
    }
}

/// A string that identifies this process's place in its job: the values of all launchers' variables.
pub(crate) fn used(environment: &impl Inherited) -> String {
    const NAMES: [&str; 10] = [
        "PMI_FD",
        "PMI_RANK",
        "PMI_SIZE",
        "PMI_PORT",
        "PMI_ID",
        "PMIX_NAMESPACE",
        "PMIX_RANK",
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_PROCID",
    ];
    let values = NAMES.map(|name| environment.text(name).unwrap_or_default());
    values.join(",")
}

/// The variable in which a rank stores the result of [`used`] for its child processes.
pub(crate) const USED_VARIABLE: &str = "RMPI_PMI_USED";

fn number<T: std::str::FromStr>(environment: &impl Inherited, variable: &str) -> Option<T> {
    environment.text(variable)?.trim().parse().ok()
}

fn socket(environment: &impl Inherited, version: pmi::Version) -> Option<PmiAddress> {
    let number_of =
        number(environment, "PMI_FD").filter(|number| environment.is_socket(*number))?;
    let (rank, size) = (
        number(environment, "PMI_RANK")?,
        number(environment, "PMI_SIZE")?,
    );
    (rank < size).then_some(PmiAddress::Socket {
        number: number_of,
        version,
        rank,
        size,
    })
}

fn pmix(environment: &impl Inherited) -> Option<PmiAddress> {
    environment.text("PMIX_NAMESPACE")?;
    number::<u32>(environment, "PMIX_RANK")?;
    Some(PmiAddress::Pmix)
}

fn port(environment: &impl Inherited) -> Option<PmiAddress> {
    let port = environment.text("PMI_PORT")?;
    let id = number(environment, "PMI_ID")?;
    Some(PmiAddress::Port { port, id })
}

/// The error message if variables show that this process is one of several, but there is no server: without an error
/// each process would be rank 0 of a job of its own. `None`: no variable shows other processes.
fn companions(environment: &impl Inherited) -> Option<String> {
    let alone = "with RMPI_PMI=none each of them is a job of its own";
    let count = |name: &str| number::<u32>(environment, name).filter(|count| *count > 1);
    if let Some(count) = count("PMI_SIZE").filter(|_| environment.text("PMI_RANK").is_some()) {
        return Some(format!(
            "PMI_SIZE says that this is one of {count} processes, and PMI_FD that their launcher is reached over descriptor {}, which is \
             no open socket: what stands between the launcher and the program must leave it open; {alone}",
            environment
                .text("PMI_FD")
                .unwrap_or_else(|| "(none)".to_owned()),
        ));
    }
    // A batch script has these variables too, except for the number of tasks in a step.
    let has_step =
        environment.text("SLURM_PROCID").is_some() && environment.text("SLURM_STEP_ID").is_some();
    let count = count(STEP_TASKS).filter(|_| has_step)?;
    Some(format!(
        "srun has started {count} of this program, and has not told them how they find each other: start them by srun --mpi=pmi2, by \
         srun --mpi=pmix or by rmpiexec; {alone}"
    ))
}

const STEP_TASKS: &str = "SLURM_STEP_NUM_TASKS";

#[cfg(test)]
mod tests {
    use super::*;

    struct FakeEnvironment(&'static [(&'static str, &'static str)]);

    impl Inherited for FakeEnvironment {
        fn text(&self, variable: &str) -> Option<String> {
            let found = self.0.iter().find(|(name, _)| *name == variable)?;
            Some(found.1.to_owned())
        }

        fn is_socket(&self, number: i32) -> bool {
            number == 11
        }
    }

    const SLURM: &[(&str, &str)] = &[
        ("SLURM_PROCID", "2"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NUM_TASKS", "4"),
    ];

    fn described(
        setting: PmiSetting,
        environment: &'static [(&'static str, &'static str)],
    ) -> String {
        match PmiAddress::detect(setting, &FakeEnvironment(environment)) {
            Ok(found) => format!("{found:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn an_open_pmi_socket_has_precedence_over_inherited_pmix() {
        let both: &[(&str, &str)] = &[
            ("PMI_FD", "11"),
            ("PMI_RANK", "2"),
            ("PMI_SIZE", "4"),
            ("PMIX_NAMESPACE", "prterun-n0-140@0"),
            ("PMIX_RANK", "0"),
        ];
        let socket = "Socket { number: 11, version: One, rank: 2, size: 4 }";
        assert_eq!(described(PmiSetting::Auto, both), socket);
        assert_eq!(
            described(PmiSetting::Two, both),
            socket.replace("One", "Two")
        );
        assert_eq!(described(PmiSetting::Pmix, both), "Pmix");
        assert_eq!(described(PmiSetting::Disabled, both), "None");
        let stale: &[(&str, &str)] = &[
            ("PMI_FD", "12"),
            ("PMI_RANK", "2"),
            ("PMI_SIZE", "4"),
            ("PMIX_NAMESPACE", "prterun-n0-140@0"),
            ("PMIX_RANK", "0"),
        ];
        assert_eq!(described(PmiSetting::Auto, stale), "Pmix");
        let port: &[(&str, &str)] = &[("PMI_PORT", "vm:41907"), ("PMI_ID", "3")];
        assert_eq!(
            described(PmiSetting::Auto, port),
            "Port { port: \"vm:41907\", id: 3 }"
        );
        assert_eq!(described(PmiSetting::Auto, &[]), "None");
    }

    #[test]
    fn pmi_address_is_described_for_users() {
        let description = |setting, environment: &'static [(&'static str, &'static str)]| {
            let environment = FakeEnvironment(environment);
            PmiAddress::detect(setting, &environment)
                .unwrap()
                .description(&environment)
        };
        let srun: &[(&str, &str)] = &[("PMI_FD", "11"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")];
        let one = "PMI-1 over descriptor 11, as rank 2 of 4";
        assert_eq!(description(PmiSetting::Auto, srun).as_deref(), Some(one));
        let two = one.replace("PMI-1", "PMI-2");
        assert_eq!(description(PmiSetting::Two, srun), Some(two));
        assert_eq!(description(PmiSetting::Disabled, srun), None);
        let port: &[(&str, &str)] = &[("PMI_PORT", "vm:41907"), ("PMI_ID", "3")];
        let at_port = "PMI-1 at vm:41907, as process 3";
        assert_eq!(
            description(PmiSetting::Auto, port).as_deref(),
            Some(at_port)
        );
        let pmix: &[(&str, &str)] = &[("PMIX_NAMESPACE", "slurm.pmix.9.0"), ("PMIX_RANK", "1")];
        let by_pmix = "PMIx, as rank 1 of slurm.pmix.9.0";
        assert_eq!(
            description(PmiSetting::Auto, pmix).as_deref(),
            Some(by_pmix)
        );
    }

    #[test]
    fn missing_pmi_server_error_states_the_remedy() {
        let description = described(PmiSetting::Auto, SLURM);
        assert!(
            description.contains("srun has started 4") && description.contains("--mpi=pmi2"),
            "{description}"
        );
        assert_eq!(described(PmiSetting::Disabled, SLURM), "None");
        // The variables of a batch script.
        assert_eq!(described(PmiSetting::Auto, &SLURM[..1]), "None");
        let closed: &[(&str, &str)] = &[("PMI_FD", "12"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")];
        assert!(
            described(PmiSetting::Auto, closed).contains("descriptor 12, which is no open socket")
        );
        for (setting, expected) in [
            (PmiSetting::One, "asks for pmi1"),
            (PmiSetting::Two, "asks for pmi2"),
            (PmiSetting::Pmix, "asks for pmix"),
        ] {
            assert!(
                described(setting, &[]).contains(expected),
                "{}",
                described(setting, &[])
            );
        }
    }

    #[test]
    fn a_child_process_of_a_rank_is_a_singleton_unless_launched() {
        let child: &[(&str, &str)] = &[
            ("PMI_FD", "12"),
            ("PMI_RANK", "2"),
            ("PMI_SIZE", "4"),
            ("RMPI_PMI_USED", "12,2,4,,,,,,,"),
        ];
        assert_eq!(described(PmiSetting::Auto, child), "None");
        assert_eq!(described(PmiSetting::Two, child), "None");
        assert_eq!(used(&FakeEnvironment(child)), "12,2,4,,,,,,,");
        // In the first case the numbers equal those of the rank by coincidence; the second case is another rank.
        let started: &[(&str, &str)] = &[
            ("PMI_FD", "11"),
            ("PMI_RANK", "2"),
            ("PMI_SIZE", "4"),
            ("RMPI_PMI_USED", "11,2,4,,,,,,,"),
        ];
        assert!(described(PmiSetting::Auto, started).starts_with("Socket"));
        let other: &[(&str, &str)] = &[
            ("PMIX_NAMESPACE", "job"),
            ("PMIX_RANK", "3"),
            ("RMPI_PMI_USED", ",,,,,job,2,,,"),
        ];
        assert_eq!(described(PmiSetting::Auto, other), "Pmix");
    }

    #[test]
    fn the_job_size_is_read_from_the_environment() {
        let environment = FakeEnvironment(&[("OMPI_COMM_WORLD_SIZE", "5")]);
        assert_eq!(PmiAddress::Pmix.size(&environment), 5);
        assert_eq!(PmiAddress::Pmix.size(&FakeEnvironment(SLURM)), 4);
        assert_eq!(PmiAddress::None.size(&environment), 1);
    }
}
