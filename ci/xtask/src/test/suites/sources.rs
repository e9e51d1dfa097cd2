// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches source packages of the distribution by apt-get with separate lists: the system's lists are unchanged, and
//! root is not needed.

use crate::process::quiet;
use crate::tree::{command, find_program, make_folder, read, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder with the files of `package` that match `patterns`; it is fetched on first use.
pub(super) fn fetch(package: &str, patterns: &[&str]) -> Result<PathBuf, String> {
    let folder = target().join("suites").join(package);
    let mark = folder.join(".unpacked");
    if mark.exists() {
        return Ok(folder);
    }
    if find_program("apt-get").is_none() {
        return Err(format!(
            "the source of {package} is fetched by apt-get, which is not installed"
        ));
    }
    let apt = target().join("suites/apt");
    for name in ["lists/partial", "cache/archives/partial", "sources"] {
        make_folder(&apt.join(name))?;
    }
    make_folder(&folder)?;
    write(&apt.join("sources/own.sources"), &stanzas()?)?;
    apt_get(&apt, &folder, &["update"])?;
    apt_get(&apt, &folder, &["source", "--download-only", package])?;
    unpack(&folder, patterns)?;
    write(&mark, "")?;
    Ok(folder)
}

fn apt_get(apt: &Path, folder: &Path, args: &[&str]) -> Result<(), String> {
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
    get.arg("-q").args(args).current_dir(folder);
    quiet(get, Duration::from_secs(300)).map(|_| ())
}

/// Unpacks the files that match `patterns` from the upstream archive, without its top folder.
fn unpack(folder: &Path, patterns: &[&str]) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let archive = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains(".orig.tar."))
        .ok_or_else(|| format!("no .orig.tar in {}", folder.display()))?;
    let mut tar = command("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(folder);
    tar.args(["--strip-components=1", "--wildcards"])
        .args(patterns);
    quiet(tar, Duration::from_secs(300)).map(|_| ())
}

/// The system's package sources, changed from binary to source packages.
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
        return Err("apt-get has no sources of a distribution".into());
    }
    Ok(all)
}

/// Converts stanzas of fields; repositories of other vendors are left out, because they have no source packages.
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

/// Converts lines such as `deb [options] URI SUITE COMPONENT...`.
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
        let mut fields = rest.split_whitespace();
        let (Some(uri), Some(suite)) = (fields.next(), fields.next()) else {
            continue;
        };
        if !is_distribution(uri) {
            continue;
        }
        let parts = fields.collect::<Vec<_>>().join(" ");
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
