//! The memory that a request message takes once it is decoded, computed from its bytes beforehand:
//! two bytes on the wire can become a message of a hundred in memory.

use std::collections::HashMap;
use std::sync::LazyLock;

use muse_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;

/// Bytes of a message without its texts: the largest has 128, and the list that holds it may have
/// twice the capacity and is copied when it grows, as is the list it is converted to.
const MESSAGE_BYTES: usize = 512;
/// Bytes of a number in a list, which is copied when it grows and when it is converted.
const NUMBER_BYTES: usize = 16;
/// Copies of a text: as decoded, in the rendered prompt, and while one becomes the other.
const TEXT_COPIES: usize = 3;

/// The fields of all messages of `muse.v1`, and the request types of its methods.
struct Schema {
    messages: Vec<HashMap<u32, Field>>,
    /// Index of the request type by path, such as `/muse.v1.ChatService/Chat`.
    requests: HashMap<String, usize>,
}

#[derive(Clone, Copy)]
enum Field {
    Message(usize),
    Text,
    Varint,
    Fixed32,
    Fixed64,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("it was compiled");
    let files = || files.file.iter().filter(|file| file.package() == "muse.v1");
    let messages = || files().flat_map(|file| &file.message_type);
    let index: HashMap<String, usize> =
        messages().enumerate().map(|(i, m)| (format!(".muse.v1.{}", m.name()), i)).collect();
    let fields = messages().map(|message| {
        let field = |field: &prost_types::FieldDescriptorProto| {
            let kind = match field.r#type() {
                Type::Message => Field::Message(index[field.type_name()]),
                Type::String | Type::Bytes => Field::Text,
                Type::Float | Type::Fixed32 | Type::Sfixed32 => Field::Fixed32,
                Type::Double | Type::Fixed64 | Type::Sfixed64 => Field::Fixed64,
                _ => Field::Varint,
            };
            (field.number() as u32, kind)
        };
        message.field.iter().map(field).collect()
    });
    let requests = files().flat_map(|file| &file.service).flat_map(|service| {
        let path = |method: &str| format!("/muse.v1.{}/{method}", service.name());
        let index = &index;
        service.method.iter().map(move |m| (path(m.name()), index[m.input_type()]))
    });
    Schema { messages: fields.collect(), requests: requests.collect() }
});

/// Whether `path` is a method of `muse.v1`; all of them take one message.
pub(super) fn is_method(path: &str) -> bool {
    SCHEMA.requests.contains_key(path)
}

/// At most the memory of the request message `bytes` of a method once it is decoded and converted.
/// Malformed bytes count up to their fault: decoding ends there as well.
pub(super) fn decoded_size(path: &str, bytes: &[u8]) -> usize {
    SCHEMA.requests.get(path).map_or(0, |&message| message_size(message, bytes))
}

fn message_size(message: usize, mut bytes: &[u8]) -> usize {
    let mut size = MESSAGE_BYTES;
    while let Some(key) = varint(&mut bytes) {
        let field = SCHEMA.messages[message].get(&((key >> 3) as u32));
        let value = match key & 7 {
            0 => {
                varint(&mut bytes);
                size += field.map_or(0, |_| NUMBER_BYTES);
                continue;
            }
            1 => 8,
            2 => match varint(&mut bytes) {
                Some(length) => usize::try_from(length).unwrap_or(usize::MAX),
                None => break,
            },
            5 => 4,
            // Groups are unknown fields; their delimiters have no value.
            _ => continue,
        };
        let Some((value, rest)) = bytes.split_at_checked(value) else { break };
        bytes = rest;
        size += match field {
            None => 0,
            Some(_) if key & 7 != 2 => NUMBER_BYTES,
            Some(Field::Message(inner)) => message_size(*inner, value),
            Some(Field::Text) => TEXT_COPIES * value.len() + NUMBER_BYTES,
            Some(Field::Fixed32) => value.len() / 4 * NUMBER_BYTES,
            Some(Field::Fixed64) => value.len() / 8 * NUMBER_BYTES,
            // Each number ends with a byte below 128.
            Some(Field::Varint) => value.iter().filter(|b| **b < 128).count() * NUMBER_BYTES,
        };
    }
    size
}

/// Reads a varint off the front; none at the end or when it is malformed.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 127) << (7 * i);
        if byte < 128 {
            *bytes = &bytes[i + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use muse_proto::v1::{
        ChatRequest, Conversation, DetokenizeRequest, Message, Part, Sampling, TokenBias, part,
    };

    use super::*;

    const CHAT: &str = "/muse.v1.ChatService/Chat";

    #[test]
    fn messages_numbers_and_texts_count() {
        assert!(is_method(CHAT) && !is_method("/grpc.health.v1.Health/Check"));
        let message = |text: &str| {
            let part = part::Part::Text(text.to_owned());
            Message { content: vec![Part { part: Some(part) }], ..Message::default() }
        };
        let chat = |messages: Vec<Message>| {
            let conversation = Some(Conversation { messages, ..Conversation::default() });
            ChatRequest { conversation, ..ChatRequest::default() }
        };
        let size = |request: ChatRequest| decoded_size(CHAT, &request.encode_to_vec());
        assert_eq!(size(chat(vec![])), 2 * MESSAGE_BYTES);
        let empty = size(chat(vec![Message::default(); 1000]));
        assert_eq!(empty, 1002 * MESSAGE_BYTES, "two bytes each on the wire");
        assert!(std::mem::size_of::<Message>() * 3 < MESSAGE_BYTES);
        let text = "x".repeat(1000);
        let long = size(chat(vec![message(&text)]));
        assert_eq!(long, 4 * MESSAGE_BYTES + TEXT_COPIES * 1000 + NUMBER_BYTES);
        let bias = vec![TokenBias { id: 1, bias: 1.0 }; 10];
        let sampling = Some(Sampling { bias, temperature: Some(1.0), ..Sampling::default() });
        let biased = size(ChatRequest { sampling, ..ChatRequest::default() });
        assert_eq!(biased, 12 * MESSAGE_BYTES + 21 * NUMBER_BYTES);
        let ids = DetokenizeRequest { ids: vec![1, 200, 100_000], ..Default::default() };
        let size = decoded_size("/muse.v1.TokenizerService/Detokenize", &ids.encode_to_vec());
        assert_eq!(size, MESSAGE_BYTES + 3 * NUMBER_BYTES);
    }

    #[test]
    fn unknown_fields_and_malformed_bytes_take_no_memory() {
        // Field 100 as a text of 3 bytes, then field 101 as a group with a varint of field 1.
        let unknown = [0xa2, 6, 3, 1, 2, 3, 0xab, 6, 8, 1, 0xac, 6];
        assert!(decoded_size(CHAT, &unknown) <= MESSAGE_BYTES + NUMBER_BYTES);
        for malformed in [&[0xff; 20][..], &[0x12, 0x7f], &[0x0a], &[0x12, 0xff, 0xff]] {
            assert_eq!(decoded_size(CHAT, malformed), MESSAGE_BYTES, "{malformed:?}");
        }
    }
}
