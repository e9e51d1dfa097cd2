// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which port a process uses: of those that serve, and that the user allows, the ranks of a node take different ones in turn.

use super::device::{Device, Found, FoundDevice, list};
use super::gid::Route;
use super::look::cannot_open;
use super::port::Port;
use super::{DEPTHS, Verbs};
use crate::{Network, Peer};

impl Verbs<Device> {
    /// Opens the port that suits a process.
    ///
    /// # Errors
    /// Says what was found, why it cannot be used, and what to do.
    pub(in crate::provider) fn open_best(
        me: Peer,
        peers: u32,
        network: &Network,
    ) -> Result<Self, String> {
        let found = list(Route::Anywhere).map_err(|error| error.to_string())?;
        let port = choose(&found, network)?;
        let device = Device::open(&port.device, port.port, &DEPTHS, network.q_key, None)
            .map_err(|error| error.to_string())?;
        let facts = device.facts().clone();
        Self::open(me, peers, [device], network.limits).map_err(|error| cannot_open(&error, &facts))
    }
}

/// The port for a process.
fn choose<'a>(found: &'a [FoundDevice], network: &Network) -> Result<&'a Found, String> {
    let allowed = |port: &&Found| is_allowed(port, &network.devices);
    let fit = fit(found, &network.devices);
    if !fit.is_empty() {
        return Ok(fit[network.local_rank as usize % fit.len()]);
    }
    if found.is_empty() {
        return Err(
            "this host has no InfiniBand or RoCE device (ibv_devices shows none)".to_owned(),
        );
    }
    let mut words = String::from("none of its ports can be used:");
    for device in found {
        match &device.ports {
            Err(error) => words.push_str(&format!(" {}: {error};", device.name)),
            Ok(ports) => {
                for port in ports {
                    let why = match &port.unfit {
                        _ if !allowed(&port) => "is not in RMPI_NET_DEVICES".to_owned(),
                        Some(why) => why.to_string(),
                        None => continue,
                    };
                    words.push_str(&format!(" {}:{} {why};", port.device, port.port));
                }
            }
        }
    }
    words.pop();
    Err(words)
}

/// The ports that serve, of those that the list `devices` allows: the ranks of a node take them in turn.
pub(super) fn fit<'a>(found: &'a [FoundDevice], devices: &str) -> Vec<&'a Found> {
    let ports = found
        .iter()
        .flat_map(|device| device.ports.iter().flatten());
    ports
        .filter(|port| port.unfit.is_none() && is_allowed(port, devices))
        .collect()
}

/// Whether a port is in the list `devices`, or there is none.
pub(super) fn is_allowed(port: &Found, devices: &str) -> bool {
    let mut names = devices
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .peekable();
    names.peek().is_none() || names.any(|name| is_name_of(name, port))
}

/// Whether `mlx5_0` or `mlx5_0:1` names a port.
fn is_name_of(name: &str, port: &Found) -> bool {
    match name.rsplit_once(':') {
        None => name == port.device,
        Some((device, number)) => device == port.device && number.parse() == Ok(port.port),
    }
}
