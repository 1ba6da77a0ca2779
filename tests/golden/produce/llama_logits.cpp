// Scores that llama.cpp gives every token of prompts, for llama_distances.py.
// usage: llama_logits MODEL.gguf OUT TOKEN...      writes f32 [tokens, vocabulary]
// build: c++ -O2 -I LLAMA/include -I LLAMA/ggml/include llama_logits.cpp -L LLAMA/build/bin -lllama -lggml -lggml-base
#include <cstdio>
#include <cstdlib>

#include "llama.h"

int main(int count, char ** words) {
    if (count < 4) { std::fprintf(stderr, "usage: llama_logits MODEL.gguf OUT TOKEN...\n"); return 1; }
    const int tokens = count - 3;
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(words[1], llama_model_default_params());
    if (!model) return 1;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = tokens + 64;
    params.n_batch = params.n_ubatch = tokens;
    llama_context * context = llama_init_from_model(model, params);
    if (!context) return 1;
    llama_batch batch = llama_batch_init(tokens, 0, 1);
    batch.n_tokens = tokens;
    for (int i = 0; i < tokens; i++) {
        batch.token[i] = std::atoi(words[3 + i]);
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    if (llama_decode(context, batch) != 0) return 1;
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::FILE * out = std::fopen(words[2], "wb");
    if (!out) return 1;
    bool whole = true;
    for (int i = 0; i < tokens; i++) {
        whole &= std::fwrite(llama_get_logits_ith(context, i), sizeof(float), vocabulary, out) == size_t(vocabulary);
    }
    return std::fclose(out) == 0 && whole ? 0 : 1;
}
