//! Planted faults that the simulation must notice.

use std::collections::BTreeMap;

use muse_core::Result;
use muse_core::contract::{
    Anchor, BatchEntry, BlockCopy, BlockCount, BlockTable, ContentHash, ContextSlice, DraftToken,
    Drafter, EmbeddingAndLmHead, KvBlocks, KvGroup, KvOffload, KvPool, PassLimits, PositionKey,
    SeqId, TargetModel, TextSpec, Token,
};
use muse_kv::Pool;
use muse_testkit::fake::{FakeBackend, FakeBuf, FakeDrafter, FakeTarget};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedFault {
    /// None: the engine as it is.
    Nothing,
    /// The window keeps one position too few.
    NarrowWindow,
    /// A KV block is given to another sequence while it is still attended to.
    EarlyFree,
    /// The drafter misses the last token of those that stay.
    RowTooFew,
    /// The drafter's context sometimes misses a whole step.
    StaleRows,
    /// Shared KV blocks are not copied before they are written.
    NoCopies,
    /// The prefix cache takes all pictures for the same.
    SamePictures,
}

impl PlantedFault {
    /// All faults.
    pub const ALL: [Self; 6] = [
        Self::NarrowWindow,
        Self::EarlyFree,
        Self::RowTooFew,
        Self::StaleRows,
        Self::NoCopies,
        Self::SamePictures,
    ];

    pub(super) fn reach(self, reach: u32) -> u32 {
        if self == Self::NarrowWindow { reach - 1 } else { reach }
    }

    pub(super) fn target(
        self,
        target: FakeTarget<FakeBackend>,
    ) -> Box<dyn TargetModel<FakeBackend>> {
        if self == Self::NoCopies { Box::new(NoCopyTarget(target)) } else { Box::new(target) }
    }

    pub(super) fn drafter(self, inner: FakeDrafter<FakeBackend>) -> Box<dyn Drafter<FakeBackend>> {
        match self {
            Self::RowTooFew | Self::StaleRows => {
                Box::new(ForgetfulDrafter { inner, skips: self == Self::StaleRows, steps: 0 })
            }
            _ => Box::new(inner),
        }
    }

    pub(super) fn pool(self, inner: Pool) -> Box<dyn KvPool> {
        match self {
            Self::EarlyFree => Box::new(DoubleBookingPool { inner, tables: BTreeMap::new() }),
            Self::SamePictures => Box::new(BlindPool(inner)),
            _ => Box::new(inner),
        }
    }
}

/// A target model that copies no KV blocks.
struct NoCopyTarget(FakeTarget<FakeBackend>);

impl TargetModel<FakeBackend> for NoCopyTarget {
    fn spec(&self) -> &TextSpec {
        self.0.spec()
    }

    fn limits(&self) -> PassLimits {
        self.0.limits()
    }

    fn forward(&mut self, batch: &[BatchEntry<'_, FakeBackend>]) -> Result<()> {
        self.0.forward(batch)
    }

    fn logits(&self) -> &FakeBuf {
        self.0.logits()
    }

    fn captured_hidden(&self) -> &FakeBuf {
        self.0.captured_hidden()
    }
}

impl EmbeddingAndLmHead<FakeBackend> for NoCopyTarget {
    fn embed(&self, ids: &[Token], out: &mut FakeBuf) -> Result<()> {
        self.0.embed(ids, out)
    }

    fn lm_head(&self, hidden: &FakeBuf, rows: usize, logits: &mut FakeBuf) -> Result<()> {
        self.0.lm_head(hidden, rows, logits)
    }
}

impl KvBlocks<FakeBackend> for NoCopyTarget {
    fn copy_blocks(&mut self, _: &[BlockCopy]) -> Result<()> {
        Ok(())
    }

    fn save_block(&self, group: KvGroup, block: u32, out: &mut Vec<u8>) -> Result<()> {
        self.0.save_block(group, block, out)
    }

    fn load_block(&mut self, group: KvGroup, block: u32, bytes: &mut &[u8]) -> Result<()> {
        self.0.load_block(group, block, bytes)
    }
}

/// A drafter whose context misses tokens.
struct ForgetfulDrafter {
    inner: FakeDrafter<FakeBackend>,
    skips: bool,
    steps: usize,
}

impl Drafter<FakeBackend> for ForgetfulDrafter {
    fn captured_layers(&self) -> &[usize] {
        self.inner.captured_layers()
    }

    fn captured_width(&self) -> usize {
        self.inner.captured_width()
    }

    fn width(&self) -> usize {
        self.inner.width()
    }

    fn window_reach(&self) -> u32 {
        self.inner.window_reach()
    }

    fn append_context(
        &mut self,
        kept: &[ContextSlice<'_>],
        captured_hidden: &FakeBuf,
    ) -> Result<()> {
        self.steps += 1;
        let mut kept = kept.to_vec();
        if self.skips && self.steps.is_multiple_of(5) {
            kept.clear();
        }
        if !self.skips {
            kept.iter_mut().for_each(|kept| kept.slice.len -= usize::from(kept.slice.len > 1));
        }
        self.inner.append_context(&kept, captured_hidden)
    }

    fn draft(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn EmbeddingAndLmHead<FakeBackend>,
        out: &mut [Vec<DraftToken>],
    ) -> Result<()> {
        self.inner.draft(anchors, head, out)
    }
}

impl KvBlocks<FakeBackend> for ForgetfulDrafter {
    fn copy_blocks(&mut self, copies: &[BlockCopy]) -> Result<()> {
        self.inner.copy_blocks(copies)
    }

    fn save_block(&self, group: KvGroup, block: u32, out: &mut Vec<u8>) -> Result<()> {
        self.inner.save_block(group, block, out)
    }

    fn load_block(&mut self, group: KvGroup, block: u32, bytes: &mut &[u8]) -> Result<()> {
        self.inner.load_block(group, block, bytes)
    }
}

/// A pool that hands the youngest sequence the first KV block of the oldest.
struct DoubleBookingPool {
    inner: Pool,
    tables: BTreeMap<SeqId, Vec<u32>>,
}

impl DoubleBookingPool {
    fn refresh(&mut self) {
        let open: Vec<SeqId> = self.tables.keys().copied().collect();
        for seq in &open {
            self.tables.insert(*seq, self.inner.block_table(*seq).full.to_vec());
        }
        if let [oldest, .., youngest] = open[..]
            && let Some(&block) = self.tables[&oldest].first()
            && let Some(first) = self.tables.get_mut(&youngest).and_then(|table| table.first_mut())
        {
            *first = block;
        }
    }
}

impl KvPool for DoubleBookingPool {
    fn open(&mut self, seq: SeqId, prompt: &[PositionKey]) -> Result<u32> {
        let cached = self.inner.open(seq, prompt)?;
        self.tables.insert(seq, Vec::new());
        self.refresh();
        Ok(cached)
    }

    fn reserve(&mut self, seq: SeqId, end: u32, copies: &mut Vec<BlockCopy>) -> Result<()> {
        self.inner.reserve(seq, end, copies)?;
        self.refresh();
        Ok(())
    }

    fn commit(&mut self, seq: SeqId, keys: &[PositionKey]) {
        self.inner.commit(seq, keys);
        self.refresh();
    }

    fn truncate(&mut self, seq: SeqId, len: u32) {
        self.inner.truncate(seq, len);
        self.refresh();
    }

    fn len(&self, seq: SeqId) -> u32 {
        self.inner.len(seq)
    }

    fn block_table(&self, seq: SeqId) -> BlockTable<'_> {
        BlockTable { full: &self.tables[&seq], ..self.inner.block_table(seq) }
    }

    fn close(&mut self, seq: SeqId) {
        self.inner.close(seq);
        self.tables.remove(&seq);
    }

    fn free(&self) -> BlockCount {
        self.inner.free()
    }

    fn total(&self) -> BlockCount {
        self.inner.total()
    }

    fn worst_case(&self, rows: u32) -> BlockCount {
        self.inner.worst_case(rows)
    }

    fn offload(&mut self) -> Option<&mut dyn KvOffload> {
        self.inner.offload()
    }
}

/// A pool that takes all pictures for the same.
struct BlindPool(Pool);

fn blind(keys: &[PositionKey]) -> Vec<PositionKey> {
    let blind = |key: &PositionKey| match *key {
        PositionKey::ImageRow { row, .. } => {
            PositionKey::ImageRow { image: ContentHash([0; 16]), row }
        }
        token @ PositionKey::Token(_) => token,
    };
    keys.iter().map(blind).collect()
}

impl KvPool for BlindPool {
    fn open(&mut self, seq: SeqId, prompt: &[PositionKey]) -> Result<u32> {
        self.0.open(seq, &blind(prompt))
    }

    fn reserve(&mut self, seq: SeqId, end: u32, copies: &mut Vec<BlockCopy>) -> Result<()> {
        self.0.reserve(seq, end, copies)
    }

    fn commit(&mut self, seq: SeqId, keys: &[PositionKey]) {
        self.0.commit(seq, &blind(keys));
    }

    fn truncate(&mut self, seq: SeqId, len: u32) {
        self.0.truncate(seq, len);
    }

    fn len(&self, seq: SeqId) -> u32 {
        self.0.len(seq)
    }

    fn block_table(&self, seq: SeqId) -> BlockTable<'_> {
        self.0.block_table(seq)
    }

    fn close(&mut self, seq: SeqId) {
        self.0.close(seq);
    }

    fn free(&self) -> BlockCount {
        self.0.free()
    }

    fn total(&self) -> BlockCount {
        self.0.total()
    }

    fn worst_case(&self, rows: u32) -> BlockCount {
        self.0.worst_case(rows)
    }

    fn offload(&mut self) -> Option<&mut dyn KvOffload> {
        self.0.offload()
    }
}
