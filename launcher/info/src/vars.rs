// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of variables.

use crate::entry::TableEntry;
use crate::text::wrapped;
use runtime::var::{ControlVariable, ROWS, Range, VariableValues};
use serde_json::{Value, json};

/// All variables, sorted by category. `is_set`: returns whether the environment has a variable of this name.
pub(crate) fn entries(values: &VariableValues, is_set: impl Fn(&str) -> bool) -> Vec<TableEntry> {
    let one = |row: &ControlVariable| {
        let from = match row.range {
            Range::Foreign => String::new(),
            _ if is_set(row.name) => format!("  {} (set)", value(values, row)),
            _ => format!("  {} (default)", value(values, row)),
        };
        let range = match row.range {
            Range::Foreign => String::new(),
            range => wrapped(&range.describe(), 4),
        };
        TableEntry {
            group: row.category.text(),
            text: format!("{}{from}\n{range}{}", row.name, wrapped(row.text, 4)),
            json: for_programs(values, row, is_set(row.name)),
        }
    };
    let mut rows: Vec<&ControlVariable> = ROWS.iter().collect();
    // Variables of the launcher and of the compiler wrappers have no category, and come last.
    rows.sort_by_key(|row| row.category.place().unwrap_or(usize::MAX));
    rows.into_iter().map(one).collect()
}

fn for_programs(values: &VariableValues, row: &ControlVariable, is_set: bool) -> Value {
    let mut json = json!({
        "name": row.name,
        "category": row.category.name(),
        "verbosity": format!("{:?}", row.verbosity),
        "scope": format!("{:?}", row.scope),
        "set": is_set,
        "text": row.text,
    });
    if row.range != Range::Foreign {
        json["values"] = row.range.describe().into();
    }
    match row.range {
        Range::Number {
            least,
            most,
            default,
            unit,
        } => {
            json["value"] = values.get(row.variable).into();
            json["least"] = least.into();
            json["most"] = most.into();
            json["default"] = default.into();
            json["unit"] = unit.into();
        }
        Range::Words(words) => {
            json["value"] = value(values, row).into();
            json["words"] = words.into();
            json["default"] = words[0].into();
        }
        Range::Names { .. } | Range::List(_) | Range::Text(_) => {
            json["value"] = value(values, row).into()
        }
        Range::Foreign => {}
    }
    json
}

/// The value of a variable that is in effect, with its unit.
fn value(values: &VariableValues, row: &ControlVariable) -> String {
    let number = values.get(row.variable);
    match row.range {
        Range::Number { unit, .. } => format!("{number} {unit}").trim_end().to_owned(),
        Range::Words(words) => {
            let word = usize::try_from(number).ok().and_then(|at| words.get(at));
            word.copied().unwrap_or_default().to_owned()
        }
        Range::Names { .. } | Range::List(_) | Range::Text(_) => match values.text(row.variable) {
            "" => "any".to_owned(),
            text => text.to_owned(),
        },
        Range::Foreign => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::page;

    fn shown(pairs: &[(&str, &str)]) -> String {
        let own = pairs.iter().map(|(n, v)| ((*n).into(), (*v).into()));
        let (values, complaints) = VariableValues::from_environment(own);
        assert!(complaints.is_empty(), "{complaints:?}");
        let is_set = |name: &str| pairs.iter().any(|(set, _)| *set == name);
        page(&[("vars", entries(&values, is_set))])
    }

    #[test]
    fn every_variable_is_listed_with_its_text() {
        let page = shown(&[]);
        let joined = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for row in &ROWS {
            assert!(
                page.lines()
                    .any(|line| line.split(' ').next() == Some(row.name))
            );
            let text = row.text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(joined.contains(&text), "{}", row.name);
        }
        assert!(page.lines().all(|line| line.chars().count() <= 100));
    }

    #[test]
    fn set_values_are_shown() {
        let page = shown(&[
            ("RMPI_EAGER_LIMIT", "4K"),
            ("RMPI_WAIT", "spin"),
            ("RMPI_PROVIDERS", "verbs"),
        ]);
        for line in [
            "Collective operations: how they go, and how often they are called.",
            "RMPI_EAGER_LIMIT  4096 bytes (set)",
            "RMPI_WAIT  spin (set)",
            "RMPI_PROVIDERS  verbs (set)",
            "RMPI_NET_DEVICES  any (default)",
            "RMPI_COLLECTIVES  auto (default)",
            "RMPI_RANK",
        ] {
            assert!(page.lines().any(|other| other == line), "{line}\n{page}");
        }
    }
}
