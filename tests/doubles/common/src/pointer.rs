//! Pointers as C programs give them. An exported function takes these types in place of raw pointers: whoever calls
//! it promises what the vendor's header says, which is that a pointer is null or points to what its type names, for
//! the time of the call. So only C code makes them, and the rest of a double reads and writes through them without
//! `unsafe`.

#![expect(unsafe_code, reason = "pointers of C programs")]

use std::ffi::{CStr, c_char};

/// Where a result goes: `T *`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// What is read: `const T *`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

/// A string: `const char *`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

// SAFETY: the place is the caller's for the time of the call, whichever thread of the library writes it.
unsafe impl<T: Send> Send for Out<T> {}

impl<T> Out<T> {
    /// Writes the result; whether the pointer is not null.
    #[must_use]
    pub fn put(self, value: T) -> bool {
        if self.0.is_null() {
            return false;
        }
        // SAFETY: see the head of this file.
        unsafe { self.0.write_unaligned(value) };
        true
    }

    /// Whether it is null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The place of one of several results; null for null.
    pub fn at(self, index: usize) -> Out<T> {
        if self.0.is_null() { self } else { Out(self.0.wrapping_add(index)) }
    }

    /// The same place, for a result of another type.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl Out<u8> {
    /// Writes a string with a zero at its end, as much of it as there is room for; whether the pointer is not null.
    #[must_use]
    pub fn put_text(self, text: &str, room: usize) -> bool {
        let bytes = text.bytes().take(room.saturating_sub(1)).chain([0]);
        bytes.take(room).enumerate().all(|(at, byte)| self.at(at).put(byte))
    }
}

impl<T: Copy> Out<T> {
    /// Reads what is there, for a pointer both ways.
    pub fn get(self) -> Option<T> {
        In(self.0.cast_const()).get()
    }
}

impl<T: Copy> In<T> {
    /// What it points to.
    pub fn get(self) -> Option<T> {
        // SAFETY: see the head of this file.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// The first `count` of an array. Null only for none.
    pub fn list(self, count: usize) -> Option<Vec<T>> {
        if count == 0 {
            return Some(Vec::new());
        }
        // SAFETY: see the head of this file.
        (!self.0.is_null()).then(|| (0..count).map(|at| unsafe { self.0.add(at).read_unaligned() }).collect())
    }

    /// The same place, as another type.
    pub fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }

    /// Where it points.
    pub fn address(self) -> usize {
        self.0 as usize
    }
}

impl In<u8> {
    /// What it points to, as a string with a zero at its end.
    pub fn text(self) -> Option<String> {
        Text(self.0.cast()).get()
    }
}

impl Text {
    /// The string.
    pub fn get(self) -> Option<String> {
        // SAFETY: see the head of this file.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}
