//! The buffers of a call on both sides: a message of them, the same buffers in the process of the rank, and what has
//! become of them. Place, lists and their division are kept; lent memory is lent there too.

use unisono_communicator::{
    Buffer, BufferMut, Buffers, DType, DeviceBuffer, DeviceBufferMut, Division, Element, Keeper, OwnedBuffer,
    OwnedBuffers, OwnedMemory, SegmentList, Segments, SegmentsMut,
};

use super::messages::{BuffersMessage, Id, MemoryMessage, PartMessage};
use super::raw::{Aligned, LentMemory, placeholder, span_message, span_mut};
use super::wire::Bytes;
use crate::with_dtype;

/// Memory that a test has lent to a call.
pub(super) enum LentByTest {
    /// On the host.
    Host(OwnedBuffer),
    /// On a device, where nothing comes back.
    Device(#[expect(dead_code, reason = "it is there to be dropped")] Keeper),
}

impl LentByTest {
    /// The rank's call has dropped its keeper: the test's memory becomes what the rank's has become, also an input
    /// that should be as it was, and its keeper is dropped.
    pub(super) fn come_back(self, bytes: &[u8]) {
        if let LentByTest::Host(mut buffer) = self {
            buffer.bytes_mut().copy_from_slice(bytes);
        }
    }
}

fn host_message<'a>(
    division: Option<Division>,
    dtype: DType,
    segments: impl Iterator<Item = &'a [u8]>,
) -> MemoryMessage {
    let part =
        |bytes: &[u8]| PartMessage { dtype, lent: None, room_bytes_max: None, bytes: Bytes(bytes.to_vec()) };
    MemoryMessage::Host { division, parts: segments.map(part).collect() }
}

fn device_message(buffer: &DeviceBuffer, lent: Option<Id>) -> MemoryMessage {
    let division = buffer.divided().map(|(division, _)| division);
    MemoryMessage::Device { division, spans: buffer.spans().iter().map(span_message).collect(), lent }
}

fn input_message(input: &Buffer<'_>, dtype: DType) -> MemoryMessage {
    match input {
        Buffer::Device(buffer) => device_message(buffer, None),
        Buffer::Host(segments) => {
            let division = match segments {
                Segments::One(_) => None,
                Segments::Many(list) => Some(list.division()),
                Segments::Owned(list) => Some(list.division()),
            };
            host_message(division, dtype, segments.iter())
        }
    }
}

fn output_message(output: &BufferMut<'_>, dtype: DType) -> MemoryMessage {
    match output {
        BufferMut::Device(buffer) => device_message(buffer, None),
        BufferMut::Host(SegmentsMut::One(bytes)) => host_message(None, dtype, std::iter::once(&**bytes)),
        BufferMut::Host(SegmentsMut::Many(list)) => {
            host_message(Some(list.division()), dtype, list.slices().iter().map(|slice| &**slice))
        }
        BufferMut::Host(SegmentsMut::Owned(list)) => {
            host_message(Some(list.division()), dtype, list.slices().iter().map(OwnedBuffer::bytes))
        }
    }
}

/// A message of the buffers of a blocking call.
pub(super) fn message(buffers: &Buffers<'_>, dtype: DType) -> BuffersMessage {
    match buffers {
        Buffers::InOut(buffer) => BuffersMessage::InOut { buffer: output_message(buffer, dtype) },
        Buffers::Separate { input, output } => BuffersMessage::Separate {
            input: input_message(input, dtype),
            output: output_message(output, dtype),
        },
    }
}

/// Gives the output of a blocking call what it has become.
pub(super) fn restore(buffers: &mut Buffers<'_>, output: &[Bytes]) {
    let (Buffers::InOut(buffer) | Buffers::Separate { output: buffer, .. }) = buffers;
    if let BufferMut::Host(segments) = buffer {
        let mut parts = output.iter();
        segments.for_each(|segment| segment.copy_from_slice(&parts.next().unwrap().0));
    }
}

/// Whether it has a keeper.
fn is_lent(buffer: OwnedBuffer) -> (OwnedBuffer, bool) {
    let buffers = OwnedBuffers::InOut(buffer.into());
    let has_keeper = buffers.has_keeper();
    match buffers {
        OwnedBuffers::InOut(OwnedMemory::One(buffer)) => (buffer, has_keeper),
        _ => unreachable!("it is as it was made"),
    }
}

/// A message of the buffers of an asynchronous call. What is lent goes to `keep`, and a placeholder stays.
pub(super) fn owned_message(
    buffers: &mut OwnedBuffers,
    keep: &mut dyn FnMut(LentByTest) -> Id,
) -> BuffersMessage {
    match buffers {
        OwnedBuffers::None => BuffersMessage::None {},
        OwnedBuffers::InOut(buffer) => BuffersMessage::InOut { buffer: owned_memory(buffer, keep) },
        OwnedBuffers::Separate { input, output } => {
            BuffersMessage::Separate { input: owned_memory(input, keep), output: owned_memory(output, keep) }
        }
    }
}

fn owned_memory(memory: &mut OwnedMemory, keep: &mut dyn FnMut(LentByTest) -> Id) -> MemoryMessage {
    let mut part = |place: &mut OwnedBuffer| {
        let (dtype, bytes) = (place.dtype(), Bytes(place.bytes().to_vec()));
        let room_bytes_max = place.room_bytes_max();
        let (buffer, is_lent) = is_lent(std::mem::replace(place, placeholder(dtype)));
        let lent = if is_lent {
            Some(keep(LentByTest::Host(buffer)))
        } else {
            *place = buffer;
            None
        };
        PartMessage { dtype, lent, room_bytes_max, bytes }
    };
    match memory {
        OwnedMemory::One(buffer) => MemoryMessage::Host { division: None, parts: vec![part(buffer)] },
        OwnedMemory::Many(list) => MemoryMessage::Host {
            division: Some(list.division()),
            parts: list.slices_mut().iter_mut().map(part).collect(),
        },
        OwnedMemory::Device { buffer, keeper } => {
            let kept = keeper.take().map(|kept| {
                *keeper = Some(Keeper::new(()));
                keep(LentByTest::Device(kept))
            });
            device_message(buffer, kept)
        }
    }
}

fn each_part(buffers: &mut OwnedBuffers) -> Vec<(bool, &mut OwnedBuffer)> {
    fn of(memory: &mut OwnedMemory) -> &mut [OwnedBuffer] {
        match memory {
            OwnedMemory::One(buffer) => std::slice::from_mut(buffer),
            OwnedMemory::Many(list) => list.slices_mut(),
            OwnedMemory::Device { .. } => &mut [],
        }
    }
    match buffers {
        OwnedBuffers::None => Vec::new(),
        OwnedBuffers::InOut(buffer) => of(buffer).iter_mut().map(|part| (false, part)).collect(),
        OwnedBuffers::Separate { input, output } => {
            let input = of(input).iter_mut().map(|part| (true, part));
            input.chain(of(output).iter_mut().map(|part| (false, part))).collect()
        }
    }
}

/// Gives the vectors of an asynchronous call what they have become.
pub(super) fn restore_owned(buffers: &mut OwnedBuffers, parts: &[Option<Bytes>]) {
    let own = each_part(buffers);
    assert_eq!(own.len(), parts.len(), "as many buffers come back as went in");
    for ((is_input, own), part) in own.into_iter().zip(parts) {
        let Some(part) = part else { continue };
        assert!(!is_input || own.bytes() == part.0, "a call has written to its input");
        own.make_room(part.0.len()).unwrap();
        own.bytes_mut().copy_from_slice(&part.0);
    }
}

/// The memory of a blocking call in the process of a rank.
pub(super) enum Held {
    Host { division: Option<Division>, parts: Vec<Aligned> },
    Device(DeviceBufferMut),
}

impl Held {
    pub(super) fn new(message: &MemoryMessage) -> Held {
        match message {
            MemoryMessage::Host { division, parts } => Held::Host {
                division: *division,
                parts: parts.iter().map(|part| Aligned::copied(&part.bytes.0)).collect(),
            },
            MemoryMessage::Device { division, spans, .. } => match (division, &spans[..]) {
                (None, [one]) => Held::Device(span_mut(one)),
                (division, list) => Held::Device(DeviceBufferMut::list(
                    list.iter().map(span_mut),
                    division.unwrap_or(Division::Anywhere),
                )),
            },
        }
    }

    pub(super) fn buffer(&self) -> Buffer<'_> {
        match self {
            Held::Host { division: None, parts } => Buffer::Host(Segments::One(parts[0].bytes())),
            Held::Host { division: Some(division), parts } => {
                let slices: Vec<&[u8]> = parts.iter().map(Aligned::bytes).collect();
                Buffer::Host(Segments::Many(SegmentList::from(slices).divided(*division)))
            }
            Held::Device(buffer) => Buffer::Device(buffer),
        }
    }

    pub(super) fn buffer_mut(&mut self) -> BufferMut<'_> {
        match self {
            Held::Host { division: None, parts } => BufferMut::Host(SegmentsMut::One(parts[0].bytes_mut())),
            Held::Host { division: Some(division), parts } => {
                let slices: Vec<&mut [u8]> = parts.iter_mut().map(Aligned::bytes_mut).collect();
                BufferMut::Host(SegmentsMut::Many(SegmentList::from(slices).divided(*division)))
            }
            Held::Device(buffer) => BufferMut::Device(buffer),
        }
    }

    /// The segments as they are now.
    pub(super) fn parts(&self) -> Vec<Bytes> {
        match self {
            Held::Host { parts, .. } => parts.iter().map(|part| Bytes(part.bytes().to_vec())).collect(),
            Held::Device(_) => Vec::new(),
        }
    }

    /// Whether they are as the message has them.
    pub(super) fn is_as_in(&self, message: &MemoryMessage) -> bool {
        match (self, message) {
            (Held::Host { parts, .. }, MemoryMessage::Host { parts: given, .. }) => {
                parts.iter().zip(given).all(|(part, given)| part.bytes() == given.bytes.0)
            }
            _ => true,
        }
    }
}

/// The buffers of an asynchronous call in the process of a rank. `tell` is called when lent memory is given back.
pub(super) fn owned(
    message: &BuffersMessage,
    tell: &(impl Fn(Id, &[u8]) + Clone + Send + 'static),
) -> OwnedBuffers {
    let memory = |message: &MemoryMessage| match message {
        MemoryMessage::Host { division, parts } => {
            let mut buffers: Vec<OwnedBuffer> = parts.iter().map(|part| owned_part(part, tell)).collect();
            match division {
                None => OwnedMemory::One(buffers.remove(0)),
                Some(division) => OwnedMemory::Many(SegmentList::from(buffers).divided(*division)),
            }
        }
        MemoryMessage::Device { lent, .. } => {
            let Held::Device(buffer) = Held::new(message) else { unreachable!("it is on a device") };
            let keeper = lent.map(|id| {
                let tell = tell.clone();
                Keeper::new(LentMemory::new(&[], move |bytes| tell(id, bytes)))
            });
            OwnedMemory::Device { buffer, keeper }
        }
    };
    match message {
        BuffersMessage::None {} => OwnedBuffers::None,
        BuffersMessage::InOut { buffer } => OwnedBuffers::InOut(memory(buffer)),
        BuffersMessage::Separate { input, output } => {
            OwnedBuffers::Separate { input: memory(input), output: memory(output) }
        }
    }
}

fn owned_part(part: &PartMessage, tell: &(impl Fn(Id, &[u8]) + Clone + Send + 'static)) -> OwnedBuffer {
    if let Some(id) = part.lent {
        let tell = tell.clone();
        return LentMemory::new(&part.bytes.0, move |bytes| tell(id, bytes)).lend(part.dtype);
    }
    if let Some(most) = part.room_bytes_max {
        return with_dtype!(part.dtype, T => OwnedBuffer::for_message::<T>(most));
    }
    with_dtype!(part.dtype, T => OwnedBuffer::new(elements::<T>(&part.bytes.0)))
}

fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    let mut elements = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    bytemuck::cast_slice_mut(&mut elements).copy_from_slice(bytes);
    elements
}

/// What has become of them.
pub(super) fn owned_parts(buffers: &mut OwnedBuffers, lent: &[bool]) -> Vec<Option<Bytes>> {
    let parts = each_part(buffers).into_iter().zip(lent);
    parts.map(|((_, part), lent)| (!lent).then(|| Bytes(part.bytes().to_vec()))).collect()
}

/// Which of the host buffers of a message are lent.
pub(super) fn lent_parts(message: &BuffersMessage) -> Vec<bool> {
    let of = |message: &MemoryMessage| -> Vec<bool> {
        match message {
            MemoryMessage::Host { parts, .. } => parts.iter().map(|part| part.lent.is_some()).collect(),
            MemoryMessage::Device { .. } => Vec::new(),
        }
    };
    match message {
        BuffersMessage::None {} => Vec::new(),
        BuffersMessage::InOut { buffer } => of(buffer),
        BuffersMessage::Separate { input, output } => [of(input), of(output)].concat(),
    }
}
