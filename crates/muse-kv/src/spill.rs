//! Which pages others may keep, and taking them back.

use std::ops::Range;

use muse_core::contract::{ColdPage, PAGE_TOKENS, PageKey, PrefixName, Spill};

use crate::Pool;
use crate::prefix::NONE;

impl Pool {
    /// The node that ends the complete pages of `prompt` in the tree, and their rows.
    fn deepest(&self, prompt: &[PageKey]) -> (u32, usize) {
        let (path, rows) = self.known(prompt);
        let pages = rows / PAGE_TOKENS;
        (pages.checked_sub(1).map_or(NONE, |last| path[last]), pages * PAGE_TOKENS)
    }

    /// Whether a page of each group is free or can be freed.
    fn has_room(&self, window: bool) -> bool {
        let full = !self.free_full.is_empty() || self.tree.oldest_leaf().is_some();
        let windows = !self.free_window.is_empty() || self.tree.oldest_window().is_some();
        full && (windows || !window)
    }
}

impl Spill for Pool {
    fn evicted(&mut self, out: &mut Vec<ColdPage>) {
        out.append(self.evicted.as_mut().expect("a pool that tells of what it evicts"));
    }

    fn kept(&self, out: &mut Vec<ColdPage>) {
        out.extend(self.tree.unused().into_iter().filter_map(|id| self.tree.cold(id)));
    }

    fn missing(&self, prompt: &[PageKey]) -> Option<(PrefixName, Range<usize>)> {
        let (parent, rows) = self.deepest(prompt);
        let page = rows..rows + PAGE_TOKENS;
        let keys = prompt.get(page.clone()).filter(|_| page.end < prompt.len())?;
        Some((self.tree.name(parent).then(keys), page))
    }

    fn adopt(&mut self, prompt: &[PageKey], window: bool) -> Option<ColdPage> {
        let (parent, rows) = self.deepest(prompt);
        let keys = &prompt[rows..rows + PAGE_TOKENS];
        let (known, shared) = self.tree.closest(parent, keys);
        self.drop_beginning(known, shared);
        // Held, or it would itself be evicted for what follows it.
        if parent != NONE {
            self.tree.hold(parent);
        }
        let pages = self.has_room(window).then(|| {
            let full = self.take_full();
            (full, if window { self.take_window() } else { NONE })
        });
        if parent != NONE {
            self.tree.release(parent);
        }
        let (full, window) = pages?;
        for (row, &key) in keys.iter().enumerate() {
            self.tree.set_key(full, row, key);
        }
        self.tree.link(parent, full, window, PAGE_TOKENS);
        if window != NONE {
            self.tree.release_window(full);
        }
        self.tree.release(full);
        self.tree.cold(full)
    }
}
