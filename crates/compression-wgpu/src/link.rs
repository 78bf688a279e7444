//! A device with its queue: calls whose errors are returned, and copies.

use std::fmt;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};

use unisono_communicator::{Error, Result};

use crate::adapter::{ready, title};
use crate::error::{WgpuCode, caught, failed};

/// A device with its queue.
pub(crate) struct Link {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    /// The adapter as errors name it.
    pub(crate) adapter: String,
    /// Why the device is lost.
    lost: Arc<OnceLock<String>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.adapter)
    }
}

impl Link {
    /// Takes the device's callback for its loss.
    pub(crate) fn new(info: &wgpu::AdapterInfo, device: wgpu::Device, queue: wgpu::Queue) -> Link {
        let lost = Arc::new(OnceLock::new());
        let told = Arc::clone(&lost);
        device.set_device_lost_callback(move |reason, text| {
            let _ = told.set(format!("{reason:?}: {text}"));
        });
        Link { device, queue, adapter: title(info), lost }
    }

    /// Makes calls of wgpu, and returns the first error of them.
    pub(crate) fn checked<T>(&self, call: &str, work: impl FnOnce() -> T) -> Result<T> {
        self.check_lost(call)?;
        let filters =
            [wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let done = work();
        // All are taken off, the last one first.
        let errors = scopes.into_iter().rev().map(|scope| ready(scope.pop()));
        let error = errors.fold(None, |first: Option<wgpu::Error>, next| first.or(next));
        let Some(error) = error else { return Ok(done) };
        Err(self.cause(call).unwrap_or_else(|| caught(&self.adapter, call, &error)))
    }

    /// The error of a lost device. wgpu takes calls on a lost device, which do nothing, and reports the loss only when
    /// the device is polled.
    fn check_lost(&self, call: &str) -> Result<()> {
        let _ = self.device.poll(wgpu::PollType::Poll);
        self.lost(call).map_or(Ok(()), Err)
    }

    fn lost(&self, call: &str) -> Option<Error> {
        let reason = self.lost.get()?;
        Some(failed(&self.adapter, call, WgpuCode::Lost, reason.as_str()))
    }

    /// The error of a lost device, if that is the cause of another error. wgpu says so only when all that was enqueued
    /// before has ended.
    fn cause(&self, call: &str) -> Option<Error> {
        let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
        self.lost(call)
    }

    /// Waits for a submission, and reads the words that it has copied to the start of `staging`.
    pub(crate) fn read_back(
        &self,
        call: &str,
        staging: &wgpu::Buffer,
        submission: wgpu::SubmissionIndex,
        to: &mut [u32],
    ) -> Result<()> {
        let bytes = size_of_val(to) as u64;
        let (sender, receiver) = mpsc::channel();
        let polled = self.checked(call, || {
            staging.map_async(wgpu::MapMode::Read, ..bytes, move |mapped| {
                let _ = sender.send(mapped);
            });
            self.device.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: None })
        })?;
        let internal = |text: String| {
            self.cause(call).unwrap_or_else(|| failed(&self.adapter, call, WgpuCode::Internal, text))
        };
        polled.map_err(|error| internal(error.to_string()))?;
        // Another thread that polls may have taken up the call of the closure, and be about to make it.
        match receiver.recv() {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(internal("the result could not be mapped".to_owned())),
        }
        self.checked(call, || {
            let view = staging.get_mapped_range(..bytes).map_err(|error| internal(error.to_string()))?;
            bytemuck::cast_slice_mut(to).copy_from_slice(&view);
            drop(view);
            staging.unmap();
            Ok(())
        })?
    }
}
