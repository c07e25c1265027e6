//! Canonical JSON: a text that is equal for equal values.
//!
//! The members of objects are sorted by name, there is no whitespace, and a field of a struct
//! without a value (`null`) is left out. So the text does not change when a struct gets a new
//! optional field or when its fields are moved. A map keeps its `null` values, because its keys are
//! data.
//!
//! Regatta hashes this text to recognise a repeated request; see [`crate::idempotency`]. This
//! module exists because this crate does not depend on `serde_json`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use serde::Serialize;
use serde::ser::{
    self, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// The reason why a value has no JSON form.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CanonicalJsonError(String);

impl ser::Error for CanonicalJsonError {
    fn custom<T: Display>(message: T) -> CanonicalJsonError {
        CanonicalJsonError(message.to_string())
    }
}

type WriteResult = Result<(), CanonicalJsonError>;

/// Returns a value as canonical JSON.
pub(crate) fn to_canonical_json<T>(value: &T) -> Result<String, CanonicalJsonError>
where
    T: Serialize + ?Sized,
{
    let mut text = String::new();
    value.serialize(ValueWriter { text: &mut text })?;
    Ok(text)
}

/// Appends one value to a text.
struct ValueWriter<'a> {
    text: &'a mut String,
}

impl<'a> ValueWriter<'a> {
    fn write(self, value: impl Display) -> WriteResult {
        write!(self.text, "{value}").map_err(ser::Error::custom)
    }

    fn write_float(self, value: impl Display, is_finite: bool) -> WriteResult {
        if is_finite {
            self.write(value)
        } else {
            self.serialize_unit()
        }
    }

    /// Starts an enum variant that holds data: an object with the variant's name as only member.
    fn begin_variant(self, variant: &str) -> &'a mut String {
        self.text.push('{');
        push_string(self.text, variant);
        self.text.push(':');
        self.text
    }
}

/// Appends a string with its quotes. Only the characters that JSON cannot contain are escaped.
fn push_string(text: &mut String, value: &str) {
    text.push('"');
    for char in value.chars() {
        match char {
            '"' | '\\' => text.extend(['\\', char]),
            '\0'..='\x1f' => text.push_str(&format!("\\u{:04x}", u32::from(char))),
            _ => text.push(char),
        }
    }
    text.push('"');
}

/// Writes the elements of an array.
struct ArrayWriter<'a> {
    text: &'a mut String,
    is_empty: bool,
    end: &'static str,
}

impl<'a> ArrayWriter<'a> {
    fn new(text: &'a mut String, end: &'static str) -> ArrayWriter<'a> {
        text.push('[');
        ArrayWriter {
            text,
            is_empty: true,
            end,
        }
    }

    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> WriteResult {
        if !self.is_empty {
            self.text.push(',');
        }
        self.is_empty = false;
        value.serialize(ValueWriter { text: self.text })
    }

    fn finish(self) -> WriteResult {
        self.text.push_str(self.end);
        Ok(())
    }
}

/// Collects the members of an object, which are written in the order of their names.
struct ObjectWriter<'a> {
    text: &'a mut String,
    /// The values by their names. The names are escaped.
    members: BTreeMap<String, String>,
    /// The name of the member of a map whose value comes next.
    name: String,
    end: &'static str,
}

impl<'a> ObjectWriter<'a> {
    fn new(text: &'a mut String, end: &'static str) -> ObjectWriter<'a> {
        ObjectWriter {
            text,
            members: BTreeMap::new(),
            name: String::new(),
            end,
        }
    }

    /// Adds a field of a struct, unless it has no value.
    fn push_field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> WriteResult {
        let value = to_canonical_json(value)?;
        if value != "null" {
            self.members.insert(to_name(name)?, value);
        }
        Ok(())
    }

    fn finish(self) -> WriteResult {
        self.text.push('{');
        for (nth, (name, value)) in self.members.iter().enumerate() {
            let comma = if nth > 0 { "," } else { "" };
            write!(self.text, "{comma}\"{name}\":{value}").map_err(ser::Error::custom)?;
        }
        self.text.push_str(self.end);
        Ok(())
    }
}

/// Returns the escaped name of a member: the content of a string, or the JSON of any other key.
fn to_name<T: Serialize + ?Sized>(key: &T) -> Result<String, CanonicalJsonError> {
    let mut json = to_canonical_json(key)?;
    if !json.starts_with('"') {
        json = to_canonical_json(&json)?;
    }
    Ok(json[1..json.len() - 1].to_owned())
}

macro_rules! write_as_is {
    ($($method:ident($type:ty)),*) => {
        $(fn $method(self, value: $type) -> WriteResult { self.write(value) })*
    };
}

impl<'a> Serializer for ValueWriter<'a> {
    type Ok = ();
    type Error = CanonicalJsonError;
    type SerializeSeq = ArrayWriter<'a>;
    type SerializeTuple = ArrayWriter<'a>;
    type SerializeTupleStruct = ArrayWriter<'a>;
    type SerializeTupleVariant = ArrayWriter<'a>;
    type SerializeMap = ObjectWriter<'a>;
    type SerializeStruct = ObjectWriter<'a>;
    type SerializeStructVariant = ObjectWriter<'a>;

    write_as_is! {
        serialize_bool(bool), serialize_i8(i8), serialize_i16(i16), serialize_i32(i32),
        serialize_i64(i64), serialize_i128(i128), serialize_u8(u8), serialize_u16(u16),
        serialize_u32(u32), serialize_u64(u64), serialize_u128(u128)
    }

    fn serialize_f32(self, value: f32) -> WriteResult {
        self.write_float(value, value.is_finite())
    }

    fn serialize_f64(self, value: f64) -> WriteResult {
        self.write_float(value, value.is_finite())
    }

    fn serialize_char(self, value: char) -> WriteResult {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> WriteResult {
        push_string(self.text, value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> WriteResult {
        value.serialize(self)
    }

    fn serialize_none(self) -> WriteResult {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> WriteResult {
        value.serialize(self)
    }

    fn serialize_unit(self) -> WriteResult {
        self.write("null")
    }

    fn serialize_unit_struct(self, _name: &'static str) -> WriteResult {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> WriteResult {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> WriteResult {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> WriteResult {
        let text = self.begin_variant(variant);
        value.serialize(ValueWriter { text })?;
        text.push('}');
        Ok(())
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<ArrayWriter<'a>, Self::Error> {
        Ok(ArrayWriter::new(self.text, "]"))
    }

    fn serialize_tuple(self, _length: usize) -> Result<ArrayWriter<'a>, Self::Error> {
        Ok(ArrayWriter::new(self.text, "]"))
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<ArrayWriter<'a>, Self::Error> {
        Ok(ArrayWriter::new(self.text, "]"))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<ArrayWriter<'a>, Self::Error> {
        Ok(ArrayWriter::new(self.begin_variant(variant), "]}"))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<ObjectWriter<'a>, Self::Error> {
        Ok(ObjectWriter::new(self.text, "}"))
    }

    fn serialize_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<ObjectWriter<'a>, Self::Error> {
        Ok(ObjectWriter::new(self.text, "}"))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<ObjectWriter<'a>, Self::Error> {
        Ok(ObjectWriter::new(self.begin_variant(variant), "}}"))
    }
}

macro_rules! write_array {
    ($($trait:ident::$method:ident),*) => {$(
        impl $trait for ArrayWriter<'_> {
            type Ok = ();
            type Error = CanonicalJsonError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> WriteResult {
                self.push(value)
            }

            fn end(self) -> WriteResult {
                self.finish()
            }
        }
    )*};
}

write_array! {
    SerializeSeq::serialize_element, SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field, SerializeTupleVariant::serialize_field
}

macro_rules! write_struct {
    ($($trait:ident),*) => {$(
        impl $trait for ObjectWriter<'_> {
            type Ok = ();
            type Error = CanonicalJsonError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> WriteResult {
                self.push_field(name, value)
            }

            fn end(self) -> WriteResult {
                self.finish()
            }
        }
    )*};
}

write_struct! { SerializeStruct, SerializeStructVariant }

impl SerializeMap for ObjectWriter<'_> {
    type Ok = ();
    type Error = CanonicalJsonError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> WriteResult {
        self.name = to_name(key)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> WriteResult {
        let name = std::mem::take(&mut self.name);
        self.members.insert(name, to_canonical_json(value)?);
        Ok(())
    }

    fn end(self) -> WriteResult {
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn canonical(value: &impl Serialize) -> String {
        to_canonical_json(value).unwrap()
    }

    #[derive(Serialize)]
    enum Shape {
        Empty,
        Wrapped(u8),
        Pair(u8, String),
        Named { width: u8, colour: Option<u8> },
    }

    #[derive(Serialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Wrapped(Earlier),
    }

    /// A struct, and the same struct in a later version: with other order, and a new field.
    #[derive(Serialize)]
    struct Earlier {
        zebra: u8,
        ant: Vec<u8>,
    }

    #[derive(Serialize)]
    struct Later {
        ant: Vec<u8>,
        colour: Option<String>,
        zebra: u8,
    }

    #[test]
    fn the_order_of_fields_and_unset_fields_do_not_matter() {
        let (ant, zebra) = (vec![1, 2], 3);
        let earlier = Earlier {
            zebra,
            ant: ant.clone(),
        };
        let later = |colour| Later {
            ant: ant.clone(),
            colour,
            zebra,
        };
        assert_eq!(canonical(&earlier), r#"{"ant":[1,2],"zebra":3}"#);
        assert_eq!(canonical(&earlier), canonical(&later(None)));
        assert_ne!(canonical(&earlier), canonical(&later(Some("red".into()))));
        assert_eq!(
            canonical(&Tagged::Wrapped(earlier)),
            r#"{"ant":[1,2],"kind":"Wrapped","zebra":3}"#
        );
    }

    #[test]
    fn every_kind_of_value_has_one_text() {
        let named = |colour| Shape::Named { width: 1, colour };
        let by_number: BTreeMap<u8, Option<bool>> = [(10, None), (9, Some(true))].into();
        for (text, expected) in [
            (canonical(&Shape::Empty), r#""Empty""#),
            (canonical(&Shape::Wrapped(1)), r#"{"Wrapped":1}"#),
            (
                canonical(&Shape::Pair(1, "a\"\\\n\u{7f}é".into())),
                "{\"Pair\":[1,\"a\\\"\\\\\\u000a\u{7f}é\"]}",
            ),
            (canonical(&named(None)), r#"{"Named":{"width":1}}"#),
            (
                canonical(&named(Some(2))),
                r#"{"Named":{"colour":2,"width":1}}"#,
            ),
            // A map keeps keys without a value.
            (canonical(&by_number), r#"{"10":null,"9":true}"#),
            (
                canonical(&(u64::MAX, i64::MIN)),
                "[18446744073709551615,-9223372036854775808]",
            ),
            (canonical(&[0.1, f64::NAN]), "[0.1,null]"),
            (canonical(&[Some('x'), None]), r#"["x",null]"#),
        ] {
            assert_eq!(text, expected);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_text_is_json_for_the_same_value(value in any_json()) {
            let text = canonical(&value);
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }

    #[test]
    fn there_is_no_whitespace_outside_of_strings() {
        let value = json!({ "b": [1, { "d": " ", "c": [] }], "a": {} });
        assert_eq!(canonical(&value), r#"{"a":{},"b":[1,{"c":[],"d":" "}]}"#);
    }
}
