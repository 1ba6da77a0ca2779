//! Samples against exact probabilities and against a naive implementation of the settings.

use super::{noise, sample, validate};
use crate::contract::{History, SampleRow, Sampled, Sampling, Token, TokenMask};
use crate::hash::hash64;

const LOGITS: [f32; 6] = [1.0, 3.0, -2.0, 2.5, 3.0, 0.0];

fn row<'a>(sampling: &'a Sampling, history: &'a History) -> SampleRow<'a> {
    SampleRow { row: 0, sampling, history, drafted: &[], mask: None, position: 0, logprobs: None }
}

fn warm(change: impl FnOnce(&mut Sampling)) -> Sampling {
    let mut sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    change(&mut sampling);
    sampling
}

fn mask(allowed: &[u32]) -> TokenMask {
    let mut words = vec![0; 1];
    allowed.iter().for_each(|t| words[0] |= 1 << t);
    TokenMask { words }
}

/// Shares of the tokens over many positions.
fn shares(logits: &[f32], row: SampleRow<'_>, draws: u32) -> Vec<f64> {
    let mut counts = vec![0u32; logits.len()];
    for position in 0..draws {
        counts[sample(logits, &SampleRow { position, ..row }).token.0 as usize] += 1;
    }
    counts.iter().map(|&c| f64::from(c) / f64::from(draws)).collect()
}

/// Fails when samples do not follow `expect` (unnormalised); a token of weight 0 must not be
/// sampled. At few degrees of freedom chi² exceeds the bound by chance once in 10^6.
#[track_caller]
fn check_distribution(logits: &[f32], row: SampleRow<'_>, expect: &[f64]) {
    const DRAWS: u32 = 20_000;
    let total: f64 = expect.iter().sum();
    let mut chi2 = 0.0;
    for (share, weight) in shares(logits, row, DRAWS).iter().zip(expect) {
        let p = weight / total;
        if p == 0.0 {
            assert_eq!(*share, 0.0, "a filtered token was drawn");
        } else {
            chi2 += f64::from(DRAWS) * (share - p).powi(2) / p;
        }
    }
    assert!(chi2 < 40.0, "chi² {chi2} is too large");
}

fn exp(logits: &[f32]) -> Vec<f64> {
    logits.iter().map(|&s| f64::from(s).exp()).collect()
}

#[test]
fn greedy_takes_the_first_of_the_best_and_ignores_nan() {
    let (greedy, history) = (Sampling::default(), History::default());
    let check = |logits: &[f32], expect: u32| {
        assert_eq!(sample(logits, &row(&greedy, &history)).token, Token(expect));
    };
    check(&LOGITS, 1);
    check(&[f32::NAN, -1.0, f32::NAN, -1.0], 1);
    check(&[f32::NAN, f32::NAN], 0);
    let is_nan = |logits: &[f32]| sample(logits, &row(&greedy, &history)).logprob.is_nan();
    assert!(is_nan(&[f32::NAN, f32::NAN]) && !is_nan(&[f32::NAN, -1.0]));
    check(&[f32::NEG_INFINITY, -3.0], 1);
    check(&[0.0, f32::INFINITY, f32::INFINITY], 1);
    let mut long = vec![-1.0; 1000];
    long[517] = 4.0;
    long[900] = 4.0;
    check(&long, 517);
}

#[test]
fn draws_follow_the_exact_probabilities() {
    let history = History::default();
    for temperature in [0.5f32, 1.0, 3.0] {
        let sampling = warm(|s| s.temperature = temperature);
        let expect = exp(&LOGITS.map(|s| s / temperature));
        check_distribution(&LOGITS, row(&sampling, &history), &expect);
    }
}

#[test]
fn noise_by_seed_is_as_uniform_as_by_position() {
    let history = History::default();
    let mut counts = [0u32; 6];
    for seed in 0..20_000 {
        let sampling = warm(|s| s.seed = seed);
        counts[sample(&LOGITS, &row(&sampling, &history)).token.0 as usize] += 1;
    }
    let total: f64 = exp(&LOGITS).iter().sum();
    for (count, weight) in counts.iter().zip(exp(&LOGITS)) {
        assert!((f64::from(*count) / 20_000.0 - weight / total).abs() < 0.02);
    }
}

#[test]
fn filters_apply_in_order() {
    let history = History::default();
    let weights = exp(&LOGITS);
    let only = |tokens: &[usize]| -> Vec<f64> {
        (0..6).map(|i| if tokens.contains(&i) { weights[i] } else { 0.0 }).collect()
    };
    let check = |change: fn(&mut Sampling), expect: Vec<f64>| {
        let sampling = warm(change);
        check_distribution(&LOGITS, row(&sampling, &history), &expect);
    };
    // Equal logits at the boundary: the lower id is kept.
    check(|s| s.top_k = 1, only(&[1]));
    check(|s| s.top_k = 3, only(&[1, 3, 4]));
    // Shares of 1, 4, 3 are 0.363, 0.363, 0.220: the one that crosses the bound is kept.
    check(|s| s.top_p = 0.7, only(&[1, 4]));
    check(|s| s.top_p = 0.8, only(&[1, 3, 4]));
    check(|s| s.top_p = 0.0, only(&[1]));
    // exp(2.5 - 3) = 0.607, exp(1 - 3) = 0.135.
    check(|s| s.min_p = 0.5, only(&[1, 3, 4]));
    check(|s| s.min_p = 0.1, only(&[0, 1, 3, 4]));
    // top-p counts what top-k kept (0.5 + 0.5), not the whole row.
    check(|s| (s.top_k, s.top_p) = (2, 0.45), only(&[1]));
    // The temperature comes before top-p: 0.363 + 0.363 no longer reach 0.7 when it is high.
    let flat = warm(|s| (s.temperature, s.top_p) = (10.0, 0.7));
    let drawn = shares(&LOGITS, row(&flat, &history), 5_000);
    assert!(drawn[3] > 0.0, "a high temperature widens the nucleus");
}

#[test]
fn a_filter_that_removes_nothing_changes_nothing() {
    let history = History::default();
    let logits: Vec<f32> = (0..3000).map(|i| (noise::uniform(1, i) * 6.0) as f32).collect();
    let plain = warm(|_| {});
    for position in 0..300 {
        let draw =
            |s: &Sampling| sample(&logits, &SampleRow { position, ..row(s, &history) }).token;
        assert_eq!(draw(&plain), draw(&warm(|s| s.top_k = 3000)));
        assert_eq!(draw(&plain), draw(&warm(|s| s.min_p = 1e-9)));
    }
}

#[test]
fn top_k_and_top_p_agree_with_a_full_sort() {
    let history = History::default();
    // Coarse values, so that ties are common.
    let logits: Vec<f32> = (0..5000).map(|i| (noise::uniform(3, i) * 40.0) as u32 as f32).collect();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    for (k, p) in [(1, 1.0), (64, 1.0), (700, 1.0), (0, 0.9), (0, 0.999), (300, 0.8)] {
        let sampling = warm(|s| (s.temperature, s.top_k, s.top_p) = (20.0, k, p));
        let head = &order[..if k == 0 { order.len() } else { k as usize }];
        let total: f64 = head.iter().map(|&i| f64::from(logits[i] / 20.0).exp()).sum();
        let mut sum = 0.0;
        let inside = head.iter().take_while(|&&i| {
            let before = sum;
            sum += f64::from(logits[i] / 20.0).exp();
            p == 1.0 || before < f64::from(p) * total
        });
        let mut expect: Vec<usize> = inside.copied().collect();
        expect.sort_unstable();
        let mut kept = Vec::new();
        super::filter::keep(&logits, &sampling, &mut kept);
        let got: Vec<usize> = kept.iter().map(|c| c.token as usize).collect();
        assert_eq!(got, expect, "top_k {k}, top_p {p}");
        assert!(expect.contains(&(sample(&logits, &row(&sampling, &history)).token.0 as usize)));
    }
}

#[test]
fn penalties_count_draft_tokens_as_completion() {
    let mut history = History::default();
    history.prompt.extend([Token(0), Token(1)]);
    history.completion.insert(Token(3), 2);
    let sampling = warm(|s| {
        s.repetition_penalty = 2.0;
        s.frequency_penalty = 0.25;
        s.presence_penalty = 0.5;
    });
    let drafted = [Token(2), Token(3), Token(2)];
    let row = SampleRow { drafted: &drafted, ..row(&sampling, &history) };
    // Prompt: divided only. Completion and draft: also 0.25 a time and 0.5 once.
    let expect = [0.5, 1.5, -4.0 - 0.5 - 0.5, 1.25 - 0.75 - 0.5, 3.0, 0.0];
    check_distribution(&LOGITS, row, &exp(&expect));

    // Draft tokens count like the same tokens in the completion.
    let mut longer = history.clone();
    longer.completion = [(Token(3), 3), (Token(2), 2)].into();
    let completed = SampleRow { drafted: &[], history: &longer, ..row };
    for position in 0..200 {
        let (a, b) = (SampleRow { position, ..row }, SampleRow { position, ..completed });
        assert_eq!(sample(&LOGITS, &a), sample(&LOGITS, &b));
    }
}

#[test]
fn bias_and_mask_come_before_the_filters() {
    let history = History::default();
    let biased = warm(|s| s.logit_bias = vec![(Token(2), 5.0), (Token(1), -100.0)]);
    let mut expect = LOGITS;
    expect[2] += 5.0;
    expect[1] -= 100.0;
    check_distribution(&LOGITS, row(&biased, &history), &exp(&expect));

    let allowed = mask(&[0, 2]);
    let top = warm(|s| s.top_k = 2);
    let masked = SampleRow { mask: Some(&allowed), ..row(&top, &history) };
    check_distribution(&LOGITS, masked, &[1f64.exp(), 0.0, (-2f64).exp(), 0.0, 0.0, 0.0]);
    let greedy = Sampling::default();
    let masked = SampleRow { mask: Some(&allowed), ..row(&greedy, &history) };
    assert_eq!(sample(&LOGITS, &masked).token, Token(0));
}

#[test]
fn log_probabilities_are_of_the_models_own_logits() {
    let history = History::default();
    let sampling = warm(|s| s.logit_bias = vec![(Token(2), 50.0)]);
    let row = SampleRow { logprobs: Some(3), ..row(&sampling, &history) };
    let Sampled { token, logprob, top } = sample(&LOGITS, &row);
    let norm = exp(&LOGITS).iter().sum::<f64>().ln();
    assert_eq!(token, Token(2));
    assert!((f64::from(logprob) - (-2.0 - norm)).abs() < 1e-6);
    assert_eq!(top.iter().map(|t| t.0.0).collect::<Vec<_>>(), [1, 4, 3]);
    for (token, logprob) in top {
        let exact = f64::from(LOGITS[token.0 as usize]) - norm;
        assert!((f64::from(logprob) - exact).abs() < 1e-6);
    }
    assert_eq!(sample(&LOGITS, &SampleRow { logprobs: Some(99), ..row }).top.len(), 6);
    assert!(sample(&LOGITS, &SampleRow { logprobs: Some(0), ..row }).top.is_empty());
}

#[test]
fn noise_of_neighbouring_seeds_and_positions_is_uncorrelated() {
    // Correlation of uniform samples has a deviation of 1 / sqrt(n) = 0.01.
    let correlation = |pairs: &[(f64, f64)]| {
        let product = |&(a, b): &(f64, f64)| (a - 0.5) * (b - 0.5) * 12.0;
        pairs.iter().map(product).sum::<f64>() / pairs.len() as f64
    };
    for lag in [1u32, 2, 64] {
        let by_position: Vec<_> =
            (0..10_000).map(|i| (noise::uniform(7, i), noise::uniform(7, i + lag))).collect();
        let by_seed: Vec<_> = (0..10_000)
            .map(|i| (noise::uniform(i, 9), noise::uniform(i + u64::from(lag), 9)))
            .collect();
        // Seed s at position p + 1 against seed s + 1 at position p: noise of `seed + position` would
        // be equal.
        let diagonal: Vec<_> = (0..10_000)
            .map(|i| (noise::uniform(i, 9 + lag), noise::uniform(i + u64::from(lag), 9)))
            .collect();
        for pairs in [by_position, by_seed, diagonal] {
            assert!(correlation(&pairs).abs() < 0.05);
        }
    }
    let seeds: std::collections::HashSet<u64> =
        (0..100).flat_map(|s| (0..100).map(move |n| hash64(s, n))).collect();
    assert_eq!(seeds.len(), 10_000);
}

#[test]
fn settings_out_of_range_are_named() {
    let check = |change: fn(&mut Sampling), field: &str| {
        let message = validate(&warm(change), 10).expect_err(field).to_string();
        assert!(message.contains(field), "{message}");
    };
    assert!(validate(&Sampling::default(), 10).is_ok());
    check(|s| s.temperature = -0.1, "temperature");
    check(|s| s.temperature = f32::NAN, "temperature");
    check(|s| s.top_p = 1.5, "top_p");
    check(|s| s.min_p = -1.0, "min_p");
    check(|s| s.repetition_penalty = 0.0, "repetition_penalty");
    check(|s| s.frequency_penalty = f32::INFINITY, "frequency_penalty");
    check(|s| s.presence_penalty = f32::NAN, "presence_penalty");
    check(|s| s.logit_bias = vec![(Token(10), 1.0)], "logit_bias");
    check(|s| s.logit_bias = vec![(Token(1), f32::NAN)], "logit_bias");
}
