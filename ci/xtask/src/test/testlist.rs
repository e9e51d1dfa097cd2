// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format of `ci/ranks/testlist`.

/// One line: a program, and how it is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) program: String,
    pub(crate) ranks: Vec<u32>,
    pub(crate) args: Vec<String>,
    /// Options of the launcher.
    pub(crate) with: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// The code the job ends with.
    pub(crate) exit: i32,
    /// What the job must print, on either stream.
    pub(crate) says: Vec<String>,
    pub(crate) limit_s: u64,
    /// Started without the launcher.
    pub(crate) alone: bool,
    /// It tests what ranks of one host share: not with `--hosts`.
    pub(crate) one_host: bool,
    /// Tests what the standard leaves open: not for other MPIs.
    pub(crate) ours: bool,
    pub(crate) xfail: Option<String>,
    /// Linked with `ci/ranks/late/late.c`, which gets this seed.
    pub(crate) late: Option<u64>,
    /// Functions that it calls and that may have no body yet.
    pub(crate) needs: Vec<String>,
}

/// All entries, or which line is wrong and why.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words = split(line).map_err(|why| format!("testlist line {}: {why}", index + 1))?;
        if words.is_empty() {
            continue;
        }
        entries.push(entry(&words).map_err(|why| format!("testlist line {}: {why}", index + 1))?);
    }
    Ok(entries)
}

impl Entry {
    /// How the test is named in reports, for one number of ranks.
    pub(crate) fn name(&self, ranks: u32) -> String {
        let args: String = self.args.iter().map(|arg| format!(" {arg}")).collect();
        let how = if self.alone {
            " without a launcher".into()
        } else {
            format!(" -n {ranks}")
        };
        let late = self
            .late
            .map_or_else(String::new, |seed| format!(", late by seed {seed}"));
        format!("{}{args}{how}{late}", self.program)
    }
}

fn entry(words: &[String]) -> Result<Entry, String> {
    let [program, ranks, options @ ..] = words else {
        return Err("a program and numbers of ranks are needed: `probe 2,4`".into());
    };
    let numbers = ranks.split(',').map(str::parse);
    let mut entry = Entry {
        program: program.clone(),
        ranks: numbers
            .collect::<Result<_, _>>()
            .map_err(|_| format!("`{ranks}` are no numbers"))?,
        args: Vec::new(),
        with: Vec::new(),
        env: Vec::new(),
        exit: 0,
        says: Vec::new(),
        limit_s: DEFAULT_LIMIT_S,
        alone: false,
        one_host: false,
        ours: false,
        xfail: None,
        late: None,
        needs: Vec::new(),
    };
    for option in options {
        set(&mut entry, option)?;
    }
    Ok(entry)
}

fn set(entry: &mut Entry, option: &str) -> Result<(), String> {
    let (key, value) = option.split_once('=').unwrap_or((option, ""));
    match key {
        "alone" => entry.alone = true,
        "one-host" => entry.one_host = true,
        "ours" => entry.ours = true,
        "args" => entry.args = value.split_whitespace().map(String::from).collect(),
        "with" => entry.with = value.split_whitespace().map(String::from).collect(),
        "needs" => entry.needs = value.split(',').map(String::from).collect(),
        "says" => entry.says.push(value.into()),
        "exit" => {
            entry.exit = value
                .parse()
                .map_err(|_| format!("exit `{value}` is no number"))?
        }
        "time" => {
            entry.limit_s = value
                .parse()
                .map_err(|_| format!("time `{value}` is no number"))?
        }
        "late" => {
            let seed = value
                .parse()
                .map_err(|_| format!("late `{value}` is no seed"))?;
            entry.late = Some(seed);
        }
        "xfail" if value.is_empty() => return Err("xfail needs a reason".into()),
        "xfail" => entry.xfail = Some(value.into()),
        "env" => {
            let (name, value) = value.split_once('=').ok_or("env needs NAME=VALUE")?;
            entry.env.push((name.into(), value.into()));
        }
        _ => return Err(format!("unknown option `{key}`")),
    }
    Ok(())
}

/// Words of a line: `key="two words"` is one, `#` starts a comment.
fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            '#' if !quoted => break,
            ' ' | '\t' if !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(letter),
        }
    }
    if quoted {
        return Err("a quotation mark is not closed".into());
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

/// Many times what the slowest take: it is for those that hang, on machines that have other work too.
const DEFAULT_LIMIT_S: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_has_defaults() {
        let entries = parse("# title\n\nprobe  2,4 # both\n").unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!((entries[0].ranks.clone(), entries[0].exit), (vec![2, 4], 0));
        assert_eq!(entries[0].name(4), "probe -n 4");
    }

    #[test]
    fn options_are_read() {
        let line = "abort 4 args=\"code 3\" exit=3 says=\"rank 1\" says=MPI_Abort env=A=b=c time=5 ours needs=X,Y";
        let entry = parse(line).unwrap().remove(0);
        assert_eq!(entry.args, ["code", "3"]);
        assert_eq!(entry.needs, ["X", "Y"]);
        assert_eq!((entry.exit, entry.limit_s, entry.ours), (3, 5, true));
        assert_eq!(entry.says, ["rank 1", "MPI_Abort"]);
        assert_eq!(entry.env, [("A".to_string(), "b=c".to_string())]);
        assert_eq!(entry.name(4), "abort code 3 -n 4");
    }

    #[test]
    fn a_seed_is_part_of_the_name() {
        let entry = parse("comm 4 late=7").unwrap().remove(0);
        assert_eq!(entry.late, Some(7));
        assert_eq!(entry.name(4), "comm -n 4, late by seed 7");
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (line, why) in [
            ("probe", "are needed"),
            ("probe two", "are no numbers"),
            ("probe 2 sometimes", "unknown option `sometimes`"),
            ("probe 2 xfail=", "needs a reason"),
            ("probe 2 late=often", "is no seed"),
            ("probe 2 says=\"x", "not closed"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(
                error.starts_with("testlist line 1: ") && error.contains(why),
                "{error}"
            );
        }
    }
}
