//! Faults with the real host library: the message says what to do, and no process is left. Each
//! fault has a process of its own, this program again, because a process can load the library only
//! once.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use muse_core::quant::tile::TileFormat;
use muse_core::{Error, Result};
use muse_parity::lane::{Lane, SIMULATOR};
use muse_parity::process::{self, Ended, Limit};
use muse_parity::setup::Environment;
use muse_tt::op::{self, Binary};
use muse_tt::{Buffer, Cores, Device, DeviceOptions, Matrix, Programs, open_shim};

const LIMIT: Limit = Limit { cpu: Duration::from_secs(900), idle: Duration::from_secs(300) };
/// How long the device that gets lost may take to answer. While it is opened, the compiler and the
/// simulator compute, which does not count.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the process prints when the simulator is gone.
const GONE: &str = "the simulator is gone";
const GIB: u64 = 1 << 30;

/// The variable that names the fault of a child process.
const CHILD: &str = "MUSE_FAULT";

fn main() {
    let child = std::env::var(CHILD).ok();
    match child.as_deref() {
        Some("opens_a_device") => opens_a_device(),
        Some("fills_a_device") => fills_a_device(),
        Some("opens_a_hundred_times") => opens_a_hundred_times(),
        Some("loses_its_device") => loses_its_device(),
        Some(other) => panic!("{CHILD} is {other}, which is not a fault"),
        None => thread::scope(|scope| {
            scope.spawn(without_a_device_the_message_says_where_devices_are_expected);
            scope.spawn(exhausted_memory_is_an_error_and_the_device_goes_on);
            scope.spawn(a_hundred_devices_leak_nothing);
            scope.spawn(a_lost_device_ends_the_process_with_advice);
        }),
    }
}

/// Runs one of the faults with an environment.
fn child(name: &str, environment: &[(String, String)]) -> Ended {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, name).env_remove(SIMULATOR);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let folder = tempfile::tempdir().unwrap();
    let tag = format!("muse-fault-{name}-{}", std::process::id());
    let ended =
        process::run(command.current_dir(folder.path()), &tag, folder.path(), LIMIT).unwrap();
    assert_eq!(process::tagged(&tag).unwrap(), [""; 0], "no process is left");
    ended
}

fn packages() -> Environment {
    let folder = std::env::var_os("MUSE_TT_DIR").expect("MUSE_TT_DIR names the packages");
    Environment::read(&PathBuf::from(folder)).unwrap()
}

fn lane(lane: Lane) -> Vec<(String, String)> {
    lane.environment(&packages(), None).unwrap()
}

fn open(timeout: Option<Duration>) -> Result<Device> {
    // The mock lane computes nothing.
    let options = DeviceOptions { timeout, smoke_test: false, ..Default::default() };
    Device::open(open_shim()?, options)
}

fn without_a_device_the_message_says_where_devices_are_expected() {
    let none: Vec<_> = packages().of_metal().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let ended = child("opens_a_device", &none);
    let message = ended.err;
    assert!(
        message.contains("/dev/tenstorrent") && message.contains("TT_METAL_SIMULATOR"),
        "{message}"
    );
}

fn opens_a_device() {
    if std::path::Path::new("/dev/tenstorrent").exists() {
        eprintln!("TT_METAL_SIMULATOR: /dev/tenstorrent exists, so that a device can be opened");
        return;
    }
    let Err(error) = open(None) else { panic!("there is no device") };
    assert!(matches!(error, Error::Device { .. }), "{error}");
    eprintln!("{error}");
}

fn exhausted_memory_is_an_error_and_the_device_goes_on() {
    let ended = child("fills_a_device", &lane(Lane::Mock));
    assert!(ended.status.is_some_and(|status| status.success()), "{ended:?}");
}

fn fills_a_device() {
    let device = open(None).unwrap();
    let mut buffers = Vec::new();
    let error = loop {
        match Buffer::new(&device, GIB, 1 << 11) {
            Ok(buffer) => buffers.push(buffer),
            Err(error) => break error,
        }
        assert!(buffers.len() < 64, "a card has 32 GB");
    };
    assert!(matches!(error, Error::Exhausted(_)), "{error}");
    assert!(error.to_string().contains("run with a shorter context"), "{error}");
    buffers.pop();
    Buffer::new(&device, GIB / 2, 1 << 11).expect("there is memory again");
}

fn a_hundred_devices_leak_nothing() {
    let ended = child("opens_a_hundred_times", &lane(Lane::Mock));
    assert!(ended.status.is_some_and(|status| status.success()), "{ended:?}");
}

fn opens_a_hundred_times() {
    let idle = || drop(open(None).unwrap());
    let busy = || {
        let device = open(None).unwrap();
        let a = Matrix::new(&device, TileFormat::Bf16, 64, 64).unwrap();
        Programs::new(&device)
            .run(&op::binary(Binary::Add, &a, &a, &a, Cores::grid(2, 2)), true)
            .unwrap();
    };
    // The library allocates caches first, and keeps some memory for each device.
    (0..20).for_each(|_| busy());
    let (own, all) = (growth_kib(40, idle), growth_kib(40, busy));
    assert!(all < own + 40 * 16, "{own} KiB by opening alone, {all} KiB with work, in 40 rounds");
}

/// Growth of the resident memory in some rounds.
fn growth_kib(rounds: usize, round: impl Fn()) -> u64 {
    let before = resident_kib();
    (0..rounds).for_each(|_| round());
    resident_kib().saturating_sub(before)
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn a_lost_device_ends_the_process_with_advice() {
    let ended = child("loses_its_device", &lane(Lane::Wolfpine));
    assert!(ended.status.is_some_and(|status| !status.success()), "{ended:?}");
    assert_eq!(ended.out.trim(), GONE, "not before: {ended:?}");
    assert!(ended.err.contains("see that the device is there"), "{ended:?}");
}

fn loses_its_device() {
    let device = open(Some(PATIENCE)).unwrap();
    let matrix = Matrix::from_values(&device, TileFormat::Bf16, &[1.0; 1024], 32).unwrap();
    let own = std::process::id().to_string();
    let simulator = process::tagged(&std::env::var(process::TAG).unwrap()).unwrap();
    let simulator: Vec<_> = simulator.into_iter().filter(|id| *id != own).collect();
    assert!(!simulator.is_empty(), "the simulator is a process of its own");
    assert!(Command::new("kill").arg("-KILL").args(simulator).status().unwrap().success());
    println!("{GONE}");
    let read = matrix.read();
    panic!("the device was there: {read:?}");
}
