//! The settings of a process: the types of the fields of [`Config`](crate::Config), and the table of all settings.
//!
//! ```
//! use unisono::config::GROUPS;
//!
//! let mut knobs = GROUPS.iter().flat_map(|group| group.knobs);
//! assert!(knobs.any(|knob| knob.name == "UNISONO_BACKEND"));
//! ```

pub(crate) mod backend;
#[cfg(feature = "cli")]
mod in_effect;
#[cfg(feature = "cli")]
mod page;
pub(crate) mod process;
mod table;
#[cfg(test)]
mod tests;
mod unknown;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub use in_effect::{SetVariable, set_variables};
#[cfg(feature = "cli")]
#[doc(hidden)]
pub use page::settings_page;
pub use table::GROUPS;
pub use unisono_communicator::settings::{Knob, KnobGroup};
pub use unisono_job::SingleCopy;
pub use unisono_job::config::{Config as JobConfig, Interfaces};
pub use unisono_job::environment::Placement;
pub use unisono_job::job_settings::Checksum;
pub use unisono_job::secret::SecretSource;
#[cfg(feature = "offload")]
pub use unisono_offload::DeviceSettings;
