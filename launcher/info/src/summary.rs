// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary: the version of rmpi, and the transports of messages on this host.

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use runtime::var::{Variable, VariableValues};
use std::io::IoSliceMut;
use std::path::PathBuf;
use transport::NetworkSettings;
use transport::net_info::{self, AddressReport, NetReport};

/// What was found on this host.
#[derive(Debug)]
pub(crate) struct HostSummary {
    /// Path of the `libmpi_abi.so.1` that is installed with this program; `None` if there is none.
    library: Option<PathBuf>,
    copies: Copies,
    /// Why the node segment is a file in `/dev/shm`; `None` if it is not such a file.
    named: Option<String>,
    report: NetReport,
    tcp: Result<Vec<AddressReport>, String>,
    /// The ports of DPDK as text, or why there are none.
    dpdk: Result<String, String>,
    jobs: Jobs,
}

/// How jobs are started here.
#[derive(Debug)]
struct Jobs {
    /// Lines that describe the batch system's job.
    job: Vec<String>,
    /// How a process finds the other processes of its job; `None` if no launcher has started it.
    others: Result<Option<String>, String>,
    /// Path and version of the PMIx library, or why none can be used.
    pmix: Result<String, String>,
}

impl Jobs {
    fn inspect(values: &VariableValues) -> Self {
        Self {
            job: launcher::describe_shell_job(),
            others: runtime::started_by(values),
            pmix: pmix::library().map_err(|why| match why {
                pmix::Error::Library(why) => why,
                other => other.to_string(),
            }),
        }
    }

    fn lines(&self) -> String {
        let others = match &self.others {
            Ok(Some(description)) => &format!("found by {description}"),
            Ok(None) => "none: no launcher has started this process",
            Err(why) => &format!("not found: {why}"),
        };
        let pmix = match &self.pmix {
            Ok(description) => description,
            Err(why) => &format!("not here: {why}"),
        };
        format!(
            "What starts ranks:\n  \
               job    of a batch system: {}\n  \
               peers  {others}\n  \
               pmix   its library: {pmix}\n",
            self.job.join("\n         ")
        )
    }
}

/// Whether the ranks of a host can read each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    Yes,
    /// The system call `process_vm_readv` is refused, for example by a container's filter.
    Filtered,
    /// `ptrace` is restricted: the value of `kernel.yama.ptrace_scope`.
    Restricted(u32),
}

impl HostSummary {
    pub(crate) fn inspect(network: NetworkSettings, values: &VariableValues) -> Self {
        Self {
            jobs: Jobs::inspect(values),
            library: library(),
            copies: copies(),
            named: node_segment::why_named(),
            tcp: net_info::addresses(&network),
            dpdk: net_info::dpdk(values.text(Variable::Dpdk)),
            report: net_info::inspect(&network.on_rails(1), None),
        }
    }
}

/// Formats the page.
pub(crate) fn page(here: &HostSummary, values: &VariableValues) -> String {
    let library = match &here.library {
        Some(path) => path.display().to_string(),
        None => format!("{LIBRARY} is not beside this program; cargo xtask install puts it there"),
    };
    let state = |name, is_here: Result<String, String>| match is_here {
        Ok(description) if values.has(Variable::Providers, name) => description,
        Ok(_) => "not used: RMPI_PROVIDERS does not have it".to_owned(),
        Err(why) => format!("not here: {why}"),
    };
    let copies = match here.copies {
        Copies::Yes => "large messages are copied once".to_owned(),
        Copies::Filtered => {
            "large messages go through buffers: process_vm_readv is not allowed (a container's filter)".to_owned()
        }
        Copies::Restricted(scope) => format!(
            "large messages go through buffers: /proc/sys/kernel/yama/ptrace_scope is {scope}, 0 or 1 would let them be copied once"
        ),
    };
    let segment = here.named.as_ref().map_or_else(String::new, |why| {
        format!("; the ranks of a node share a file of /dev/shm: memfd_create: {why}")
    });
    format!(
        "rmpi {} ({STANDARD})\n\
         library  {library}\n\
         \n\
         What carries messages:\n  \
           self   from a rank to itself: always\n  \
           shm    between ranks of one node: {}\n  \
           verbs  InfiniBand and RoCE: {}\n  \
           tcp    between all others: {}\n  \
           roce   RoCE in datagrams of UDP, where there is no device: {}\n  \
           dpdk   RoCE without the kernel, where there is no device: {}\n\
         \n\
         {}\
         \n\
         More: rmpi-info --net, rmpi-info --vars\n",
        env!("CARGO_PKG_VERSION"),
        state("shm", Ok(copies + &segment)),
        state("verbs", ports(&here.report)),
        state(
            "tcp",
            here.tcp
                .as_deref()
                .map(addresses_in_words)
                .map_err(Clone::clone)
        ),
        state("roce", here.tcp.as_deref().map(first).map_err(Clone::clone)),
        state("dpdk", here.dpdk.clone()),
        here.jobs.lines(),
    )
}

/// The ports that ranks would use.
fn ports(report: &NetReport) -> Result<String, String> {
    let devices = report.devices.as_ref().map_err(Clone::clone)?;
    let all = || {
        devices
            .iter()
            .flat_map(|device| device.ports.iter().flatten())
    };
    let used: Vec<&str> = all()
        .filter(|port| port.is_used())
        .map(|port| &*port.name)
        .collect();
    match (&used[..], devices.len()) {
        ([], 0) => Err("this host has no device".to_owned()),
        ([], _) => Err("no port can be used; rmpi-info --net says why".to_owned()),
        (used, _) => Ok(used.join(", ")),
    }
}

/// Path of the installed library, in the `lib` folder beside this program's `bin` folder.
fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let path = program.parent()?.parent()?.join("lib").join(LIBRARY);
    path.exists().then_some(path)
}

fn copies() -> Copies {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.ok().and_then(|text| text.trim().parse().ok());
    if !may_read() {
        return Copies::Filtered;
    }
    match scope {
        // Ranks permit each other to read their memory (`PR_SET_PTRACER`), which suffices for `ptrace_scope` 0 and 1.
        None | Some(0 | 1) => Copies::Yes,
        Some(scope) => Copies::Restricted(scope),
    }
}

/// Whether `process_vm_readv` works; tested on a byte of this process.
fn may_read() -> bool {
    let source = [1u8];
    let mut target = [0u8];
    let remote = RemoteIoVec {
        base: source.as_ptr().expose_provenance(),
        len: source.len(),
    };
    let read = process_vm_readv(Pid::this(), &mut [IoSliceMut::new(&mut target)], &[remote]);
    read == Ok(1) && target == source
}

const LIBRARY: &str = "libmpi_abi.so.1";
const STANDARD: &str = "MPI 5.0, standard ABI 1.0";

/// The addresses that are published to other ranks.
fn addresses_in_words(addresses: &[AddressReport]) -> String {
    let fit = addresses.iter().filter(|one| one.unfit.is_none());
    let addresses = fit.map(|one| format!("{} ({})", one.address, one.interface));
    addresses.collect::<Vec<_>>().join(", ")
}

/// The first address that is published to other ranks; user-space ports are reached at this address.
fn first(addresses: &[AddressReport]) -> String {
    let fit = addresses.iter().position(|one| one.unfit.is_none());
    addresses_in_words(&addresses[fit.map_or(0..0, |at| at..at + 1)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::net_info::{DeviceReport, LockedMemoryReport, PortReport};

    fn values(providers: &str) -> VariableValues {
        let own = ("RMPI_PROVIDERS".to_owned(), providers.to_owned());
        VariableValues::from_environment(std::iter::once(own)).0
    }

    fn here(devices: Result<Vec<DeviceReport>, String>) -> HostSummary {
        HostSummary {
            library: None,
            copies: Copies::Yes,
            named: None,
            tcp: Err("no address".to_owned()),
            dpdk: Err("RMPI_DPDK is not set".to_owned()),
            jobs: Jobs {
                job: vec!["job 7 of Slurm: 2 hosts".into(), "hosts: n1:2 n2:1".into()],
                others: Ok(None),
                pmix: Err("cannot open libpmix.so.2".to_owned()),
            },
            report: NetReport {
                rails: 1,
                rendezvous: transport::Rendezvous::Auto,
                devices,
                egress: None,
                memory: LockedMemoryReport {
                    limit_bytes: None,
                    first_bytes: 1,
                    most_bytes: 2,
                    remedy: None,
                },
            },
        }
    }

    fn device(unfit: Option<String>) -> DeviceReport {
        let port = PortReport {
            name: "rxe0:1".into(),
            link: "RoCE",
            state: "active",
            lid: None,
            packet_bytes: 1024,
            rate_mbps: 10_000,
            reads_poorly: false,
            gids: Vec::new(),
            unfit,
            is_allowed: true,
            leads_there: None,
        };
        DeviceReport {
            name: "rxe0".into(),
            ports: Ok(vec![port]),
        }
    }

    #[test]
    fn the_verbs_line_names_a_usable_port_or_the_reason() {
        let all = values("self,shm,verbs,tcp");
        let line = |here: HostSummary, values: &VariableValues| {
            let page = page(&here, values);
            let line = page.lines().find(|line| line.starts_with("  verbs "));
            line.unwrap_or_default().to_owned()
        };
        let verbs = |devices| line(here(devices), &all);
        let begin = "  verbs  InfiniBand and RoCE: ";
        assert_eq!(verbs(Ok(vec![device(None)])), format!("{begin}rxe0:1"));
        let not_here = |why| format!("{begin}not here: {why}");
        assert_eq!(
            verbs(Ok(vec![device(Some("it is down".into()))])),
            not_here("no port can be used; rmpi-info --net says why")
        );
        assert_eq!(verbs(Ok(Vec::new())), not_here("this host has no device"));
        assert_eq!(verbs(Err("no library".into())), not_here("no library"));
        assert_eq!(
            line(here(Ok(vec![device(None)])), &values("shm")),
            format!("{begin}not used: RMPI_PROVIDERS does not have it")
        );
    }

    #[test]
    fn the_summary_shows_batch_job_pmi_and_pmix() {
        let jobs = |others| Jobs {
            others,
            pmix: Ok("/usr/lib/libpmix.so.2 (OpenPMIx 5.0.1)".to_owned()),
            ..here(Ok(Vec::new())).jobs
        };
        assert_eq!(
            jobs(Ok(Some("PMI-1 over descriptor 11".to_owned()))).lines(),
            "What starts ranks:\n  \
               job    of a batch system: job 7 of Slurm: 2 hosts\n         hosts: n1:2 n2:1\n  \
               peers  found by PMI-1 over descriptor 11\n  \
               pmix   its library: /usr/lib/libpmix.so.2 (OpenPMIx 5.0.1)\n"
        );
        let lost = jobs(Err("srun has started 3 of this program".to_owned())).lines();
        let expected = "not found: srun has started 3 of this program\n";
        assert!(lost.contains(expected), "{lost}");
        let page = page(&here(Ok(Vec::new())), &VariableValues::default());
        for part in [
            "peers  none: no launcher",
            "its library: not here: cannot open libpmix.so.2\n\nMore: ",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn the_single_copy_method_is_shown_with_its_reason() {
        let shown = |copies| {
            let here = HostSummary {
                copies,
                ..here(Ok(Vec::new()))
            };
            page(&here, &VariableValues::default())
        };
        assert!(shown(Copies::Yes).contains("copied once\n"));
        assert!(shown(Copies::Restricted(2)).contains("ptrace_scope is 2"));
        assert!(shown(Copies::Filtered).contains("a container's filter"));
    }

    #[test]
    fn the_versions_match_the_abi_constants_table() {
        let table = include_str!("../../../runtime/abi/standard/constants.tsv");
        let number = |name: &str| {
            let line = table.lines().find_map(|line| {
                let mut columns = line.split('\t');
                (columns.next() == Some(name)).then_some(columns)
            });
            let columns: Vec<&str> = line.unwrap_or_else(|| panic!("no {name}")).collect();
            let value = columns
                .iter()
                .find_map(|word| word.trim().parse::<u32>().ok());
            value.unwrap_or_else(|| panic!("{name}: {columns:?}"))
        };
        let [version, minor] = ["MPI_VERSION", "MPI_SUBVERSION"].map(number);
        let [abi, abi_minor] = ["MPI_ABI_VERSION", "MPI_ABI_SUBVERSION"].map(number);
        let expected = format!("MPI {version}.{minor}, standard ABI {abi}.{abi_minor}");
        assert_eq!(STANDARD, expected);
    }
}
