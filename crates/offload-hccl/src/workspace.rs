//! Memory that operators need while they run, which is kept for the next ones: nobody waits for it.

#![expect(unsafe_code, reason = "memory of a device, for operators on a stream")]

use std::ffi::c_void;
use std::sync::PoisonError;

use unisono_communicator::Result;
use unisono_offload::{Device, RawEvent, RawStream};

use crate::device::AclDevice;

/// Memory that an operator needs while it runs.
pub(crate) struct Workspace {
    address: *mut c_void,
    bytes: usize,
    /// Behind the operator.
    event: RawEvent,
}

// SAFETY: ACL takes addresses of its memory from any thread.
unsafe impl Send for Workspace {}

impl AclDevice {
    /// Lets `launch` enqueue an operator on the stream, with a workspace of so many bytes, at least one. No wait: the
    /// workspace serves again when the operator is done.
    ///
    /// # Safety
    /// As [`Device::scale`]; the operator uses no more of the workspace.
    ///
    /// # Errors
    /// The errors of `launch` and of the device.
    pub(crate) unsafe fn with_workspace(
        &self,
        bytes: usize,
        stream: RawStream,
        launch: impl FnOnce(*mut c_void) -> Result<()>,
    ) -> Result<()> {
        let workspace = self.workspace(bytes)?;
        launch(workspace.address)?;
        // SAFETY: the caller's; the event is of this device. After an error the workspace stays as it is for ever,
        // since nobody would know when the operator is done.
        unsafe { self.record(workspace.event, stream) }?;
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner).push(workspace);
        Ok(())
    }

    /// A workspace that serves nobody.
    fn workspace(&self, bytes: usize) -> Result<Workspace> {
        let mut kept = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        for index in 0..kept.len() {
            // SAFETY: the event is of this device, and was recorded.
            if kept[index].bytes >= bytes && unsafe { self.is_done(kept[index].event) }? {
                return Ok(kept.swap_remove(index));
            }
        }
        drop(kept);
        let event = self.create_event()?;
        let address = self.allocate(bytes).inspect_err(|_| {
            // SAFETY: it was just made.
            unsafe { self.destroy_event(event) };
        })?;
        Ok(Workspace { address, bytes, event })
    }

    /// Frees the workspaces whose operators are done, as all are but the workspaces of work that was left.
    pub(crate) fn drop_workspaces(&mut self) {
        for workspace in std::mem::take(self.workspaces.get_mut().unwrap_or_else(PoisonError::into_inner)) {
            // SAFETY: both are this value's, and the event was recorded.
            unsafe {
                if self.is_done(workspace.event).is_ok_and(|is_done| is_done) {
                    self.free(workspace.address);
                    self.destroy_event(workspace.event);
                }
            }
        }
    }
}
