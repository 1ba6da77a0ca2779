//! The radix tree of cached prefixes: a node is one KV block that continues the blocks of its
//! ancestors. Only complete blocks have children.

use muse_core::contract::{KV_BLOCK_SIZE, PositionKey, PrefixBlock, PrefixHash, Token};

/// No node and no KV block. As a parent: the root.
pub(crate) const NONE: u32 = u32::MAX;

/// Nodes by the number of their block of the full group, and the keys of all positions of all those
/// blocks, in the tree or not.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    keys: Vec<PositionKey>,
    first_root: u32,
    root: PrefixHash,
    /// Nodes that no sequence uses, and nodes whose window block no sequence uses.
    pub(crate) evictable: usize,
    pub(crate) evictable_windows: usize,
    clock: u64,
}

#[derive(Clone)]
struct Node {
    linked: bool,
    hash: PrefixHash,
    /// Positions that are in use, from the first.
    len: usize,
    parent: u32,
    first_child: u32,
    next: u32,
    /// Its KV block of the window group, while it is cached.
    window: u32,
    /// Sequences that use it, and those of them that still use its window block.
    ref_count: u32,
    window_ref_count: u32,
    last_used: u64,
    window_last_used: u64,
}

/// Host memory of a pool for each KV block of the full group: its node and its keys.
pub const BYTES_PER_BLOCK: usize = size_of::<Node>() + KV_BLOCK_SIZE * size_of::<PositionKey>();

const UNLINKED: Node = Node {
    linked: false,
    hash: PrefixHash([0; 2]),
    len: 0,
    parent: NONE,
    first_child: NONE,
    next: NONE,
    window: NONE,
    ref_count: 0,
    window_ref_count: 0,
    last_used: 0,
    window_last_used: 0,
};

impl Tree {
    pub(crate) fn new(full_blocks: usize, root: PrefixHash) -> Self {
        Self {
            nodes: vec![UNLINKED; full_blocks],
            keys: vec![PositionKey::Token(Token(0)); full_blocks * KV_BLOCK_SIZE],
            first_root: NONE,
            root,
            evictable: 0,
            evictable_windows: 0,
            clock: 0,
        }
    }

    fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    fn node_mut(&mut self, id: u32) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    /// Keys of the positions of a KV block of the full group.
    pub(crate) fn keys(&self, block: u32) -> &[PositionKey] {
        &self.keys[block as usize * KV_BLOCK_SIZE..][..KV_BLOCK_SIZE]
    }

    pub(crate) fn set_key(&mut self, block: u32, position: usize, key: PositionKey) {
        self.keys[block as usize * KV_BLOCK_SIZE + position] = key;
    }

    pub(crate) fn copy_keys(&mut self, from: u32, to: u32, positions: usize) {
        let from = from as usize * KV_BLOCK_SIZE;
        self.keys.copy_within(from..from + positions, to as usize * KV_BLOCK_SIZE);
    }

    pub(crate) fn window(&self, id: u32) -> u32 {
        self.node(id).window
    }

    /// Positions of a node that are in use.
    pub(crate) fn len(&self, id: u32) -> usize {
        self.node(id).len
    }

    pub(crate) fn ref_count(&self, id: u32) -> u32 {
        self.node(id).ref_count
    }

    fn children(&self, parent: u32) -> impl Iterator<Item = u32> {
        let first = if parent == NONE { self.first_root } else { self.node(parent).first_child };
        let some = |id: u32| (id != NONE).then_some(id);
        std::iter::successors(some(first), move |&id| some(self.node(id).next))
    }

    /// The child of `parent` with the longest common beginning with `keys`, and its length.
    pub(crate) fn longest_match(&self, parent: u32, keys: &[PositionKey]) -> (u32, usize) {
        let mut best = (NONE, 0);
        for id in self.children(parent) {
            let own = &self.keys(id)[..self.node(id).len];
            let shared = own.iter().zip(keys).take_while(|(a, b)| a == b).count();
            if shared > best.1 {
                best = (id, shared);
            }
        }
        best
    }

    /// Puts a KV block with `len` positions into the tree, with one user of it and of its window
    /// block.
    pub(crate) fn link(&mut self, parent: u32, block: u32, window: u32, len: usize) {
        assert!(!self.node(block).linked, "block {block} is in the tree already");
        let first = if parent == NONE { self.first_root } else { self.node(parent).first_child };
        *self.node_mut(block) = Node {
            linked: true,
            hash: self.hash(parent).extend(&self.keys(block)[..len]),
            len,
            parent,
            next: first,
            window,
            ref_count: 1,
            window_ref_count: u32::from(window != NONE),
            ..UNLINKED
        };
        *self.first_of(parent) = block;
    }

    /// Hash of the prefix that a node ends.
    pub(crate) fn hash(&self, id: u32) -> PrefixHash {
        if id == NONE { self.root } else { self.node(id).hash }
    }

    /// A node as it is offloaded, if it is complete.
    pub(crate) fn prefix_block(&self, id: u32) -> Option<PrefixBlock> {
        let node = self.node(id);
        let window = (node.window != NONE).then_some(node.window);
        let complete = node.linked && node.len == KV_BLOCK_SIZE;
        complete.then_some(PrefixBlock { hash: node.hash, full: id, window })
    }

    /// Complete KV blocks that no sequence uses, least recently used first.
    pub(crate) fn evictable_blocks(&self) -> Vec<u32> {
        let ids = 0..self.nodes.len() as u32;
        let evictable =
            |id: &u32| self.node(*id).ref_count == 0 && self.prefix_block(*id).is_some();
        let mut ids: Vec<u32> = ids.filter(evictable).collect();
        ids.sort_by_key(|&id| self.node(id).last_used);
        ids
    }

    fn first_of(&mut self, parent: u32) -> &mut u32 {
        if parent == NONE { &mut self.first_root } else { &mut self.node_mut(parent).first_child }
    }

    /// Removes an unused node without children. Its full block is free; returns its window block.
    pub(crate) fn unlink(&mut self, id: u32) -> u32 {
        let node = self.node(id).clone();
        assert!(
            node.linked && node.ref_count == 0 && node.first_child == NONE,
            "node {id} is in use"
        );
        let before = self.children(node.parent).find(|&other| self.node(other).next == id);
        match before {
            Some(before) => self.node_mut(before).next = node.next,
            None => *self.first_of(node.parent) = node.next,
        }
        *self.node_mut(id) = UNLINKED;
        self.evictable -= 1;
        self.evictable_windows -= usize::from(node.window != NONE);
        node.window
    }

    /// An unused leaf below `id`, which has children.
    pub(crate) fn leaf_below(&self, id: u32) -> Option<u32> {
        let deeper = |&id: &u32| Some(self.node(id).first_child).filter(|&child| child != NONE);
        std::iter::successors(deeper(&id), deeper).last()
    }

    /// The least recently used leaf. A scan, which is rare beside the 64 positions it frees.
    pub(crate) fn lru_leaf(&self) -> Option<u32> {
        let evictable =
            |node: &Node| node.linked && node.ref_count == 0 && node.first_child == NONE;
        let ids = (0..self.nodes.len() as u32).filter(|&id| evictable(self.node(id)));
        ids.min_by_key(|&id| self.node(id).last_used)
    }

    /// The node whose window block is least recently used.
    pub(crate) fn lru_window_block(&self) -> Option<u32> {
        let evictable =
            |node: &Node| node.linked && node.window != NONE && node.window_ref_count == 0;
        let ids = (0..self.nodes.len() as u32).filter(|&id| evictable(self.node(id)));
        ids.min_by_key(|&id| self.node(id).window_last_used)
    }

    /// Takes the unused window block of a node.
    pub(crate) fn detach_window_block(&mut self, id: u32) -> u32 {
        let node = self.node_mut(id);
        assert!(
            node.window != NONE && node.window_ref_count == 0,
            "window block of {id} is in use"
        );
        self.evictable_windows -= 1;
        std::mem::replace(&mut self.node_mut(id).window, NONE)
    }

    /// Gives a node without a window block one, with one user.
    pub(crate) fn attach_window_block(&mut self, id: u32, block: u32) {
        let node = self.node_mut(id);
        assert!(node.window == NONE && node.window_ref_count == 0, "node {id} has a window block");
        node.window = block;
        node.window_ref_count = 1;
    }

    pub(crate) fn add_ref(&mut self, id: u32) {
        let node = self.node_mut(id);
        node.ref_count += 1;
        self.evictable -= usize::from(self.node(id).ref_count == 1);
    }

    pub(crate) fn release_ref(&mut self, id: u32) {
        self.clock += 1;
        let clock = self.clock;
        let node = self.node_mut(id);
        node.ref_count -= 1;
        node.last_used = clock;
        self.evictable += usize::from(self.node(id).ref_count == 0);
    }

    pub(crate) fn add_window_ref(&mut self, id: u32) {
        let node = self.node_mut(id);
        assert!(node.window != NONE, "the window block of {id} is gone");
        node.window_ref_count += 1;
        self.evictable_windows -= usize::from(self.node(id).window_ref_count == 1);
    }

    pub(crate) fn release_window_ref(&mut self, id: u32) {
        self.clock += 1;
        let clock = self.clock;
        let node = self.node_mut(id);
        node.window_ref_count -= 1;
        node.window_last_used = clock;
        self.evictable_windows += usize::from(self.node(id).window_ref_count == 0);
    }
}
