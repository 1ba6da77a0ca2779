//! Faults planted to see whether the simulation notices them.

use std::collections::BTreeMap;

use muse_core::Result;
use muse_core::contract::{
    Anchor, Drafter, Guess, Head, Kept, KvPool, PageCopy, PageCount, PageGroup, PageKey, PageTable,
    Pages, SeqId, Span, Spill, Target, TextSpec, Token,
};
use muse_kv::Pool;
use muse_testkit::fake::{FakeBackend, FakeBuf, FakeDrafter, FakeTarget};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// None: the engine as it is.
    Nothing,
    /// The window keeps one position too few.
    NarrowWindow,
    /// A page is given away while its rows are still seen.
    EarlyFree,
    /// The drafter misses the last row of those that stay.
    RowTooFew,
    /// The drafter sometimes sees nothing of a step.
    StaleRows,
    /// Shared pages are not copied before they are written.
    NoCopies,
}

impl Plant {
    /// All faults.
    pub const ALL: [Self; 5] =
        [Self::NarrowWindow, Self::EarlyFree, Self::RowTooFew, Self::StaleRows, Self::NoCopies];

    pub(super) fn reach(self, reach: u32) -> u32 {
        if self == Self::NarrowWindow { reach - 1 } else { reach }
    }

    pub(super) fn target(self, target: FakeTarget<FakeBackend>) -> Box<dyn Target<FakeBackend>> {
        if self == Self::NoCopies { Box::new(Lazy(target)) } else { Box::new(target) }
    }

    pub(super) fn drafter(self, inner: FakeDrafter<FakeBackend>) -> Box<dyn Drafter<FakeBackend>> {
        match self {
            Self::RowTooFew | Self::StaleRows => {
                Box::new(Forgetful { inner, skips: self == Self::StaleRows, steps: 0 })
            }
            _ => Box::new(inner),
        }
    }

    pub(super) fn pool(self, inner: Pool) -> Box<dyn KvPool> {
        match self {
            Self::EarlyFree => Box::new(Careless { inner, tables: BTreeMap::new() }),
            _ => Box::new(inner),
        }
    }
}

/// A target that copies nothing.
struct Lazy(FakeTarget<FakeBackend>);

impl Target<FakeBackend> for Lazy {
    fn spec(&self) -> &TextSpec {
        self.0.spec()
    }

    fn limits(&self) -> (usize, usize) {
        self.0.limits()
    }

    fn forward(&mut self, batch: &[Span<'_, FakeBackend>]) -> Result<()> {
        self.0.forward(batch)
    }

    fn scores(&self) -> &FakeBuf {
        self.0.scores()
    }

    fn taps(&self) -> &FakeBuf {
        self.0.taps()
    }
}

impl Head<FakeBackend> for Lazy {
    fn embed(&self, ids: &[Token], out: &mut FakeBuf) -> Result<()> {
        self.0.embed(ids, out)
    }

    fn unembed(&self, hidden: &FakeBuf, rows: usize, scores: &mut FakeBuf) -> Result<()> {
        self.0.unembed(hidden, rows, scores)
    }
}

impl Pages<FakeBackend> for Lazy {
    fn copy_pages(&mut self, _: &[PageCopy]) -> Result<()> {
        Ok(())
    }

    fn save_page(&self, group: PageGroup, page: u32, out: &mut Vec<u8>) -> Result<()> {
        self.0.save_page(group, page, out)
    }

    fn load_page(&mut self, group: PageGroup, page: u32, bytes: &mut &[u8]) -> Result<()> {
        self.0.load_page(group, page, bytes)
    }
}

/// A drafter that misses rows.
struct Forgetful {
    inner: FakeDrafter<FakeBackend>,
    skips: bool,
    steps: usize,
}

impl Drafter<FakeBackend> for Forgetful {
    fn layers(&self) -> &[usize] {
        self.inner.layers()
    }

    fn width(&self) -> usize {
        self.inner.width()
    }

    fn reach(&self) -> u32 {
        self.inner.reach()
    }

    fn absorb(&mut self, kept: &[Kept<'_>], taps: &FakeBuf) -> Result<()> {
        self.steps += 1;
        let mut kept = kept.to_vec();
        if self.skips && self.steps.is_multiple_of(5) {
            kept.clear();
        }
        if !self.skips {
            kept.iter_mut().for_each(|kept| kept.place.rows -= usize::from(kept.place.rows > 1));
        }
        self.inner.absorb(&kept, taps)
    }

    fn draft(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn Head<FakeBackend>,
        out: &mut [Vec<Guess>],
    ) -> Result<()> {
        self.inner.draft(anchors, head, out)
    }
}

impl Pages<FakeBackend> for Forgetful {
    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()> {
        self.inner.copy_pages(copies)
    }

    fn save_page(&self, group: PageGroup, page: u32, out: &mut Vec<u8>) -> Result<()> {
        self.inner.save_page(group, page, out)
    }

    fn load_page(&mut self, group: PageGroup, page: u32, bytes: &mut &[u8]) -> Result<()> {
        self.inner.load_page(group, page, bytes)
    }
}

/// A pool that hands the youngest sequence the first page of the oldest.
struct Careless {
    inner: Pool,
    tables: BTreeMap<SeqId, Vec<u32>>,
}

impl Careless {
    fn refresh(&mut self) {
        let open: Vec<SeqId> = self.tables.keys().copied().collect();
        for seq in &open {
            self.tables.insert(*seq, self.inner.pages(*seq).full.to_vec());
        }
        if let [oldest, .., youngest] = open[..]
            && let Some(&page) = self.tables[&oldest].first()
            && let Some(first) = self.tables.get_mut(&youngest).and_then(|table| table.first_mut())
        {
            *first = page;
        }
    }
}

impl KvPool for Careless {
    fn open(&mut self, seq: SeqId, prompt: &[PageKey]) -> Result<u32> {
        let cached = self.inner.open(seq, prompt)?;
        self.tables.insert(seq, Vec::new());
        self.refresh();
        Ok(cached)
    }

    fn reserve(&mut self, seq: SeqId, end: u32, copies: &mut Vec<PageCopy>) -> Result<()> {
        self.inner.reserve(seq, end, copies)?;
        self.refresh();
        Ok(())
    }

    fn commit(&mut self, seq: SeqId, keys: &[PageKey]) {
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

    fn pages(&self, seq: SeqId) -> PageTable<'_> {
        PageTable { full: &self.tables[&seq], ..self.inner.pages(seq) }
    }

    fn close(&mut self, seq: SeqId) {
        self.inner.close(seq);
        self.tables.remove(&seq);
    }

    fn free(&self) -> PageCount {
        self.inner.free()
    }

    fn total(&self) -> PageCount {
        self.inner.total()
    }

    fn worst_case(&self, rows: u32) -> PageCount {
        self.inner.worst_case(rows)
    }

    fn spill(&mut self) -> Option<&mut dyn Spill> {
        self.inner.spill()
    }
}
