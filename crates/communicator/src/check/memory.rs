//! The check of a call's memory: all on the host and no stream, or all on one device with a stream of that device.

use crate::call::Call;
use crate::error::{Error, Result};
use crate::memory::device::{DeviceBuffer, DeviceStream};
use crate::memory::{Buffer, BufferMut, Buffers, MemoryKind};

/// Checks that memory and stream fit together. Empty host memory fits both kinds: it stands for a missing buffer.
pub(crate) fn check_memory(call: &Call<'_>) -> Result<()> {
    match call.memory() {
        MemoryKind::Host => Ok(()),
        MemoryKind::Device => check_device_call(call),
    }
}

#[cold]
fn check_device_call(call: &Call<'_>) -> Result<()> {
    let sides = sides(&call.buffers);
    let on_host = sides.iter().flatten().find(|side| side.buffer.is_none());
    let on_device = sides.iter().flatten().find_map(|side| side.buffer.map(|_| side.argument));
    match (on_host, on_device, call.stream) {
        (Some(host), Some(device), _) => {
            let problem = format!("on the host, but the {device} is on a device; both must be on one side");
            Err(Error::invalid(host.argument, problem))
        }
        (Some(host), None, _) => {
            let problem = format!("given, but the {} is on the host, where calls have none", host.argument);
            Err(Error::invalid("stream", problem))
        }
        (None, _, None) => {
            let problem = "missing; a call on device memory runs in the order of a stream of that device";
            Err(Error::invalid("stream", problem))
        }
        (None, _, Some(stream)) => sides.iter().flatten().try_for_each(|side| check_device(side, stream)),
    }
}

/// One buffer of a call.
struct Placed<'a> {
    /// Its name in errors.
    argument: &'static str,
    /// `None` on the host.
    buffer: Option<&'a DeviceBuffer>,
}

fn sides<'a>(buffers: &'a Buffers<'_>) -> [Option<Placed<'a>>; 2] {
    let (input, output, name) = match buffers {
        Buffers::InOut(buffer) => (None, buffer, "buffer"),
        Buffers::Separate { input, output } => (Some(input), output, "output"),
    };
    let placed = |argument, buffer| Some(Placed { argument, buffer });
    let input = match input {
        Some(Buffer::Device(buffer)) => placed("input", Some(*buffer)),
        Some(Buffer::Host(segments)) if segments.bytes() > 0 => placed("input", None),
        Some(Buffer::Host(_)) | None => None,
    };
    let output = match output {
        BufferMut::Device(buffer) => placed(name, Some(&***buffer)),
        BufferMut::Host(segments) if segments.bytes() > 0 => placed(name, None),
        BufferMut::Host(_) => None,
    };
    [input, output]
}

fn check_device(side: &Placed<'_>, stream: DeviceStream) -> Result<()> {
    let mut spans = side.buffer.into_iter().flat_map(DeviceBuffer::spans).enumerate();
    match spans.find(|(_, span)| span.device() != stream.device()) {
        Some((index, span)) => {
            let (found, wanted) = (span.device(), stream.device());
            let problem = format!("span {index} is on device {found}, but the stream is of device {wanted}");
            Err(Error::invalid(side.argument, problem))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
