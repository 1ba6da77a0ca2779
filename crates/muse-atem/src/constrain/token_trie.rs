//! A checkpoint's vocabulary as the token trie that masks are computed over.

use std::sync::Arc;

use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use muse_core::Result;
use muse_core::contract::{Token, Tokenizer as _};

use crate::special_token::SpecialToken;
use crate::tokenizer::Tokenizer;

struct Environment {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
}

/// The environment that grammars are compiled for.
pub(super) fn environment(tokenizer: Arc<Tokenizer>) -> Result<TokEnv> {
    let size = u32::try_from(tokenizer.vocab_size()).expect("ids are 32 bits wide");
    let words: Vec<Vec<u8>> = (0..size)
        .map(|id| {
            let mut word = Vec::new();
            // The marker byte keeps special tokens from matching as text.
            if tokenizer.is_special(Token(id)) {
                word.push(TokTrie::SPECIAL_TOKEN_MARKER);
            }
            tokenizer.decode(Token(id), &mut word);
            word
        })
        .collect();
    // The grammars spell the end-of-turn token themselves, so the library's own end token is one
    // that no grammar uses.
    let end = SpecialToken::EndOfText.id(tokenizer.as_ref())?;
    let trie = TokTrie::from(&TokRxInfo::new(size, end.0), &words);
    Ok(Arc::new(Environment { trie, tokenizer }))
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        // The bytes are complete characters except where a grammar forces a part of one.
        for chunk in bytes.utf8_chunks() {
            self.tokenizer.encode(chunk.valid(), &mut tokens);
            for byte in chunk.invalid() {
                tokens.extend(self.trie.token_id(&[*byte]).map(Token));
            }
        }
        tokens.into_iter().map(|token| token.0).collect()
    }
}
