//! The configuration of the communication log: the five keys of DeepSpeed's `comms_logger`.

use std::collections::BTreeSet;

use crate::call::operation::Operation;

/// The configuration of the communication log. The keys and their defaults come from DeepSpeed's configuration block
/// `comms_logger`, and each does the work of its name: `enabled: false` switches the log off.
///
/// ```
/// use unisono_communicator::CommsLoggerConfig;
/// let config = CommsLoggerConfig { enabled: true, prof_ops: vec!["all_reduce".to_owned()], ..Default::default() };
/// assert!(config.prof_all && !config.verbose);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct CommsLoggerConfig {
    /// Whether calls are recorded.
    pub enabled: bool,
    /// Whether each call is a line in the log too, on the first rank of its communicator.
    pub verbose: bool,
    /// Whether calls of all operations are recorded; else calls of the operations in `prof_ops`, and calls with
    /// [`crate::CallOptions::profiled`].
    pub prof_all: bool,
    /// Whether calls of different lines of the program have rows of their own, which name the line.
    pub debug: bool,
    /// The operations that are recorded unless all are: names of operations, as reports write them or as DeepSpeed
    /// does (`all_gather_into_tensor`), and names of calls ([`crate::CallOptions::log_name`], labels, parent calls).
    pub prof_ops: Vec<String>,
}

impl Default for CommsLoggerConfig {
    fn default() -> CommsLoggerConfig {
        CommsLoggerConfig {
            enabled: false,
            verbose: false,
            prof_all: true,
            debug: false,
            prof_ops: Vec::new(),
        }
    }
}

impl CommsLoggerConfig {
    /// All calls, without lines in the log.
    pub fn enabled() -> CommsLoggerConfig {
        CommsLoggerConfig { enabled: true, ..CommsLoggerConfig::default() }
    }
}

/// A set of operations and of names of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Bit n stands for the operation of code n.
    pub(super) operations: u32,
    pub(super) names: BTreeSet<String>,
}

impl Selection {
    /// The operations and names of a list.
    pub(super) fn of<S: AsRef<str>>(list: &[S]) -> Selection {
        let mut selection = Selection::default();
        for name in list {
            match operation_named(name.as_ref()) {
                Some(operation) => selection.operations |= bit(operation),
                None => drop(selection.names.insert(name.as_ref().to_owned())),
            }
        }
        selection
    }

    /// The list that selects the same.
    pub(super) fn list(&self) -> Vec<String> {
        let operations = Operation::all().filter(|operation| self.operations & bit(*operation) != 0);
        let operations = operations.map(|operation| operation.name().to_owned());
        operations.chain(self.names.iter().cloned()).collect()
    }
}

pub(super) fn bit(operation: Operation) -> u32 {
    1 << operation.code()
}

/// The operation of a name, ours or DeepSpeed's.
pub(super) fn operation_named(name: &str) -> Option<Operation> {
    let own = match name {
        "all_gather_into_tensor" | "all_gather_base" | "all_gather_coalesced" => "all_gather",
        "all_reduce_coalesced" | "inference_all_reduce" => "all_reduce",
        "all_to_all_single" => "all_to_all",
        "isend" => "send",
        "irecv" => "recv",
        "reduce_scatter_tensor" | "reduce_scatter_base" => "reduce_scatter",
        own => own,
    };
    own.parse().ok()
}

#[cfg(test)]
mod tests {
    use unisono_schedule::Collective;

    use super::*;

    #[test]
    fn i8_operations_are_selected_by_our_name_and_by_deepspeeds() {
        let selection = Selection::of(&["all_gather_into_tensor", "barrier", "isend", "my loss"]);
        let operations = [Collective::AllGather.into(), Collective::Barrier.into(), Operation::Send];
        assert_eq!(selection.operations, operations.map(bit).iter().sum());
        assert_eq!(selection.list(), ["all_gather", "barrier", "send", "my loss"]);
        assert_eq!(Selection::of(&selection.list()), selection);
        assert_eq!(selection.names.into_iter().collect::<Vec<_>>(), ["my loss"]);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn i2_the_keys_are_deepspeeds_with_its_defaults() {
        use serde::Deserialize;
        use serde::de::value::{Error, MapDeserializer};
        let read = |keys: &[(&'static str, bool)]| {
            CommsLoggerConfig::deserialize(MapDeserializer::<_, Error>::new(keys.iter().copied()))
        };
        assert_eq!(read(&[]), Ok(CommsLoggerConfig::default()));
        assert_eq!(read(&[("enabled", true)]), Ok(CommsLoggerConfig::enabled()));
        let error = read(&[("enabled", true), ("prof_al", false)]).unwrap_err().to_string();
        assert!(error.contains("prof_al") && error.contains("prof_all"), "{error}");
    }
}
