//! A kernel on the memory of a call: dispatches that fit into the limits of the device.

use std::ops::Range;

use unisono_communicator::Result;
use unisono_kernels::Counter;

use crate::WgpuKernels;
use crate::error::{limited, unreachable};
use crate::gather::{Gathered, Part};
use crate::link::Link;
use crate::memory::Span;
use crate::pipelines::Binding;
use crate::pool::Pooled;
use crate::regions::Region;
use crate::shaders::Kernel;

/// Elements that a dispatch counts in u32 with room for sums.
const DISPATCH_ELEMENTS_MAX: usize = 1 << 30;

/// The numbers of a dispatch: `Call` of `kernels/wgsl/prelude.wgsl`, without the parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Numbers {
    pub(crate) elements: u32,
    pub(crate) block: u32,
    pub(crate) count: u32,
    pub(crate) has_old: u32,
    pub(crate) has_new: u32,
    pub(crate) old_at: u32,
    pub(crate) magnitudes_at: u32,
    pub(crate) values_at: u32,
    pub(crate) scales_at: u32,
    pub(crate) codes_at: u32,
    pub(crate) first_block: u32,
    pub(crate) width: u32,
    pub(crate) codes_shift: u32,
    pub(crate) is_symmetric: u32,
    pub(crate) inverse_steps: f32,
    pub(crate) scale_end: u32,
    pub(crate) is_stochastic: u32,
    pub(crate) key_low: u32,
    pub(crate) key_high: u32,
    pub(crate) first_pair: u32,
    pub(crate) first_odd: u32,
    pub(crate) weight: f32,
    pub(crate) mean_factor: f32,
    pub(crate) last_mean_factor: f32,
}

/// The words that the host reads behind a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultWords {
    /// Nothing.
    None,
    /// The number of the first block that is not finite, [`u32::MAX`] if all are.
    FirstBad,
    /// Two words for each block.
    PerBlock,
}

/// A kernel on the memory of a call.
pub(crate) struct Job {
    pub(crate) kernel: Kernel,
    pub(crate) elements: usize,
    /// Elements of a block. A dispatch has whole ones, but for the last of a call.
    pub(crate) block: usize,
    /// Elements that a workgroup works on at a time.
    pub(crate) at_once: usize,
    /// The inputs to sum, or to read.
    pub(crate) parts: Vec<Part>,
    pub(crate) old: Option<Region>,
    pub(crate) magnitudes: Option<Region>,
    pub(crate) values: Option<Region>,
    pub(crate) scales: Option<Region>,
    pub(crate) codes: Option<Region>,
    pub(crate) numbers: Numbers,
    /// The number of the call's first element, for random bits.
    pub(crate) first: u64,
    pub(crate) result: ResultWords,
}

impl Numbers {
    /// The numbers of a counter; its first element is [`Job::first`].
    pub(crate) fn with_counter(self, counter: Counter) -> Numbers {
        let (key_low, key_high) = (counter.key as u32, (counter.key >> 32) as u32);
        Numbers { is_stochastic: 1, key_low, key_high, ..self }
    }
}

impl Job {
    /// Runs it; the words of [`Job::result`].
    pub(crate) fn run(self, on: &WgpuKernels) -> Result<Vec<u32>> {
        let mut result = match self.result {
            ResultWords::None => Vec::new(),
            ResultWords::FirstBad => vec![u32::MAX],
            ResultWords::PerBlock => vec![0; 2 * self.elements.div_ceil(self.block)],
        };
        if self.elements == 0 {
            return Ok(result);
        }
        self.check_apart(on)?;
        let buffer = on.memory().take(result.len())?;
        let span = Span { buffer: buffer.buffer().clone(), at: 0, words: result.len() };
        if self.result == ResultWords::FirstBad {
            on.upload(&span, &result)?;
        }
        let staging = if result.is_empty() { None } else { Some(on.staging().take(result.len())?) };
        let (step, mut start) = (self.dispatch_elements(on)?, 0);
        let submission = loop {
            let elements = start..self.elements.min(start + step);
            start = elements.end;
            // The last one brings the result.
            let staging = staging.as_ref().filter(|_| start == self.elements);
            let submission = self.submit(on, &elements, &span, staging)?;
            if start == self.elements {
                break submission;
            }
        };
        let Some(staging) = staging else { return Ok(result) };
        on.read_back(self.kernel.name(), staging, submission, &mut result)?;
        Ok(result)
    }

    /// WebGPU does not let a dispatch write to the buffers that it reads.
    fn check_apart(&self, on: &WgpuKernels) -> Result<()> {
        let parts = self.parts.iter().flat_map(|part| part.windows(&(0..self.elements)));
        let regions = [&self.old, &self.magnitudes].into_iter().flatten().map(|region| region.span.clone());
        let written = [&self.values, &self.scales, &self.codes].into_iter().flatten();
        let written: Vec<_> = written.map(|region| &region.span.buffer).collect();
        if parts.chain(regions).any(|read| written.contains(&&read.buffer)) {
            let what = format!("an allocation that is read and written by {}", self.kernel.name());
            return Err(unreachable(&on.link().adapter, &what, "two allocations"));
        }
        Ok(())
    }

    /// The number of elements of a dispatch: as many as the bindings of the device hold.
    fn dispatch_elements(&self, on: &WgpuKernels) -> Result<usize> {
        let most = on.binding_bytes_max();
        let needed = |elements: usize| {
            let elements = 0..elements;
            let regions = [&self.old, &self.magnitudes, &self.values, &self.scales, &self.codes];
            let words = regions.into_iter().flatten().map(|region| region.density.range(&elements).len());
            let parts: usize = self.parts.iter().map(|part| part.words(&elements)).sum();
            words.fold(parts, usize::max) as u64 * 4
        };
        let mut blocks = self.elements.div_ceil(self.block).min(DISPATCH_ELEMENTS_MAX.div_ceil(self.block));
        while blocks > 1 && needed(self.elements.min(blocks * self.block)) > most {
            blocks = blocks.div_ceil(2);
        }
        let elements = self.elements.min(blocks * self.block);
        let bytes = needed(elements);
        if bytes > most || elements > DISPATCH_ELEMENTS_MAX {
            let (name, parts) = (self.kernel.name(), self.parts.len());
            let what = format!("{name} of {parts} parts with blocks of {}", self.block);
            let has = on.limits().max_storage_buffer_binding_size;
            let needs = bytes + (has - most);
            return Err(limited(&on.link().adapter, &what, "max_storage_buffer_binding_size", needs, has));
        }
        Ok(blocks * self.block)
    }

    /// Enqueues the dispatch of some elements, and the copy of the result to `staging`.
    fn submit(
        &self,
        on: &WgpuKernels,
        elements: &Range<usize>,
        result: &Span,
        staging: Option<&Pooled>,
    ) -> Result<wgpu::SubmissionIndex> {
        let gathered = Gathered::new(on, &self.parts, elements)?;
        let (bindings, _call) = self.bind(on, elements, &gathered, result)?;
        let groups = elements.len().div_ceil(self.at_once) as u32;
        let groups = groups.min(on.limits().max_compute_workgroups_per_dimension);
        on.submit(self.kernel.name(), |encoder| {
            gathered.record(encoder);
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(on.pipelines().of(self.kernel));
            pass.set_bind_group(0, &bindings, &[]);
            pass.dispatch_workgroups(groups, 1, 1);
            drop(pass);
            if let Some(staging) = staging {
                let bytes = result.words as u64 * 4;
                encoder.copy_buffer_to_buffer(&result.buffer, 0, staging.buffer(), 0, bytes);
            }
        })
    }

    /// The bindings of a dispatch, and the buffer that its numbers are in.
    fn bind(
        &self,
        on: &WgpuKernels,
        elements: &Range<usize>,
        gathered: &Gathered,
        result: &Span,
    ) -> Result<(wgpu::BindGroup, Pooled)> {
        let window = |region: &Option<Region>| region.as_ref().map(|region| region.window(elements));
        let read = |span: Option<Span>| Bound::new(on, span, on.unread());
        let written = |span: Option<Span>| Bound::new(on, span, on.unwritten());
        let input = read(Some(gathered.window.clone()));
        let [old, magnitudes] = [&self.old, &self.magnitudes].map(|region| read(window(region)));
        let [values, scales, codes] =
            [&self.values, &self.scales, &self.codes].map(|region| written(window(region)));
        let result = written(Some(result.clone()));
        let first = self.first.wrapping_add(elements.start as u64);
        let numbers = Numbers {
            elements: elements.len() as u32,
            count: self.parts.len() as u32,
            has_old: self.old.is_some().into(),
            old_at: old.at,
            magnitudes_at: magnitudes.at,
            values_at: values.at,
            scales_at: scales.at,
            codes_at: codes.at,
            first_block: (elements.start / self.block) as u32,
            first_pair: (first >> 1) as u32,
            first_odd: (first & 1) as u32,
            ..self.numbers
        };
        let mut words: Vec<u32> = bytemuck::cast_slice(&[numbers]).to_vec();
        words.extend(gathered.places.iter().flatten().map(|place| input.at + *place as u32));
        let memory = on.memory().take(words.len())?;
        let call = Span { buffer: memory.buffer().clone(), at: 0, words: words.len() };
        on.upload(&call, &words)?;
        let call = read(Some(call));
        let bound = |binding| match binding {
            Binding::Call => &call,
            Binding::Input => &input,
            Binding::Old => &old,
            Binding::Magnitudes => &magnitudes,
            Binding::Values => &values,
            Binding::Scales => &scales,
            Binding::Codes => &codes,
            Binding::Result => &result,
        };
        let entries = Binding::ALL.map(|binding| wgpu::BindGroupEntry {
            binding: binding as u32,
            resource: bound(binding).resource(),
        });
        let layout = &on.pipelines().layout;
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
        let Link { device, .. } = on.link();
        let bindings = on.link().checked(self.kernel.name(), || device.create_bind_group(&descriptor))?;
        Ok((bindings, memory))
    }
}

/// Words that a binding holds.
struct Bound {
    span: Span,
    /// The first of the words, in the binding.
    at: u32,
}

impl Bound {
    /// Of `span`; of `or` if there is none, or if it has no words. It begins where bindings may begin.
    fn new(on: &WgpuKernels, span: Option<Span>, or: &Span) -> Bound {
        let alignment_words = on.limits().min_storage_buffer_offset_alignment as usize / 4;
        let span = span.filter(|span| span.words > 0).unwrap_or_else(|| or.clone());
        let start = span.at / alignment_words * alignment_words;
        let at = span.at - start;
        Bound { span: Span { at: start, words: span.words + at, ..span }, at: at as u32 }
    }

    fn resource(&self) -> wgpu::BindingResource<'_> {
        let Span { buffer, at, words } = &self.span;
        let size = wgpu::BufferSize::new(*words as u64 * 4);
        wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: *at as u64 * 4, size })
    }
}
