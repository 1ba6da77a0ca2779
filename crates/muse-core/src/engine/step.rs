//! One step: guess, run everybody's rows in one pass, choose, keep what agrees, hand it out.

use std::sync::Arc;
use std::time::Duration;

use super::seq::Seq;
use super::speculation::Speculation;
use super::spill::Spilling;
use super::{EngineOptions, Limits};
use crate::contract::{
    Anchor, Backend, Drafter, FinishReason, Guess, Kept, KvPool, PageCopy, PageKey, PickRow,
    Picked, Place, Request, Rows, Scores, SeqId, Sink, Span, Target, TokenMask, recycle,
};
use crate::{Error, Result};

/// The engine without its thread: requests go in, `step` calls their sinks.
///
/// `now` is whatever clock the caller has; deadlines and timings are read from it alone.
pub struct Loop<B: Backend> {
    backend: Arc<B>,
    pub(super) target: Box<dyn Target<B>>,
    pub(super) drafter: Option<Box<dyn Drafter<B>>>,
    pub(super) pool: Box<dyn KvPool>,
    pub(super) limits: Limits,
    pub(super) chunk_rows: usize,
    pub(super) mixed_rows: usize,
    pub(super) token_gap: Option<Duration>,
    adapt_draft: bool,
    pub(super) speculation: Speculation,
    pub(super) spilling: Option<Spilling>,
    /// Best first, as `active` is.
    pub(super) waiting: Vec<Seq>,
    pub(super) active: Vec<Seq>,
    pub(super) keys: Vec<PageKey>,
    pub(super) copies: Vec<PageCopy>,
    guesses: Vec<Vec<Guess>>,
    masks: Vec<TokenMask>,
    picked: Vec<Picked>,
    anchors: Vec<Anchor<'static>>,
    spans: Vec<Span<'static, B>>,
    picks: Vec<PickRow<'static>>,
    kept: Vec<Kept<'static>>,
}

impl<B: Backend> Loop<B> {
    /// Joins the parts, as [`super::spawn`] wants them.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they cannot work together.
    pub fn new(
        backend: Arc<B>,
        target: Box<dyn Target<B>>,
        drafter: Option<Box<dyn Drafter<B>>>,
        pool: Box<dyn KvPool>,
        options: &EngineOptions,
    ) -> Result<Self> {
        let limits = Limits::new(target.as_ref(), drafter.as_deref(), pool.as_ref(), options)?;
        Ok(Self::join(backend, target, drafter, pool, options, limits))
    }

    /// Joins parts that were found to fit.
    pub(super) fn join(
        backend: Arc<B>,
        target: Box<dyn Target<B>>,
        drafter: Option<Box<dyn Drafter<B>>>,
        pool: Box<dyn KvPool>,
        options: &EngineOptions,
        limits: Limits,
    ) -> Self {
        Self {
            backend,
            target,
            drafter,
            pool,
            // Reserving more than a pass holds could ask for more than a lone sequence can have.
            chunk_rows: options.chunk_rows.min(limits.step_rows),
            adapt_draft: options.adapt_draft,
            speculation: Speculation::new(limits.draft),
            spilling: options.shelf.clone().map(Spilling::new),
            limits,
            mixed_rows: options.mixed_rows,
            token_gap: options.token_gap,
            waiting: Vec::new(),
            active: Vec::new(),
            keys: Vec::new(),
            copies: Vec::new(),
            guesses: Vec::new(),
            masks: Vec::new(),
            picked: Vec::new(),
            anchors: Vec::new(),
            spans: Vec::new(),
            picks: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// What requests may ask for.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The pool, to look at.
    pub fn pool(&self) -> &dyn KvPool {
        self.pool.as_ref()
    }

    /// Sequences that wait and that run.
    pub fn load(&self) -> (usize, usize) {
        (self.waiting.len(), self.active.len())
    }

    /// Queues a request under an id that no other has or had.
    ///
    /// # Errors
    /// As [`Limits::check`]. The bound of the queue is its caller's to keep.
    pub fn submit(&mut self, id: SeqId, request: Request, sink: Sink, now: Duration) -> Result<()> {
        self.limits.check(&request)?;
        let asked = request.max_draft.is_some();
        let mut seq = Seq::new(id, request, sink, &self.limits, now);
        seq.adapts = !asked && self.adapt_draft && self.drafter.is_some();
        self.enqueue(seq);
        Ok(())
    }

    /// Runs one step for everybody. Returns whether anybody is left.
    ///
    /// # Errors
    /// When the device fails: every request has then been told, and the engine is not to be used
    /// again.
    pub fn step(&mut self, now: &dyn Fn() -> Duration) -> Result<bool> {
        if let Err(error) = self.try_step(now) {
            for seq in self.active.iter() {
                self.pool.close(seq.id);
            }
            self.fail(&error, now());
            return Err(error);
        }
        Ok(!(self.waiting.is_empty() && self.active.is_empty()))
    }

    /// Ends every request with an error. Leaves the pool alone: its state may be broken.
    pub(super) fn fail(&mut self, error: &Error, now: Duration) {
        for mut seq in self.active.drain(..).chain(self.waiting.drain(..)) {
            seq.finish = Some(FinishReason::Failed(error.clone()));
            seq.end(now);
        }
    }

    fn try_step(&mut self, now: &dyn Fn() -> Duration) -> Result<()> {
        self.sweep(now());
        self.admit(now())?;
        self.plan();
        self.reserve(now())?;
        self.save_evicted()?;
        self.copy_pages()?;
        let began = now();
        self.draft()?;
        let drafted = now();
        if self.active.iter().all(|seq| seq.rows == 0) {
            self.end_active(now());
            return Ok(());
        }
        self.forward()?;
        self.choose()?;
        self.judge(now());
        self.absorb()?;
        let done = now();
        let (draft, pass) = (drafted.saturating_sub(began), done.saturating_sub(drafted));
        self.speculation.learn(&mut self.active, draft, pass);
        self.keep(done);
        Ok(())
    }

    pub(super) fn copy_pages(&mut self) -> Result<()> {
        if !self.copies.is_empty() {
            self.target.copy_pages(&self.copies)?;
            if let Some(drafter) = &mut self.drafter {
                drafter.copy_pages(&self.copies)?;
            }
            self.copies.clear();
        }
        Ok(())
    }

    /// Puts guesses on trial, for whom the plan has room.
    fn draft(&mut self) -> Result<()> {
        let guessing = |seq: &&Seq| seq.room > 0;
        if let Some(drafter) = &mut self.drafter {
            let mut anchors: Vec<Anchor<'_>> = recycle(std::mem::take(&mut self.anchors));
            anchors.extend(self.active.iter().filter(guessing).map(|seq| {
                let start = self.pool.len(seq.id);
                let place = Place { start, rows: 1, pages: self.pool.pages(seq.id) };
                Anchor { place, token: seq.tokens[start as usize], max: seq.room }
            }));
            if self.guesses.len() < anchors.len() {
                self.guesses.resize(anchors.len(), Vec::new());
            }
            let out = &mut self.guesses[..anchors.len()];
            if !anchors.is_empty() {
                drafter.draft(&anchors, &*self.target, out)?;
            }
            self.anchors = recycle(anchors);
            for (seq, guesses) in
                self.active.iter_mut().filter(|seq| seq.room > 0).zip(&self.guesses)
            {
                let mut guesses = guesses.as_slice();
                if seq.adapts {
                    let worth = seq.pace.offer(guesses.iter().map(|guess| guess.confidence));
                    guesses = &guesses[..worth];
                }
                seq.guess(guesses.iter().map(|guess| guess.token));
            }
        }
        for seq in &mut self.active {
            if seq.room > 0 {
                if let Err(error) = seq.constrain_guesses() {
                    seq.give_up(error);
                } else {
                    seq.rows = 1 + seq.guesses;
                }
            }
        }
        self.mask();
        Ok(())
    }

    /// Writes the masks of all choices to come.
    fn mask(&mut self) {
        let mut used = 0;
        for seq in &mut self.active {
            if chooses(&*self.pool, seq)
                && let Err(error) = seq.fill_masks(&mut self.masks, &mut used)
            {
                seq.give_up(error);
            }
        }
    }

    fn forward(&mut self) -> Result<()> {
        let mut spans: Vec<Span<'_, B>> = recycle(std::mem::take(&mut self.spans));
        for seq in self.active.iter().filter(|seq| seq.rows > 0) {
            let start = self.pool.len(seq.id);
            let rows = &seq.tokens[start as usize..start as usize + seq.rows];
            let place = Place { start, rows: seq.rows, pages: self.pool.pages(seq.id) };
            let scores = match chooses(&*self.pool, seq) {
                false => Scores::None,
                true if seq.guesses > 0 => Scores::All,
                true => Scores::Last,
            };
            spans.push(Span { place, rows: Rows::Tokens(rows), scores });
        }
        self.target.forward(&spans)?;
        self.spans = recycle(spans);
        Ok(())
    }

    /// What the target says behind every row with scores.
    fn choose(&mut self) -> Result<()> {
        let mut picks: Vec<PickRow<'_>> = recycle(std::mem::take(&mut self.picks));
        for seq in self.active.iter().filter(|seq| chooses(&*self.pool, seq)) {
            let trial = seq.tokens.len() - seq.guesses;
            for i in 0..=seq.guesses {
                picks.push(PickRow {
                    row: picks.len(),
                    sampling: &seq.sampling,
                    history: &seq.history,
                    drafted: &seq.tokens[trial..trial + i],
                    mask: seq.constraint.as_ref().map(|_| &self.masks[seq.mask + i]),
                    position: (trial + i) as u32,
                    logprobs: seq.logprobs,
                });
            }
        }
        self.picked.clear();
        if !picks.is_empty() {
            self.backend.pick(self.target.scores(), &picks, &mut self.picked)?;
        }
        assert_eq!(self.picked.len(), picks.len(), "every row asked gets a choice");
        self.picks = recycle(picks);
        Ok(())
    }

    /// Decides which rows stay.
    fn judge(&mut self, now: Duration) {
        let mut picked = std::mem::take(&mut self.picked);
        let mut choices = picked.drain(..);
        for seq in self.active.iter_mut().filter(|seq| seq.rows > 0) {
            if chooses(&*self.pool, seq) {
                seq.judge(choices.by_ref().take(seq.guesses + 1), now);
            } else {
                seq.kept = seq.rows;
            }
        }
        drop(choices);
        self.picked = picked;
    }

    /// Shows the drafter the rows that stay. Before the commit, which may give pages back that
    /// the first of many rows lie in.
    fn absorb(&mut self) -> Result<()> {
        let Some(drafter) = &mut self.drafter else { return Ok(()) };
        let mut kept: Vec<Kept<'_>> = recycle(std::mem::take(&mut self.kept));
        let mut first_row = 0;
        for seq in self.active.iter().filter(|seq| seq.rows > 0) {
            let start = self.pool.len(seq.id);
            let place = Place { start, rows: seq.kept, pages: self.pool.pages(seq.id) };
            kept.push(Kept { place, first_row });
            first_row += seq.rows;
        }
        drafter.absorb(&kept, self.target.taps())?;
        self.kept = recycle(kept);
        Ok(())
    }

    /// Counts the rows that stay, tells the clients, ends who is done.
    fn keep(&mut self, now: Duration) {
        for seq in &mut self.active {
            if seq.rows > 0 {
                let len = self.pool.len(seq.id) as usize;
                self.keys.clear();
                let rows = &seq.tokens[len..len + seq.kept];
                self.keys.extend(rows.iter().map(|&token| PageKey::Token(token)));
                self.pool.commit(seq.id, &self.keys);
                seq.tell_prefill((len + seq.kept) as u32);
                seq.speak();
            }
            self.pool.truncate(seq.id, self.pool.len(seq.id));
        }
        self.end_active(now);
    }
}

/// Whether its last row runs in this step: what follows it is then chosen.
fn chooses(pool: &dyn KvPool, seq: &Seq) -> bool {
    seq.rows > 0 && pool.len(seq.id) as usize + seq.rows == seq.tokens.len()
}
