// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-info`: shows what is built into rmpi, what was found on this host, and why the rest was not found.
//!
//! **Knows** the table of variables (`runtime::var`), the transport's report of devices (`transport::net_info`), and
//! the batch system or launcher that `rmpiexec` and the library would use.
//! **Never** starts a rank, opens a port or registers memory: it may be run beside jobs.
//!
//! `rmpi-info` is a crate of its own because `rmpiexec` depends on neither `runtime` nor `transport`. Each page of text
//! is a pure function of a report; the modules `summary`, `net`, `vars`, `pvars` and `events` make one page each. Exit
//! codes: 0 for success; 1 with `--net` if ranks could not use the network, and with `--search` if nothing was found; 2
//! for an invalid command line.

mod entry;
mod events;
mod net;
mod pvars;
mod summary;
mod text;
mod vars;

use clap::Parser;
use runtime::var::{Variable, VariableValues};
use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, ToSocketAddrs};
use std::process::ExitCode;
use transport::net_info;

const EXAMPLES: &str = "\
Examples:
  rmpi-info                           version, what carries messages on this host, and what starts ranks
  rmpi-info --net                     InfiniBand and RoCE: devices, ports, addresses, what is chosen and why
  rmpi-info --net --peer 10.1.0.7     the same for packets to that address, or to a host by its name
  rmpi-info --vars                    all variables, their values here and what they mean
  rmpi-info --pvars                   what the library counts for tools (MPI_T), and what each number means
  rmpi-info --events                  what the library tells tools when it happens (MPI_T)
  rmpi-info --search 'memory high'    the variables and events that are about both words
  rmpi-info --vars --json             the same for programs
  srun -N 16 rmpi-info --net          on each node of a job, with the limits that hold there

Exit code: 0; with --net, 1 if ranks on this host could not use the network, or not to reach that address; with
--search, 1 if nothing was found.";

/// Say what is built into rmpi, what was found on this host, and why not the rest
#[derive(Debug, Parser)]
#[command(name = "rmpi-info", version, after_help = EXAMPLES, args_override_self = true)]
pub struct Options {
    /// Show the network: devices, ports, addresses, which of them ranks would use and why, and what is missing
    #[arg(long)]
    net: bool,
    /// With --net: for packets to this address or host
    #[arg(long, value_name = "ADDRESS", requires = "net", value_hint = clap::ValueHint::Hostname)]
    peer: Option<String>,
    /// Show the variables, with the values that hold in this shell
    #[arg(long)]
    vars: bool,
    /// Show the performance variables of MPI_T: what the library counts for tools
    #[arg(long)]
    pvars: bool,
    /// Show the events of MPI_T: what the library tells tools when it happens
    #[arg(long)]
    events: bool,
    /// Show only the variables and events whose entries contain all these words; --vars, --pvars and --events restrict the search
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    /// Show variables and events as JSON; --vars, --pvars and --events restrict the output
    #[arg(long, conflicts_with = "net")]
    json: bool,
}

impl Options {
    /// The tables that the options select.
    fn lists(&self, values: &VariableValues) -> Vec<entry::List> {
        let named = self.vars || self.pvars || self.events;
        let all = !named && (self.json || self.search.is_some());
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let mut lists = Vec::new();
        if all || self.vars {
            lists.push(("vars", vars::entries(values, is_set)));
        }
        if all || self.pvars {
            lists.push(("pvars", pvars::entries()));
        }
        if all || self.events {
            lists.push(("events", events::entries()));
        }
        lists
    }
}

/// Runs the command with these arguments, its name first; returns its exit code.
pub fn run(message: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match Options::try_parse_from(message) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => return print(&error.to_string(), ExitCode::SUCCESS),
        Err(error) => {
            let message = error.to_string();
            return complain(
                message
                    .strip_prefix("error: ")
                    .unwrap_or(&message)
                    .trim_end(),
            );
        }
    };
    let peer = match options.peer.as_deref().map(address).transpose() {
        Ok(peer) => peer,
        Err(message) => return complain(&message),
    };
    let (values, complaints) = VariableValues::from_environment(environment());
    for message in complaints {
        eprintln!("rmpi-info: {message}");
    }
    let devices = values.text(Variable::NetDevices);
    let mut lists = options.lists(&values);
    if let Some(message) = &options.search {
        for (_, entries) in &mut lists {
            entries.retain(|entry| entry.is_about(message));
        }
        if lists.iter().all(|(_, entries)| entries.is_empty()) {
            eprintln!("rmpi-info: no variable or event here is about {message:?}");
            return ExitCode::FAILURE;
        }
    }
    if options.json {
        return print(&entry::json(lists), ExitCode::SUCCESS);
    }
    let network = values.network();
    let mut pages = Vec::new();
    let mut works = true;
    if options.net {
        let report = net_info::inspect(&network, peer);
        let page = net::page(&report, devices, peer);
        works = page.works;
        pages.push(page.text);
        let rails = values.get(Variable::NetRails);
        pages.push(net::addresses(&net_info::addresses(&network), rails));
    }
    if !lists.is_empty() {
        pages.push(entry::page(&lists));
    }
    if pages.is_empty() {
        let here = summary::HostSummary::inspect(network, &values);
        pages.push(summary::page(&here, &values));
    }
    let code = if works { 0 } else { 1 };
    print(&pages.join("\n"), ExitCode::from(code))
}

/// The environment variables whose names are UTF-8; all variables of rmpi are among them. Invalid UTF-8 in values is
/// replaced.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let value = value.to_string_lossy().into_owned();
        Some((name.into_string().ok()?, value))
    })
}

/// Parses an address, or resolves a host name; prefers an IPv4 address of the host.
fn address(text: &str) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical());
    }
    let found = (text, 0).to_socket_addrs().map_err(|why| {
        format!(
            "--peer {text}: expected an address, as 10.1.0.7 or fd00::7, or the name of a host: {why}"
        )
    })?;
    let mut all: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    all.sort_by_key(IpAddr::is_ipv6);
    let first = all.first().copied();
    first.ok_or_else(|| format!("--peer {text}: the host has no address"))
}

fn print(text: &str, code: ExitCode) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(why) => {
            eprintln!("rmpi-info: cannot write standard output: {why}");
            ExitCode::FAILURE
        }
    }
}

fn complain(message: &str) -> ExitCode {
    eprintln!("rmpi-info: {message}");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_an_address_or_a_host() {
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(address("127.0.0.1"), Ok(here));
        assert_eq!(address("::ffff:127.0.0.1"), Ok(here), "as a GID is written");
        assert!(address("localhost").is_ok_and(|found| found.is_loopback()));
        let why = address("no such host").unwrap_err();
        assert!(
            why.starts_with("--peer no such host: expected an address"),
            "{why}"
        );
    }

    #[test]
    fn peer_option_requires_net() {
        let parse = |message: &[&str]| Options::try_parse_from(message.iter().copied());
        assert!(parse(&["rmpi-info", "--peer", "10.0.0.1"]).is_err());
        let options = parse(&["rmpi-info", "--net", "--peer", "10.0.0.1"]).unwrap();
        assert_eq!(options.peer.as_deref(), Some("10.0.0.1"));
    }
}
