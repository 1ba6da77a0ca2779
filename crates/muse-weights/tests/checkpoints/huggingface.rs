//! Compares HuggingFace folders of the tree with what an independent reader finds in their files.

use std::collections::HashMap;
use std::path::Path;

use muse_core::contract::{LayerSpec, Vocabulary, WeightSource};
use muse_core::quant::Format;
use muse_testkit::{golden_dir, nano_dir};
use muse_weights::Checkpoint;

/// Tensors of a BF16 safetensors file: shape and raw bytes.
fn raw(folder: &Path) -> HashMap<String, (Vec<usize>, Vec<u8>)> {
    let bytes = std::fs::read(folder.join("model.safetensors")).expect("a file of the tree");
    let header_len = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: HashMap<String, serde_json::Value> =
        serde_json::from_slice(&bytes[8..8 + header_len]).expect("a header");
    let data = &bytes[8 + header_len..];
    let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__");
    let read = |(name, tensor): (String, serde_json::Value)| {
        assert_eq!(tensor["dtype"], "BF16", "{name}");
        let numbers = |key: &str| -> Vec<usize> {
            let list = tensor[key].as_array().expect("a list").iter();
            list.map(|n| n.as_u64().expect("a number") as usize).collect()
        };
        let (shape, range) = (numbers("shape"), numbers("data_offsets"));
        (name, (shape, data[range[0]..range[1]].to_vec()))
    };
    tensors.map(read).collect()
}

fn bf16(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.as_chunks::<2>().0.iter();
    words.map(|&[low, high]| f32::from_bits(u32::from_le_bytes([0, 0, low, high]))).collect()
}

#[test]
fn target_folders_give_text_and_vision() {
    for (folder, hidden, vision_layers) in
        [(nano_dir().join("target"), 256, 4), (golden_dir().join("tiny/target"), 128, 6)]
    {
        let checkpoint = Checkpoint::open(&folder).expect("a checkpoint of the tree");
        let spec = checkpoint.spec();
        assert!(spec.drafter.is_none());
        let text = spec.text.as_ref().expect("a text model");
        assert_eq!((text.hidden, text.vocab, text.layers.len()), (hidden, 1024, 8));
        assert_eq!((text.norm_eps, text.post_norm_eps), (1e-5, 1e-8));
        assert_eq!((text.rope_theta, text.logit_softcap), (500_000.0, Some(20.0)));
        assert_eq!(text.image_token, Some(988));
        let full = LayerSpec { window: None, rope: false };
        let full_at = |layer: &usize| text.layers[*layer] == full;
        assert_eq!((0..8).filter(full_at).collect::<Vec<_>>(), [3, 7]);
        assert!(text.layers[0].rope && text.layers[0].window.is_some());
        let vision = spec.vision.as_ref().expect("a vision tower");
        assert_eq!((vision.full_layers.len(), vision.table), (vision_layers, (8, 8)));
        assert_eq!((vision.temporal, vision.out), (2, hidden));
        assert_eq!(checkpoint.generation().temperature, Some(0.0));
        assert_eq!(checkpoint.generation().stop, [897, 904]);
        // The norms of q and k, which the file does not have.
        let constant = 2 * 8;
        assert_eq!(checkpoint.tensors().len(), raw(&folder).len() + constant);
    }
}

#[test]
fn text_tensors_equal_the_file() {
    let folder = nano_dir().join("target");
    let checkpoint = Checkpoint::open(&folder).expect("nano");
    let raw = raw(&folder);
    let plain = [
        ("token_embd", "model.language_model.embed_tokens"),
        ("output", "lm_head"),
        ("output_norm", "model.language_model.norm"),
        ("blk.2.attn_q", "model.language_model.layers.2.self_attn.q_proj"),
        ("blk.2.attn_k", "model.language_model.layers.2.self_attn.k_proj"),
        ("blk.2.attn_v", "model.language_model.layers.2.self_attn.v_proj"),
        ("blk.2.attn_gate", "model.language_model.layers.2.self_attn.gate_proj"),
        ("blk.2.attn_output", "model.language_model.layers.2.self_attn.o_proj"),
        ("blk.7.ffn_gate", "model.language_model.layers.7.mlp.gate_proj"),
        ("blk.7.ffn_up", "model.language_model.layers.7.mlp.up_proj"),
        ("blk.7.ffn_down", "model.language_model.layers.7.mlp.down_proj"),
        ("v.blk.1.attn_q", "model.vision_tower.layers.1.attn.q_proj"),
        ("v.patch_embd", "model.vision_tower.patch_embedder.patch_embedding"),
        ("mm.2", "model.vision_projection"),
    ];
    for (ours, theirs) in plain {
        let view = checkpoint.weight(&format!("{ours}.weight")).expect("a tensor");
        let (shape, bytes) = &raw[&format!("{theirs}.weight")];
        assert_eq!(
            (view.rows, view.cols),
            (shape.iter().product::<usize>() / view.cols, *shape.last().expect("a shape"))
        );
        assert_eq!((view.format, &*view.bytes), (Format::Bf16, &bytes[..]), "{ours}");
    }
    let centered = [
        ("attn_norm", "input_layernorm"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
    ];
    for (ours, theirs) in centered {
        let view = checkpoint.weight(&format!("blk.5.{ours}.weight")).expect("a norm");
        let (_, bytes) = &raw[&format!("model.language_model.layers.5.{theirs}.weight")];
        let want: Vec<f32> = bf16(bytes).into_iter().map(|w| w + 1.0).collect();
        assert_eq!((view.format, view.rows), (Format::F32, 1));
        assert_eq!(view.to_f32(), want, "{ours}");
    }
    for (norm, value) in [("attn_q_norm", 3.87), ("attn_k_norm", 1.0)] {
        let view = checkpoint.weight(&format!("blk.0.{norm}.weight")).expect("a head norm");
        assert_eq!((view.rows, view.to_f32()), (1, vec![value; 64]));
    }
    assert!(checkpoint.weight("blk.8.attn_q.weight").is_err());
}

#[test]
fn an_assistant_folder_gives_a_drafter() {
    let folder = nano_dir().join("assistant");
    let checkpoint = Checkpoint::open(&folder).expect("nano's drafter");
    let spec = checkpoint.spec();
    assert!(spec.text.is_none() && spec.vision.is_none());
    let drafter = spec.drafter.as_ref().expect("a drafter");
    assert_eq!((drafter.hidden, drafter.layers, drafter.draft_block), (256, 2, 16));
    assert_eq!((drafter.heads, drafter.kv_heads, drafter.head_dim), (4, 4, 64));
    assert_eq!((drafter.reach, drafter.mask_token), (64, 1015));
    assert_eq!(drafter.target_layers, [1, 3, 6]);
    let raw = raw(&folder);
    assert_eq!(checkpoint.tensors().len(), raw.len());
    for (ours, theirs) in [
        ("fc", "encoder.fc"),
        ("enc.output_norm", "encoder.output_norm_enc"),
        ("output_norm", "norm"),
        ("blk.1.attn_norm", "layers.1.input_layernorm"),
        ("blk.1.ffn_norm", "layers.1.post_attention_layernorm"),
        ("blk.1.attn_q_norm", "layers.1.self_attn.q_norm"),
        ("blk.1.attn_q", "layers.1.self_attn.q_proj"),
    ] {
        let view = checkpoint.weight(&format!("{ours}.weight")).expect("a tensor");
        assert_eq!(*view.bytes, raw[&format!("{theirs}.weight")].1[..], "{ours}");
    }
}

#[test]
fn tokenizer_json_is_returned_unchanged() {
    let folder = nano_dir().join("target");
    let vocabulary = Checkpoint::open(&folder).expect("nano").vocabulary().expect("readable");
    let Some(Vocabulary::HuggingFace(bytes)) = vocabulary else { panic!("a tokenizer.json") };
    assert_eq!(bytes, std::fs::read(folder.join("tokenizer.json")).expect("the file"));
    let tiny = Checkpoint::open(&golden_dir().join("tiny/target")).expect("tiny");
    assert!(tiny.vocabulary().expect("readable").is_none());
}

/// Caches keyed by the stamp are valid for as long as the files are unchanged.
#[test]
fn the_stamp_changes_when_a_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(golden_dir().join("tiny/target")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let stamp = || Checkpoint::open(folder.path()).unwrap().stamp().unwrap();
    let first = stamp();
    assert_eq!(stamp(), first);
    let weights = std::fs::File::open(folder.path().join("model.safetensors")).unwrap();
    weights.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_ne!(stamp(), first);
    let names = ["config.json", "model.safetensors"].map(str::to_owned);
    let files = names.map(|name| {
        let bytes = std::fs::read(folder.path().join(&name)).unwrap();
        (name, bytes.into())
    });
    assert_eq!(
        Checkpoint::from_files(files).unwrap().stamp(),
        None,
        "files in memory have no modification time"
    );
}
