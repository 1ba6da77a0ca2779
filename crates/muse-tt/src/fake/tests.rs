//! Tests of handles, programs and recordings on the fake vtable.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use muse_core::quant::tile::TileFormat;
use muse_core::{Error, Result};

use super::*;
use crate::op::{Binary, binary, matmul};
use crate::program::Recording;
use crate::{Cores, Device, DeviceOptions, IndexBuffer, Matrix, Plan, Programs, Weight};

fn open() -> Result<Device> {
    Device::open(library(), OPTIONS)
}

fn sum(a: &Matrix, cores: Cores) -> Plan {
    binary(Binary::Add, a, a, a, cores)
}

#[test]
fn all_handles_are_freed_after_a_hundred_rounds() {
    for _ in 0..100 {
        let device = open().unwrap();
        let values = vec![1.5; 64 * 40];
        let a = Matrix::from_values(&device, TileFormat::Bf16, &values, 40).unwrap();
        assert_eq!(a.read().unwrap(), values);
        let mut programs = Programs::new(&device);
        let trace = programs.record(&[sum(&a, Cores::grid(2, 2))]).unwrap();
        trace.replay(true).unwrap();
        drop(programs);
        // The trace keeps its programs.
        trace.replay(true).unwrap();
    }
    let log = log();
    assert_eq!((log.alive, log.runs, log.replays), (0, 200, 200));
}

#[test]
#[should_panic(expected = "17 indices, but space for 16")]
fn more_indices_than_the_capacity_are_refused() {
    let mut indices = IndexBuffer::from_values(&open().unwrap(), &[7; 3]).unwrap();
    indices.write(&[7; 16]).unwrap();
    let _ = indices.write(&[7; 17]);
}

#[test]
fn equal_specs_are_compiled_once_and_get_new_arguments() {
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
    assert_eq!(second.common[first.common.len()..], first.common);
    // Three tiles on two cores: the reader of the second one begins at tile 2.
    run(&mut programs, Binary::Add, Cores::grid(2, 1));
    assert_eq!(log().kernels.len(), 6);
    let reader = &log().args[second.args.len()..][1];
    assert_eq!((reader.1, &reader.3[..]), (1, &[2, 1][..]));
    run(&mut programs, Binary::Gate, Cores::grid(2, 1));
    assert_eq!((log().kernels.len(), programs.len()), (9, 3));
}

/// Calls every function of the vtable.
fn round() -> Result<()> {
    let device = open()?;
    let a = Matrix::from_values(&device, TileFormat::Bf16, &[1.0; 1024], 32)?;
    let weight = Weight::from_values(&device, TileFormat::Bfp8, &[1.0; 2048], 32)?;
    let out = Matrix::new(&device, TileFormat::Bf16, 32, 64)?;
    let mut programs = Programs::new(&device);
    let plans = [matmul(&a, &weight, &out, Cores::grid(2, 1)), sum(&out, Cores::grid(1, 1))];
    programs.record(&plans)?.replay(true)?;
    out.read().map(drop)
}

/// The functions of the header that return a status.
fn functions_that_can_fail() -> BTreeSet<&'static str> {
    let header = include_str!("../../../muse-tt-sys/shim/muse_tt.h");
    let named = header.split("mtt_status (*").skip(1);
    named.map(|rest| rest.split(')').next().unwrap()).collect()
}

#[test]
fn an_error_of_any_call_has_the_right_kind_and_leaks_nothing() {
    fail_at(usize::MAX, false);
    round().unwrap();
    let calls = log().calls;
    let called: BTreeSet<&str> = calls.iter().copied().collect();
    assert_eq!(called, functions_that_can_fail());
    for (at, function) in calls.iter().enumerate() {
        for exhausted in [false, true] {
            fail_at(at, exhausted);
            let result = round();
            let what = format!("call {at}, {function}");
            assert_eq!((log().alive, log().is_recording), (0, false), "{what}");
            assert_eq!(log().calls[at], *function, "{what}");
            // A drop cannot report an error.
            if matches!(*function, "device_close" | "trace_release") {
                result.expect(&what);
                continue;
            }
            let error: Error = result.expect_err(&what);
            let message = error.to_string();
            assert!(message.contains("planted error"), "{what}: {message}");
            assert!(!message.contains("nowhere"), "the backtrace is cut off: {message}");
            assert_eq!(matches!(error, Error::Exhausted(_)), exhausted, "{what}");
        }
    }
}

#[test]
fn a_program_that_failed_is_not_kept() {
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
fn a_recording_holds_the_device_lock() {
    let device = open().unwrap();
    let locked = AtomicBool::new(false);
    thread::scope(|scope| {
        let recording = Recording::begin(&device).unwrap();
        scope.spawn(|| {
            drop(device.lock());
            locked.store(true, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!locked.load(Ordering::SeqCst) && log().is_recording);
        drop(recording);
    });
    assert!(locked.load(Ordering::SeqCst));
}

#[test]
fn a_panic_ends_the_recording_of_its_thread() {
    let device = open().unwrap();
    let recorded = catch_unwind(AssertUnwindSafe(|| {
        let _recording = Recording::begin(&device).unwrap();
        panic!("while recording");
    }));
    assert!(recorded.is_err());
    assert_eq!((log().alive, log().is_recording), (1, false), "only the device is alive");
}

#[test]
fn a_device_that_computes_a_wrong_product_is_refused() {
    let options = DeviceOptions { smoke_test: true, ..OPTIONS };
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
    assert!(log().calls.is_empty(), "nothing of it is called");
}

#[test]
fn a_transfer_moves_only_the_rows_of_tiles_that_it_touches() {
    let device = open().unwrap();
    let a = Matrix::from_values(&device, TileFormat::Bf16, &[2.0; 100 * 40], 40).unwrap();
    let row_of_tiles = 2 * TileFormat::Bf16.bytes() as u64;
    let moved = |act: &dyn Fn()| {
        let before = log().moved;
        act();
        (log().moved - before) / row_of_tiles
    };
    assert_eq!(moved(&|| drop(a.read_rows(33..34).unwrap())), 1);
    assert_eq!(moved(&|| drop(a.read_rows(31..65).unwrap())), 3);
    assert_eq!(moved(&|| a.write_rows(32, &[3.0; 32 * 40]).unwrap()), 1, "whole tiles");
    // The other rows of the tiles are read first.
    assert_eq!(moved(&|| a.write_rows(33, &[4.0; 40]).unwrap()), 2);
    assert_eq!(moved(&|| a.write_rows(96, &[5.0; 4 * 40]).unwrap()), 1, "the last rows");
    let rows = a.read().unwrap();
    let firsts: Vec<f32> = [31, 32, 33, 34, 63, 64, 95, 96, 99].map(|row| rows[row * 40]).into();
    assert_eq!(firsts, [2.0, 3.0, 4.0, 3.0, 3.0, 2.0, 2.0, 5.0, 5.0]);
}
