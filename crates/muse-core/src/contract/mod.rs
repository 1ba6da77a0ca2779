//! The traits that crates implement and the plain data they exchange. One file per idea.
//!
//! Rules of the house: as few required methods as the idea needs, no default that means
//! "unsupported", `&dyn`-friendly (except [`Backend`], which models are generic over), shapes and
//! units in the documentation. Broken preconditions (a shape that does not fit) are bugs and
//! panic; everything that input or hardware can cause is a [`crate::Result`].

mod backend;
mod chat;
mod drafter;
mod engine;
mod kv;
mod pick;
mod place;
mod target;
mod vision;
mod weights;

pub use backend::{Attention, Backend, KvShape, KvType, Mask, Rope};
pub use chat::{
    Channel, Content, Conversation, Heard, Listener, Part, Piece, PromptTemplate, Tokenizer, Tool,
    ToolCall, Turn,
};
pub use drafter::{Anchor, Drafter, Guess, Kept};
pub use engine::{
    Done, Engine, Event, FinishReason, Request, Segment, SeqId, Sink, Timings, Usage,
};
pub use kv::{ColdPage, KvPool, PageCopy, PageCount, Pages, PrefixName, Shelf, Spill};
pub use pick::{Constraint, History, PickRow, Picked, Sampling, TokenMask};
pub use place::{PAGE_TOKENS, PageGroup, PageKey, PageTable, Place, Token, recycle};
pub use target::{Head, Rows, Scores, Span, Target};
pub use vision::{ContentHash, EncodeId, Patches, VisionEncoder};
pub use weights::{
    CheckpointSpec, DrafterSpec, GenerationDefaults, LayerSpec, TensorInfo, TextSpec, TokenKind,
    VisionSpec, Vocabulary, WeightSource, WeightView,
};
