//! Values as bytes: what both sides of a connection write and read in the same way.

use std::sync::Arc;
use std::time::Duration;

use unisono_control::codec::{Malformed, Reader, Writer};

/// A value that travels.
pub(super) trait Wire: Sized {
    /// Appends it.
    fn write(&self, writer: &mut Writer);

    /// Reads it.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// The bytes of a value.
pub(super) fn encode(value: &impl Wire) -> Vec<u8> {
    let mut writer = Writer::new();
    value.write(&mut writer);
    writer.finish()
}

/// The value of these bytes.
///
/// # Panics
/// When they are none: both sides are of one build.
pub(super) fn decode<T: Wire>(bytes: &[u8]) -> T {
    let mut reader = Reader::new(bytes);
    let value = T::read(&mut reader).and_then(|value| reader.finish().map(|()| value));
    value.unwrap_or_else(|malformed| panic!("{malformed}"))
}

/// Bytes of any number, written in one go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Wire for Bytes {
    fn write(&self, writer: &mut Writer) {
        writer.bytes(&self.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Bytes, Malformed> {
        reader.bytes(usize::MAX).map(|bytes| Bytes(bytes.to_vec()))
    }
}

impl Wire for () {
    fn write(&self, _writer: &mut Writer) {}

    fn read(_reader: &mut Reader<'_>) -> Result<(), Malformed> {
        Ok(())
    }
}

impl Wire for u32 {
    fn write(&self, writer: &mut Writer) {
        writer.u32(*self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
        reader.u32()
    }
}

impl Wire for u64 {
    fn write(&self, writer: &mut Writer) {
        writer.u64(*self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
        reader.u64()
    }
}

impl Wire for bool {
    fn write(&self, writer: &mut Writer) {
        writer.u8((*self).into());
    }

    fn read(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
        reader.u8().map(|byte| byte != 0)
    }
}

impl Wire for String {
    fn write(&self, writer: &mut Writer) {
        writer.bytes(self.as_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<String, Malformed> {
        reader.text(usize::MAX).map(str::to_owned)
    }
}

/// A name that is kept as long as the process lives: of a backend, an argument, an algorithm.
impl Wire for &'static str {
    fn write(&self, writer: &mut Writer) {
        writer.bytes(self.as_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<&'static str, Malformed> {
        let name = reader.text(usize::MAX)?;
        unisono_schedule::intern(name).map_err(|_| Malformed { what: "a name is too long, or one too many" })
    }
}

impl Wire for Duration {
    fn write(&self, writer: &mut Writer) {
        writer.u64(self.as_secs()).u32(self.subsec_nanos());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Duration, Malformed> {
        Ok(Duration::new(reader.u64()?, reader.u32()?))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn write(&self, writer: &mut Writer) {
        match self {
            None => drop(writer.u8(0)),
            Some(value) => value.write(writer.u8(1)),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Option<T>, Malformed> {
        Ok(if bool::read(reader)? { Some(T::read(reader)?) } else { None })
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn write(&self, writer: &mut Writer) {
        match self {
            Ok(value) => value.write(writer.u8(0)),
            Err(error) => error.write(writer.u8(1)),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Result<T, E>, Malformed> {
        Ok(if bool::read(reader)? { Err(E::read(reader)?) } else { Ok(T::read(reader)?) })
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn write(&self, writer: &mut Writer) {
        writer.u64(self.len() as u64);
        self.iter().for_each(|value| value.write(writer));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Vec<T>, Malformed> {
        (0..reader.u64()?).map(|_| T::read(reader)).collect()
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn write(&self, writer: &mut Writer) {
        T::write(self, writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Arc<T>, Malformed> {
        T::read(reader).map(Arc::new)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn write(&self, writer: &mut Writer) {
        self.0.write(writer);
        self.1.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<(A, B), Malformed> {
        Ok((A::read(reader)?, B::read(reader)?))
    }
}

/// [`Wire`] for structs whose fields can be named: one after the other.
macro_rules! wire_struct {
    ($($name:ident { $($field:ident),* })*) => { $(
        impl $crate::processes::wire::Wire for $name {
            fn write(&self, writer: &mut unisono_control::codec::Writer) {
                $( $crate::processes::wire::Wire::write(&self.$field, writer); )*
            }

            fn read(
                reader: &mut unisono_control::codec::Reader<'_>,
            ) -> Result<Self, unisono_control::codec::Malformed> {
                Ok($name { $($field: $crate::processes::wire::Wire::read(reader)?),* })
            }
        }
    )* };
}

/// An enum of messages, with its [`Wire`]: the number of a message, then its fields.
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $(
        $(#[$about:meta])* $code:literal $message:ident { $($field:ident: $type:ty),* $(,)? }
    )* }) => {
        $(#[$doc])*
        pub(super) enum $name {
            $( $(#[$about])* $message { $($field: $type),* }, )*
        }

        impl $crate::processes::wire::Wire for $name {
            fn write(&self, writer: &mut unisono_control::codec::Writer) {
                match self {
                    $( $name::$message { $($field),* } => {
                        writer.u8($code);
                        $( $crate::processes::wire::Wire::write($field, writer); )*
                    } )*
                }
            }

            fn read(
                reader: &mut unisono_control::codec::Reader<'_>,
            ) -> Result<Self, unisono_control::codec::Malformed> {
                match reader.u8()? {
                    $( $code => Ok($name::$message {
                        $($field: $crate::processes::wire::Wire::read(reader)?),*
                    }), )*
                    _ => Err(unisono_control::codec::Malformed { what: "an unknown message" }),
                }
            }
        }
    };
}

pub(super) use {wire_enum, wire_struct};
