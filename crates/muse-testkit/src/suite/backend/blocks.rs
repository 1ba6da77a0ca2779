//! Moving the bytes of KV blocks.

use muse_core::Error;
use muse_core::contract::{Attention, Backend, BlockCopy, KvGroup, KvShape, KvType, Mask};

use super::data::Sequence;
use super::{Subject, assert_same_bits};

const WIDTH: usize = 2 * 32;

fn shape(kind: KvType) -> KvShape {
    KvShape { group: KvGroup::Window, blocks: 6, kv_heads: 2, head_dim: 32, kind }
}

/// A store whose KV blocks 1 and 2 hold 100 rows of noise.
fn filled<B: Backend>(subject: &Subject<'_, B>, kind: KvType) -> B::Kv {
    let mut kv = subject.device.alloc_kv(shape(kind)).unwrap();
    let (k, v) = (subject.noise(21, 100 * WIDTH), subject.noise(23, 100 * WIDTH));
    let (k, v) = (subject.buf(100, &k), subject.buf(100, &v));
    let sequence = over(&[1, 2]);
    subject.device.write_kv(&mut kv, &[sequence.slice(0, 100)], &k, &v).unwrap();
    kv
}

fn over(blocks: &[u32]) -> Sequence {
    Sequence { full: Vec::new(), window: blocks.to_vec(), window_base: 0 }
}

/// What a query at `position` gets from these KV blocks.
fn answer<B: Backend>(
    subject: &Subject<'_, B>,
    kv: &B::Kv,
    blocks: &[u32],
    position: u32,
) -> Vec<f32> {
    let q = subject.buf(1, &subject.noise(22, 2 * WIDTH));
    let mut out = subject.zeros(1, 2 * WIDTH);
    let mask = Mask::Causal { window: None };
    let attention = Attention { heads: 4, head_dim: 32, scale: 1.0, mask };
    let sequence = over(blocks);
    let slices = [sequence.slice(position, 1)];
    subject.device.attend(&q, kv, &slices, &attention, &mut out).unwrap();
    subject.read(&out, 2 * WIDTH)
}

/// `copy_blocks` copies leading rows of KV blocks of its own group.
pub fn block_copies_copy_the_given_positions<B: Backend>(subject: &Subject<'_, B>) {
    for &kind in subject.kinds {
        let mut kv = filled(subject, kind);
        let before = answer(subject, &kv, &[1, 2], 99);
        let copy = |group, from, to, positions| BlockCopy { group, from, to, positions };
        let copies = [copy(KvGroup::Window, 1, 5, 64), copy(KvGroup::Full, 1, 2, 64)];
        subject.device.copy_blocks(&mut kv, &copies).unwrap();
        let what = "a whole block copied, the other group's copy ignored";
        assert_same_bits(what, &answer(subject, &kv, &[5, 2], 99), &before);
        subject.device.copy_blocks(&mut kv, &[copy(KvGroup::Window, 2, 5, 20)]).unwrap();
        let split = answer(subject, &kv, &[2, 5], 64 + 19);
        assert_same_bits("rows asked", &split, &answer(subject, &kv, &[2, 2], 64 + 19));
        let kept = answer(subject, &kv, &[5], 63);
        assert_ne!(kept, answer(subject, &kv, &[2], 63), "rows behind stay as they were");
    }
}

/// Saved KV blocks load elsewhere with the same bits, and short bytes are refused.
pub fn saved_blocks_load_alike<B: Backend>(subject: &Subject<'_, B>) {
    let device = subject.device;
    for &kind in subject.kinds {
        let kv = filled(subject, kind);
        let mut bytes = Vec::new();
        device.save_block(&kv, 1, &mut bytes).unwrap();
        device.save_block(&kv, 2, &mut bytes).unwrap();
        let mut other = device.alloc_kv(shape(kind)).unwrap();
        let mut rest = bytes.as_slice();
        device.load_block(&mut other, 4, &mut rest).unwrap();
        device.load_block(&mut other, 0, &mut rest).unwrap();
        assert!(rest.is_empty(), "{} bytes left", rest.len());
        let got = answer(subject, &other, &[4, 0], 99);
        assert_same_bits(&format!("{kind:?}"), &got, &answer(subject, &kv, &[1, 2], 99));
        let mut short = &bytes[..bytes.len() / 2 - 1];
        let error = device.load_block(&mut other, 3, &mut short);
        assert!(matches!(error, Err(Error::Corrupt(_))), "{error:?}");
    }
}
