// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder `target/vm`: unpacked packages, fetched when they are missing.
//!
//! | folder                        | holds |
//! |-------------------------------|-----|
//! | `qemu/root`                   | the emulator, its firmware and the libraries that this machine lacks |
//! | `host/root`                   | busybox, kmod: programs that make the guest's initramfs |
//! | `tools/root`                  | laid over the machine's files in the guest: `rdma`, `ibv_*`, `ib_*`, libibverbs and its headers, ssh and its server |
//! | `kernel-SERIES/root`, `early` | kernel and modules; the modules that are needed to mount the root, in the order of loading |
//! | `apt`                         | lists of packages, unfinished downloads |
//! | `run`                         | a folder for each guest that is running |
//!
//! A group's folder gets its name only when it is complete. A group is fetched again when the list of its packages
//! changes; the folder contains that list (`asked`).

use super::apt::{Package, PrivateApt, output};
use super::kernel::{self, KernelSeries};
use crate::tree::{command, make_folder, target};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The filled folder.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    folder: PathBuf,
    series: KernelSeries,
}

/// Fetches into the folder what a guest with this kernel needs and what is missing there.
pub(super) fn fill(series: KernelSeries) -> Result<Cache, String> {
    let cache = Cache {
        folder: target().join("vm"),
        series,
    };
    make_folder(&cache.runs())?;
    let _alone = lock(&cache.folder)?;
    let mut apt = None;
    for (name, names) in GROUPS {
        let group = PackageGroup::new(name, names.join("\n"));
        cache.make(&group, &mut apt, |apt| apt.with_missing(names), |_| Ok(()))?;
    }
    cache.make(
        &PackageGroup::new(&cache.kernel_group(), series.package().into()),
        &mut apt,
        // Fetches only the package of the kernel image: its dependencies are needed only for an installation.
        |apt| Ok(vec![apt.behind(series.package(), "linux-image-")?]),
        |new| kernel::prepare(&cache, new),
    )?;
    Ok(cache)
}

impl Cache {
    /// The emulator's files.
    pub(super) fn qemu(&self) -> PathBuf {
        self.folder.join("qemu/root")
    }

    /// Programs that run on this machine.
    pub(super) fn host(&self) -> PathBuf {
        self.folder.join("host/root")
    }

    /// The files that the guest has in addition to this machine's (overlay).
    pub(super) fn tools(&self) -> PathBuf {
        self.folder.join("tools/root")
    }

    /// Kernel and modules.
    pub(super) fn kernel(&self) -> PathBuf {
        self.folder.join(self.kernel_group()).join("root")
    }

    /// The modules that are needed to mount the guest's root.
    pub(super) fn early(&self) -> PathBuf {
        self.folder.join(self.kernel_group()).join("early")
    }

    /// The folder for the folders of running guests.
    pub(super) fn runs(&self) -> PathBuf {
        self.folder.join("run")
    }

    fn kernel_group(&self) -> String {
        format!("kernel-{}", self.series.name())
    }

    /// Fetches and unpacks one group of packages, unless its folder is complete: `names` returns the packages, `finish`
    /// completes the new folder.
    fn make(
        &self,
        group: &PackageGroup,
        apt: &mut Option<PrivateApt>,
        names: impl FnOnce(&PrivateApt) -> Result<Vec<String>, String>,
        finish: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<(), String> {
        let there = self.folder.join(&group.name);
        if group.is_in(&there) {
            return Ok(());
        }
        let apt = match apt {
            Some(apt) => apt,
            None => apt.insert(PrivateApt::open("softroce", &self.folder.join("apt"))?),
        };
        let name = &group.name;
        let about = |why: String| format!("cannot get the packages of `{name}`: {why}");
        let packages = names(apt)
            .and_then(|names| apt.fetch(&names))
            .map_err(about)?;
        let new = self.folder.join(format!("{name}.new"));
        remove(&new)?;
        unpack(apt, &packages, &new.join("root")).map_err(about)?;
        finish(&new)?;
        group.note_in(&new)?;
        remove(&there)?;
        fs::rename(&new, &there)
            .map_err(|why| format!("cannot rename {}: {why}", new.display()))?;
        for package in &packages {
            remove(&apt.file(package))?;
        }
        println!("softroce: {name}: {} packages unpacked", packages.len());
        Ok(())
    }
}

/// Packages that are unpacked into one folder.
struct PackageGroup {
    name: String,
    /// The requested packages, one per line.
    requested: String,
}

impl PackageGroup {
    fn new(name: &str, requested: String) -> Self {
        let name = name.into();
        Self { name, requested }
    }

    /// Whether the folder was filled with the packages that are requested now.
    fn is_in(&self, folder: &Path) -> bool {
        fs::read_to_string(folder.join(NOTE)).is_ok_and(|requested| requested == self.requested)
    }

    fn note_in(&self, folder: &Path) -> Result<(), String> {
        let note = folder.join(NOTE);
        fs::write(&note, &self.requested)
            .map_err(|why| format!("cannot write {}: {why}", note.display()))
    }
}

/// Unpacks packages of the distribution below `folder` and returns the path: those in `whole` with their dependencies
/// that this machine lacks, those in `alone` without dependencies. Does nothing if the folder already holds exactly
/// these packages.
pub(crate) fn packages(
    purpose: &'static str,
    folder: &Path,
    whole: &[&str],
    alone: &[&str],
) -> Result<PathBuf, String> {
    let root = folder.join("root");
    make_folder(folder)?;
    let _lock = lock(folder)?;
    let (requested, note) = ([whole, alone].concat().join("\n"), folder.join("asked"));
    if root.exists() && fs::read_to_string(&note).is_ok_and(|names| names == requested) {
        return Ok(root);
    }
    let apt = PrivateApt::open(purpose, &folder.join("apt"))?;
    let mut names = apt.with_missing(whole)?;
    names.extend(alone.iter().map(|name| (*name).into()));
    let packages = apt.fetch(&names)?;
    let new = folder.join("root.new");
    remove(&new)?;
    unpack(&apt, &packages, &new)?;
    remove(&root)?;
    fs::rename(&new, &root).map_err(|why| format!("cannot rename {}: {why}", new.display()))?;
    fs::write(&note, requested).map_err(|why| format!("cannot write {}: {why}", note.display()))?;
    Ok(root)
}

/// Locks the folder, so that only one process fills it at a time. The lock ends with the returned file, or with the
/// process.
fn lock(folder: &Path) -> Result<File, String> {
    let path = folder.join("lock");
    let wrong = |why| format!("cannot lock {}: {why}", path.display());
    let file = File::create(&path).map_err(wrong)?;
    file.lock().map_err(wrong)?;
    Ok(file)
}

fn unpack(apt: &PrivateApt, packages: &[Package], root: &Path) -> Result<(), String> {
    make_folder(root)?;
    for package in packages {
        let mut dpkg = command("dpkg-deb");
        dpkg.arg("-x").arg(apt.file(package)).arg(root);
        output(dpkg, &format!("dpkg-deb -x {}", package.file))?;
    }
    merge_usr(root)
}

/// Debian 12's packages still bring `/bin`, `/sbin` and `/lib`. In an overlay over a root in which these are symbolic
/// links, such a folder would hide the link and every program below it. So these folders are replaced by links here
/// too.
fn merge_usr(root: &Path) -> Result<(), String> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let dir = root.join(name);
        if !dir.is_dir() || dir.is_symlink() {
            continue;
        }
        let merged = root.join("usr").join(name);
        make_folder(&merged)?;
        let mut copy = command("cp");
        copy.arg("-al").arg(dir.join(".")).arg(&merged);
        output(copy, "cp -al")?;
        remove(&dir)?;
        let target = Path::new("usr").join(name);
        std::os::unix::fs::symlink(target, &dir)
            .map_err(|why| format!("cannot link {}: {why}", dir.display()))?;
    }
    Ok(())
}

/// Removes a file or a whole folder, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), String> {
    let done = if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match done {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {why}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The file in a group's folder that lists the requested packages.
const NOTE: &str = "asked";

/// These packages are fetched even if this machine has them, so that the folders are the same everywhere.
const GROUPS: &[(&str, &[&str])] = &[
    ("host", &["busybox-static", "kmod", "libkmod2"]),
    (
        "qemu",
        &[
            "qemu-system-x86",
            "qemu-system-common",
            "qemu-system-data",
            "seabios",
        ],
    ),
    (
        // The package rdma-core is left out: it depends on systemd and udev, and the command `rdma` comes with
        // iproute2.
        "tools",
        &[
            "ibverbs-utils",
            "rdmacm-utils",
            "perftest",
            "libibverbs1",
            "ibverbs-providers",
            "librdmacm1",
            "libibumad3",
            "libibverbs-dev",
            "librdmacm-dev",
            "libnl-3-200",
            "libnl-route-3-200",
            "libpci3",
            "iproute2",
            "libbpf1",
            "libmnl0",
            "libelf1",
            "kmod",
            "libkmod2",
            "tcpdump",
            "libpcap0.8",
            "openssh-client",
            "openssh-server",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_there_while_its_list_stays_the_same() {
        let folder = std::env::temp_dir().join(format!("rmpi-group-{}", std::process::id()));
        make_folder(&folder).unwrap();
        let old = PackageGroup::new("tools", "a\nb".into());
        assert!(!old.is_in(&folder));
        old.note_in(&folder).unwrap();
        assert!(old.is_in(&folder));
        assert!(!PackageGroup::new("tools", "a\nb\nc".into()).is_in(&folder));
        remove(&folder).unwrap();
    }

    #[test]
    fn folders_of_the_old_order_become_links() {
        let root = std::env::temp_dir().join(format!("rmpi-merge-{}", std::process::id()));
        make_folder(&root.join("lib/modules")).unwrap();
        make_folder(&root.join("usr/lib/x")).unwrap();
        fs::write(root.join("lib/modules/a.ko"), "a").unwrap();
        merge_usr(&root).unwrap();
        merge_usr(&root).unwrap();
        assert!(root.join("lib").is_symlink());
        assert_eq!(fs::read(root.join("lib/modules/a.ko")).unwrap(), b"a");
        assert!(root.join("lib/x").is_dir() && !root.join("bin").exists());
        remove(&root).unwrap();
        assert_eq!(remove(&root), Ok(()));
    }
}
