//! A fuzzer's bytes as a list of decisions, for the targets of every crate.

/// Bytes that are taken from the front. Behind their end there are zeros, so that every input means something.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// At most `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        head
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let head = self.take(N);
        array[..head.len()].copy_from_slice(head);
        array
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// True for one input in so many.
    pub(crate) fn rarely(&mut self, one_in: u8) -> bool {
        self.below(one_in) == one_in - 1
    }

    /// A byte as a number below `bound`.
    pub(crate) fn below(&mut self, bound: u8) -> u8 {
        self.u8() % bound
    }

    /// Edits a stream as an attacker on the network might, up to 7 times: changes a byte, puts some in, takes some out,
    /// cuts the end off. True unless nothing was done; the stream may be the same as before in spite of edits.
    pub(crate) fn edit(&mut self, stream: &mut Vec<u8>) -> bool {
        let edits = self.below(8);
        for _ in 0..edits {
            let (kind, at) = (self.below(4), usize::from(self.u16()) % (stream.len() + 1));
            match kind {
                0 if at < stream.len() => stream[at] ^= self.u8(),
                1 => {
                    let count = usize::from(self.u8());
                    stream.splice(at..at, self.take(count).iter().copied());
                }
                2 => {
                    let count = usize::from(self.u8()).min(stream.len() - at);
                    stream.drain(at..at + count);
                }
                _ => stream.truncate(at),
            }
        }
        edits > 0
    }
}

/// The number of bytes that two streams have in common before they differ.
pub(crate) fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    const WORD: usize = 64;
    let words = a.chunks_exact(WORD).zip(b.chunks_exact(WORD)).take_while(|(a, b)| a == b).count() * WORD;
    words + a[words..].iter().zip(&b[words..]).take_while(|(a, b)| a == b).count()
}
