//! The engine on its own thread: a bounded queue, draining, and what a panic leaves behind.

use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use muse_core::Error;
use muse_core::contract::{Engine, Event, FinishReason, Sink, Token};
use muse_core::engine::{EngineHandle, EngineOptions, spawn};
use muse_tests::sim::{Parts, Setup, TestRequest, client, ids, plain};

fn start(setup: &Setup) -> EngineHandle {
    let Parts { backend, target, drafter, pool, .. } = setup.parts().expect("fits");
    spawn(backend, target, drafter, None, pool, setup.options.clone()).expect("starts")
}

fn words(count: u32) -> Vec<Token> {
    (0..count).map(|i| Token(i % 61)).collect()
}

/// A sink whose end can be waited for.
fn waited() -> (Sink, mpsc::Receiver<FinishReason>) {
    let (sender, receiver) = mpsc::channel();
    let sink = move |event| {
        if let Event::Done(done) = event {
            sender.send(done.reason).expect("the test receives");
        }
        ControlFlow::Continue(())
    };
    (Box::new(sink), receiver)
}

/// A bound for hangs only: a slow machine must not fail a test.
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn requests_from_many_threads_are_served() {
    let setup = Setup::with_ample_blocks();
    let engine = start(&setup);
    std::thread::scope(|scope| {
        for i in 1..6 {
            let (engine, fake) = (&engine, setup.fake);
            scope.spawn(move || {
                let request = TestRequest::greedy(words(i * 17), 30);
                let (received, mut sink) = client(None);
                let (sender, ended) = mpsc::channel();
                let both: Sink = Box::new(move |event| {
                    let done = matches!(event, Event::Done(_));
                    let flow = sink(event);
                    if done {
                        sender.send(()).expect("the test receives");
                    }
                    flow
                });
                engine.submit(request.request(fake.vocab), both).expect("is taken");
                ended.recv_timeout(LONG).expect("it ends");
                let received = received.lock().expect("no panic");
                assert_eq!(ids(&received.tokens), ids(&plain(fake, &request)));
            });
        }
    });
    engine.drain(LONG);
    let load = engine.load();
    assert_eq!((load.waiting, load.active, load.free), (0, 0, load.total));
}

#[test]
fn a_full_queue_refuses_and_a_cancelled_request_ends() {
    let options = EngineOptions { queue: 2, max_num_seqs: 1, ..EngineOptions::default() };
    let setup = Setup { options, ..Setup::with_ample_blocks() };
    let engine = start(&setup);
    // The first sink holds the engine in its step until all others are in.
    let (release, held) = mpsc::channel::<()>();
    let (sender, started) = mpsc::channel();
    let mut once = Some(sender);
    let holding: Sink = Box::new(move |_| {
        if let Some(sender) = once.take() {
            sender.send(()).expect("the test receives");
            held.recv().expect("the test releases");
        }
        ControlFlow::Continue(())
    });
    let request = TestRequest::greedy(words(5), 4000);
    let vocab = setup.fake.vocab;
    let first = engine.submit(request.request(vocab), holding).expect("is taken");
    started.recv_timeout(LONG).expect("it runs");
    let (sink, second_end) = waited();
    let second = engine.submit(request.request(vocab), sink).expect("waits");
    let (sink, third_end) = waited();
    engine.submit(TestRequest::greedy(words(5), 3).request(vocab), sink).expect("waits");
    let (sink, _end) = waited();
    let error = engine.submit(request.request(vocab), sink).expect_err("the queue is full");
    assert!(matches!(&error, Error::Exhausted(m) if m.contains("holds 2")), "{error:?}");
    engine.cancel(second);
    release.send(()).expect("it waits");
    let reason = second_end.recv_timeout(LONG).expect("it ends");
    assert!(matches!(reason, FinishReason::Cancelled));
    engine.cancel(first);
    engine.cancel(first);
    let reason = third_end.recv_timeout(LONG).expect("it ends");
    assert!(matches!(reason, FinishReason::Length));
}

#[test]
fn draining_refuses_new_requests_and_lets_the_others_end() {
    let setup = Setup::with_ample_blocks();
    let engine = start(&setup);
    let (sink, end) = waited();
    engine
        .submit(TestRequest::greedy(words(9), 50).request(setup.fake.vocab), sink)
        .expect("is taken");
    engine.drain(LONG);
    assert!(matches!(end.try_recv().expect("it has ended"), FinishReason::Length));
    let (sink, _end) = waited();
    let error =
        engine.submit(TestRequest::greedy(words(9), 50).request(61), sink).expect_err("no more");
    assert!(matches!(error, Error::Exhausted(_)));
}

#[test]
fn dropping_the_engine_cancels_what_runs() {
    let setup = Setup::with_ample_blocks();
    let engine = start(&setup);
    let (sink, end) = waited();
    engine
        .submit(TestRequest::greedy(words(9), 4000).request(setup.fake.vocab), sink)
        .expect("is taken");
    drop(engine);
    let reason = end.try_recv().expect("the thread has ended");
    assert!(matches!(reason, FinishReason::Cancelled | FinishReason::Length));
}

#[test]
fn a_panic_ends_every_request_and_is_reported_once() {
    let reports = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reports);
    let mut setup = Setup::with_ample_blocks();
    setup.options.on_failure = Some(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let engine = start(&setup);
    let armed = Arc::new(AtomicBool::new(true));
    let (sink, end) = waited();
    let request = TestRequest::greedy(words(9), 3000);
    engine.submit(request.request(setup.fake.vocab), sink).expect("is taken");
    let bomb: Sink = Box::new(move |_| {
        assert!(!armed.swap(false, Ordering::Relaxed), "planted panic");
        ControlFlow::Continue(())
    });
    engine.submit(request.request(setup.fake.vocab), bomb).expect("is taken");
    let reason = end.recv_timeout(LONG).expect("it ends");
    let FinishReason::Failed(error) = reason else { panic!("{reason:?}") };
    assert!(error.to_string().contains("planted panic"), "{error}");
    engine.drain(LONG);
    assert_eq!(reports.load(Ordering::Relaxed), 1);
    assert!(engine.failure().is_some());
    let (sink, _end) = waited();
    assert!(engine.submit(request.request(setup.fake.vocab), sink).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_engine_takes_no_time() {
    // Context switches of each engine's thread: a loop that polled would have many.
    let engine = start(&Setup::with_ample_blocks());
    let switches = || -> HashMap<OsString, u64> {
        let tasks = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
        let counts = tasks.filter_map(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            let is_engine = status.starts_with("Name:\tmuse-engine");
            let count = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
            is_engine.then_some((task.file_name(), count.trim().parse().ok()?))
        });
        counts.collect()
    };
    // Engines of other tests run beside this one, so that only the calmest thread is this engine's.
    // On a busy machine the thread may not have begun to wait yet.
    let is_calm = |_| {
        let before = switches();
        std::thread::sleep(Duration::from_millis(200));
        let after = switches();
        let more = after.iter().filter_map(|(thread, count)| Some(count - before.get(thread)?));
        more.min().is_some_and(|more| more < 10)
    };
    assert!((0..100).any(is_calm), "an idle engine does not poll");
    drop(engine);
}
