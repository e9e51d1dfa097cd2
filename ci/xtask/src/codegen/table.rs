// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses `runtime/abi/mpi.api` into chapters, functions and parameters. The head of that file explains its columns.

use std::collections::HashMap;

/// The whole table.
pub(crate) struct Api {
    pub(crate) chapters: Vec<Chapter>,
    /// Symbols that the library exports besides the functions.
    pub(crate) exports: Vec<String>,
}

/// One chapter of the standard; its entry points share a file.
pub(crate) struct Chapter {
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) functions: Vec<Function>,
}

/// One row: a function.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) section: String,
    pub(crate) params: Vec<Param>,
    /// The kind of the result, for the few functions that return a value instead of an error code.
    pub(crate) value: Option<String>,
    /// `module::function`; `None` if there is no body yet.
    pub(crate) body: Option<String>,
    pub(crate) express: Option<String>,
    /// The second fast path: tried after `express`, before the body.
    pub(crate) then: Option<String>,
    pub(crate) any_time: bool,
    /// Whether the body receives which of `MPI_X` and `MPI_X_c` was called.
    pub(crate) width: bool,
    pub(crate) deprecated: Option<String>,
}

/// The direction of a parameter's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParamDirection {
    In,
    Out,
    InOut,
}

/// How many items a parameter has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// One; the parameter is no array.
    One,
    /// As many as the value of this parameter or constant of the standard.
    Named(String),
    /// Only the body can determine the number (it depends on the communicator, or on a value elsewhere).
    Body,
}

/// One parameter.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) direction: ParamDirection,
    pub(crate) length: Length,
    /// Whether only `MPI_X_c` has it.
    pub(crate) large_only: bool,
    /// Whether NULL is allowed.
    pub(crate) optional: bool,
}

impl Function {
    /// Whether there is an `MPI_X_c` beside this `MPI_X`.
    pub(crate) fn has_twin(&self) -> bool {
        self.params
            .iter()
            .any(|p| super::kinds::has_two_widths(&p.kind))
    }

    pub(crate) fn is_tool(&self) -> bool {
        self.name.starts_with("MPI_T_")
    }
}

impl Api {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut api = Self {
            chapters: Vec::new(),
            exports: Vec::new(),
        };
        let mut seen = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let error = |what: String| format!("mpi.api, line {}: {what}", number + 1);
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(head) = line.strip_prefix("== ") {
                api.chapters.push(chapter(head).map_err(error)?);
                continue;
            }
            if let Some(symbol) = line.strip_prefix("export ") {
                api.exports.push(symbol.trim().to_owned());
                continue;
            }
            let function = row(line, &seen).map_err(error)?;
            if seen
                .insert(function.name.clone(), function.params.clone())
                .is_some()
            {
                return Err(error(format!("{} has a row already", function.name)));
            }
            let chapter = api.chapters.last_mut();
            let chapter = chapter.ok_or_else(|| error("no `== FILE  TITLE` line before".into()))?;
            chapter.functions.push(function);
        }
        Ok(api)
    }

    pub(crate) fn functions(&self) -> impl Iterator<Item = &Function> {
        self.chapters
            .iter()
            .flat_map(|chapter| chapter.functions.iter())
    }
}

fn chapter(head: &str) -> Result<Chapter, String> {
    let (file, title) = head.split_once("  ").ok_or_else(|| {
        format!("`== {head}` should be `== FILE  TITLE`, with two spaces between")
    })?;
    Ok(Chapter {
        file: file.into(),
        title: title.trim().into(),
        functions: Vec::new(),
    })
}

/// The columns of a row, which are separated by at least two spaces.
fn columns(line: &str) -> Vec<&str> {
    line.split("  ")
        .map(str::trim)
        .filter(|column| !column.is_empty())
        .collect()
}

fn row(line: &str, seen: &HashMap<String, Vec<Param>>) -> Result<Function, String> {
    let [name, section, params, tail] = columns(line)[..] else {
        let found = columns(line).len();
        return Err(format!(
            "{found} columns instead of four (name, section, parameters, body); two spaces end a column"
        ));
    };
    let (params, value) = match params.split_once(" -> ") {
        Some((params, value)) => (params, Some(value.trim().to_owned())),
        None => (params, None),
    };
    let mut function = Function {
        name: name.to_owned(),
        section: section.to_owned(),
        params: parameters(params, seen)?,
        value,
        body: None,
        express: None,
        then: None,
        any_time: false,
        width: false,
        deprecated: None,
    };
    attributes(tail, &mut function)?;
    Ok(function)
}

fn attributes(tail: &str, function: &mut Function) -> Result<(), String> {
    let mut fields = tail.split_whitespace();
    let body = fields.next().unwrap_or("-");
    function.body = (body != "-").then(|| body.to_owned());
    while let Some(field) = fields.next() {
        match field {
            "any-time" => function.any_time = true,
            "width" => function.width = true,
            "deprecated" => function.deprecated = fields.next().map(str::to_owned),
            "express" => function.express = fields.next().map(str::to_owned),
            "then" => function.then = fields.next().map(str::to_owned),
            _ => {
                return Err(format!(
                    "`{field}` is not `express`, `then`, `any-time`, `width` or `deprecated`"
                ));
            }
        }
    }
    let paths = [&function.body, &function.express, &function.then];
    for path in paths.into_iter().flatten() {
        if path.split("::").count() != 2 {
            return Err(format!(
                "the body `{path}` is not of the form module::function"
            ));
        }
    }
    Ok(())
}

fn parameters(text: &str, seen: &HashMap<String, Vec<Param>>) -> Result<Vec<Param>, String> {
    let mut params = Vec::new();
    if text == "()" {
        return Ok(params);
    }
    for part in text.split(", ") {
        if let Some(model) = part
            .strip_prefix("(as ")
            .and_then(|rest| rest.strip_suffix(')'))
        {
            let of_model = seen
                .get(model)
                .ok_or_else(|| format!("no row for {model} above"))?;
            params.extend(of_model.iter().cloned());
        } else {
            params.push(parameter(part)?);
        }
    }
    Ok(params)
}

fn parameter(text: &str) -> Result<Param, String> {
    let mut param = Param {
        name: String::new(),
        kind: String::new(),
        direction: ParamDirection::In,
        length: Length::One,
        large_only: false,
        optional: false,
    };
    if text == "..." {
        param.kind = text.to_owned();
        return Ok(param);
    }
    let mut fields: Vec<&str> = text.split_whitespace().collect();
    param.name = fields.pop().unwrap_or_default().to_owned();
    let kind = fields
        .pop()
        .ok_or_else(|| format!("`{text}` is not `KIND NAME`"))?;
    for field in fields {
        match field {
            "large" => param.large_only = true,
            "opt" => param.optional = true,
            "in" => param.direction = ParamDirection::In,
            "out" => param.direction = ParamDirection::Out,
            "inout" => param.direction = ParamDirection::InOut,
            _ => {
                return Err(format!(
                    "`{field}` in `{text}` is not large, opt, in, out or inout"
                ));
            }
        }
    }
    match kind.split_once('[') {
        None => param.kind = kind.to_owned(),
        Some((kind, length)) => {
            param.kind = kind.to_owned();
            param.length = match length.trim_end_matches(']') {
                "*" => Length::Body,
                name => Length::Named(name.to_owned()),
            };
        }
    }
    super::kinds::check(&param)?;
    Ok(param)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "== pt2pt  Point to point\n";

    #[test]
    fn a_row_gives_its_parameters_body_and_attributes() {
        let api = Api::parse(&format!(
            "{HEAD}MPI_X  3.2  Buf buf, Count count, out Int[count] list  a::b express c::d then c::e any-time\n"
        ))
        .unwrap();
        let function = api.functions().next().unwrap();
        assert_eq!(function.params.len(), 3);
        assert_eq!(function.params[2].direction, ParamDirection::Out);
        assert_eq!(function.params[2].length, Length::Named("count".into()));
        assert_eq!(function.body.as_deref(), Some("a::b"));
        assert_eq!(function.express.as_deref(), Some("c::d"));
        assert_eq!(function.then.as_deref(), Some("c::e"));
        assert!(function.any_time && function.has_twin());
    }

    #[test]
    fn as_takes_the_parameters_of_an_earlier_row() {
        let api = Api::parse(&format!(
            "{HEAD}MPI_A  3  Buf buf, Tag tag  -\nMPI_B  3  (as MPI_A), out Request request  -\n"
        ))
        .unwrap();
        let b = api.functions().nth(1).unwrap();
        let names: Vec<&str> = b.params.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["buf", "tag", "request"]);
    }

    #[test]
    fn mistakes_name_the_line_and_what_was_given() {
        let twice = format!("{HEAD}MPI_A  3  ()  -\nMPI_A  3  ()  -\n");
        assert!(
            Api::parse(&twice)
                .err()
                .unwrap()
                .contains("line 3: MPI_A has a row already")
        );
        let kind = format!("{HEAD}MPI_A  3  Elephant e  -\n");
        assert!(Api::parse(&kind).err().unwrap().contains("Elephant"));
        let model = format!("{HEAD}MPI_A  3  (as MPI_Z)  -\n");
        assert!(
            Api::parse(&model)
                .err()
                .unwrap()
                .contains("no row for MPI_Z above")
        );
        let short = format!("{HEAD}MPI_A  3  ()\n");
        assert!(
            Api::parse(&short)
                .err()
                .unwrap()
                .contains("3 columns instead of four")
        );
    }
}
