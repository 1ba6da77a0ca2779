//! The gRPC codec of `muse.v1`: protobuf, with a status of its own for malformed messages.

use prost::Message;
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// The protobuf codec of tonic, except that a malformed message (a text that is not UTF-8, a field
/// of another type) gives `INVALID_ARGUMENT` instead of `INTERNAL`: the sender must change it.
#[derive(Clone, Debug)]
pub struct Codec<T, U>(ProstCodec<T, U>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(ProstCodec::default())
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = MessageDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        MessageDecoder(self.0.decoder())
    }
}

/// Decodes messages.
#[derive(Clone, Debug)]
pub struct MessageDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for MessageDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        self.0.decode(bytes).map_err(|status| {
            Status::invalid_argument(format!(
                "the message is not one of muse.v1: {}; build it from the published .proto \
                 files, with text in UTF-8",
                status.message()
            ))
        })
    }
}
