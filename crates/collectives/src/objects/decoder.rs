//! Values of serde from bytes that another rank has sent. The bytes are postcard's; a value may nest only so deep and
//! have only so many elements without bytes, so that no bytes overflow a stack or keep a rank busy.

use std::fmt;

use serde::de::value::U32Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

/// The number of options, enums, sequences and maps that may lie in each other.
const LEVELS_MAX: u32 = 128;

/// The number of structs and tuples that may lie in each other without one of them. Only a type that has no values
/// exceeds it.
const FIELDS_MAX: u32 = 128;

/// The number of elements of an object's sequences that may have no bytes: a length of a few bytes names any number of
/// them.
const EMPTY_ELEMENTS_MAX: u32 = 1 << 20;

/// The value of these bytes.
///
/// # Errors
/// The fault of the bytes, as the error of the call shows it.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut input = Input { rest: bytes, empty_left: EMPTY_ELEMENTS_MAX };
    let depth = Depth { levels_left: LEVELS_MAX, fields_left: FIELDS_MAX };
    match T::deserialize(Decoder { input: &mut input, depth }) {
        Ok(value) if input.rest.is_empty() => Ok(value),
        Ok(_) => Err(format!("{} bytes too many for its type", input.rest.len())),
        Err(fault) => Err(format!("no value of its type: {fault}")),
    }
}

/// Why bytes are no value. Short, since every value comes as a `Result` with it.
#[derive(Debug)]
struct DecodeFault(Box<str>);

impl fmt::Display for DecodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeFault {}

impl de::Error for DecodeFault {
    fn custom<T: fmt::Display>(problem: T) -> DecodeFault {
        DecodeFault(problem.to_string().into())
    }
}

/// The bytes of an object that are still to be read.
struct Input<'de> {
    rest: &'de [u8],
    empty_left: u32,
}

impl<'de> Input<'de> {
    /// A value without parts.
    #[inline]
    fn take<T: de::Deserialize<'de>>(&mut self) -> Result<T, DecodeFault> {
        let (value, rest) = postcard::take_from_bytes(self.rest).map_err(de::Error::custom)?;
        self.rest = rest;
        Ok(value)
    }
}

/// The depth to which a value may still nest.
#[derive(Clone, Copy)]
struct Depth {
    levels_left: u32,
    fields_left: u32,
}

impl Depth {
    /// Within an option, an enum, a sequence or a map. A type with values that contains itself does so through these.
    #[inline]
    fn of_level(self) -> Result<Depth, DecodeFault> {
        let problem = || DecodeFault(format!("more than {LEVELS_MAX} levels").into());
        let levels_left = self.levels_left.checked_sub(1).ok_or_else(problem)?;
        Ok(Depth { levels_left, fields_left: FIELDS_MAX })
    }

    /// Within a struct or a tuple.
    #[inline]
    fn of_fields(self) -> Result<Depth, DecodeFault> {
        let problem = || DecodeFault(format!("more than {FIELDS_MAX} structs in each other").into());
        let fields_left = self.fields_left.checked_sub(1).ok_or_else(problem)?;
        Ok(Depth { fields_left, ..self })
    }
}

/// Reads one value.
struct Decoder<'a, 'de> {
    input: &'a mut Input<'de>,
    depth: Depth,
}

/// One method for each type without parts.
macro_rules! without_parts {
    ($($method:ident: $type:ty, $visit:ident;)*) => {
        $(
            #[inline]
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
                visitor.$visit(self.input.take::<$type>()?)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Decoder<'_, 'de> {
    type Error = DecodeFault;

    without_parts! {
        deserialize_bool: bool, visit_bool;
        deserialize_i8: i8, visit_i8;
        deserialize_i16: i16, visit_i16;
        deserialize_i32: i32, visit_i32;
        deserialize_i64: i64, visit_i64;
        deserialize_i128: i128, visit_i128;
        deserialize_u8: u8, visit_u8;
        deserialize_u16: u16, visit_u16;
        deserialize_u32: u32, visit_u32;
        deserialize_u64: u64, visit_u64;
        deserialize_u128: u128, visit_u128;
        deserialize_f32: f32, visit_f32;
        deserialize_f64: f64, visit_f64;
        deserialize_char: char, visit_char;
        deserialize_str: &'de str, visit_borrowed_str;
        deserialize_string: &'de str, visit_borrowed_str;
        deserialize_bytes: &'de [u8], visit_borrowed_bytes;
        deserialize_byte_buf: &'de [u8], visit_borrowed_bytes;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DecodeFault> {
        Err(de::Error::custom("its type asks the bytes what they are, and they do not tell"))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        self.deserialize_any(visitor)
    }

    #[inline]
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        visitor.visit_newtype_struct(Decoder { depth: self.depth.of_fields()?, input: self.input })
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        let depth = self.depth.of_level()?;
        match self.input.take::<u8>()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(Decoder { input: self.input, depth }),
            other => Err(DecodeFault(format!("an option that begins with {other}").into())),
        }
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        visitor.visit_seq(self.elements()?)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        visitor.visit_map(self.elements()?)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, DecodeFault> {
        let depth = self.depth.of_fields()?;
        visitor.visit_seq(Fields { decoder: Decoder { input: self.input, depth }, left: length })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        self.deserialize_tuple(length, visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        let depth = self.depth.of_level()?;
        visitor.visit_enum(Decoder { input: self.input, depth })
    }
}

impl<'a, 'de> Decoder<'a, 'de> {
    /// The elements that follow their number.
    fn elements(self) -> Result<Elements<'a, 'de>, DecodeFault> {
        let depth = self.depth.of_level()?;
        let left = self.input.take::<usize>()?;
        Ok(Elements { decoder: Decoder { input: self.input, depth }, left })
    }

    fn again(&mut self) -> Decoder<'_, 'de> {
        Decoder { input: self.input, depth: self.depth }
    }
}

/// The elements of a sequence, or the entries of a map.
struct Elements<'a, 'de> {
    decoder: Decoder<'a, 'de>,
    left: usize,
}

impl<'de> Elements<'_, 'de> {
    /// The next element, or the key of the next entry.
    #[inline]
    fn next<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeFault> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let before = self.decoder.input.rest.len();
        let value = seed.deserialize(self.decoder.again())?;
        if self.decoder.input.rest.len() == before {
            let problem =
                || DecodeFault(format!("more than {EMPTY_ELEMENTS_MAX} elements without bytes").into());
            let empty_left = self.decoder.input.empty_left.checked_sub(1).ok_or_else(problem)?;
            self.decoder.input.empty_left = empty_left;
        }
        Ok(Some(value))
    }

    /// The number of elements for which memory may be taken at once: the bytes, and not the length, say how many come.
    fn believed(&self) -> Option<usize> {
        Some(self.left.min(self.decoder.input.rest.len()))
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_, 'de> {
    type Error = DecodeFault;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeFault> {
        self.next(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.believed()
    }
}

impl<'de> de::MapAccess<'de> for Elements<'_, 'de> {
    type Error = DecodeFault;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeFault> {
        self.next(seed)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DecodeFault> {
        seed.deserialize(self.decoder.again())
    }

    fn size_hint(&self) -> Option<usize> {
        self.believed()
    }
}

/// The fields of a struct or a tuple, whose number is the type's.
struct Fields<'a, 'de> {
    decoder: Decoder<'a, 'de>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Fields<'_, 'de> {
    type Error = DecodeFault;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeFault> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(self.decoder.again()).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::EnumAccess<'de> for Decoder<'_, 'de> {
    type Error = DecodeFault;
    type Variant = Self;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), DecodeFault> {
        let variant: U32Deserializer<DecodeFault> = self.input.take::<u32>()?.into_deserializer();
        Ok((seed.deserialize(variant)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Decoder<'_, 'de> {
    type Error = DecodeFault;

    fn unit_variant(self) -> Result<(), DecodeFault> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, DecodeFault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, DecodeFault> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
