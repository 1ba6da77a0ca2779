//! One seed from the first request to the last end, and the checks of its invariants.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;
use std::time::Duration;

use muse_core::contract::{FinishReason, SeqId};

use super::arrivals::{Arrival, Dice, arrivals, setup};
use super::plain::plain;
use super::plant::PlantedFault;
use super::rig::{Client, Received, Rig, Setup, client, ids};

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
}

/// A request on its way.
struct Running {
    arrival: Arrival,
    id: SeqId,
    client: Client,
    ended: Option<u64>,
}

/// Runs a seed. `Err` names the violated invariant.
pub fn run(seed: u64, plant: PlantedFault) -> Result<Report, String> {
    let mut dice = Dice::new(seed);
    let setup = setup(&mut dice, plant);
    let mut rig = setup.build().map_err(|error| format!("setup: {error}"))?;
    let longest = u64::from(rig.engine.limits().positions());
    if longest < 4 {
        return Ok(Report::default());
    }
    let mut coming = arrivals(&mut dice, &setup, longest);
    let fails = dice.one_in(10);
    if fails {
        let n = dice.between(1, 60);
        if dice.one_in(2) {
            rig.backend.fail_at(n);
        } else {
            rig.fail_at.store(n, Ordering::Relaxed);
        }
    }
    let (running, failed) = drive(&mut rig, &setup, &mut coming, longest)?;
    if failed && !fails {
        return Err("the engine failed without a fault".into());
    }
    judge(&rig, &setup, &running, failed)
}

/// Steps until nothing is left. Returns whether the engine failed.
fn drive(
    rig: &mut Rig,
    setup: &Setup,
    coming: &mut Vec<Arrival>,
    longest: u64,
) -> Result<(Vec<Running>, bool), String> {
    let work: u64 = coming.iter().map(|a| (a.ask.prompt.len() as u64).max(longest) + 100).sum();
    let clock = Cell::new(Duration::ZERO);
    let mut running: Vec<Running> = Vec::new();
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
            let request = arrival.ask.request(setup.fake.vocab);
            rig.engine
                .submit(id, request, sink, clock.get())
                .map_err(|error| format!("request {}: {error}", id.0))?;
            running.push(Running { arrival, id, client, ended: None });
        }
        for request in &running {
            if request.arrival.cancelled_after.map(|after| request.arrival.step + after)
                == Some(step)
            {
                rig.engine.cancel(request.id);
            }
        }
        // Time passes within a step, far from the next one's.
        let (model, before) = (&rig.model, rig.model.elapsed());
        let outcome = rig.engine.step(&|| clock.get() + (model.elapsed() - before));
        for request in &mut running {
            if request.ended.is_none() && !receive(&request.client).done.is_empty() {
                request.ended = Some(step);
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
fn with_history(mut arrival: Arrival, running: &[Running], longest: u64) -> Arrival {
    if let Some(earlier) = arrival.follows.and_then(|i| running.get(i)) {
        let mut prompt = earlier.arrival.ask.prompt.clone();
        prompt.extend(ids(&receive(&earlier.client).tokens));
        prompt.extend(&arrival.ask.prompt[..arrival.ask.prompt.len().min(9)]);
        prompt.truncate(longest as usize - 1);
        arrival.ask.prompt = prompt;
    }
    arrival
}

fn receive(client: &Client) -> Received {
    client.lock().expect("no client panics").clone()
}

fn judge(rig: &Rig, setup: &Setup, running: &[Running], failed: bool) -> Result<Report, String> {
    let mut report = Report { requests: running.len(), ..Report::default() };
    let mut trace = DefaultHasher::new();
    for request in running {
        let heard = receive(&request.client);
        check(request, &heard, setup, rig.engine.limits().positions(), failed)
            .map_err(|broken| format!("request {}: {broken}", request.id.0))?;
        let done = &heard.done[0];
        let whole = matches!(done.reason, FinishReason::Stop(_) | FinishReason::Length);
        report.complete += usize::from(whole);
        report.accepted += u64::from(done.usage.accepted());
        report.cached += u64::from(done.usage.cached);
        format!("{:?} {:?} {heard:?}", request.id, request.ended).hash(&mut trace);
    }
    let (free, total) = (rig.engine.pool().free(), rig.engine.pool().total());
    if free != total {
        return Err(format!("{free:?} blocks are free at the end, of {total:?}"));
    }
    let stale = rig.log.stale.load(Ordering::Relaxed);
    if stale > 0 {
        return Err(format!("the drafter met {stale} stale rows"));
    }
    report.trace = trace.finish();
    Ok(report)
}

fn check(
    request: &Running,
    heard: &Received,
    setup: &Setup,
    positions: u32,
    failed: bool,
) -> Result<(), String> {
    let Arrival { step, ask, cancelled_after, leaves_after, .. } = &request.arrival;
    let [done] = &heard.done[..] else {
        return Err(format!("{} ends, expected one", heard.done.len()));
    };
    if heard.late {
        return Err("something came after the end".into());
    }
    let mut ask = ask.clone();
    ask.max_tokens = ask.max_tokens.min(positions - ask.prompt.len() as u32);
    let expect = plain(setup.fake, &ask);
    let said = heard.tokens.len();
    if heard.tokens[..] != expect[..said.min(expect.len())] {
        return Err(format!("said {:?}, alone {:?}", ids(&heard.tokens), ids(&expect)));
    }
    let at = request.ended.expect("it ended");
    let last = heard.tokens.last().map(|sampled| sampled.token);
    match &done.reason {
        FinishReason::Stop(token) if said == expect.len() && last == Some(*token) => {
            if !ask.stop.contains(token) {
                return Err(format!("stopped at {token:?}, which is no stop"));
            }
        }
        FinishReason::Length if said == expect.len() && said == ask.max_tokens as usize => {}
        FinishReason::Cancelled
            if leaves_after.is_some_and(|n| n == said)
                || cancelled_after.is_some_and(|after| at == step + after) => {}
        FinishReason::Deadline if ask.deadline_ms.is_some_and(|ms| at == step + ms) => {}
        FinishReason::Failed(_) if failed => {}
        reason => return Err(format!("{reason:?} after {said} of {} tokens", expect.len())),
    }
    if ask.deadline_ms.is_some_and(|ms| at > step + ms) {
        return Err(format!("ended in step {at}, past its deadline"));
    }
    let usage = &done.usage;
    if usage.prompt as usize != ask.prompt.len()
        || usage.completion as usize != said
        || usage.cached >= usage.prompt
        || usage.accepted() > usage.drafted()
    {
        return Err(format!("usage {usage:?} for {said} tokens"));
    }
    Ok(())
}
