//! Random checkpoints of every format: they open, have a tokenizer, and give finite logits.

use muse_atem::Tokenizer;
use muse_core::Result;
use muse_core::contract::{KvType, LogitsRequest, TextSpec, Token, Tokenizer as _, WeightSource};
use muse_core::quant::Format;
use muse_tests::checkpoint::cpu;
use muse_tests::{run::Pair, wide};
use muse_weights::Checkpoint;

/// As narrow as blocks of 256 values allow, with all four layers of the pattern.
fn narrow() -> TextSpec {
    let layers = wide::shape(4).layers;
    TextSpec {
        hidden: 256,
        ffn: 512,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        vocab: 1200,
        layers,
        ..wide::shape(4)
    }
}

#[test]
fn every_format_runs() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = narrow();
    let prompt: Vec<Token> = (0..40).map(|i| Token(i * 29)).collect();
    for &format in Format::ALL {
        let path = folder.path().join(format!("{format}.gguf"));
        let bytes = wide::write(&spec, format, Format::Q6K, &path).expect("written");
        assert_eq!(std::fs::metadata(&path).expect("the file").len(), bytes);
        let checkpoint = Checkpoint::open(&path)?;
        let image_token = Some(1200 - 128 + 92);
        assert_eq!(checkpoint.spec().text, Some(TextSpec { image_token, ..spec.clone() }));
        for info in checkpoint.tensors() {
            let want = match info.name.as_str() {
                "output.weight" => Format::Q6K,
                _ if info.rows == 1 => Format::F32,
                _ => format,
            };
            assert_eq!(info.format, want, "{format}: {}", info.name);
        }
        let mut pair = Pair::new(cpu(), &checkpoint, None, KvType::F32, &[])?;
        let run = pair.open(&prompt)?;
        pair.pass(&[(&run, &prompt, LogitsRequest::All)])?;
        let logits = pair.read_logits(prompt.len())?;
        assert!(logits.iter().all(|score| score.is_finite()), "{format}");
        let size = logits.iter().map(|score| score * score).sum::<f32>() / logits.len() as f32;
        assert!((0.01..10.0).contains(&size.sqrt()), "{format}: logits of {}", size.sqrt());
    }
    Ok(())
}

#[test]
fn the_vocabulary_is_sound_at_both_sizes() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    for (vocab, first_mark) in [(1200, 1200 - 128), (202_048, 200_000)] {
        let path = folder.path().join(format!("{vocab}.gguf"));
        let spec = TextSpec { vocab, layers: narrow().layers[..1].to_vec(), ..narrow() };
        wide::write(&spec, Format::Iq1S, Format::Iq1S, &path).expect("written");
        let checkpoint = Checkpoint::open(&path)?;
        assert_eq!(checkpoint.generation().stop, [first_mark + 1, first_mark + 8]);
        let tokenizer = Tokenizer::new(checkpoint.vocabulary()?.expect("a vocabulary"))?;
        let (mut ids, mut bytes) = (Vec::new(), Vec::new());
        let text = "the cat, Ä\n\0 end";
        tokenizer.encode(text, &mut ids);
        ids.iter().for_each(|&id| tokenizer.decode(id, &mut bytes));
        assert_eq!(bytes, text.as_bytes());
        assert!(ids.len() < text.len(), "pairs of letters are merged");
        for (mark, at) in [("<|start|>", 22), ("<|message|>", 23), ("<|eom|>", 7)] {
            assert_eq!(tokenizer.special_token(mark), Some(Token(first_mark + at)), "{mark}");
        }
    }
    Ok(())
}
