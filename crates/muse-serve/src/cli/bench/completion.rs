//! One greedy completion through the engine, with the time of every token.

use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use muse_core::contract::{Done, Event, FinishReason, Request, Sampling, Segment, Token};
use muse_serve::App;

/// A completion to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompletionRequest<'a> {
    pub(super) prompt: &'a [Token],
    /// Tokens that end it.
    pub(super) stop: &'a [Token],
    pub(super) max_tokens: u32,
    /// Draft tokens of every verify; none leaves it to the engine.
    pub(super) max_draft: Option<u32>,
}

/// A finished completion.
#[derive(Clone, Debug)]
pub(super) struct Completion {
    pub(super) tokens: Vec<Token>,
    /// When each arrived, counted from the submission.
    pub(super) arrived: Vec<Duration>,
    pub(super) done: Done,
}

impl Completion {
    /// Runs a request that nothing else runs beside.
    pub(super) fn run(app: &App, asked: &CompletionRequest<'_>) -> Result<Self> {
        let request = Request {
            prompt: vec![Segment::Tokens(asked.prompt.to_vec())],
            sampling: Sampling::default(),
            stop: asked.stop.to_vec(),
            max_tokens: Some(asked.max_tokens),
            max_draft: asked.max_draft,
            logprobs: None,
            constraint: None,
            deadline: None,
            ..Request::default()
        };
        let (sender, receiver) = mpsc::channel();
        let mut arrivals = Vec::with_capacity(asked.max_tokens as usize);
        let submitted = Instant::now();
        let sink = move |event| {
            match event {
                Event::Token(sampled) => arrivals.push((sampled.token, submitted.elapsed())),
                // A caller that gave up has dropped the receiver.
                Event::Done(done) => drop(sender.send((std::mem::take(&mut arrivals), done))),
                Event::Prefill { .. } => {}
            }
            ControlFlow::Continue(())
        };
        app.engine.submit(request, Box::new(sink))?;
        let (arrivals, done) = receiver.recv()?;
        match &done.reason {
            FinishReason::Stop(_) | FinishReason::Length => {}
            FinishReason::Failed(error) => bail!("the engine failed: {error}"),
            other => bail!("the completion was ended: {other:?}; run it again"),
        }
        let (tokens, arrived) = arrivals.into_iter().unzip();
        Ok(Self { tokens, arrived, done })
    }

    /// Tokens a second between the first token and token `last`, counted from 1: `last - 1`
    /// intervals. None when so many did not come.
    pub(super) fn rate(&self, last: usize) -> Option<f64> {
        let (first, last_one) = (self.arrived.first()?, self.arrived.get(last.checked_sub(1)?)?);
        let time = last_one.checked_sub(*first)?.as_secs_f64();
        (last > 1 && time > 0.0).then(|| (last - 1) as f64 / time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muse_core::contract::{Timings, Usage};

    #[test]
    fn a_rate_counts_intervals() {
        let arrived = [1000, 1500, 2000, 4000].map(Duration::from_millis).to_vec();
        let done = Done {
            reason: FinishReason::Length,
            usage: Usage::default(),
            timings: Timings::default(),
        };
        let completion = Completion { tokens: vec![Token(1); 4], arrived, done };
        assert_eq!(completion.rate(3), Some(2.0));
        assert_eq!(completion.rate(4), Some(1.0));
        for none in [0, 1, 5] {
            assert_eq!(completion.rate(none), None);
        }
    }
}
