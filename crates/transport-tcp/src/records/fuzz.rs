//! A fuzzed stream with checksums: a part of the fuzz target `frame`.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use super::{RECORD_BYTES_MAX, Receiver, Sender};
use crate::fuzz::input::{Input, common_bytes};

/// The first byte of an input of target `frame` names its case; the first four are the engine's.
const KINDS: u8 = 6;
const RAW: u8 = 4;
const CHANGED: u8 = 5;

const HEADER_BYTES: usize = 12;

/// CRC32C finds every change within so many bytes that follow each other.
const BURST_BYTES: usize = 4;

/// Target `frame`, the part of the transport: records with a checksum.
pub fn frame(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(KINDS) {
        RAW => raw(&mut input),
        CHANGED => changed(&mut input),
        _ => {}
    }
}

/// Any bytes: the link hands on the bytes that a plain reading of the format proves, and no others.
fn raw(input: &mut Input<'_>) {
    let (piece, room) = pieces(input);
    let stream = input.rest();
    let (given, error) = receive(stream, piece, room);
    let (proven, is_corrupt) = proven(stream);
    is_handed_on(&given, &proven, is_corrupt);
    assert_eq!(error == Some(ErrorKind::InvalidData), is_corrupt, "{error:?}");
}

/// A good stream in which up to four adjacent bytes were changed: the change is always found, and neither its record
/// nor the rest is handed on.
fn changed(input: &mut Input<'_>) {
    let (piece, room) = pieces(input);
    // Records as long as they may be are rare: they take most of the time.
    let is_long = input.rarely(64);
    let (piece, room, factor) = if is_long { (usize::MAX, RECORD_BYTES_MAX, 300) } else { (piece, room, 1) };
    let data: Vec<u8> = (0..usize::from(input.u8()) * factor).map(|index| (index >> 3) as u8).collect();
    let record_bytes = 1 + usize::from(input.u8()) * factor;
    let (genuine, records) = send(&data, record_bytes);
    let at = input.u32() as usize % (genuine.len() + 1);
    let mut stream = genuine.clone();
    for byte in stream[at..].iter_mut().take(BURST_BYTES) {
        *byte ^= input.u8();
    }
    let same_bytes = common_bytes(&stream, &genuine);
    let (given, error) = receive(&stream, piece, room);
    let whole: usize = records.iter().take_while(|(end, _)| *end <= same_bytes).map(|(_, bytes)| bytes).sum();
    let is_corrupt = same_bytes < genuine.len();
    is_handed_on(&given, &data[..whole], is_corrupt);
    assert_eq!(error == Some(ErrorKind::InvalidData), is_corrupt, "{error:?}");
}

/// Good bytes are handed on, in order and nothing else. The call that meets a corrupt record gives only that error.
fn is_handed_on(given: &[u8], good: &[u8], is_corrupt: bool) {
    let is_all = given == good || is_corrupt && good.starts_with(given);
    assert!(is_all, "{} bytes are handed on, {} are good", given.len(), good.len());
}

/// The number of bytes that arrive at once, and the number that is asked for at once.
fn pieces(input: &mut Input<'_>) -> (usize, usize) {
    let piece = [1, 11, 4096, usize::MAX][usize::from(input.below(4))];
    let room = 1 + usize::from(input.u8());
    (piece, if input.rarely(8) { room * 256 } else { room })
}

/// The stream of some data, in records of so many bytes; of each record where it ends, and its payload's length.
fn send(data: &[u8], record_bytes: usize) -> (Vec<u8>, Vec<(usize, usize)>) {
    let (mut sender, mut stream, mut records) = (Sender::default(), Vec::new(), Vec::new());
    for chunk in data.chunks(record_bytes.min(RECORD_BYTES_MAX)) {
        let sent = sender.send(&[IoSlice::new(chunk)], |slices| {
            slices.iter().for_each(|slice| stream.extend_from_slice(slice));
            Ok(slices.iter().map(|slice| slice.len()).sum())
        });
        assert!(sent.is_ok_and(|bytes| bytes == chunk.len()), "a wire that takes all");
        records.push((stream.len(), chunk.len()));
    }
    (stream, records)
}

/// The bytes that the receiver hands on, and the error at the end; a stream that has no more pauses.
fn receive(stream: &[u8], piece: usize, room: usize) -> (Vec<u8>, Option<ErrorKind>) {
    let (mut receiver, mut rest, mut given) = (Receiver::new(), stream, Vec::new());
    let mut buffer = vec![0; room];
    loop {
        let (front, back) = buffer.split_at_mut(room / 2);
        let mut into = [IoSliceMut::new(front), IoSliceMut::new(back)];
        let received = receiver.recv(&mut into, |into| read(&mut rest, into, piece));
        match received {
            Ok(bytes) => given.extend_from_slice(&buffer[..bytes]),
            Err(error) => return (given, Some(error.kind())),
        }
        // Unverified bytes are kept up to a limit, for any header.
        assert!(receiver.holds_bytes() || rest.len() < stream.len() || stream.is_empty());
    }
}

fn read(rest: &mut &[u8], into: &mut [u8], piece: usize) -> io::Result<usize> {
    assert!(into.len() <= RECORD_BYTES_MAX, "asks for {} bytes", into.len());
    let (head, tail) = rest.split_at(piece.min(into.len()).min(rest.len()));
    into[..head.len()].copy_from_slice(head);
    *rest = tail;
    if head.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(head.len()) }
}

/// The verified bytes of a stream that is read in one go, and whether the rest is corrupt.
fn proven(stream: &[u8]) -> (Vec<u8>, bool) {
    let (mut rest, mut proven) = (stream, Vec::new());
    let checksum = |bytes: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = word(0) as usize;
        if word(8) != checksum(&header[..8]) || length == 0 || length > RECORD_BYTES_MAX {
            return (proven, true);
        }
        let Some((payload, next)) = behind.split_at_checked(length) else { break };
        if word(4) != checksum(payload) {
            return (proven, true);
        }
        proven.extend_from_slice(payload);
        rest = next;
    }
    (proven, false)
}
