//! A backend that only the tests know, registered beside those of the build.

use std::ops::ControlFlow;
use std::sync::{OnceLock, mpsc};

use muse_core::contract::{
    Done, Event, FinishReason, LogitsRequest, Request, Sampling, Segment, Token,
};
use muse_testkit::fake::{FakeBackend, FakeDrafter, FakeModel, FakeOptions, FakeTarget};

use super::*;

/// A device that computes nothing: model and drafter are fakes too.
#[derive(Default)]
struct FakeFactory(OnceLock<FakeModel>);

impl FakeFactory {
    /// The model, which its drafter looks into.
    fn model(&self, vocab: usize, sizes: &ModelSizes) -> FakeModel {
        let options = FakeOptions {
            vocab,
            full_blocks: sizes.blocks.full,
            window_blocks: sizes.blocks.window,
            reach: 9,
            rows: sizes.max_num_batched_tokens,
            max_logits_rows: sizes.max_logits_rows,
            ..FakeOptions::default()
        };
        self.0.get_or_init(|| FakeModel::new(options)).clone()
    }
}

impl BackendFactory for FakeFactory {
    type Device = FakeBackend;

    fn name(&self) -> &'static str {
        "fake"
    }

    fn check(&self, options: &LoadOptions) -> Result<()> {
        match options.exact {
            true => Err(Error::Invalid("--exact means nothing to --backend fake".into())),
            false => Ok(()),
        }
    }

    fn open(&self, _: &LoadOptions) -> Result<FakeBackend> {
        Ok(FakeBackend::default())
    }

    fn measure_roofline(&self, _: &LoadOptions, _: Duration) -> Result<Roofline> {
        Ok(Roofline { read: 1.0, int8: 2.0, bf16: 3.0, f32: 4.0 })
    }

    fn load_target(
        &self,
        device: &Arc<FakeBackend>,
        source: &dyn WeightSource,
        sizes: &ModelSizes,
        _: &[usize],
        _: &mut TensorProgress<'_>,
    ) -> Result<Box<dyn TargetModel<FakeBackend>>> {
        let vocab = models::text_spec("nano", source)?.vocab;
        Ok(Box::new(FakeTarget::new(Arc::clone(device), self.model(vocab, sizes))?))
    }

    fn load_drafter(
        &self,
        device: &Arc<FakeBackend>,
        _: &dyn WeightSource,
        target: &TextSpec,
        sizes: &ModelSizes,
        _: &mut TensorProgress<'_>,
    ) -> Result<Box<dyn Drafter<FakeBackend>>> {
        let model = self.model(target.vocab, sizes);
        Ok(Box::new(FakeDrafter::new(Arc::clone(device), model, 4, 9, 0.5)))
    }
}

fn load(options: &LoadOptions) -> Result<Loaded> {
    Backends::none().with(FakeFactory::default()).load(options, &mut |_, _, _| {})
}

/// The likeliest tokens behind a prompt, one pass a token.
fn greedy(loaded: &mut Loaded, prompt: &[Token], count: usize) -> Vec<Token> {
    let mut runner = loaded.model_runner().expect("a runner");
    let (mut next, mut tokens, mut logits) = (prompt.to_vec(), Vec::new(), Vec::new());
    while tokens.len() < count {
        runner.forward(&next, LogitsRequest::Last).expect("a pass");
        runner.commit(&next);
        runner.logits(1, &mut logits).expect("logits");
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        next = vec![Token(best.expect("a vocabulary") as u32)];
        tokens.extend(&next);
    }
    tokens
}

fn generate(loaded: Loaded, prompt: &[Token], count: u32) -> (Vec<Token>, Done) {
    let app = loaded.start(Arc::new(|error| panic!("{error}"))).expect("an engine");
    let request = Request {
        prompt: vec![Segment::Tokens(prompt.to_vec())],
        sampling: Sampling::default(),
        stop: Vec::new(),
        max_tokens: Some(count),
        max_draft: None,
        logprobs: None,
        constraint: None,
        deadline: None,
        ..Request::default()
    };
    let (sender, receiver) = mpsc::channel();
    let sink = move |event| {
        // The test may be over.
        let _ = sender.send(event);
        ControlFlow::Continue(())
    };
    app.engine.submit(request, Box::new(sink)).expect("a queued request");
    let mut tokens = Vec::new();
    loop {
        match receiver.recv().expect("an end") {
            Event::Token(sampled) => tokens.push(sampled.token),
            Event::Done(done) => return (tokens, done),
            Event::Prefill { .. } => {}
        }
    }
}

#[test]
fn a_registered_backend_plans_loads_and_answers() {
    let prompt = [5, 6, 7].map(Token);
    let mut loaded = load(&LoadOptions::default()).expect("a model");
    assert_eq!((loaded.card.backend.as_str(), loaded.card.draft_width), ("fake", 4));
    // Parameters of nano and its drafter in BF16, or F32 where they are vectors.
    assert!(loaded.plan.weights > 2 * loaded.card.parameters, "{}", loaded.plan);
    let expected = greedy(&mut loaded, &prompt, 40);
    let (tokens, done) = generate(loaded, &prompt, 40);
    assert_eq!(tokens, expected);
    assert!(matches!(done.reason, FinishReason::Length), "{:?}", done.reason);
    assert!(done.usage.accepted() > 0, "{:?}", done.usage);
}

#[test]
fn a_backend_refuses_flags_and_names_are_checked() {
    let exact = LoadOptions { exact: true, ..LoadOptions::default() };
    let error = load(&exact).err().expect("a refused flag").to_string();
    assert!(error.contains("--exact"), "{error}");
    let other = LoadOptions { backend: Some("abacus".into()), ..LoadOptions::default() };
    let error = load(&other).err().expect("no such backend").to_string();
    assert!(error.contains("--backend abacus") && error.contains("fake"), "{error}");
    let none = Backends::none().load(&LoadOptions::default(), &mut |_, _, _| {});
    let error = none.err().expect("no backend").to_string();
    assert!(error.contains("no backend"), "{error}");
    // The first backend is the default one; another is found by its name.
    let two = Backends::default().with(FakeFactory::default());
    assert_eq!(two.names().last(), Some(&"fake"));
    let fake = LoadOptions { backend: Some("fake".into()), ..LoadOptions::default() };
    let roofline = two.measure_roofline(&fake, Duration::ZERO).expect("a roofline");
    assert_eq!(roofline.f32, 4.0);
}
