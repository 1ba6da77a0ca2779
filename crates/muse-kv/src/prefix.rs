//! The tree of prefixes that are in the cache: a node is one KV block of rows behind the KV blocks of its
//! ancestors. Only complete KV blocks have children.

use muse_core::contract::{KV_BLOCK_SIZE, PositionKey, PrefixBlock, PrefixHash, Token};

/// No node, no KV block: the root's number too.
pub(crate) const NONE: u32 = u32::MAX;

/// Nodes by the number of their full KV block, and the keys of every row of every full KV block, whether
/// it is in the tree yet or not.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    keys: Vec<PositionKey>,
    first_root: u32,
    root: PrefixHash,
    /// Nodes that no sequence uses, and those whose window KV block none does.
    pub(crate) idle: usize,
    pub(crate) idle_windows: usize,
    clock: u64,
}

#[derive(Clone)]
struct Node {
    linked: bool,
    hash: PrefixHash,
    /// Leading rows that hold something.
    rows: usize,
    parent: u32,
    first_child: u32,
    next: u32,
    /// Its KV block of the window group, while it is there.
    window: u32,
    /// Sequences whose rows it holds, and those of them that still see its window KV block.
    users: u32,
    window_users: u32,
    used: u64,
    window_used: u64,
}

/// Memory that a pool takes for each KV block of the full group: its node and the keys of its rows.
pub const BYTES_PER_BLOCK: usize = size_of::<Node>() + KV_BLOCK_SIZE * size_of::<PositionKey>();

const UNLINKED: Node = Node {
    linked: false,
    hash: PrefixHash([0; 2]),
    rows: 0,
    parent: NONE,
    first_child: NONE,
    next: NONE,
    window: NONE,
    users: 0,
    window_users: 0,
    used: 0,
    window_used: 0,
};

impl Tree {
    pub(crate) fn new(full_blocks: usize, root: PrefixHash) -> Self {
        Self {
            nodes: vec![UNLINKED; full_blocks],
            keys: vec![PositionKey::Token(Token(0)); full_blocks * KV_BLOCK_SIZE],
            first_root: NONE,
            root,
            idle: 0,
            idle_windows: 0,
            clock: 0,
        }
    }

    fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    fn node_mut(&mut self, id: u32) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    /// Keys of the rows of a full KV block.
    pub(crate) fn keys(&self, block: u32) -> &[PositionKey] {
        &self.keys[block as usize * KV_BLOCK_SIZE..][..KV_BLOCK_SIZE]
    }

    pub(crate) fn set_key(&mut self, block: u32, row: usize, key: PositionKey) {
        self.keys[block as usize * KV_BLOCK_SIZE + row] = key;
    }

    pub(crate) fn copy_keys(&mut self, from: u32, to: u32, rows: usize) {
        let from = from as usize * KV_BLOCK_SIZE;
        self.keys.copy_within(from..from + rows, to as usize * KV_BLOCK_SIZE);
    }

    pub(crate) fn window(&self, id: u32) -> u32 {
        self.node(id).window
    }

    /// Leading rows of a node that hold something.
    pub(crate) fn rows(&self, id: u32) -> usize {
        self.node(id).rows
    }

    pub(crate) fn users(&self, id: u32) -> u32 {
        self.node(id).users
    }

    fn children(&self, parent: u32) -> impl Iterator<Item = u32> {
        let first = if parent == NONE { self.first_root } else { self.node(parent).first_child };
        let some = |id: u32| (id != NONE).then_some(id);
        std::iter::successors(some(first), move |&id| some(self.node(id).next))
    }

    /// The child of `parent` that shares most leading rows with `keys`, and how many.
    pub(crate) fn closest(&self, parent: u32, keys: &[PositionKey]) -> (u32, usize) {
        let mut best = (NONE, 0);
        for id in self.children(parent) {
            let rows = &self.keys(id)[..self.node(id).rows];
            let shared = rows.iter().zip(keys).take_while(|(a, b)| a == b).count();
            if shared > best.1 {
                best = (id, shared);
            }
        }
        best
    }

    /// Puts a KV block into the tree, with one user of it and of its window KV block.
    pub(crate) fn link(&mut self, parent: u32, block: u32, window: u32, rows: usize) {
        assert!(!self.node(block).linked, "block {block} is in the tree already");
        let first = if parent == NONE { self.first_root } else { self.node(parent).first_child };
        *self.node_mut(block) = Node {
            linked: true,
            hash: self.hash(parent).extend(&self.keys(block)[..rows]),
            rows,
            parent,
            next: first,
            window,
            users: 1,
            window_users: u32::from(window != NONE),
            ..UNLINKED
        };
        *self.first_of(parent) = block;
    }

    /// Name of the prefix that a node ends.
    pub(crate) fn hash(&self, id: u32) -> PrefixHash {
        if id == NONE { self.root } else { self.node(id).hash }
    }

    /// A node as others may keep it, if its KV block is complete.
    pub(crate) fn cold(&self, id: u32) -> Option<PrefixBlock> {
        let node = self.node(id);
        let window = (node.window != NONE).then_some(node.window);
        let whole = node.linked && node.rows == KV_BLOCK_SIZE;
        whole.then_some(PrefixBlock { hash: node.hash, full: id, window })
    }

    /// Complete KV blocks that no sequence uses, the longest unused first.
    pub(crate) fn unused(&self) -> Vec<u32> {
        let ids = 0..self.nodes.len() as u32;
        let idle = |id: &u32| self.node(*id).users == 0 && self.cold(*id).is_some();
        let mut ids: Vec<u32> = ids.filter(idle).collect();
        ids.sort_by_key(|&id| self.node(id).used);
        ids
    }

    fn first_of(&mut self, parent: u32) -> &mut u32 {
        if parent == NONE { &mut self.first_root } else { &mut self.node_mut(parent).first_child }
    }

    /// Takes an unused, childless node out. Its full KV block is free; returns its window KV block.
    pub(crate) fn unlink(&mut self, id: u32) -> u32 {
        let node = self.node(id).clone();
        assert!(node.linked && node.users == 0 && node.first_child == NONE, "node {id} is in use");
        let before = self.children(node.parent).find(|&other| self.node(other).next == id);
        match before {
            Some(before) => self.node_mut(before).next = node.next,
            None => *self.first_of(node.parent) = node.next,
        }
        *self.node_mut(id) = UNLINKED;
        self.idle -= 1;
        self.idle_windows -= usize::from(node.window != NONE);
        node.window
    }

    /// An unused leaf below `id`, which has children.
    pub(crate) fn leaf_below(&self, id: u32) -> Option<u32> {
        let deeper = |&id: &u32| Some(self.node(id).first_child).filter(|&child| child != NONE);
        std::iter::successors(deeper(&id), deeper).last()
    }

    /// The leaf that went unused longest. A scan: rare beside the 64 rows it makes place for.
    pub(crate) fn oldest_leaf(&self) -> Option<u32> {
        let idle = |node: &Node| node.linked && node.users == 0 && node.first_child == NONE;
        let ids = (0..self.nodes.len() as u32).filter(|&id| idle(self.node(id)));
        ids.min_by_key(|&id| self.node(id).used)
    }

    /// The node whose window KV block went unused longest.
    pub(crate) fn oldest_window(&self) -> Option<u32> {
        let idle = |node: &Node| node.linked && node.window != NONE && node.window_users == 0;
        let ids = (0..self.nodes.len() as u32).filter(|&id| idle(self.node(id)));
        ids.min_by_key(|&id| self.node(id).window_used)
    }

    /// Takes the unused window KV block of a node away.
    pub(crate) fn take_window(&mut self, id: u32) -> u32 {
        let node = self.node_mut(id);
        assert!(node.window != NONE && node.window_users == 0, "window block of {id} is in use");
        self.idle_windows -= 1;
        std::mem::replace(&mut self.node_mut(id).window, NONE)
    }

    /// Gives a node that lost it a window KV block, with one user.
    pub(crate) fn give_window(&mut self, id: u32, block: u32) {
        let node = self.node_mut(id);
        assert!(node.window == NONE && node.window_users == 0, "node {id} has a window block");
        node.window = block;
        node.window_users = 1;
    }

    pub(crate) fn hold(&mut self, id: u32) {
        let node = self.node_mut(id);
        node.users += 1;
        self.idle -= usize::from(self.node(id).users == 1);
    }

    pub(crate) fn release(&mut self, id: u32) {
        self.clock += 1;
        let clock = self.clock;
        let node = self.node_mut(id);
        node.users -= 1;
        node.used = clock;
        self.idle += usize::from(self.node(id).users == 0);
    }

    pub(crate) fn hold_window(&mut self, id: u32) {
        let node = self.node_mut(id);
        assert!(node.window != NONE, "the window block of {id} is gone");
        node.window_users += 1;
        self.idle_windows -= usize::from(self.node(id).window_users == 1);
    }

    pub(crate) fn release_window(&mut self, id: u32) {
        self.clock += 1;
        let clock = self.clock;
        let node = self.node_mut(id);
        node.window_users -= 1;
        node.window_used = clock;
        self.idle_windows += usize::from(self.node(id).window_users == 0);
    }
}
