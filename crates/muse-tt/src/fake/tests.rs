//! Handles, programs and recordings on the table without a device.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use muse_core::quant::tile::TileFormat;
use muse_core::{Error, Result};

use super::*;
use crate::op::{Binary, binary, matmul};
use crate::trace::Recording;
use crate::{Cores, Device, DeviceOptions, Ids, Matrix, Plan, Programs, Weight};

/// Nothing is computed here, so that no product comes out right.
pub(crate) const OPTIONS: DeviceOptions =
    DeviceOptions { id: 0, trace_bytes: 0, patience: None, smoke: false };

fn open() -> Result<Device> {
    Device::open(library(), OPTIONS)
}

fn sum(a: &Matrix, cores: Cores) -> Plan {
    binary(Binary::Add, a, a, a, cores)
}

#[test]
fn handles_come_back_after_a_hundred_rounds() {
    for _ in 0..100 {
        let device = open().unwrap();
        let values = vec![1.5; 64 * 40];
        let a = Matrix::of(&device, TileFormat::Bf16, &values, 40).unwrap();
        assert_eq!(a.read().unwrap(), values);
        let mut programs = Programs::new(&device);
        let trace = programs.record(&[sum(&a, Cores::grid(2, 2))]).unwrap();
        trace.replay(true).unwrap();
        drop(programs);
        // What it runs is still there.
        trace.replay(true).unwrap();
    }
    let log = log();
    assert_eq!((log.alive, log.runs, log.replays), (0, 200, 200));
}

#[test]
#[should_panic(expected = "17 numbers into room for 16")]
fn more_numbers_than_there_is_room_for_are_refused() {
    let mut ids = Ids::of(&open().unwrap(), &[7; 3]).unwrap();
    ids.write(&[7; 16]).unwrap();
    let _ = ids.write(&[7; 17]);
}

#[test]
fn equal_shapes_are_compiled_once_and_get_new_arguments() {
    let device = open().unwrap();
    let matrix = || Matrix::new(&device, TileFormat::Bf16, 32, 96).unwrap();
    let (a, b, out) = (matrix(), matrix(), matrix());
    let mut programs = Programs::new(&device);
    let run = |programs: &mut Programs, operation, cores| {
        programs.run(&binary(operation, &a, &b, &out, cores), true).unwrap();
    };
    run(&mut programs, Binary::Add, Cores::grid(1, 1));
    let first = log();
    run(&mut programs, Binary::Add, Cores::grid(1, 1));
    let second = log();
    assert_eq!((second.kernels.len(), second.runs), (3, 2));
    assert_eq!(second.args[first.args.len()..], first.args);
    assert_eq!(second.shared[first.shared.len()..], first.shared);
    // Three tiles on two cores: the reader of the second one begins at tile 2.
    run(&mut programs, Binary::Add, Cores::grid(2, 1));
    assert_eq!(log().kernels.len(), 6);
    let reader = &log().args[second.args.len()..][1];
    assert_eq!((reader.1, &reader.3[..]), (1, &[2, 1][..]));
    run(&mut programs, Binary::Gate, Cores::grid(2, 1));
    assert_eq!((log().kernels.len(), programs.len()), (9, 3));
}

/// A step of everything that the library is asked for.
fn round() -> Result<()> {
    let device = open()?;
    let a = Matrix::of(&device, TileFormat::Bf16, &[1.0; 1024], 32)?;
    let by = Weight::of(&device, TileFormat::Bfp8, &[1.0; 2048], 32)?;
    let out = Matrix::new(&device, TileFormat::Bf16, 32, 64)?;
    let mut programs = Programs::new(&device);
    let plans = [matmul(&a, &by, &out, Cores::grid(2, 1)), sum(&out, Cores::grid(1, 1))];
    programs.record(&plans)?.replay(true)?;
    out.read().map(drop)
}

/// Functions of the header that answer with a status.
fn functions_that_can_fail() -> BTreeSet<&'static str> {
    let header = include_str!("../../../muse-tt-sys/shim/muse_tt.h");
    let named = header.split("mtt_status (*").skip(1);
    named.map(|rest| rest.split(')').next().unwrap()).collect()
}

#[test]
fn a_fault_of_any_call_says_who_must_act_and_leaves_nothing_behind() {
    fail_at(usize::MAX, false);
    round().unwrap();
    let calls = log().calls;
    let called: BTreeSet<&str> = calls.iter().copied().collect();
    assert_eq!(called, functions_that_can_fail());
    for (at, function) in calls.iter().enumerate() {
        for exhausted in [false, true] {
            fail_at(at, exhausted);
            let ended = round();
            let what = format!("call {at}, {function}");
            assert_eq!((log().alive, log().records), (0, false), "{what}");
            assert_eq!(log().calls[at], *function, "{what}");
            // What goes wrong when a handle is given back has nobody to tell.
            if matches!(*function, "device_close" | "trace_release") {
                ended.expect(&what);
                continue;
            }
            let error: Error = ended.expect_err(&what);
            let message = error.to_string();
            assert!(message.contains("told to fail"), "{what}: {message}");
            assert!(!message.contains("nowhere"), "the backtrace stays out: {message}");
            assert_eq!(matches!(error, Error::Exhausted(_)), exhausted, "{what}");
        }
    }
}

#[test]
fn what_a_run_failed_with_is_not_kept() {
    let device = open().unwrap();
    let a = Matrix::new(&device, TileFormat::Bf16, 32, 32).unwrap();
    let mut programs = Programs::new(&device);
    let plan = sum(&a, Cores::grid(1, 1));
    fail_at(usize::MAX, false);
    programs.run(&plan, true).unwrap();
    let ran = log().calls.iter().position(|call| *call == "workload_run").unwrap();
    let mut programs = Programs::new(&device);
    fail_at(ran, false);
    programs.run(&plan, true).unwrap_err();
    assert!(programs.is_empty());
    programs.run(&plan, true).unwrap();
}

#[test]
fn nobody_else_has_a_turn_while_a_recording_is_under_way() {
    let device = open().unwrap();
    let had = AtomicBool::new(false);
    thread::scope(|scope| {
        let recording = Recording::begin(&device).unwrap();
        scope.spawn(|| {
            drop(device.turn());
            had.store(true, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!had.load(Ordering::SeqCst) && log().records);
        drop(recording);
    });
    assert!(had.load(Ordering::SeqCst));
}

#[test]
fn a_panic_ends_its_recording() {
    let device = open().unwrap();
    let recorded = catch_unwind(AssertUnwindSafe(|| {
        let _recording = Recording::begin(&device).unwrap();
        panic!("of the one who records");
    }));
    assert!(recorded.is_err());
    assert_eq!((log().alive, log().records), (1, false), "the device alone is left");
}

#[test]
fn a_device_that_multiplies_wrongly_is_refused() {
    let options = DeviceOptions { smoke: true, ..OPTIONS };
    let Err(error) = Device::open(library(), options) else { panic!("nothing was computed") };
    let message = error.to_string();
    assert!(message.contains("tt-setup") && message.contains("expected"), "{message}");
    assert_eq!(log().alive, 0);
}

#[test]
fn a_shim_for_another_host_library_is_refused() {
    for host in [Some(c"ttnn-0.81.1"), None] {
        let Err(error) = Device::open(compiled_for(host), OPTIONS) else { panic!("{host:?}") };
        let message = error.to_string();
        let found = host.map_or("none", |host| host.to_str().unwrap());
        assert!(message.contains(found) && message.contains("ttnn-0.76.0"), "{message}");
        assert!(message.contains("tt-setup"), "{message}");
    }
    assert!(log().calls.is_empty(), "it is not called");
}

#[test]
fn a_transfer_moves_the_rows_of_tiles_that_it_touches() {
    let device = open().unwrap();
    let a = Matrix::of(&device, TileFormat::Bf16, &[2.0; 100 * 40], 40).unwrap();
    let row_of_tiles = 2 * TileFormat::Bf16.bytes() as u64;
    let moved = |act: &dyn Fn()| {
        let before = log().moved;
        act();
        (log().moved - before) / row_of_tiles
    };
    assert_eq!(moved(&|| drop(a.read_rows(33..34).unwrap())), 1);
    assert_eq!(moved(&|| drop(a.read_rows(31..65).unwrap())), 3);
    assert_eq!(moved(&|| a.write_rows(32, &[3.0; 32 * 40]).unwrap()), 1, "whole tiles");
    // What stands beside in the tiles is read before.
    assert_eq!(moved(&|| a.write_rows(33, &[4.0; 40]).unwrap()), 2);
    assert_eq!(moved(&|| a.write_rows(96, &[5.0; 4 * 40]).unwrap()), 1, "the last ones");
    let rows = a.read().unwrap();
    let firsts: Vec<f32> = [31, 32, 33, 34, 63, 64, 95, 96, 99].map(|row| rows[row * 40]).into();
    assert_eq!(firsts, [2.0, 3.0, 4.0, 3.0, 3.0, 2.0, 2.0, 5.0, 5.0]);
}
