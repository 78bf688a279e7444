//! The buffers of a call as addresses on the device.

use unisono_communicator::{Buffer, BufferMut, DeviceBuffer, Error, Result};
use unisono_compression::Feedback;
use unisono_kernels::sign_words;

use crate::memory::WORD_BYTES;
use crate::npu::{BACKEND, NpuKernels, unsupported};

/// Words of 4 bytes on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) address: usize,
    pub(crate) words: usize,
}

impl Span {
    /// Whether it has at least so many words; the first of them.
    pub(crate) fn check(self, argument: &'static str, words: usize) -> Result<Span> {
        if self.words >= words {
            return Ok(Span { words, ..self });
        }
        Err(Error::invalid(argument, format!("has {} words, and the call needs {words}", self.words)))
    }

    /// Some of its words.
    pub(crate) fn part(self, at: usize, words: usize) -> Span {
        Span { address: self.address + at * WORD_BYTES, words }
    }
}

/// An encoder's residuals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Residual {
    pub(crate) old: Span,
    pub(crate) new: Span,
}

impl NpuKernels {
    fn device_span(&self, argument: &'static str, buffer: &DeviceBuffer) -> Result<Span> {
        let [span] = buffer.spans() else {
            let (what, instead) = (format!("a list of spans as {argument}"), Some("one span".to_owned()));
            return Err(Error::Unsupported { what, backend: BACKEND, instead });
        };
        let own = self.0.device().ordinal();
        if span.device() != own {
            return Err(Error::invalid(argument, format!("is on device {}, not on {own}", span.device())));
        }
        if !span.address().is_multiple_of(WORD_BYTES) || !span.bytes().is_multiple_of(WORD_BYTES) {
            let problem =
                format!("{} bytes at {:#x}, which are no whole words", span.bytes(), span.address());
            return Err(Error::invalid(argument, problem));
        }
        Ok(Span { address: span.address(), words: span.bytes() / WORD_BYTES })
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

    /// Of so many elements.
    pub(crate) fn residual(&self, Feedback { old, new }: &Feedback<'_>, elements: usize) -> Result<Residual> {
        Ok(Residual {
            old: self.span("feedback.old", old)?.check("feedback.old", elements)?,
            new: self.span_mut("feedback.new", new)?.check("feedback.new", elements)?,
        })
    }
}

/// The words of a part of so many elements, which has one scale; refuses more.
pub(crate) fn part_words(elements: usize, block: usize) -> Result<usize> {
    if block < elements {
        return Err(unsupported("signs with a scale for each block (the codec sign)"));
    }
    Ok(usize::from(elements > 0) + sign_words(elements))
}

fn host_memory(argument: &str) -> Error {
    Error::Unsupported {
        what: format!("host memory as {argument}"),
        backend: BACKEND,
        instead: Some("memory of KernelDevice::allocate, or HostKernels".to_owned()),
    }
}
