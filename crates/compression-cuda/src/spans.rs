//! The buffers of a call as addresses on the card.

use unisono_communicator::{Buffer, BufferMut, DeviceBuffer, Error, Result};
use unisono_compression::Feedback;

use crate::card::CudaKernels;

/// Words of 4 bytes on the card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) address: u64,
    pub(crate) words: usize,
}

impl Span {
    /// An absent span: a null pointer.
    pub(crate) const NONE: Span = Span { address: 0, words: 0 };

    /// Whether it has at least so many words.
    pub(crate) fn check(self, argument: &'static str, words: usize) -> Result<Span> {
        if self.words >= words {
            return Ok(self);
        }
        Err(Error::invalid(argument, format!("has {} words, and the call needs {words}", self.words)))
    }
}

/// An encoder's residuals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Residual {
    pub(crate) old: Span,
    pub(crate) new: Span,
}

impl CudaKernels {
    fn device_span(&self, argument: &'static str, buffer: &DeviceBuffer) -> Result<Span> {
        let [span] = buffer.spans() else {
            return Err(Error::Unsupported {
                what: format!("a list of spans as {argument}"),
                backend: "compression on CUDA",
                instead: Some("one span".to_owned()),
            });
        };
        if span.device() != self.0.context.ordinal() {
            let own = &self.0.context;
            return Err(Error::invalid(argument, format!("is on device {}, not on {own:?}", span.device())));
        }
        if !span.address().is_multiple_of(4) || !span.bytes().is_multiple_of(4) {
            let problem =
                format!("{} bytes at {:#x}, which are no whole words", span.bytes(), span.address());
            return Err(Error::invalid(argument, problem));
        }
        Ok(Span { address: span.address() as u64, words: span.bytes() / 4 })
    }

    pub(crate) fn span(&self, argument: &'static str, buffer: &Buffer<'_>) -> Result<Span> {
        match buffer {
            Buffer::Device(buffer) => self.device_span(argument, buffer),
            Buffer::Host(_) => Err(host_memory(argument)),
        }
    }

    pub(crate) fn span_mut(&self, argument: &'static str, buffer: &BufferMut<'_>) -> Result<Span> {
        match buffer {
            BufferMut::Device(buffer) => self.device_span(argument, buffer),
            BufferMut::Host(_) => Err(host_memory(argument)),
        }
    }

    /// The parts, each of at least so many words.
    pub(crate) fn spans(&self, parts: &[Buffer<'_>], words: usize) -> Result<Vec<Span>> {
        parts.iter().map(|part| self.span("parts", part)?.check("parts", words)).collect()
    }

    /// Of so many elements; null pointers if there is none.
    pub(crate) fn residual(&self, feedback: Option<Feedback<'_>>, elements: usize) -> Result<Residual> {
        let Some(Feedback { old, new }) = feedback else {
            return Ok(Residual { old: Span::NONE, new: Span::NONE });
        };
        Ok(Residual {
            old: self.span("feedback.old", &old)?.check("feedback.old", elements)?,
            new: self.span_mut("feedback.new", &new)?.check("feedback.new", elements)?,
        })
    }
}

fn host_memory(argument: &str) -> Error {
    Error::Unsupported {
        what: format!("host memory as {argument}"),
        backend: "compression on CUDA",
        instead: Some("memory of KernelDevice::allocate, or HostKernels".to_owned()),
    }
}
