//! The algorithms that a user names, and whether they fit a group.

use std::sync::Arc;

use unisono_schedule::{Algorithm, Choice, Collective, Refusal, Refused, Registry, Shape};

use crate::problem::{Problem, Result};

/// The algorithms of this name: one for `collective/name`, one of each collective for `name`, all for `None`.
pub(crate) fn named<'a>(registry: &'a Registry, name: Option<&str>) -> Result<Vec<&'a Arc<Algorithm>>> {
    let Some(name) = name else { return Ok(registry.algorithms().collect()) };
    let found: Vec<_> = registry
        .algorithms()
        .filter(|algorithm| algorithm.name == name || algorithm.qualified_name() == name)
        .collect();
    if found.is_empty() {
        let nearest = match name.contains('/') {
            true => registry.nearest_qualified(name).join(", "),
            false => registry.nearest_of_all(name).join(", "),
        };
        let of_collective = |collective: Collective| {
            let names: Vec<_> = registry
                .algorithms()
                .filter(|one| one.collective == collective)
                .map(|one| one.name)
                .collect();
            format!("{name} is a collective, its algorithms are {}", names.join(", "))
        };
        let unknown = |_| format!("unknown algorithm {name:?}, the nearest are {nearest}; `list` shows all");
        return Err(Problem::usage(name.parse().map_or_else(unknown, of_collective)));
    }
    Ok(found)
}

/// The algorithms of this name that fit `shape`. The name may fix the number of leaders, as in `leaders:4`.
pub(crate) fn fitting(registry: &Registry, name: Option<&str>, shape: &Shape) -> Result<Vec<Choice>> {
    let (plain, number) = match name.and_then(|name| name.split_once(':')) {
        Some((plain, number)) => (Some(plain), format!(":{number}")),
        None => (name, String::new()),
    };
    // An algorithm that cannot even say whether it fits is refused where it is used.
    let is_unfit = |refused: Refused| matches!(refused.reason, Refusal::DoesNotFit { .. });
    let (others, fitting): (Vec<_>, Vec<_>) =
        named(registry, plain)?.into_iter().partition(|one| one.check_fit(shape).is_err_and(is_unfit));
    if let (true, Some(other)) = (fitting.is_empty(), others.first()) {
        return Err(Problem::usage(misfit(other, shape)));
    }
    let choice = |algorithm: &Arc<Algorithm>| {
        let name = format!("{}{number}", algorithm.name);
        let choice = Choice::named(registry, algorithm.collective, &name, shape);
        choice.map_err(|unknown| Problem::usage(unknown.to_string()))
    };
    fitting.into_iter().map(choice).collect()
}

/// The line for an `algorithm` that does not support `shape`. Only its own function knows why, if it requires nothing.
pub fn misfit(algorithm: &Algorithm, shape: &Shape) -> String {
    let (name, requires, ranks) =
        (algorithm.qualified_name(), requirements(algorithm).join(", "), shape.ranks);
    if requires.is_empty() {
        format!("{name} does not fit {ranks} ranks with root {}", shape.root)
    } else {
        format!("{name} does not fit {ranks} ranks, it requires {requires}")
    }
}

/// The conditions for the use of an algorithm, in words.
pub(crate) fn requirements(algorithm: &Algorithm) -> Vec<&'static str> {
    let requires = algorithm.requires;
    [
        (requires.commutative, "a commutative operator"),
        (requires.power_of_two, "a power of two of ranks"),
        (requires.even_counts, "even counts"),
        (requires.out_of_place, "separate buffers"),
    ]
    .iter()
    .filter_map(|&(required, words)| required.then_some(words))
    .collect()
}
