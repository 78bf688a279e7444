//! Bounded reading and writing of control messages: fixed little-endian integers, capped lists and texts.
//!
//! The bytes come from a socket, so nothing here trusts a length: every list and text has a cap that its caller names,
//! and a message must be read to its last byte.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use unisono_communicator::{Error, beginning};

/// Bytes of an encoded socket address: family, 16 bytes of address, port.
pub const ADDRESS_BYTES: usize = 19;

const FAMILY_V4: u8 = 4;
const FAMILY_V6: u8 = 6;

/// A message that does not fit its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The part that is wrong.
    pub what: &'static str,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed message: {}", self.what)
    }
}

impl std::error::Error for Malformed {}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Error {
        Error::Refused { problem: malformed.to_string() }
    }
}

/// Reads a message from its first byte to its last.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of one whole message.
    pub fn new(message: &'a [u8]) -> Reader<'a> {
        Reader { rest: message }
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Malformed { what: "it ends too early" })?;
        self.rest = rest;
        Ok(*head)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// The next 2 bytes.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next 4 bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next 8 bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A byte string behind its 4-byte length, of at most `bytes_max` bytes.
    pub fn bytes(&mut self, bytes_max: usize) -> Result<&'a [u8], Malformed> {
        let length = self.length(bytes_max, 1)?;
        let (head, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(head)
    }

    /// A text behind its 4-byte length, of at most `bytes_max` bytes.
    pub fn text(&mut self, bytes_max: usize) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes(bytes_max)?).map_err(|_| Malformed { what: "a text is not UTF-8" })
    }

    /// The 4-byte count of a list of at most `count_max` items of at least `item_bytes` bytes each, so that
    /// reserving room for that many items never costs more than the message itself did.
    pub fn length(&mut self, count_max: usize, item_bytes: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count > count_max {
            return Err(Malformed { what: "a list or text is longer than allowed" });
        }
        if count.saturating_mul(item_bytes) > self.rest.len() {
            return Err(Malformed { what: "a list or text is longer than the message" });
        }
        Ok(count)
    }

    /// A list of u32 behind its 4-byte count, of at most `count_max` items.
    pub fn u32_list(&mut self, count_max: usize) -> Result<Vec<u32>, Malformed> {
        (0..self.length(count_max, 4)?).map(|_| self.u32()).collect()
    }

    /// A socket address.
    pub fn address(&mut self) -> Result<SocketAddr, Malformed> {
        let family = self.u8()?;
        let ip: [u8; 16] = self.array()?;
        let port = self.u16()?;
        let ip = match family {
            FAMILY_V4 => IpAddr::V4(Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3])),
            FAMILY_V6 => IpAddr::V6(Ipv6Addr::from(ip)),
            _ => return Err(Malformed { what: "an unknown address family" }),
        };
        Ok(SocketAddr::new(ip, port))
    }

    /// A number of [`Writer::short`].
    pub fn short(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = u64::from(self.u8()?);
            let bits = byte & 0x7f;
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed { what: "a number is too long" })
    }

    /// The number that [`Writer::beside`] has written beside `base`.
    pub fn beside(&mut self, base: u64) -> Result<u64, Malformed> {
        Ok(base.wrapping_add(unfolded(self.short()?)))
    }

    /// The same, of a number of 4 bytes.
    pub fn beside_u32(&mut self, base: u32) -> Result<u32, Malformed> {
        let value = self.beside(base.into())?;
        u32::try_from(value).map_err(|_| Malformed { what: "a number is too large" })
    }

    /// Checks that nothing is left.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed { what: "it goes on after its end" }) }
    }
}

/// Behind a text that was cut.
const MARK: &str = "...";
/// A longer run of letters is no word; where no word would fit, the text is cut anywhere.
const WORD_BYTES_MAX: usize = 64;

/// A difference of two numbers as a small number, also where it is negative: 0, -1, 1, -2 are 0, 1, 2, 3.
pub(crate) fn folded(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64) >> 63) as u64
}

/// The difference that has been [`folded`].
pub(crate) fn unfolded(coded: u64) -> u64 {
    (coded >> 1) ^ (coded & 1).wrapping_neg()
}

/// Writes a message.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty message.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Appends bytes as they are.
    pub fn array(&mut self, value: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(value);
        self
    }

    /// Appends a byte.
    pub fn u8(&mut self, value: u8) -> &mut Writer {
        self.array(&value.to_le_bytes())
    }

    /// Appends 2 bytes.
    pub fn u16(&mut self, value: u16) -> &mut Writer {
        self.array(&value.to_le_bytes())
    }

    /// Appends 4 bytes.
    pub fn u32(&mut self, value: u32) -> &mut Writer {
        self.array(&value.to_le_bytes())
    }

    /// Appends 8 bytes.
    pub fn u64(&mut self, value: u64) -> &mut Writer {
        self.array(&value.to_le_bytes())
    }

    /// Appends a byte string behind its 4-byte length.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Writer {
        self.u32(value.len() as u32).array(value)
    }

    /// Appends a text behind its 4-byte length, cut at a character so that it has at most `bytes_max` bytes: a long
    /// text must not make the message that explains a failure unreadable.
    pub fn text(&mut self, value: &str, bytes_max: usize) -> &mut Writer {
        self.bytes(beginning(value, bytes_max).as_bytes())
    }

    /// As [`Writer::text`], for sentences: a cut sentence ends with a whole word, and shows the cut.
    pub(crate) fn words(&mut self, value: &str, bytes_max: usize) -> &mut Writer {
        let room = bytes_max.checked_sub(MARK.len()).filter(|&room| room >= WORD_BYTES_MAX);
        let Some(room) = room.filter(|_| value.len() > bytes_max) else {
            return self.text(value, bytes_max);
        };
        let whole = beginning(value, room);
        let word = whole.rfind(' ').filter(|at| whole.len() - at <= WORD_BYTES_MAX);
        self.bytes([&whole[..word.unwrap_or(whole.len())], MARK].concat().as_bytes())
    }

    /// Appends a list of u32 behind its 4-byte count.
    pub fn u32_list(&mut self, values: &[u32]) -> &mut Writer {
        self.u32(values.len() as u32);
        for value in values {
            self.u32(*value);
        }
        self
    }

    /// Appends a socket address.
    pub fn address(&mut self, value: SocketAddr) -> &mut Writer {
        let mut ip = [0; 16];
        let family = match value.ip() {
            IpAddr::V4(v4) => {
                ip[..4].copy_from_slice(&v4.octets());
                FAMILY_V4
            }
            IpAddr::V6(v6) => {
                ip = v6.octets();
                FAMILY_V6
            }
        };
        self.u8(family).array(&ip).u16(value.port())
    }

    /// Appends a number in as few bytes as it needs: 7 bits in each, the lowest first, with the highest bit set in all
    /// but the last.
    pub fn short(&mut self, mut value: u64) -> &mut Writer {
        while value >= 0x80 {
            self.u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8)
    }

    /// Appends the difference of a number from a number that the reader knows, in few bytes where both are close.
    pub fn beside(&mut self, base: u64, value: u64) -> &mut Writer {
        self.short(folded(value.wrapping_sub(base)))
    }

    /// The message.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let addresses = ["127.0.0.1:80", "[2001:db8::7]:65535"].map(|a| a.parse::<SocketAddr>().unwrap());
        let mut writer = Writer::new();
        writer.u8(1).u16(2).u32(3).u64(4).bytes(b"five").text("six", 10).u32_list(&[7, 8]);
        let message = writer.address(addresses[0]).address(addresses[1]).finish();
        let mut reader = Reader::new(&message);
        assert_eq!((reader.u8(), reader.u16(), reader.u32(), reader.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!((reader.bytes(4), reader.text(3)), (Ok(&b"five"[..]), Ok("six")));
        assert_eq!(reader.u32_list(2), Ok(vec![7, 8]));
        assert_eq!((reader.address(), reader.address()), (Ok(addresses[0]), Ok(addresses[1])));
        assert_eq!(reader.clone().finish(), Ok(()));
        assert!(reader.u8().is_err());
    }

    #[test]
    fn lengths_are_not_believed() {
        let huge = u32::MAX.to_le_bytes();
        assert!(Reader::new(&huge).bytes(usize::MAX).is_err());
        assert!(Reader::new(&huge).u32_list(usize::MAX).is_err());
        let message = Writer::new().bytes(b"12345").finish();
        assert!(Reader::new(&message).bytes(4).is_err(), "over the cap");
        assert!(Reader::new(&message[..8]).bytes(5).is_err(), "over the message");
        assert!(Reader::new(&[1, 2]).finish().is_err(), "bytes left over");
        assert!(Reader::new(&Writer::new().bytes(&[0xff]).finish()).text(9).is_err(), "not UTF-8");
        assert!(Reader::new(&[9; ADDRESS_BYTES]).address().is_err(), "no such family");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let message = Writer::new().text("ab\u{e9}", 3).finish();
        assert_eq!(Reader::new(&message).text(3), Ok("ab"));
    }

    #[test]
    fn a_long_sentence_ends_with_a_whole_word_and_shows_that_it_was_cut() {
        let words = "has not sent ".repeat(20);
        for bytes_max in 100..140 {
            let message = Writer::new().words(&words, bytes_max).finish();
            let cut = Reader::new(&message).text(bytes_max).unwrap();
            let whole = cut.strip_suffix("...").unwrap();
            assert!(words.starts_with(&format!("{whole} ")) && bytes_max - cut.len() < 8, "{cut}");
        }
        assert_eq!(Writer::new().words(&words, words.len()).finish().len(), 4 + words.len(), "it fits");
    }

    #[test]
    fn short_numbers_take_as_many_bytes_as_they_need() {
        for (value, bytes) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, 10)] {
            let message = Writer::new().short(value).finish();
            assert_eq!((message.len(), Reader::new(&message).short()), (bytes, Ok(value)));
        }
        for (base, value, bytes) in [(9, 9, 1), (9, 0, 1), (100, 163, 1), (100, 164, 2), (0, u64::MAX, 1)] {
            let message = Writer::new().beside(base, value).finish();
            assert_eq!((message.len(), Reader::new(&message).beside(base)), (bytes, Ok(value)));
        }
        assert!(Reader::new(&[0xff; 11]).short().is_err(), "it never ends");
        let too_large = [&[0xff; 9][..], &[2]].concat();
        assert!(Reader::new(&too_large).short().is_err(), "of 65 bits");
        let below_zero = Writer::new().beside(0, u64::MAX).finish();
        assert!(Reader::new(&below_zero).beside_u32(0).is_err());
    }

    proptest! {
        #[test]
        fn numbers_beside_others_are_read_again(base: u64, value: u64) {
            let message = Writer::new().beside(base, value).finish();
            prop_assert_eq!(Reader::new(&message).beside(base), Ok(value));
        }

        #[test]
        fn junk_is_refused_without_a_panic(junk: Vec<u8>, cap in 0usize..64) {
            let mut reader = Reader::new(&junk);
            prop_assert!(reader.clone().u32_list(cap).map_or(true, |list| list.len() <= cap));
            prop_assert!(reader.clone().text(cap).map_or(true, |text| text.len() <= cap));
            prop_assert_eq!(reader.address().is_ok(), junk.len() >= ADDRESS_BYTES && matches!(junk[0], 4 | 6));
        }
    }
}
