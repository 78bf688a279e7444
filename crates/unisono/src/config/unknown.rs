//! Variables that look like settings and are none: somebody has misspelt one, or it is of another version.

use std::sync::Once;

use unisono_communicator::{Severity, log};
use unisono_schedule::nearest_names;

use super::table::{DEVELOPER_KNOBS, FORMER_NAMES, OF_VENDORS, knobs};

/// The beginning of all our variables.
const PREFIX: &str = "UNISONO_";

/// So many are named; the others are counted.
const NAMED_MAX: usize = 8;

/// The most settings that are proposed for one unknown variable.
const PROPOSED_MAX: usize = 3;

/// The names among `names` that look like settings and are none.
pub(super) fn unknown_names(names: impl Iterator<Item = String>) -> Vec<String> {
    let known = |name: &str| knobs().chain(DEVELOPER_KNOBS.knobs).any(|knob| knob.name == name);
    let mut unknown: Vec<String> = names.filter(|name| name.starts_with(PREFIX) && !known(name)).collect();
    unknown.sort_unstable();
    unknown
}

/// Warns of these variables, once in a process.
pub(super) fn warn_of(unknown: &[String]) {
    static SAID: Once = Once::new();
    if !unknown.is_empty() {
        SAID.call_once(|| log(Severity::Warn, None, format_args!("{}", sentence(unknown))));
    }
}

fn sentence(unknown: &[String]) -> String {
    let mut parts: Vec<String> = unknown.iter().take(NAMED_MAX).map(|name| answer(name)).collect();
    if let Some(more @ 1..) = unknown.len().checked_sub(NAMED_MAX) {
        parts.push(format!("{more} more are none"));
    }
    format!("{} (`unisono settings` lists all)", parts.join("; "))
}

/// Why a variable changes nothing.
pub(super) fn answer(name: &str) -> String {
    if let Some((_, now)) = FORMER_NAMES.iter().find(|(former, _)| *former == name) {
        return format!("{name} is no setting any more; it is called {now} now");
    }
    if OF_VENDORS.contains(&name) {
        return format!("{name} is a setting of a backend that this program was built without");
    }
    match &meant(&name[PREFIX.len()..])[..] {
        [] => format!("{name} is no setting"),
        [nearest] => format!("{name} is no setting; the nearest is {PREFIX}{nearest}"),
        [others @ .., last] => {
            let others: Vec<String> = others.iter().map(|other| format!("{PREFIX}{other}")).collect();
            format!("{name} is no setting; the nearest are {} and {PREFIX}{last}", others.join(", "))
        }
    }
}

/// The settings that `words` may mean, without their common prefix. If few settings end in these words, all of them:
/// the user has left out the first word. Else the nearest.
fn meant(words: &str) -> Vec<&'static str> {
    // Their common prefix would make all of them alike.
    let names = || knobs().map(|knob| knob.name.strip_prefix(PREFIX).unwrap_or(knob.name));
    let is_longer = |name: &&str| name.strip_suffix(words).is_some_and(|start| start.ends_with('_'));
    let longer: Vec<&str> = names().filter(is_longer).collect();
    if (1..=PROPOSED_MAX).contains(&longer.len()) {
        return longer;
    }
    nearest_names(names(), words).into_iter().take(1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_variables_are_named_with_their_nearest() {
        let set = ["UNISONO_CALL_TIMEOUT", "PATH", "UNISONO_STORE", "UNISONO_PRICES", "UNISONO_TEST_SEED"];
        let unknown = unknown_names(set.map(str::to_owned).into_iter());
        assert_eq!(unknown, ["UNISONO_CALL_TIMEOUT", "UNISONO_PRICES"]);
        assert_eq!(
            sentence(&unknown),
            "UNISONO_CALL_TIMEOUT is no setting; the nearest is UNISONO_CALL_TIMEOUT_S; UNISONO_PRICES is no \
             setting any more; it is called UNISONO_COST_MODEL now (`unisono settings` lists all)"
        );
        for (misspelt, meant) in [
            ("UNISONO_ALGORITM", "UNISONO_ALGORITHM"),
            ("UNISONO_LOG_LEVEL", "UNISONO_LOG"),
            ("UNISONO_INTERFACES", "UNISONO_INTERFACE"),
            ("UNISONO_", "UNISONO_"),
        ] {
            assert!(answer(misspelt).contains(&format!("the nearest is {meant}")), "{}", answer(misspelt));
        }
    }

    #[test]
    fn a_setting_of_a_backend_that_is_not_in_the_build_is_no_misspelling() {
        let said = "UNISONO_HCCL_DIR is a setting of a backend that this program was built without";
        assert_eq!(answer("UNISONO_HCCL_DIR"), said);
        let is_here = cfg!(feature = "hccl");
        assert_eq!(unknown_names(["UNISONO_HCCL_DIR".to_owned()].into_iter()).is_empty(), is_here);
    }

    #[test]
    fn all_settings_that_end_in_the_words_of_an_unknown_variable_are_proposed() {
        assert_eq!(
            answer("UNISONO_TIMEOUT_S"),
            "UNISONO_TIMEOUT_S is no setting; the nearest are UNISONO_CALL_TIMEOUT_S and UNISONO_JOIN_TIMEOUT_S"
        );
        // Too many end in these.
        for word in ["MS", ""] {
            let answer = answer(&format!("{PREFIX}{word}"));
            assert_eq!(answer.matches(PREFIX).count(), 2, "{answer}");
        }
    }

    #[test]
    fn many_unknown_variables_are_counted() {
        let unknown: Vec<String> = (0..11).map(|number| format!("UNISONO_NONSENSE_{number}")).collect();
        assert!(sentence(&unknown).ends_with("; 3 more are none (`unisono settings` lists all)"));
    }
}
