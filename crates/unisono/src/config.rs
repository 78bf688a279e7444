//! The types of the fields of [`Config`](crate::Config), and the table of all settings.
//!
//! ```
//! use unisono::config::GROUPS;
//!
//! let mut knobs = GROUPS.iter().flat_map(|group| group.knobs);
//! assert!(knobs.any(|knob| knob.name == "UNISONO_BACKEND"));
//! ```

pub use unisono_job::config::{DeviceSettings, HostMemorySetting, Interfaces};
pub use unisono_job::environment::Placement;
pub use unisono_job::job_settings::Checksum;
pub use unisono_job::secret::SecretSource;
pub use unisono_job::settings::{GROUPS, Knob, KnobGroup};
