//! The traits that crates implement and the plain data they exchange. One file per idea.
//!
//! They have as few required methods as the idea needs, no default that means "unsupported", and
//! are `dyn` compatible, except for [`Backend`], which models are generic over. Broken
//! preconditions (a shape that does not fit) are bugs and panic; everything that input or hardware
//! can cause is a [`crate::Result`].

mod backend;
mod chat;
mod drafter;
mod engine;
mod kv;
mod memory;
mod sampling;
mod sequence;
mod target;
mod usage;
mod vision;
mod vision_ops;
mod weights;

pub use backend::{Attention, Backend, KvShape, KvType, Mask, Rope};
pub use chat::{
    Channel, Content, ContentToken, Conversation, Message, OutputParser, ParsedEvent, Part,
    PromptPart, PromptTemplate, Tokenizer, Tool, ToolCall,
};
pub use drafter::{Anchor, ContextSlice, DraftToken, Drafter, MAX_DEFERRED_ROWS};
pub use engine::{Done, Engine, Event, FinishReason, GroupId, Request, Segment, Sink};
pub use kv::{KvBlocks, KvOffload, KvOffloadStore, KvPool, PrefixBlock, PrefixHash};
pub use memory::{BlockBytes, Footprint, ModelSizes};
pub use sampling::{Constraint, History, SampleRow, Sampled, Sampling, TokenMask};
pub use sequence::{
    BlockCopy, BlockCount, BlockTable, ContentHash, KV_BLOCK_SIZE, KvGroup, PositionKey, SeqId,
    SeqSlice, Token, recycle,
};
pub use target::{
    BatchEntry, BatchInput, EmbeddingAndLmHead, LogitsRequest, PassLimits, TargetModel,
};
pub use usage::{Rates, Timings, Usage, Verify};
pub use vision::{EncodeId, Patches, VisionEncoder};
pub use vision_ops::{RangeQueries, VisionOps};
pub use weights::{
    CheckpointSpec, DrafterSpec, GenerationDefaults, LayerSpec, TensorInfo, TextSpec, TokenKind,
    VisionSpec, Vocabulary, WeightSource, WeightView,
};
