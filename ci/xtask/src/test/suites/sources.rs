// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source packages of the distribution, by apt-get with lists of its own: the system's stay as they
//! are, and root is not needed.

use crate::process::quiet;
use crate::tree::{command, find_program, make_folder, read, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder into which `package` was unpacked, or those parts of it that match `wanted`; fetched
/// on first use.
pub(super) fn fetch(package: &str, wanted: &[&str]) -> Result<PathBuf, String> {
    let home = target().join("suites").join(package);
    let mark = home.join(".unpacked");
    if mark.exists() {
        return Ok(home);
    }
    if find_program("apt-get").is_none() {
        return Err(format!(
            "the source of {package} is fetched by apt-get, which is not here"
        ));
    }
    let apt = target().join("suites/apt");
    for folder in ["lists/partial", "cache/archives/partial", "sources"] {
        make_folder(&apt.join(folder))?;
    }
    make_folder(&home)?;
    write(&apt.join("sources/own.sources"), &stanzas()?)?;
    apt_get(&apt, &home, &["update"])?;
    apt_get(&apt, &home, &["source", "--download-only", package])?;
    unpack(&home, wanted)?;
    write(&mark, "")?;
    Ok(home)
}

fn apt_get(apt: &Path, home: &Path, args: &[&str]) -> Result<(), String> {
    let mut get = command("apt-get");
    let at = |name: &str| apt.join(name).display().to_string();
    let options = [
        "Dir::Etc::SourceList=/dev/null".to_string(),
        format!("Dir::Etc::SourceParts={}", at("sources")),
        format!("Dir::State::Lists={}", at("lists")),
        format!("Dir::Cache={}", at("cache")),
        "APT::Sandbox::User=".to_string(),
    ];
    for option in options {
        get.args(["-o", &option]);
    }
    get.arg("-q").args(args).current_dir(home);
    quiet(get, Duration::from_secs(300)).map(|_| ())
}

/// Unpacks the upstream archive without its top folder.
fn unpack(home: &Path, wanted: &[&str]) -> Result<(), String> {
    let entries = fs::read_dir(home).map_err(|why| format!("{}: {why}", home.display()))?;
    let archive = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains(".orig.tar."))
        .ok_or_else(|| format!("no .orig.tar in {}", home.display()))?;
    let mut tar = command("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(home);
    tar.args(["--strip-components=1", "--wildcards"])
        .args(wanted);
    quiet(tar, Duration::from_secs(300)).map(|_| ())
}

/// The system's own package sources, turned from binary into source packages.
fn stanzas() -> Result<String, String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let parts = fs::read_dir("/etc/apt/sources.list.d");
    files.extend(
        parts
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path()),
    );
    let mut all = String::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let text = read(file)?;
        let deb822 = file.extension().is_some_and(|kind| kind == "sources");
        all += &if deb822 {
            from_stanzas(&text)
        } else {
            from_lines(&text)
        };
    }
    if all.is_empty() {
        return Err("apt-get has no sources of a distribution that it could ask".into());
    }
    Ok(all)
}

/// Stanzas of fields; other vendors' repositories have no sources to offer.
fn from_stanzas(text: &str) -> String {
    let mut all = String::new();
    let text = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n");
    for stanza in text.split("\n\n") {
        let uris = stanza.lines().find_map(|line| line.strip_prefix("URIs:"));
        if !uris.is_some_and(is_distribution) {
            continue;
        }
        let fields = stanza.lines().filter(|line| !line.starts_with("Types:"));
        let fields: Vec<&str> = fields.filter(|line| !line.trim().is_empty()).collect();
        all += &format!("Types: deb-src\n{}\n\n", fields.join("\n"));
    }
    all
}

/// Lines such as `deb [options] URI SUITE COMPONENT...`.
fn from_lines(text: &str) -> String {
    let mut all = String::new();
    for line in text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("deb "))
    {
        let (options, rest) = match line.trim_start().strip_prefix('[') {
            Some(inside) => inside.split_once(']').unwrap_or(("", inside)),
            None => ("", line),
        };
        let mut words = rest.split_whitespace();
        let (Some(uri), Some(suite)) = (words.next(), words.next()) else {
            continue;
        };
        if !is_distribution(uri) {
            continue;
        }
        let parts = words.collect::<Vec<_>>().join(" ");
        let key = options
            .split_whitespace()
            .find_map(|option| option.strip_prefix("signed-by="));
        let key = key.map_or_else(String::new, |key| format!("Signed-By: {key}\n"));
        all +=
            &format!("Types: deb-src\nURIs: {uri}\nSuites: {suite}\nComponents: {parts}\n{key}\n");
    }
    all
}

fn is_distribution(uris: &str) -> bool {
    uris.split_whitespace().all(|uri| {
        let uri = uri.trim_end_matches('/');
        uri.ends_with("/debian") || uri.ends_with("/ubuntu")
    })
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stanzas_of_the_distribution_become_sources() {
        let text = "Types: deb\n# a mirror\nURIs: http://m.example/debian\nSuites: bookworm\n\
                    Components: main\n\nTypes: deb\nURIs: https://v.example/node_20.x\n";
        assert_eq!(
            from_stanzas(text),
            "Types: deb-src\nURIs: http://m.example/debian\nSuites: bookworm\nComponents: main\n\n"
        );
    }

    #[test]
    fn lines_of_the_distribution_become_sources() {
        let text = "# deb x y z\ndeb [signed-by=/k.gpg] http://m.example/ubuntu/ jammy main universe\n\
                    deb http://v.example/apt cloud main\n";
        assert_eq!(
            from_lines(text),
            "Types: deb-src\nURIs: http://m.example/ubuntu/\nSuites: jammy\n\
             Components: main universe\nSigned-By: /k.gpg\n\n"
        );
    }
}
