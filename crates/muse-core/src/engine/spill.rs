//! Pages that make way are saved, and loaded again when a prompt begins alike: some in a step, so
//! that those who run are not kept waiting.

use std::sync::Arc;

use super::step::Loop;
use crate::Result;
use crate::contract::{Backend, ColdPage, PageGroup, PageKey, Shelf};

/// Where pages are kept, and memory for them on the way.
pub(super) struct Spilling {
    shelf: Arc<dyn Shelf>,
    pages: Vec<ColdPage>,
    bytes: Vec<u8>,
    /// Bytes of a page of the full group and of both holders' pages of the window group.
    sizes: Option<[usize; 2]>,
}

impl Spilling {
    pub(super) fn new(shelf: Arc<dyn Shelf>) -> Self {
        Self { shelf, pages: Vec::new(), bytes: Vec::new(), sizes: None }
    }
}

impl<B: Backend> Loop<B> {
    /// Saves what was evicted, before anything is written over it.
    pub(super) fn save_evicted(&mut self) -> Result<()> {
        let (Some(spilling), Some(pool)) = (&mut self.spilling, self.pool.spill()) else {
            return Ok(());
        };
        let mut pages = std::mem::take(&mut spilling.pages);
        pool.evicted(&mut pages);
        for page in &pages {
            self.save(*page)?;
        }
        self.give_back(pages);
        Ok(())
    }

    /// Saves all pages that could be asked for again, when nothing is to run any more.
    ///
    /// # Errors
    /// When the device fails.
    pub fn save_kept(&mut self) -> Result<()> {
        self.settle();
        self.save_evicted()?;
        self.settle();
        let (Some(spilling), Some(pool)) = (&mut self.spilling, self.pool.spill()) else {
            return Ok(());
        };
        let mut pages = std::mem::take(&mut spilling.pages);
        pool.kept(&mut pages);
        for page in &pages {
            self.save(*page)?;
            self.settle();
        }
        self.give_back(pages);
        Ok(())
    }

    /// Waits for what is being written: nobody else waits any more, and no page is to be lost.
    fn settle(&self) {
        if let Some(spilling) = &self.spilling {
            spilling.shelf.settle();
        }
    }

    fn give_back(&mut self, mut pages: Vec<ColdPage>) {
        pages.clear();
        if let Some(spilling) = &mut self.spilling {
            spilling.pages = pages;
        }
    }

    fn save(&mut self, page: ColdPage) -> Result<()> {
        let Some(Spilling { shelf, bytes, .. }) = &mut self.spilling else { return Ok(()) };
        bytes.clear();
        self.target.save_page(PageGroup::Full, page.full, bytes)?;
        if let Some(window) = page.window {
            self.target.save_page(PageGroup::Window, window, bytes)?;
            if let Some(drafter) = &self.drafter {
                drafter.save_page(PageGroup::Window, window, bytes)?;
            }
        }
        shelf.put(page.name, bytes);
        Ok(())
    }

    /// Loads pages that follow the cached ones of the prompt in `keys`, as far as they were kept:
    /// `some` of `left`, which is what may still be loaded for it. Returns what is left then.
    pub(super) fn restore(&mut self, left: usize, some: usize) -> Result<usize> {
        if self.spilling.is_none() {
            return Ok(0);
        }
        let keys = std::mem::take(&mut self.keys);
        let outcome = self.restore_pages(&keys, left, some);
        self.keys = keys;
        outcome
    }

    fn restore_pages(&mut self, keys: &[PageKey], left: usize, some: usize) -> Result<usize> {
        let [full, window] = self.page_sizes()?;
        for _ in 0..some {
            self.save_evicted()?;
            let (Some(spilling), Some(pool)) = (&mut self.spilling, self.pool.spill()) else {
                return Ok(0);
            };
            let Some((name, _)) = pool.missing(keys) else { return Ok(0) };
            if !spilling.shelf.get(name, &mut spilling.bytes) {
                return Ok(0);
            }
            let has_window = spilling.bytes.len() == full + window;
            // Pages of another size are of another model, whatever their name.
            if !has_window && spilling.bytes.len() != full {
                return Ok(0);
            }
            let bytes = std::mem::take(&mut spilling.bytes);
            let Some(page) = pool.adopt(keys, has_window) else { return Ok(0) };
            // What made way for it is saved, and what is to be copied from there copied, before its
            // bytes come in.
            self.save_evicted()?;
            self.copy_pages()?;
            self.load_page(page, &bytes)?;
            if let Some(spilling) = &mut self.spilling {
                spilling.bytes = bytes;
            }
        }
        Ok(left - some)
    }

    fn load_page(&mut self, page: ColdPage, mut bytes: &[u8]) -> Result<()> {
        self.target.load_page(PageGroup::Full, page.full, &mut bytes)?;
        if let Some(window) = page.window {
            self.target.load_page(PageGroup::Window, window, &mut bytes)?;
            if let Some(drafter) = &mut self.drafter {
                drafter.load_page(PageGroup::Window, window, &mut bytes)?;
            }
        }
        Ok(())
    }

    fn page_sizes(&mut self) -> Result<[usize; 2]> {
        if let Some(sizes) = self.spilling.as_ref().and_then(|spilling| spilling.sizes) {
            return Ok(sizes);
        }
        let mut bytes = Vec::new();
        self.target.save_page(PageGroup::Full, 0, &mut bytes)?;
        let full = bytes.len();
        self.target.save_page(PageGroup::Window, 0, &mut bytes)?;
        if let Some(drafter) = &self.drafter {
            drafter.save_page(PageGroup::Window, 0, &mut bytes)?;
        }
        let sizes = [full, bytes.len() - full];
        if let Some(spilling) = &mut self.spilling {
            spilling.sizes = Some(sizes);
        }
        Ok(sizes)
    }
}
