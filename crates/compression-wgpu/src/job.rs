//! A kernel on the memory of a call: dispatches that fit into the limits of the device, submitted together.

use std::ops::Range;

use unisono_communicator::Result;
use unisono_kernels::Counter;

use crate::WgpuKernels;
use crate::error::{limited, unreachable};
use crate::link::Link;
use crate::memory::Span;
use crate::pipelines::Binding;
use crate::pool::Pooled;
use crate::regions::{EncodedRegions, Region};
use crate::shaders::Kernel;

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

/// What the host reads behind a kernel.
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
    /// What is summed, or read.
    pub(crate) parts: Vec<JobPart>,
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

/// What is summed.
#[derive(Clone, Debug)]
pub(crate) enum JobPart {
    /// A vector, or codes without numbers of blocks.
    Plain(Region),
    /// Codes with numbers of blocks.
    Encoded(EncodedRegions),
}

impl JobPart {
    /// Where scales and codes of some elements are; of a plain part both are the same.
    fn windows(&self, elements: &Range<usize>) -> [Span; 2] {
        match self {
            JobPart::Plain(region) => [region.window(elements), region.window(elements)],
            JobPart::Encoded(parts) => [parts.scales.window(elements), parts.codes.window(elements)],
        }
    }

    /// The words of some elements.
    fn words(&self, elements: &Range<usize>) -> usize {
        match self {
            JobPart::Plain(region) => region.density.range(elements).len(),
            JobPart::Encoded(parts) => {
                parts.scales.density.range(elements).len() + parts.codes.density.range(elements).len()
            }
        }
    }
}

/// The places of a dispatch's parts in one buffer.
struct Gathered {
    /// The words that are bound.
    window: Span,
    /// First words of scales and codes of each part, from the start of the window.
    places: Vec<[usize; 2]>,
    copies: Vec<Copy>,
    /// Where to, if it is a copy.
    scratch: Option<Pooled>,
}

/// Words that are copied before a dispatch.
struct Copy {
    from: Span,
    to: usize,
}

impl Job {
    /// Runs it; the words of [`Job::result`].
    pub(crate) fn run(self, on: &WgpuKernels) -> Result<Vec<u32>> {
        let blocks = self.elements.div_ceil(self.block);
        let mut result = match self.result {
            ResultWords::None => Vec::new(),
            ResultWords::FirstBad => vec![u32::MAX],
            ResultWords::PerBlock => vec![0; 2 * blocks],
        };
        if self.elements == 0 {
            return Ok(result);
        }
        self.check_apart(on)?;
        let buffer = on.memory().take(result.len())?;
        let staging = if result.is_empty() { None } else { Some(on.staging().take(result.len())?) };
        let step = self.dispatch_elements(on)?;
        let starts = (0..self.elements).step_by(step);
        let dispatches = starts.map(|start| {
            let elements = start..self.elements.min(start + step);
            let gathered = self.gather(on, &elements)?;
            self.prepare(on, &elements, gathered, buffer.buffer())
        });
        let dispatches = dispatches.collect::<Result<Vec<_>>>()?;

        let name = self.kernel.name();
        if self.result == ResultWords::FirstBad {
            on.upload(&Span { buffer: buffer.buffer().clone(), at: 0, words: 1 }, &result)?;
        }
        let submission = on.submit(name, |encoder| {
            for dispatch in &dispatches {
                dispatch.encode(encoder, on.pipelines().of(self.kernel));
            }
            if let Some(staging) = &staging {
                let bytes = size_of_val(&result[..]) as u64;
                encoder.copy_buffer_to_buffer(buffer.buffer(), 0, staging.buffer(), 0, bytes);
            }
        })?;
        let Some(staging) = staging else { return Ok(result) };
        if let Err(error) = on.link().read_back(name, staging.buffer(), submission, &mut result) {
            staging.discard();
            return Err(error);
        }
        Ok(result)
    }

    /// WebGPU has it that what a dispatch writes is in other buffers than what it reads.
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

    /// How many elements a dispatch has: as many as the bindings of the device hold.
    fn dispatch_elements(&self, on: &WgpuKernels) -> Result<usize> {
        let limits = on.device().limits();
        let most = limits.max_storage_buffer_binding_size;
        // A binding begins at a place that is aligned, and so up to this much too early.
        let early = u64::from(limits.min_storage_buffer_offset_alignment);
        let needed = |elements: usize| {
            let elements = 0..elements;
            let regions =
                [&self.old, &self.magnitudes, &self.values, &self.scales, &self.codes].into_iter().flatten();
            let words = regions.map(|region| region.density.range(&elements).len()).max().unwrap_or(0);
            let parts: usize = self.parts.iter().map(|part| part.words(&elements)).sum();
            words.max(parts) as u64 * 4 + early
        };
        let mut blocks = self.elements.div_ceil(self.block).min(DISPATCH_ELEMENTS_MAX.div_ceil(self.block));
        while blocks > 1 && needed(self.elements.min(blocks * self.block)) > most {
            blocks = blocks.div_ceil(2);
        }
        let elements = self.elements.min(blocks * self.block);
        let bytes = needed(elements);
        if bytes > most || elements > DISPATCH_ELEMENTS_MAX {
            let what =
                format!("{} of {} parts with blocks of {}", self.kernel.name(), self.parts.len(), self.block);
            let limit = "max_storage_buffer_binding_size";
            return Err(limited(&on.link().adapter, &what, limit, bytes, most));
        }
        Ok(blocks * self.block)
    }

    /// Brings the parts of some elements into one binding: as they lie if they are near each other in one buffer, else
    /// as copies.
    fn gather(&self, on: &WgpuKernels, elements: &Range<usize>) -> Result<Gathered> {
        let windows: Vec<[Span; 2]> = self.parts.iter().map(|part| part.windows(elements)).collect();
        let spans = || windows.iter().flatten().filter(|span| span.words > 0);
        let Some(first) = spans().next() else {
            return Ok(Gathered {
                window: on.unread().clone(),
                places: vec![[0; 2]],
                copies: Vec::new(),
                scratch: None,
            });
        };
        let start = spans().map(|span| span.at).min().unwrap_or(0);
        let end = spans().map(|span| span.at + span.words).max().unwrap_or(0);
        let limits = on.device().limits();
        let most = limits.max_storage_buffer_binding_size;
        let early = u64::from(limits.min_storage_buffer_offset_alignment);
        let is_near = (end - start) as u64 * 4 + early <= most;
        if is_near && spans().all(|span| span.buffer == first.buffer) {
            let window = Span { buffer: first.buffer.clone(), at: start, words: end - start };
            // A window of no words may be anywhere.
            let place = |span: &Span| span.at.saturating_sub(start);
            let places = windows.iter().map(|part| [place(&part[0]), place(&part[1])]).collect();
            return Ok(Gathered { window, places, copies: Vec::new(), scratch: None });
        }
        let (mut places, mut copies, mut words) = (Vec::new(), Vec::new(), 0);
        for (part, [scales, codes]) in self.parts.iter().zip(windows) {
            let mut put = |from: Span| {
                let to = words;
                words += from.words;
                copies.push(Copy { from, to });
                to
            };
            places.push(match part {
                JobPart::Plain(_) => [put(codes); 2],
                JobPart::Encoded(_) => [put(scales), put(codes)],
            });
        }
        let scratch = on.memory().take(words)?;
        let window = Span { buffer: scratch.buffer().clone(), at: 0, words };
        Ok(Gathered { window, places, copies, scratch: Some(scratch) })
    }

    /// The bindings of a dispatch.
    fn prepare(
        &self,
        on: &WgpuKernels,
        elements: &Range<usize>,
        gathered: Gathered,
        result: &wgpu::Buffer,
    ) -> Result<Dispatch> {
        let limits = on.device().limits();
        let alignment_words = limits.min_storage_buffer_offset_alignment as usize / 4;
        let window = |region: &Option<Region>| region.as_ref().map(|region| region.window(elements));
        let bound = |span: Option<Span>, or: &Span| Bound::new(span, or, alignment_words);
        let input = bound(Some(gathered.window), on.unread());
        let [old, magnitudes] =
            [&self.old, &self.magnitudes].map(|region| bound(window(region), on.unread()));
        let [values, scales, codes] =
            [&self.values, &self.scales, &self.codes].map(|region| bound(window(region), on.unwritten()));
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
        let at = |place: usize| input.at + place as u32;
        words.extend(gathered.places.iter().flatten().map(|place| at(*place)));
        let call = on.memory().take(words.len())?;

        let Link { device, queue, .. } = on.link();
        let bindings = on.link().checked(self.kernel.name(), || {
            queue.write_buffer(call.buffer(), 0, bytemuck::cast_slice(&words));
            let entry =
                |binding: Binding, resource| wgpu::BindGroupEntry { binding: binding as u32, resource };
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &on.pipelines().layout,
                entries: &Binding::ALL.map(|binding| {
                    entry(
                        binding,
                        match binding {
                            Binding::Call => call.buffer().as_entire_binding(),
                            Binding::Input => input.resource(),
                            Binding::Old => old.resource(),
                            Binding::Magnitudes => magnitudes.resource(),
                            Binding::Values => values.resource(),
                            Binding::Scales => scales.resource(),
                            Binding::Codes => codes.resource(),
                            Binding::Result => result.as_entire_binding(),
                        },
                    )
                }),
            })
        })?;
        let groups = elements.len().div_ceil(self.at_once) as u32;
        let groups = groups.min(limits.max_compute_workgroups_per_dimension);
        Ok(Dispatch { bindings, groups, copies: gathered.copies, scratch: gathered.scratch, _call: call })
    }
}

/// Elements that a dispatch counts in u32 with room for sums.
const DISPATCH_ELEMENTS_MAX: usize = 1 << 30;

/// Words that a binding holds.
struct Bound {
    span: Span,
    /// The first of the words, in the binding.
    at: u32,
}

impl Bound {
    /// Of `span`; of `or` if there is none, or if it has no words.
    fn new(span: Option<Span>, or: &Span, alignment_words: usize) -> Bound {
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

/// A dispatch that is ready. It keeps its buffers until it is submitted.
struct Dispatch {
    bindings: wgpu::BindGroup,
    groups: u32,
    copies: Vec<Copy>,
    scratch: Option<Pooled>,
    _call: Pooled,
}

impl Dispatch {
    fn encode(&self, encoder: &mut wgpu::CommandEncoder, pipeline: &wgpu::ComputePipeline) {
        if let Some(scratch) = &self.scratch {
            for Copy { from, to } in &self.copies {
                let bytes = from.words as u64 * 4;
                encoder.copy_buffer_to_buffer(
                    &from.buffer,
                    from.at as u64 * 4,
                    scratch.buffer(),
                    *to as u64 * 4,
                    bytes,
                );
            }
        }
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &self.bindings, &[]);
        pass.dispatch_workgroups(self.groups, 1, 1);
    }
}

impl Numbers {
    /// Those of a counter; its first element is [`Job::first`].
    pub(crate) fn with_counter(self, counter: Counter) -> Numbers {
        let (key_low, key_high) = (counter.key as u32, (counter.key >> 32) as u32);
        Numbers { is_stochastic: 1, key_low, key_high, ..self }
    }
}
