//! The table of settings, and how single values are read and checked. [`crate::config`] reads them all.
//!
//! | file | what it does |
//! | --- | --- |
//! | `knobs.rs` | the table: name, unit, default, the names of other tools that are also accepted, meaning |
//! | `source.rs` | reads and checks single values |
//! | `in_effect.rs` | which of them are set, for `unisono doctor` |
//! | `unknown.rs` | variables that look like settings and are none |
//! | `page.rs` | the table as docs/settings.md |
//!
//! A value that cannot be obeyed is an error that names variable, value and problem. An empty variable is absent.

mod in_effect;
mod knobs;
mod page;
mod source;
mod unknown;

pub use in_effect::SetVariable;
pub(crate) use in_effect::in_effect;
pub(crate) use knobs::knob_named;
pub use knobs::{DEVELOPER_KNOBS, GROUPS, Knob, KnobGroup, knobs};
pub use page::settings_page;
pub(crate) use source::{Source, Values, configuration, parse, without_value};
pub(crate) use unknown::{unknown_names, warn_of};
