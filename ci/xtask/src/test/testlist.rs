// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format of `ci/ranks/testlist`.

/// A line of the list: a program, and how it is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) program: String,
    pub(crate) ranks: Vec<u32>,
    pub(crate) args: Vec<String>,
    /// Options of the launcher.
    pub(crate) with: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// The exit code of the job.
    pub(crate) exit: i32,
    /// Texts that the job must print, on either stream.
    pub(crate) says: Vec<String>,
    pub(crate) limit_s: u64,
    /// Whether the program is started without the launcher.
    pub(crate) alone: bool,
    /// Whether the program tests what ranks on one host share. If so, it is not run with `--hosts`.
    pub(crate) one_host: bool,
    /// Whether the program tests what the standard leaves open. If so, it is not run with other MPIs.
    pub(crate) ours: bool,
    pub(crate) xfail: Option<String>,
    /// The seed for `ci/ranks/late/late.c`, which is linked to the program; `None`: it is not linked.
    pub(crate) late: Option<u64>,
    /// Functions that the program calls and that may have no body yet.
    pub(crate) needs: Vec<String>,
}

/// Parses all lines; an error names the wrong line and the reason.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fields = split(line).map_err(|why| format!("testlist line {}: {why}", index + 1))?;
        if fields.is_empty() {
            continue;
        }
        entries.push(entry(&fields).map_err(|why| format!("testlist line {}: {why}", index + 1))?);
    }
    Ok(entries)
}

impl Entry {
    /// The name of the test in reports, for one number of ranks.
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

fn entry(fields: &[String]) -> Result<Entry, String> {
    let [program, ranks, options @ ..] = fields else {
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

/// Splits a line at blanks: `key="a b"` is one field, `#` starts a comment.
fn split(line: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => break,
            ' ' | '\t' if !quoted => {
                if !field.is_empty() {
                    fields.push(std::mem::take(&mut field));
                }
            }
            _ => field.push(c),
        }
    }
    if quoted {
        return Err("a quotation mark is not closed".into());
    }
    if !field.is_empty() {
        fields.push(field);
    }
    Ok(fields)
}

/// The default limit (s), meant for programs that hang: many times what the slowest program takes, so that it is enough
/// on busy machines.
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
