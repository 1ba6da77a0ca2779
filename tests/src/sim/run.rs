//! One seed from the first request to the last end, and the checks of its invariants.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;
use std::time::Duration;

use muse_core::contract::{FinishReason, SeqId};

use super::generate::{Arrival, Random, arrivals, setup};
use super::plain::plain;
use super::plant::PlantedFault;
use super::test_engine::{Client, Received, Setup, TestEngine, client, ids};

/// What happened in a run without a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Hash of all events in order of time.
    pub trace: u64,
    /// Requests.
    pub requests: usize,
    /// Requests that ended at a stop token or at their length.
    pub complete: usize,
    /// Draft tokens accepted.
    pub accepted: u64,
    /// Prompt tokens found in the cache.
    pub cached: u64,
    /// Pictures encoded or begun.
    pub pictures: u64,
}

/// A submitted request, with what its client does and has received.
struct TrackedRequest {
    arrival: Arrival,
    id: SeqId,
    client: Client,
    ended: Option<u64>,
}

/// Runs a seed. `Err` names the violated invariant.
pub fn run(seed: u64, plant: PlantedFault) -> Result<Report, String> {
    let mut random = Random::new(seed);
    let setup = setup(&mut random, plant);
    let mut engine = setup.build().map_err(|error| format!("setup: {error}"))?;
    let longest = u64::from(engine.core.limits().positions());
    if longest < 4 {
        return Ok(Report::default());
    }
    let mut coming = arrivals(&mut random, &setup, longest);
    let fails = random.one_in(10);
    if fails {
        let n = random.between(1, 60);
        if random.one_in(2) {
            engine.backend.fail_at(n);
        } else {
            engine.fail_at.store(n, Ordering::Relaxed);
            engine.encoded.fail_at.store(n, Ordering::Relaxed);
        }
    }
    let (running, failed) = drive(&mut engine, &setup, &mut coming, longest)?;
    if failed && !fails {
        return Err("the engine failed without a fault".into());
    }
    check_run(&engine, &setup, &running, failed)
}

/// Steps until nothing is left. Returns whether the engine failed.
fn drive(
    engine: &mut TestEngine,
    setup: &Setup,
    coming: &mut Vec<Arrival>,
    longest: u64,
) -> Result<(Vec<TrackedRequest>, bool), String> {
    let work: u64 = coming.iter().map(|a| (a.request.prompt_len() as u64).max(longest) + 100).sum();
    let clock = Cell::new(Duration::ZERO);
    let mut running: Vec<TrackedRequest> = Vec::new();
    for step in 0.. {
        // The best-ranked sequence runs at least a token in every step, so that all are done in as
        // many steps as there are tokens; preempted ones run some of theirs again.
        if step > 4 * work {
            return Err(format!("still running after {step} steps: somebody starves"));
        }
        clock.set(Duration::from_millis(step));
        while let Some(next) = coming.first()
            && next.step <= step
        {
            let arrival = with_history(coming.remove(0), &running, longest);
            let id = SeqId(running.len() as u64 + 1);
            let (client, sink) = client(arrival.leaves_after);
            let request = arrival.request.request(setup.fake.vocab);
            engine
                .core
                .submit(id, request, sink, clock.get())
                .map_err(|error| format!("request {}: {error}", id.0))?;
            running.push(TrackedRequest { arrival, id, client, ended: None });
        }
        for tracked in &running {
            if tracked.arrival.cancelled_after.map(|after| tracked.arrival.step + after)
                == Some(step)
            {
                engine.core.cancel(tracked.id);
            }
        }
        // Time passes within a step, far from the next one's.
        let (model, before) = (&engine.model, engine.model.elapsed());
        let outcome = engine.core.step(&|| clock.get() + (model.elapsed() - before));
        for tracked in &mut running {
            if tracked.ended.is_none() && !receive(&tracked.client).done.is_empty() {
                tracked.ended = Some(step);
            }
        }
        match outcome {
            Err(_) => return Ok((running, true)),
            Ok(false) if coming.is_empty() => break,
            Ok(_) => {}
        }
    }
    Ok((running, false))
}

/// Puts prompt and completion of an earlier request in front, as the next message of a chat does.
fn with_history(mut arrival: Arrival, running: &[TrackedRequest], longest: u64) -> Arrival {
    if let Some(earlier) = arrival.follows.and_then(|i| running.get(i)) {
        let picture = earlier.arrival.request.picture;
        let mut prompt = earlier.arrival.request.prompt.clone();
        prompt.extend(ids(&receive(&earlier.client).tokens));
        prompt.extend(&arrival.request.prompt[..arrival.request.prompt.len().min(9)]);
        prompt.truncate(longest as usize - 1 - picture.map_or(0, |(_, _, rows)| rows));
        arrival.request.prompt = prompt;
        arrival.request.picture = picture;
    }
    arrival
}

fn receive(client: &Client) -> Received {
    client.lock().expect("no client panics").clone()
}

/// Checks every invariant at the end of a run.
fn check_run(
    engine: &TestEngine,
    setup: &Setup,
    running: &[TrackedRequest],
    failed: bool,
) -> Result<Report, String> {
    let mut report = Report { requests: running.len(), ..Report::default() };
    let mut trace = DefaultHasher::new();
    for tracked in running {
        let received = receive(&tracked.client);
        check(tracked, &received, setup, engine.core.limits().positions(), failed)
            .map_err(|broken| format!("request {}: {broken}", tracked.id.0))?;
        let done = &received.done[0];
        let whole = matches!(done.reason, FinishReason::Stop(_) | FinishReason::Length);
        report.complete += usize::from(whole);
        report.accepted += u64::from(done.usage.accepted());
        report.cached += u64::from(done.usage.cached);
        format!("{:?} {:?} {received:?}", tracked.id, tracked.ended).hash(&mut trace);
    }
    let (free, total) = (engine.core.pool().free(), engine.core.pool().total());
    if free != total {
        return Err(format!("{free:?} blocks are free at the end, of {total:?}"));
    }
    let stale = engine.log.stale.load(Ordering::Relaxed);
    if stale > 0 {
        return Err(format!("the drafter met {stale} stale rows"));
    }
    // A failed device is not asked for anything again.
    let open = engine.encoded.open.load(Ordering::Relaxed);
    if open > 0 && !failed {
        return Err(format!("{open} pictures are still to be encoded"));
    }
    report.pictures = engine.encoded.begun.load(Ordering::Relaxed);
    report.trace = trace.finish();
    Ok(report)
}

fn check(
    tracked: &TrackedRequest,
    received: &Received,
    setup: &Setup,
    positions: u32,
    failed: bool,
) -> Result<(), String> {
    let Arrival { step, request, cancelled_after, leaves_after, .. } = &tracked.arrival;
    let [done] = &received.done[..] else {
        return Err(format!("{} ends, expected one", received.done.len()));
    };
    if received.late {
        return Err("something came after the end".into());
    }
    let mut request = request.clone();
    request.max_tokens = request.max_tokens.min(positions - request.prompt_len() as u32);
    let expect = plain(setup.fake, &request);
    let count = received.tokens.len();
    if received.tokens[..] != expect[..count.min(expect.len())] {
        return Err(format!("got {:?}, alone {:?}", ids(&received.tokens), ids(&expect)));
    }
    let at = tracked.ended.expect("it ended");
    let last = received.tokens.last().map(|sampled| sampled.token);
    match &done.reason {
        FinishReason::Stop(token) if count == expect.len() && last == Some(*token) => {
            if !request.stop.contains(token) {
                return Err(format!("stopped at {token:?}, which is no stop"));
            }
        }
        FinishReason::Length if count == expect.len() && count == request.max_tokens as usize => {}
        FinishReason::Cancelled
            if leaves_after.is_some_and(|n| n == count)
                || cancelled_after.is_some_and(|after| at == step + after) => {}
        FinishReason::Deadline if request.deadline_ms.is_some_and(|ms| at == step + ms) => {}
        FinishReason::Failed(_) if failed => {}
        reason => return Err(format!("{reason:?} after {count} of {} tokens", expect.len())),
    }
    if request.deadline_ms.is_some_and(|ms| at > step + ms) {
        return Err(format!("ended in step {at}, past its deadline"));
    }
    let usage = &done.usage;
    if usage.prompt as usize != request.prompt_len()
        || usage.completion as usize != count
        || usage.cached >= usage.prompt
        || usage.accepted() > usage.drafted()
    {
        return Err(format!("usage {usage:?} for {count} tokens"));
    }
    Ok(())
}
