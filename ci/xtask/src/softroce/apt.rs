// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads Debian's packages with an apt that has its own folder for lists and cache: root is not needed, nothing is
//! installed, and it does not matter whether the machine's lists are old.

use crate::process::ending;
use crate::tree::{command, find_program, make_folder};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// An apt with its own folder.
pub(super) struct PrivateApt {
    /// What the packages are for, in messages.
    purpose: &'static str,
    folder: PathBuf,
}

/// A package file, as the lists describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) file: String,
    bytes: u64,
    sha256: String,
}

impl PrivateApt {
    /// Creates the folders and downloads the lists of packages; an error if this machine is not an x86-64 or lacks one
    /// of apt's programs.
    pub(super) fn open(purpose: &'static str, folder: &Path) -> Result<Self, String> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(format!(
                "{purpose} exists only for x86-64, this is {}",
                std::env::consts::ARCH
            ));
        }
        for program in ["apt-get", "apt-cache", "dpkg-deb", "sha256sum"] {
            if find_program(program).is_none() {
                return Err(format!(
                    "{program} was not found: {purpose} is made of Debian's packages, which need \
                     apt-get, apt-cache, dpkg-deb and sha256sum (a machine with Debian 12)"
                ));
            }
        }
        let apt = Self {
            purpose,
            folder: folder.to_path_buf(),
        };
        for part in ["lists/partial", "archives/partial", "files"] {
            make_folder(&folder.join(part))?;
        }
        println!("{purpose}: reading the lists of packages");
        // A list that cannot be downloaded is not an error here: the other lists may be enough, and `fetch` reports a
        // package that is in none of them.
        if let Err(why) = retry(|| apt.run("apt-get", UPDATE).map(|_| ())) {
            println!("{purpose}: {why}\n{purpose}: going on with the lists that are there");
        }
        Ok(apt)
    }

    /// These packages, and their dependencies that this machine lacks, except the C library: it must match the dynamic
    /// loader.
    pub(super) fn with_missing(&self, names: &[&str]) -> Result<Vec<String>, String> {
        let args = [&["-s", "--no-install-recommends", "install"], names].concat();
        let text = self.run("apt-get", &args)?;
        let mut all: BTreeSet<String> = names.iter().map(|name| (*name).into()).collect();
        all.extend(installed(&text));
        all.retain(|name| !LEFT_OUT.contains(&name.as_str()));
        Ok(all.into_iter().collect())
    }

    /// The package that a metapackage currently stands for: the first dependency of `meta` whose name begins with
    /// `start`.
    pub(super) fn behind(&self, meta: &str, start: &str) -> Result<String, String> {
        let text = self.run("apt-cache", &["depends", meta])?;
        let mut names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        let found = names.find(|name| name.starts_with(start));
        found
            .map(String::from)
            .ok_or_else(|| format!("{meta} depends on no {start}..., apt-cache printed:\n{text}"))
    }

    /// Downloads the packages that are not complete yet, and checks each file's size and SHA-256 against the lists.
    pub(super) fn fetch(&self, names: &[String]) -> Result<Vec<Package>, String> {
        let mut args = vec!["--print-uris", "download"];
        args.extend(names.iter().map(String::as_str));
        let packages = described(&self.run("apt-get", &args)?);
        let lacking = |name: &&String| !packages.iter().any(|package| package.name == **name);
        if let Some(name) = names.iter().find(lacking) {
            return Err(format!("the lists of packages have no {name}"));
        }
        retry(|| self.download(&packages))?;
        Ok(packages)
    }

    fn download(&self, packages: &[Package]) -> Result<(), String> {
        let missing: Vec<&Package> = packages
            .iter()
            .filter(|package| package.check(&self.file(package)).is_err())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let bytes: u64 = missing.iter().map(|package| package.bytes).sum();
        let (count, mebibytes) = (missing.len(), bytes.div_ceil(1 << 20));
        println!(
            "{}: downloading {count} packages, {mebibytes} MiB",
            self.purpose
        );
        let mut args = vec!["download"];
        args.extend(missing.iter().map(|package| package.name.as_str()));
        for package in &missing {
            // The file is removed first, because apt would keep it even if its content is wrong.
            let _ = fs::remove_file(self.file(package));
        }
        let done = self.run_in("files", "apt-get", &args);
        let wrong = missing
            .iter()
            .find_map(|package| package.check(&self.file(package)).err());
        match (wrong, done) {
            (None, _) => Ok(()),
            (Some(why), Ok(_)) => Err(why),
            (Some(_), Err(why)) => Err(why),
        }
    }

    /// The path of a downloaded package.
    pub(super) fn file(&self, package: &Package) -> PathBuf {
        self.folder.join("files").join(&package.file)
    }

    /// Runs `apt-get` or `apt-cache` and returns its output. The working directory is not the folder of the downloads,
    /// because apt does not list files that are already in its working directory.
    fn run(&self, program: &str, args: &[&str]) -> Result<String, String> {
        self.run_in("", program, args)
    }

    fn run_in(&self, part: &str, program: &str, args: &[&str]) -> Result<String, String> {
        let mut apt = command(program);
        apt.env("LC_ALL", "C").current_dir(self.folder.join(part));
        for (name, value) in [
            ("Dir::State::Lists", self.folder.join("lists")),
            ("Dir::Cache", self.folder.clone()),
            ("Dir::Cache::Archives", self.folder.join("archives")),
        ] {
            apt.arg("-o").arg(format!("{name}={}", value.display()));
        }
        for option in [
            "APT::Sandbox::User=",
            "Debug::NoLocking=1",
            "APT::Get::List-Cleanup=0",
            "Acquire::Retries=3",
            "Acquire::Languages=none",
        ] {
            apt.args(["-o", option]);
        }
        apt.arg("-q").args(args);
        output(apt, &format!("{program} {}", args[0]))
    }
}

impl Package {
    /// An error unless the file has the size and the SHA-256 that the lists have.
    fn check(&self, file: &Path) -> Result<(), String> {
        let bytes = fs::metadata(file).map_or(0, |data| data.len());
        if bytes != self.bytes {
            let (name, expected) = (&self.file, self.bytes);
            return Err(format!(
                "{name} has {bytes} bytes, the lists have {expected}"
            ));
        }
        let mut sum = command("sha256sum");
        sum.arg("--").arg(file);
        let text = output(sum, "sha256sum")?;
        // If the file's name has special characters, the line begins with a backslash.
        let text = text.trim_start_matches('\\');
        if text.starts_with(&self.sha256) {
            return Ok(());
        }
        let (name, expected) = (&self.file, &self.sha256);
        Err(format!(
            "{name} is not what the lists describe: expected the SHA-256 {expected}, found {text}"
        ))
    }
}

/// Runs a program in this process group, so that Ctrl-C ends both; returns its standard output, or why it failed.
pub(super) fn output(mut program: Command, name: &str) -> Result<String, String> {
    program.stdin(std::process::Stdio::null());
    let done = program
        .output()
        .map_err(|why| format!("cannot start {name}: {why}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&done.stderr);
    let text: Vec<&str> = text.trim().lines().take(ERROR_LINES_MAX).collect();
    let (end, text) = (ending(done.status), text.join("\n"));
    Err(format!("`{name}` {end}: {text}"))
}

/// Tries `work` up to three times, because downloads may fail temporarily.
fn retry(mut work: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    for turn in 1..ATTEMPTS {
        match work() {
            Ok(()) => return Ok(()),
            Err(why) => println!("softroce: {why}\nsoftroce: trying again ({turn} of {ATTEMPTS})"),
        }
        thread::sleep(PAUSE * turn);
    }
    work()
}

/// Parses the lines `Inst NAME (VERSION ...)` of a simulated installation: the names of the packages.
fn installed(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next())
        .map(String::from)
}

/// Parses the lines `'ADDRESS' FILE BYTES SHA256:HASH` of `--print-uris`.
fn described(text: &str) -> Vec<Package> {
    let package = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [address, file, bytes, hash] = fields[..] else {
            return None;
        };
        Some(Package {
            name: file
                .split('_')
                .next()
                .filter(|_| address.starts_with('\''))?
                .into(),
            file: file.into(),
            bytes: bytes.parse().ok()?,
            sha256: hash.strip_prefix("SHA256:")?.into(),
        })
    };
    text.lines().filter_map(package).collect()
}

const LEFT_OUT: &[&str] = &[
    "libc6",
    "libc-bin",
    "libc6-dev",
    "libc-dev-bin",
    "linux-libc-dev",
];
/// With the option, a list that cannot be downloaded is an error; without it, apt only warns.
const UPDATE: &[&str] = &["update", "-o", "APT::Update::Error-Mode=any"];
const ERROR_LINES_MAX: usize = 6;
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn described_as(bytes: u64, sha256: &str) -> Package {
        Package {
            name: "a".into(),
            file: "a_1_all.deb".into(),
            bytes,
            sha256: sha256.into(),
        }
    }

    #[test]
    fn files_are_read_from_the_addresses() {
        let text = "Reading...\n'http://m/p/kmod_30%2b2_amd64.deb' kmod_30+2_amd64.deb 95180 SHA256:e21a\n";
        let found = described(text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].bytes), ("kmod", 95180));
        assert_eq!(found[0].sha256, "e21a");
    }

    #[test]
    fn what_would_be_installed_is_read() {
        let text =
            "Inst libslirp0 (4.7 Debian:12 [amd64])\nConf libslirp0 (4.7)\nInst a [1] (2 x)\n";
        assert_eq!(installed(text).collect::<Vec<_>>(), ["libslirp0", "a"]);
    }

    #[test]
    fn a_file_of_another_length_or_content_is_refused() {
        let file = std::env::temp_dir().join(format!("rmpi-apt-{}", std::process::id()));
        fs::write(&file, "abc").unwrap();
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(described_as(3, sum).check(&file), Ok(()));
        let short = described_as(4, sum).check(&file).unwrap_err();
        assert!(short.contains("has 3 bytes, the lists have 4"), "{short}");
        let other = described_as(3, "00").check(&file).unwrap_err();
        assert!(other.contains("expected the SHA-256 00"), "{other}");
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn the_error_of_a_failed_program_has_its_output() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo reason >&2; exit 3"]);
        let why = output(shell, "sh").unwrap_err();
        assert_eq!(why, "`sh` exited with code 3: reason");
    }
}
