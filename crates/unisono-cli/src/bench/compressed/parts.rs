//! The parts of a compressed call, each alone: the time of a call in which nothing overlaps.

use std::ops::Range;
use std::sync::Arc;

use unisono::call::{Buffer, BufferMut};
use unisono::compression::{Codec, wire_bytes};
use unisono::extend::codecs::{EncodeContext, Feedback, HostKernels};
use unisono::{Collectives, Communicator, Result};

const CONTEXT: EncodeContext = EncodeContext { key: 0, first: 0, scale: 0.0 };

/// An encoder's kernels and memory.
struct Encoder {
    kernels: HostKernels,
    part: Vec<u32>,
    /// Empty for a codec without error feedback.
    old: Vec<f32>,
    new: Vec<f32>,
}

impl Encoder {
    fn new(comm: &dyn Communicator, codec: &dyn Codec, elements: usize) -> Encoder {
        let residual = if codec.has_feedback() { elements } else { 0 };
        Encoder {
            kernels: HostKernels::of_call(comm.group(), elements),
            part: vec![0; codec.encoded_words(elements)],
            old: vec![0.0; residual],
            new: vec![0.0; residual],
        }
    }

    fn run(&mut self, codec: &dyn Codec, vector: &[f32]) -> Result<()> {
        // Codecs never see an empty vector.
        if vector.is_empty() {
            return Ok(());
        }
        let Encoder { kernels, part, old, new } = self;
        let mut context = CONTEXT;
        if codec.measures() {
            let feedback = Feedback { old: Buffer::of(old), new: BufferMut::of(new) };
            let squares = codec.measure(kernels, Buffer::of(vector), feedback)?;
            context.scale = codec.scale(squares, vector.len());
        }
        let feedback =
            codec.has_feedback().then(|| Feedback { old: Buffer::of(old), new: BufferMut::of(new) });
        codec.encode(kernels, Buffer::of(vector), feedback, context, BufferMut::of(part))?;
        Ok(())
    }
}

/// The parts of the calls of one codec.
pub(super) struct Parts {
    codec: Arc<dyn Codec>,
    vector: Vec<f32>,
    encoder: Encoder,
    /// All ranks' encoded vectors, as far as this rank sums them.
    shares: Vec<Vec<u32>>,
    owner: Encoder,
    owned: Range<usize>,
    /// The words to all ranks and from them; and the words to one.
    all: [Vec<u32>; 2],
    own: Vec<u32>,
}

impl Parts {
    /// Encode, exchange, reduce and expand.
    pub(super) const WAYS: usize = 4;

    /// Of calls with `elements` elements, of which this rank sums `owned`.
    pub(super) fn new(
        comm: &dyn Communicator,
        codec: &Arc<dyn Codec>,
        elements: usize,
        owned: Range<usize>,
    ) -> Result<Parts> {
        let ranks = comm.size() as usize;
        let vector: Vec<f32> = (0..elements).map(|index| (index % 61) as f32 - 30.0).collect();
        let mut encoder = Encoder::new(comm, &**codec, elements);
        encoder.run(&**codec, &vector)?;
        let mut owner = Encoder::new(comm, &**codec, owned.len());
        owner.run(&**codec, &vector[owned.clone()])?;
        let shares = vec![owner.part.clone(); ranks];
        // The words from every rank to every other, twice.
        let sent_words = wire_bytes(&**codec, elements, ranks) as usize / size_of::<u32>();
        let words = sent_words.div_ceil((2 * ranks * (ranks - 1)).max(1));
        let all = [vec![0; words * ranks], vec![0; words * ranks]];
        let codec = codec.clone();
        Ok(Parts { codec, vector, encoder, shares, owner, owned, all, own: vec![0; words] })
    }

    /// Runs one of the [`Parts::WAYS`]. Collective.
    pub(super) fn run(&mut self, comm: &dyn Communicator, way: usize) -> Result<()> {
        match way {
            0 => self.encoder.run(&*self.codec, &self.vector),
            1 => self.exchange(comm),
            2 => self.reduce(),
            _ => self.expand(),
        }
    }

    fn exchange(&mut self, comm: &dyn Communicator) -> Result<()> {
        let [sent, received] = &mut self.all;
        comm.all_to_all(sent, received)?;
        comm.all_gather(&self.own, received)
    }

    fn reduce(&mut self) -> Result<()> {
        if self.owned.is_empty() {
            return Ok(());
        }
        let Parts { codec, shares, owner, owned, .. } = self;
        let Encoder { kernels, part, old, new } = owner;
        let parts: Vec<Buffer<'_>> = shares.iter().map(|share| Buffer::of(share)).collect();
        let feedback =
            codec.has_feedback().then(|| Feedback { old: Buffer::of(old), new: BufferMut::of(new) });
        codec.reduce_encode(kernels, &parts, owned.len(), feedback, CONTEXT, BufferMut::of(part))?;
        Ok(())
    }

    fn expand(&mut self) -> Result<()> {
        if self.vector.is_empty() {
            return Ok(());
        }
        let Encoder { kernels, part, .. } = &self.encoder;
        self.codec.decode(kernels, Buffer::of(part), 1.0, BufferMut::of(&mut self.vector))
    }
}
