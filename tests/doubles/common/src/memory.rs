//! Memory of devices, which lies in the host's, and pinned memory of the host.
//!
//! Every address that a call names must be inside one live allocation of the right device. New memory is full of
//! rubbish, and guards on both sides show what was written past its ends.

#![expect(unsafe_code, reason = "memory with guards, by its address")]

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::{handles, lock, settings};

/// Bytes on each side of an allocation that nobody may write, and the alignment of an allocation.
const GUARD_BYTES: usize = 256;
const GUARD: u8 = 0xa7;
/// What new memory is full of.
const RUBBISH: u8 = 0x5c;
/// What an output is full of until the work is done that fills it.
pub const POISON: u8 = 0xdb;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Of the device of this number.
    Device(u32),
    /// Pinned memory of the host.
    Host,
}

impl Place {
    const fn kind(self) -> &'static str {
        match self {
            Place::Device(_) => "memory",
            Place::Host => "pinned memory",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    bytes: usize,
    place: Place,
}

impl Allocation {
    /// Of the allocation with its guards.
    fn layout(self) -> Option<Layout> {
        Layout::from_size_align(self.bytes.checked_add(2 * GUARD_BYTES)?, GUARD_BYTES).ok()
    }
}

static LIVE: Mutex<BTreeMap<usize, Allocation>> = Mutex::new(BTreeMap::new());

/// Why memory cannot be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError {
    /// No allocation of this place begins there.
    Unknown,
    /// Somebody has written past its ends. It is freed.
    Overrun,
}

/// Some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Where they begin.
    pub address: usize,
    /// How many they are.
    pub bytes: usize,
}

impl Part {
    /// `bytes` bytes from `address` on.
    pub const fn new(address: usize, bytes: usize) -> Part {
        Part { address, bytes }
    }

    const fn end(self) -> usize {
        self.address.saturating_add(self.bytes)
    }

    /// What is left of it without `other`.
    fn without(self, other: Part) -> Vec<Part> {
        if other.end() <= self.address || self.end() <= other.address {
            return vec![self];
        }
        let before = Part::new(self.address, other.address.saturating_sub(self.address));
        let after = Part::new(other.end(), self.end().saturating_sub(other.end()));
        [before, after].into_iter().filter(|part| part.bytes > 0).collect()
    }
}

/// Memory full of rubbish. `None` when the place has no more.
pub fn allocate(place: Place, bytes: usize) -> Option<usize> {
    let mut live = lock(&LIVE);
    let used: usize = live.values().filter(|one| one.place == place).map(|one| one.bytes).sum();
    if used.checked_add(bytes)? > settings::memory_bytes() {
        return None;
    }
    let allocation = Allocation { bytes, place };
    // SAFETY: the layout is not empty, as it has guards.
    let base = unsafe { alloc(allocation.layout()?) };
    if base.is_null() {
        return None;
    }
    // SAFETY: all of it is in the allocation.
    unsafe {
        base.write_bytes(GUARD, bytes + 2 * GUARD_BYTES);
        base.add(GUARD_BYTES).write_bytes(RUBBISH, bytes);
    }
    let address = base as usize + GUARD_BYTES;
    live.insert(address, allocation);
    handles::count(place.kind(), 1);
    Some(address)
}

/// Frees what [`allocate`] has given.
///
/// # Errors
/// See [`FreeError`].
pub fn free(address: usize, is_host: bool) -> Result<(), FreeError> {
    let mut live = lock(&LIVE);
    let found = live.get(&address).copied().filter(|one| (one.place == Place::Host) == is_host);
    let Some((allocation, layout)) = found.and_then(|one| Some((one, one.layout()?))) else {
        return Err(FreeError::Unknown);
    };
    live.remove(&address);
    handles::count(allocation.place.kind(), -1);
    let is_intact = is_guarded(address, allocation.bytes);
    // SAFETY: it was allocated with this layout, and is not listed any more.
    unsafe { dealloc((address - GUARD_BYTES) as *mut u8, layout) };
    if is_intact { Ok(()) } else { Err(FreeError::Overrun) }
}

/// Bytes that are free on a device.
pub fn available(device: u32) -> usize {
    let live = lock(&LIVE);
    let own = live.values().filter(|one| one.place == Place::Device(device));
    settings::memory_bytes() - own.map(|one| one.bytes).sum::<usize>()
}

/// The allocation that holds these bytes: where it begins and whose it is.
pub fn find(part: Part) -> Option<(usize, Place)> {
    holder(&lock(&LIVE), part)
}

fn holder(live: &BTreeMap<usize, Allocation>, part: Part) -> Option<(usize, Place)> {
    let (start, allocation) = live.range(..=part.address).next_back()?;
    (part.address.checked_add(part.bytes)? <= start + allocation.bytes).then_some((*start, allocation.place))
}

/// Whether these bytes are memory of this device. No bytes are anywhere.
pub fn is_on(part: Part, device: u32) -> bool {
    part.bytes == 0 || find(part).is_some_and(|(_, place)| place == Place::Device(device))
}

/// Copies the bytes. `None` when they are not inside a live allocation.
pub fn read(part: Part) -> Option<Vec<u8>> {
    if part.bytes == 0 {
        return Some(Vec::new());
    }
    let live = lock(&LIVE);
    holder(&live, part)?;
    // SAFETY: they are inside an allocation, which is not freed while the list is locked.
    Some(unsafe { read_host(part) })
}

/// Writes the bytes; whether they are inside a live allocation.
#[must_use]
pub fn write(address: usize, bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return true;
    }
    let live = lock(&LIVE);
    let is_inside = holder(&live, Part::new(address, bytes.len())).is_some();
    if is_inside {
        // SAFETY: as in `read`.
        unsafe { write_host(address, bytes) };
    }
    is_inside
}

/// Copies bytes of any memory.
///
/// # Safety
/// They must be there.
unsafe fn read_host(part: Part) -> Vec<u8> {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(part.address as *const u8, part.bytes) }.to_vec()
}

/// Writes bytes of any memory.
///
/// # Safety
/// They must be there.
unsafe fn write_host(address: usize, bytes: &[u8]) {
    // SAFETY: the caller's.
    unsafe { std::ptr::copy(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

/// Copies the bytes that a C program has named as its own, of any memory.
pub fn read_any(part: Part) -> Option<Vec<u8>> {
    if part.bytes == 0 {
        return Some(Vec::new());
    }
    // SAFETY: whoever calls an exported function with an address promises that the bytes are there until the call's
    // work is done (see `pointer`).
    (part.address != 0).then(|| unsafe { read_host(part) })
}

/// Writes the bytes that a C program has named as its own, of any memory; whether the address is not null.
#[must_use]
pub fn write_any(address: usize, bytes: &[u8]) -> bool {
    if address != 0 {
        // SAFETY: as in `read_any`.
        unsafe { write_host(address, bytes) };
    }
    address != 0 || bytes.is_empty()
}

/// Fills outputs with rubbish, except what is also input.
pub fn poison(outputs: &[Part], inputs: &[Part]) {
    let mut rest = outputs.to_vec();
    for input in inputs {
        rest = rest.into_iter().flat_map(|part| part.without(*input)).collect();
    }
    for part in rest {
        // What is not there is an error of the work itself.
        let _ = write(part.address, &vec![POISON; part.bytes]);
    }
}

fn is_guarded(address: usize, bytes: usize) -> bool {
    let guards = [Part::new(address - GUARD_BYTES, GUARD_BYTES), Part::new(address + bytes, GUARD_BYTES)];
    // SAFETY: an allocation has these guards.
    guards.into_iter().all(|part| unsafe { read_host(part) }.iter().all(|byte| *byte == GUARD))
}

/// Whether nobody has written past the ends of any memory.
pub fn is_intact() -> bool {
    lock(&LIVE).iter().all(|(address, one)| is_guarded(*address, one.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_belong_to_one_allocation_of_one_device() {
        let first = allocate(Place::Device(1), 16).unwrap();
        assert!(is_on(Part::new(first, 16), 1) && is_on(Part::new(first + 8, 8), 1));
        assert!(!is_on(Part::new(first, 16), 0) && !is_on(Part::new(first, 17), 1));
        assert!(!is_on(Part::new(first - 1, 1), 1) && !is_on(Part::new(usize::MAX, 2), 1));
        assert_eq!(read(Part::new(first, 2)), Some(vec![RUBBISH; 2]));
        assert_eq!(read(Part::new(first + 15, 2)), None);
        assert_eq!(free(first, true), Err(FreeError::Unknown));
        assert_eq!(free(first, false), Ok(()));
        assert_eq!(free(first, false), Err(FreeError::Unknown));
    }

    #[test]
    fn a_write_past_the_end_is_found() {
        for at in [-1isize, 16] {
            let address = allocate(Place::Device(2), 16).unwrap();
            assert!(!write(address.wrapping_add_signed(at), &[0]), "write checks");
            assert!(write_any(address.wrapping_add_signed(at), &[0]));
            assert_eq!(free(address, false), Err(FreeError::Overrun));
        }
    }

    #[test]
    fn outputs_are_poisoned_where_they_are_no_input() {
        let address = allocate(Place::Device(3), 8).unwrap();
        assert!(write(address, &[1; 8]));
        poison(&[Part::new(address, 8)], &[Part::new(address + 2, 3)]);
        let expected = [POISON, POISON, 1, 1, 1, POISON, POISON, POISON];
        assert_eq!(read(Part::new(address, 8)).unwrap(), expected);
        free(address, false).unwrap();
    }
}
