//! Settings of libraries that work on a device: the device, and the treatment of memory of the host.

use unisono_communicator::Result;
use unisono_communicator::settings::{HOW_CALLS_ARE_DONE, KnobGroup, Source, knob};

use crate::offloaded::HostMemory;

/// The settings of all libraries that work on a device.
#[rustfmt::skip]
pub const SETTINGS: KnobGroup = KnobGroup { title: HOW_CALLS_ARE_DONE, knobs: &[
    knob("UNISONO_DEVICE", "number", "", &[],
        "the device of this rank; else its place on the host, from the start again when there are fewer devices"),
    knob("UNISONO_HOST_MEMORY", "auto, refused, staged or tcp", "auto", &[],
        "what a backend for devices does with memory of the host: calls on it are refused, but for barriers and calls \
         of the library's own, or it is copied to the device and back, or calls on it go over TCP; auto: refused, but \
         tcp if UNISONO_BACKEND is auto"),
] };

/// The settings of backends for devices.
#[derive(Clone, Debug, Default)]
pub struct DeviceSettings {
    /// The device's number; else one device for each rank of the host in turn.
    pub number: Option<u32>,
    /// The way of calls on memory of the host. `None`: over TCP if nobody has named the backend; else calls on it are
    /// refused.
    pub host_memory: Option<HostMemory>,
}

impl DeviceSettings {
    /// The settings in a source with the rows of [`SETTINGS`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Configuration`] for the first value that cannot be obeyed.
    pub fn from_source(source: &Source<'_>) -> Result<DeviceSettings> {
        let choices = ["auto", "refused", "staged", "tcp"];
        Ok(DeviceSettings {
            number: source.number("UNISONO_DEVICE", 0, u32::MAX.into())?.map(|number| number as u32),
            host_memory: match source.choice("UNISONO_HOST_MEMORY", &choices)?.as_str() {
                "refused" => Some(HostMemory::Refused),
                "staged" => Some(HostMemory::Staged),
                "tcp" => Some(HostMemory::Companion),
                _ => None,
            },
        })
    }
}
