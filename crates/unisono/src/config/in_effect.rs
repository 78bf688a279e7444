//! The variables of this process's environment that say something to us, for `unisono doctor`.

use unisono_communicator::settings::{Knob, environment};

use super::table::{DEVELOPER_KNOBS, knobs};
use super::unknown::answer;

/// A variable that is set.
#[derive(Clone, Debug)]
pub struct SetVariable {
    /// Its name: a setting's own, or a name of another tool.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The setting; `None` for a name that begins with `UNISONO_` and is none.
    pub knob: Option<&'static Knob>,
}

impl SetVariable {
    /// Why it changes nothing: no setting has this name, and which name is most like it.
    pub fn problem(&self) -> Option<String> {
        self.knob.is_none().then(|| answer(&self.name))
    }
}

/// The variables of this process's environment that are settings or are named like ours, by name.
pub fn set_variables() -> Vec<SetVariable> {
    in_effect(environment())
}

fn in_effect(variables: impl Iterator<Item = (String, String)>) -> Vec<SetVariable> {
    let mut set: Vec<SetVariable> = variables
        .map(|(name, value)| {
            let is_it = |knob: &&Knob| knob.name == name || knob.also.contains(&name.as_str());
            SetVariable { knob: knobs().chain(DEVELOPER_KNOBS.knobs).find(is_it), name, value }
        })
        .filter(|one| one.knob.is_some() || one.name.starts_with("UNISONO_"))
        .collect();
    set.sort_by(|one, other| one.name.cmp(&other.name));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_what_looks_like_one_are_found() {
        let set = [("UNISONO_SPIN", "3"), ("PATH", "/bin"), ("WORLD_SIZE", "2"), ("UNISONO_JOB", "a")];
        let found = in_effect(set.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter());
        let found: Vec<_> =
            found.iter().map(|one| (one.name.as_str(), one.knob.map(|knob| knob.name))).collect();
        let expected = [
            ("UNISONO_JOB", Some("UNISONO_JOB")),
            ("UNISONO_SPIN", None),
            ("WORLD_SIZE", Some("UNISONO_WORLD_SIZE")),
        ];
        assert_eq!(found, expected);
    }
}
