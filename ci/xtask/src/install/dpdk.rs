// SPDX-License-Identifier: MIT OR Apache-2.0
//! `librmpi_dpdk.so`, through which ranks use DPDK (crate `dpdk-sys`), and the same with the driver of AF_XDP: built where the system has
//! DPDK with its static libraries, and left out elsewhere.

use std::path::{Path, PathBuf};

use super::rename;
use crate::process::{quiet, show};
use crate::tree::{command, find_program, make_folder, root};
use std::time::Duration;

const SOURCES: &[&str] = &["rmpi_dpdk.c", "lent.c", "pair.c", "crc.c"];

/// Drivers of devices and buses, which enter themselves when the plug-in is loaded. Those of virtual devices first. Adapters of
/// Mellanox and Broadcom, whose drivers need libraries of theirs, have RDMA of their own (provider `verbs`).
const DRIVERS: &[&str] = &[
    "net_af_packet",
    "net_memif",
    "net_ring",
    "net_tap",
    "net_virtio",
    "net_e1000",
    "net_ixgbe",
    "net_i40e",
    "net_iavf",
    "net_ice",
    "net_ena",
    "net_vmxnet3",
    "bus_vdev",
    "bus_pci",
    "mempool",
    "mempool_ring",
    "mempool_stack",
];

/// What these need of DPDK.
const LIBRARIES: &[&str] = &[
    "ethdev",
    "mbuf",
    "ring",
    "stack",
    "eal",
    "kvargs",
    "telemetry",
    "log",
    "argparse",
    "net",
    "meter",
    "hash",
    "rcu",
    "pci",
    "gso",
    "ip_frag",
    "bpf",
    "security",
    "cryptodev",
    "common_iavf",
    "timer",
];

/// What both need of the system, each only if it is needed and there.
const OF_THE_SYSTEM: &[&str] = &["numa", "bsd", "fdt", "m", "dl", "pthread", "atomic"];

/// A plug-in.
struct PluginBuild {
    file: &'static str,
    /// A driver more than [`DRIVERS`].
    driver: Option<&'static str>,
    /// Shared libraries that this needs, and what the shim does because of them.
    libraries: &'static [&'static str],
    define: Option<&'static str>,
}

const PLANS: [PluginBuild; 2] = [
    PluginBuild {
        file: "librmpi_dpdk.so",
        driver: None,
        libraries: &[],
        define: None,
    },
    // Its libraries are found by the dynamic linker, or the plug-in is not loaded: those who use other devices need none of them.
    PluginBuild {
        file: "librmpi_dpdk_xdp.so",
        driver: Some("net_af_xdp"),
        libraries: &["xdp", "bpf"],
        define: Some("-DRMPI_XDP"),
    },
];

/// Builds and installs them, if DPDK is there.
pub(super) fn install(prefix: &Path) -> Result<(), String> {
    let Some(folder) = libraries() else {
        println!("without DPDK: `pkg-config libdpdk` finds none (package libdpdk-dev)");
        return Ok(());
    };
    let to = prefix.join("lib/rmpi");
    make_folder(&to)?;
    for plan in &PLANS {
        if found(plan.libraries).len() == plan.libraries.len() {
            let fresh = to.join(format!(".{}.new", plan.file));
            build(&folder, plan, &fresh)?;
            rename(&fresh, &to.join(plan.file))?;
        } else {
            let missing = plan.libraries.join(" or lib");
            println!("without {}: lib{missing} is missing", plan.file);
        }
    }
    Ok(())
}

fn build(folder: &Path, plan: &PluginBuild, to: &Path) -> Result<(), String> {
    let shim = root().join("transport/dpdk-sys/shim");
    let drivers: Vec<&str> = DRIVERS.iter().copied().chain(plan.driver).collect();
    let mut build = command("cc");
    build.args("-std=gnu11 -O2 -Wall -Wextra -shared -fPIC -fvisibility=hidden -s".split(' '));
    build.args(plan.define);
    build.args(asked(&["--cflags", "libdpdk"])?.split_whitespace());
    build.args(SOURCES.iter().map(|name| shim.join(name)));
    build.arg("-o").arg(to);
    build.args([
        "-Wl,--wrap=getpid",
        "-Wl,--wrap=rte_intr_callback_register",
        "-Wl,--wrap=rte_intr_callback_unregister",
        "-Wl,--wrap=rte_intr_callback_unregister_sync",
        "-Wl,--wrap=rte_intr_callback_unregister_pending",
        "-Wl,-Bsymbolic",
        "-Wl,--exclude-libs,ALL",
        "-Wl,-z,defs",
        "-Wl,-z,noexecstack",
    ]);
    build
        .arg("-Wl,--whole-archive")
        .args(archives(folder, &drivers));
    build
        .args(["-Wl,--no-whole-archive", "-Wl,--start-group"])
        .args(archives(folder, LIBRARIES));
    build
        .args(["-Wl,--end-group", "-Wl,--as-needed"])
        .args(found(plan.libraries))
        .args(found(OF_THE_SYSTEM));
    show(build)
}

/// Where its static libraries are.
fn libraries() -> Option<PathBuf> {
    find_program("pkg-config")?;
    let folder = PathBuf::from(asked(&["--variable=libdir", "libdpdk"]).ok()?.trim());
    folder.join("librte_eal.a").exists().then_some(folder)
}

/// What `pkg-config` answers.
fn asked(words: &[&str]) -> Result<String, String> {
    let mut ask = command("pkg-config");
    ask.args(words);
    quiet(ask, Duration::from_secs(10))
}

/// The files of some of them. Releases differ in what they are cut into.
fn archives(folder: &Path, names: &[&str]) -> Vec<PathBuf> {
    let files = names
        .iter()
        .map(|name| folder.join(format!("librte_{name}.a")));
    files.filter(|file| file.exists()).collect()
}

/// Those that the compiler finds.
fn found(names: &[&str]) -> Vec<String> {
    let is_there = |name: &&&str| {
        let mut ask = command("cc");
        ask.arg(format!("-print-file-name=lib{name}.so"));
        // `cc` prints the path of the library, or the bare name if there is none.
        quiet(ask, Duration::from_secs(10)).is_ok_and(|answer| answer.contains('/'))
    };
    let found = names.iter().filter(is_there);
    found.map(|name| format!("-l{name}")).collect()
}
