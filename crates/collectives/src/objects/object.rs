//! The values that travel as objects, and their bytes.

use bytes::Bytes;

#[cfg(feature = "serde")]
use crate::objects::decoder::decode;

/// A value whose length other ranks do not know: bytes, a text, or with the feature `serde` a `Serialized` value.
///
/// A type of yours becomes an object by these two functions:
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use unisono::{Bytes, CollectivesOfObjects, Object, Solo};
///
/// #[derive(Debug, PartialEq)]
/// struct Version(u8);
///
/// impl Object for Version {
///     fn encode(self) -> Result<Bytes, String> {
///         Ok(Bytes::from(vec![self.0]))
///     }
///
///     fn decode(bytes: Bytes) -> Result<Version, String> {
///         match bytes[..] {
///             [version] => Ok(Version(version)),
///             _ => Err(format!("a version of {} bytes", bytes.len())),
///         }
///     }
/// }
/// assert_eq!(Solo::new().all_gather_object(Version(3))?, [Version(3)]);
/// # Ok::<(), unisono::Error>(())
/// ```
pub trait Object: Sized {
    /// The bytes that travel.
    ///
    /// # Errors
    /// The problem, as the error of the call shows it.
    fn encode(self) -> Result<Bytes, String>;

    /// The value of these bytes, which another rank has sent.
    ///
    /// # Errors
    /// The fault of the bytes, as the error of the call shows it.
    fn decode(bytes: Bytes) -> Result<Self, String>;
}

impl Object for Bytes {
    fn encode(self) -> Result<Bytes, String> {
        Ok(self)
    }

    fn decode(bytes: Bytes) -> Result<Bytes, String> {
        Ok(bytes)
    }
}

impl Object for Vec<u8> {
    fn encode(self) -> Result<Bytes, String> {
        Ok(self.into())
    }

    fn decode(bytes: Bytes) -> Result<Vec<u8>, String> {
        Ok(bytes.into())
    }
}

impl Object for String {
    fn encode(self) -> Result<Bytes, String> {
        Ok(self.into())
    }

    fn decode(bytes: Bytes) -> Result<String, String> {
        String::from_utf8(bytes.into()).map_err(|error| format!("no text: {error}"))
    }
}

/// A value of serde as an object (feature `serde`): one byte with the version of the format, then the value in
/// postcard's encoding. The types of both sides must match field by field, since the bytes do not name them.
///
/// <div class="warning">
///
/// A rank that decodes another type than the sender has encoded may get a value without an error: other numbers and
/// other texts. No check finds this. Define the type once, in code that all ranks share.
///
/// </div>
///
/// A rank takes values in which at most 128 options, enums, sequences and maps lie in each other, and of whose elements
/// at most 1,048,576 have no bytes, such as `()`. It refuses others as malformed, since bytes that nest deeper would
/// overflow its stack, and a length of a few bytes can name any number of such elements.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use unisono::{CollectivesOfObjects, Serialized, Solo};
/// let loss = ("epoch".to_owned(), 3u32, 0.25f32);
/// let Serialized(loss) = Solo::new().broadcast_object(Some(Serialized(loss)), 0)?;
/// assert_eq!(loss.1, 3);
/// # Ok::<(), unisono::Error>(())
/// ```
#[cfg(feature = "serde")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Serialized<T>(
    /// The value.
    pub T,
);

/// The version of the encoding.
#[cfg(feature = "serde")]
const VERSION: u8 = 1;

#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Object for Serialized<T> {
    fn encode(self) -> Result<Bytes, String> {
        let bytes = postcard::to_extend(&self.0, vec![VERSION]);
        bytes.map(Bytes::from).map_err(|error| format!("not to be encoded: {error}"))
    }

    fn decode(bytes: Bytes) -> Result<Serialized<T>, String> {
        match bytes.split_first() {
            Some((&VERSION, value)) => decode(value).map(Serialized),
            Some((version, _)) => Err(format!("version {version} of the encoding, not {VERSION}")),
            None => Err("no bytes, not even a version".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b19_bytes_that_are_no_text_are_refused() {
        assert_eq!(String::decode(Bytes::from_static(b"caf\xc3\xa9")), Ok("caf\u{e9}".to_owned()));
        let problem = String::decode(Bytes::from_static(b"caf\xc3")).unwrap_err();
        assert!(problem.starts_with("no text: "), "{problem}");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn b19_every_cut_or_changed_encoding_is_a_value_or_an_error() {
        type Value = (String, Vec<u32>, Option<f64>);
        let value: Value = ("weights".to_owned(), vec![1, 300, 70_000], Some(0.5));
        let bytes = Serialized(value.clone()).encode().unwrap();
        assert_eq!(bytes[0], VERSION);
        assert_eq!(Serialized::<Value>::decode(bytes.clone()), Ok(Serialized(value)));
        for end in 0..bytes.len() {
            assert!(Serialized::<Value>::decode(bytes.slice(..end)).is_err(), "{end} bytes");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.to_vec();
                changed[at] ^= 1 << bit;
                let decoded = Serialized::<Value>::decode(changed.into());
                assert!(at > 0 || decoded.unwrap_err().contains("of the encoding"));
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        let problem = Serialized::<Value>::decode(longer.into()).unwrap_err();
        assert_eq!(problem, "1 bytes too many for its type");
    }
}
