//! Wrong readings of the model, one at a time: each must move the golden comparison far past its
//! tolerance, so that the goldens are known to catch it.

use muse_core::Result;
use muse_core::contract::{Backend, KvType};
use muse_cpu::Cpu;
use muse_testkit::Golden;
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::edited::Edited;
use muse_tests::faulty::{Fault, FaultyBackend};
use muse_tests::{compare, run::Pair};

/// Twenty times what the goldens allow.
const CAUGHT_TEXT: f32 = 20.0 * 5e-4;
const CAUGHT_DRAFT: f32 = 20.0 * 2e-3;

type Edit = (&'static str, fn(&mut Edited<'_>));

fn add_one(edited: &mut Edited<'_>, part: &str) {
    edited.tensors(part, |values, _| values.iter_mut().for_each(|w| *w += 1.0));
}

fn take_one(edited: &mut Edited<'_>, part: &str) {
    edited.tensors(part, |values, _| values.iter_mut().for_each(|w| *w -= 1.0));
}

fn scale(edited: &mut Edited<'_>, part: &str, factor: f32) {
    edited.tensors(part, |values, _| values.iter_mut().for_each(|w| *w *= factor));
}

/// Puts the rows of every head from half-split into interleaved order, as a file keeps them whose
/// reader forgot to change the order back.
fn interleave(edited: &mut Edited<'_>, part: &str, head_dim: usize) {
    edited.tensors(part, |values, cols| {
        let split = values.to_vec();
        for (row, out) in values.chunks_mut(cols).enumerate() {
            let (head, j) = (row / head_dim, row % head_dim);
            let from = head * head_dim + j % 2 * head_dim / 2 + j / 2;
            out.copy_from_slice(&split[from * cols..][..cols]);
        }
    });
}

const TEXT: &[Edit] = &[
    ("post norms with 1e-5", |e| e.text().post_norm_eps = 1e-5),
    ("norms with 1e-6", |e| e.text().norm_eps = 1e-6),
    ("norms with the post norms' eps", |e| e.text().norm_eps = 1e-8),
    ("rope on full layers", |e| e.text().layers.iter_mut().for_each(|l| l.rope = true)),
    ("no rope", |e| e.text().layers.iter_mut().for_each(|l| l.rope = false)),
    ("full layers counted from the front", |e| e.text().layers.rotate_left(3)),
    ("window one wider", |e| {
        e.text().layers.iter_mut().for_each(|l| l.window = l.window.map(|w| w + 1));
    }),
    ("window one narrower", |e| {
        e.text().layers.iter_mut().for_each(|l| l.window = l.window.map(|w| w - 1));
    }),
    ("no window", |e| e.text().layers.iter_mut().for_each(|l| l.window = None)),
    ("3.87 on k, too", |e| scale(e, "attn_k_norm", 3.87)),
    ("3.87 twice on q", |e| scale(e, "attn_q_norm", 3.87)),
    ("no 3.87", |e| scale(e, "attn_q_norm", 1.0 / 3.87)),
    ("theta of the vision tower", |e| e.text().rope_theta = 1e4),
    ("interleaved q and k", |e| {
        let head_dim = e.text().head_dim;
        interleave(e, "attn_q", head_dim);
        interleave(e, "attn_k", head_dim);
    }),
    ("attention norm not centred", |e| take_one(e, "attn_norm")),
    ("attention norm centred twice", |e| add_one(e, "attn_norm")),
    ("post attention norm centred twice", |e| add_one(e, "post_attention_norm")),
    ("ffn norm centred twice", |e| add_one(e, "ffn_norm")),
    ("post ffn norm centred twice", |e| add_one(e, "post_ffw_norm")),
    ("final norm centred", |e| add_one(e, "output_norm")),
    ("no multiplier", |e| e.text().logit_scale = 1.0),
    ("no cap", |e| e.text().logit_softcap = None),
    ("cap of 30", |e| e.text().logit_softcap = Some(30.0)),
];

const FAULTS: &[Fault] = &[
    Fault::GateFromResidual,
    Fault::NoGate,
    Fault::RawEmbeddings,
    Fault::ScaledEmbeddings(11.3137),
    Fault::StridedHeads { kv_heads: 2 },
];

const DRAFT: &[Edit] = &[
    ("window exclusive", |e| e.drafter().reach -= 1),
    ("window one wider", |e| e.drafter().reach += 1),
    ("window ignored", |e| e.drafter().reach = 1 << 20),
    ("layers counted by their input", |e| {
        e.drafter().target_layers.iter_mut().for_each(|l| *l += 1);
    }),
    ("layers counted from one", |e| {
        e.drafter().target_layers.iter_mut().for_each(|l| *l -= 1);
    }),
    ("layers in reverse", |e| e.drafter().target_layers.reverse()),
    ("interleaved q and k", |e| {
        let head_dim = e.drafter().head_dim;
        interleave(e, "attn_q", head_dim);
        interleave(e, "attn_k", head_dim);
    }),
    ("context norm centred", |e| add_one(e, "enc.output_norm")),
    ("layer norms centred", |e| {
        add_one(e, "attn_norm");
        add_one(e, "ffn_norm");
    }),
    ("q norm centred", |e| add_one(e, "attn_q_norm")),
    ("q scaled as the target's", |e| scale(e, "attn_q_norm", 3.87)),
    ("norms with 1e-6", |e| e.drafter().norm_eps = 1e-6),
    ("the end-of-text token as the mask", |e| e.drafter().mask_token = 897),
    ("theta of the vision tower", |e| e.drafter().rope_theta = 1e4),
];

fn text_logits<B: Backend>(backend: B, edited: &Edited<'_>) -> Result<f32> {
    let golden = Golden::open("tiny/golden/text_f32.safetensors");
    let captured_hidden: Vec<usize> = (0..8).collect();
    let mut pair = Pair::new(backend, edited, None, KvType::F32, &captured_hidden)?;
    Ok(compare::text(&mut pair, edited, &golden, &["p33", "p100"])?.logits)
}

fn draft_logits<B: Backend>(
    backend: B,
    tiny: &Checkpoint,
    drafter: &Edited<'_>,
    norm_embeddings: Option<f32>,
) -> Result<f32> {
    let golden = Golden::open("tiny/golden/dflash_f32.safetensors");
    let mut pair = Pair::new(backend, &*tiny.target, Some(drafter), KvType::F32, &[])?;
    let trace = compare::draft(&mut pair, &golden, "p100", 1, norm_embeddings)?;
    Ok(trace.difference.logits)
}

fn faulty(fault: Fault) -> FaultyBackend<Cpu> {
    FaultyBackend::new(cpu(), fault, 128)
}

#[test]
fn text_mistakes_are_caught() -> Result<()> {
    let tiny = Checkpoint::tiny()?;
    let right = text_logits(faulty(Fault::Nothing), &Edited::new(&*tiny.target))?;
    assert!(right <= 5e-4, "unedited: {right:e}");
    for (name, edit) in TEXT {
        let mut edited = Edited::new(&*tiny.target);
        edit(&mut edited);
        let difference = text_logits(cpu(), &edited)?;
        assert!(difference > CAUGHT_TEXT, "{name} moves the logits by {difference:e} only");
    }
    for fault in FAULTS {
        let difference = text_logits(faulty(*fault), &Edited::new(&*tiny.target))?;
        assert!(difference > CAUGHT_TEXT, "{fault:?} moves the logits by {difference:e} only");
    }
    Ok(())
}

#[test]
fn draft_mistakes_are_caught() -> Result<()> {
    let tiny = Checkpoint::tiny()?;
    let unedited = Edited::new(&*tiny.drafter);
    let right = draft_logits(faulty(Fault::Nothing), &tiny, &unedited, None)?;
    assert!(right <= 2e-3, "unedited: {right:e}");
    for (name, edit) in DRAFT {
        let mut edited = Edited::new(&*tiny.drafter);
        edit(&mut edited);
        let difference = draft_logits(cpu(), &tiny, &edited, None)?;
        assert!(difference > CAUGHT_DRAFT, "{name} moves the logits by {difference:e} only");
    }
    let causal = draft_logits(faulty(Fault::CausalBlocks), &tiny, &unedited, None)?;
    assert!(causal > CAUGHT_DRAFT, "causal blocks move the logits by {causal:e} only");
    let normed = draft_logits(cpu(), &tiny, &unedited, Some(1e-5))?;
    assert!(normed > CAUGHT_DRAFT, "normed embeddings move the logits by {normed:e} only");
    Ok(())
}
