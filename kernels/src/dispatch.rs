//! Runs a kernel with the instructions of a target, on one thread or on several.
//!
//! The only file, beside the files of the instruction sets, with `unsafe` code: a function compiled for an instruction
//! set may be called only where the processor has it.

#![allow(unsafe_code, reason = "functions for instructions that a processor may lack")]

use crate::Stores;
use crate::simd::Simd;
use crate::simd::portable::Portable;
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2::Avx2, avx512::Avx512};

/// The instructions that the bodies of the kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// [`crate::reference`]: the definition, one element after the other.
    Reference,
    /// Any processor.
    Portable,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VBMI.
    Avx512,
}

impl Target {
    /// All, the slowest first.
    pub const ALL: [Target; 4] = [Target::Reference, Target::Portable, Target::Avx2, Target::Avx512];

    /// As commands and tables call it.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Reference => "reference",
            Target::Portable => "portable",
            Target::Avx2 => "avx2",
            Target::Avx512 => "avx512",
        }
    }
}

/// A target whose instructions this processor has: a value of this type is the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available(Target);

impl Available {
    pub(crate) fn new(target: Target) -> Option<Available> {
        let is_there = match target {
            Target::Reference | Target::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Target::Avx2 => Avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            Target::Avx512 => Avx512::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Target::Avx2 | Target::Avx512 => false,
        };
        is_there.then_some(Available(target))
    }

    pub(crate) fn target(self) -> Target {
        self.0
    }
}

/// One call of a kernel.
pub(crate) trait Job: Sized {
    type Output;

    /// The body. Inlined, as all it calls with a [`Simd`] value.
    fn run<S: Simd>(self, simd: S, stores: Stores) -> Self::Output;
    /// By [`crate::reference`].
    fn define(self) -> Self::Output;
    fn elements(&self) -> usize;
    /// A job can be split where a multiple of so many elements ends.
    fn unit(&self) -> usize;
    /// The job of the first `at` elements, and of the others.
    fn split(self, at: usize) -> (Self, Self);
    /// The output of both; the first one has `units` units.
    fn join(first: Self::Output, second: Self::Output, units: usize) -> Self::Output;
}

/// Runs a job on this thread.
pub(crate) fn run<J: Job>(job: J, available: Available, stores: Stores) -> J::Output {
    match available.0 {
        Target::Reference => job.define(),
        Target::Portable => job.run(Portable, stores),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `available` proves that the processor has the instructions.
        Target::Avx2 => unsafe { run_avx2(job, stores) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Target::Avx512 => unsafe { run_avx512(job, stores) },
        #[cfg(not(target_arch = "x86_64"))]
        // `Available::new` made no such value.
        Target::Avx2 | Target::Avx512 => unreachable!("{:?} on another architecture", available.0),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<J: Job>(job: J, stores: Stores) -> J::Output {
    let output = job.run(Avx2::here(), stores);
    fence(Avx2::here(), stores);
    output
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma")]
fn run_avx512<J: Job>(job: J, stores: Stores) -> J::Output {
    let output = job.run(Avx512::here(), stores);
    fence(Avx512::here(), stores);
    output
}

/// Other threads may see streamed bytes late, even after they saw later writes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fence<S: Simd>(simd: S, stores: Stores) {
    match stores {
        Stores::Cached => {}
        Stores::Streaming => simd.fence(),
    }
}

/// Elements below which another thread takes longer to start than it saves.
const ELEMENTS_OF_THREAD_MIN: usize = 1 << 17;

/// Runs a job on as many threads of the caller's rayon pool as pay.
pub(crate) fn run_on_pool<J>(job: J, available: Available, stores: Stores) -> J::Output
where
    J: Job + Send,
    J::Output: Send,
{
    let threads = rayon::current_num_threads().min(job.elements() / ELEMENTS_OF_THREAD_MIN);
    // The definition takes whole calls.
    let threads = if available.target() == Target::Reference { 1 } else { threads };
    run_in_pieces(job, threads, available, stores)
}

/// Runs a job in up to `pieces` pieces at the same time.
pub(crate) fn run_in_pieces<J>(job: J, pieces: usize, available: Available, stores: Stores) -> J::Output
where
    J: Job + Send,
    J::Output: Send,
{
    let units = job.elements() / job.unit();
    let units = units * (pieces / 2) / pieces.max(1);
    if units == 0 {
        return run(job, available, stores);
    }
    let at = units * job.unit();
    let (first, second) = job.split(at);
    let (first, second) = rayon::join(
        || run_in_pieces(first, pieces / 2, available, stores),
        || run_in_pieces(second, pieces - pieces / 2, available, stores),
    );
    J::join(first, second, units)
}
