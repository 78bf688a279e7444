//! The number of this process and the address of rank 0, the variables that gave them, and the variables that changed
//! nothing.

use std::collections::BTreeMap;

use serde::Serialize;
use unisono_job::environment::{Discovery, Lost, Sourced};

use crate::print::{self, Table};
use crate::problem::Result;

/// The JSON document. `source` has the keys of the values before it.
#[derive(Serialize)]
struct Discovered<'a> {
    rank: u32,
    world_size: u32,
    local_rank: Option<u32>,
    local_world_size: Option<u32>,
    cross_rank: Option<u32>,
    cross_size: Option<u32>,
    address: Option<&'a str>,
    port: Option<u16>,
    source: BTreeMap<&'static str, Option<&'a str>>,
    platform: Option<&'static str>,
    lost: Vec<LostVariables<'a>>,
}

/// Variables of one launcher, platform or setting that changed nothing.
#[derive(Serialize)]
struct LostVariables<'a> {
    from: &'static str,
    variables: BTreeMap<&'a str, &'a str>,
    reason: &'a str,
}

/// Prints the place of this process by the environment; variables that contradict each other are an error.
pub(super) fn discovery(json: bool) -> Result<()> {
    let discovery = Discovery::from_environment()?;
    if json { print::document(&document(&discovery)) } else { print::line(page(&discovery).trim_end()) }
}

fn value<T: Copy>(one: &Option<Sourced<T>>) -> Option<T> {
    one.as_ref().map(|one| one.value)
}

fn document(discovery: &Discovery) -> Discovered<'_> {
    let numbers = &discovery.numbers;
    Discovered {
        rank: numbers.rank.value,
        world_size: numbers.world_size.value,
        local_rank: value(&numbers.local_rank),
        local_world_size: value(&numbers.local_world_size),
        cross_rank: value(&numbers.cross_rank),
        cross_size: value(&numbers.cross_size),
        address: discovery.address.as_ref().map(|address| address.value.as_str()),
        port: value(&discovery.port),
        source: rows(discovery).map(|(name, row)| (name, row.map(|(_, source)| source))).into(),
        platform: discovery.platform.map(|platform| platform.name()),
        lost: discovery.lost.iter().map(lost_variables).collect(),
    }
}

fn lost_variables(lost: &Lost) -> LostVariables<'_> {
    let variables = lost.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    LostVariables { from: lost.from, variables, reason: &lost.reason }
}

/// A value as a text, and its source; `None` where nobody says it.
type SourcedText<'a> = (&'static str, Option<(String, &'a str)>);

/// Every value, under its name in the document.
fn rows(discovery: &Discovery) -> [SourcedText<'_>; 8] {
    fn number<T: ToString>(one: &Sourced<T>) -> (String, &str) {
        (one.value.to_string(), &one.source)
    }
    let numbers = &discovery.numbers;
    [
        ("rank", Some(number(&numbers.rank))),
        ("world_size", Some(number(&numbers.world_size))),
        ("local_rank", numbers.local_rank.as_ref().map(number)),
        ("local_world_size", numbers.local_world_size.as_ref().map(number)),
        ("cross_rank", numbers.cross_rank.as_ref().map(number)),
        ("cross_size", numbers.cross_size.as_ref().map(number)),
        ("address", discovery.address.as_ref().map(number)),
        ("port", discovery.port.as_ref().map(number)),
    ]
}

fn page(discovery: &Discovery) -> String {
    let mut values = Table::new(&["value", "", "said by"]);
    for (name, row) in rows(discovery) {
        let (value, source) = row.unwrap_or(("unknown".to_owned(), ""));
        values.row(vec![name.to_owned(), value, source.to_owned()]);
    }
    let mut page = values.to_string();
    if let Some(platform) = discovery.platform {
        page += &format!("platform: {}\n", platform.name());
    }
    if discovery.lost.is_empty() {
        return page + "every variable about this process counts\n";
    }
    let mut lost = Table::new(&["changed nothing", "of", "why"]);
    for Lost { from, variables, reason } in &discovery.lost {
        let variables: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        lost.row(vec![variables.join(" "), (*from).to_owned(), reason.clone()]);
    }
    page + "\n" + &lost.to_string()
}
