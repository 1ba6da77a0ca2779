//! Requests for pictures: each picture is encoded once for all of them.

use std::sync::Arc;

use muse_core::contract::{Backend, EncodeId, Patches, VisionEncoder};
use muse_core::{Error, Result};
use muse_cpu::Cpu;
use muse_testkit::fake::FakeBackend;
use muse_tests::checkpoint::fast_cpu;
use muse_tests::vision::{Pixels, encode};
use muse_vision::{Encoder, HostEncoder, TowerOptions};

use super::{WHOLE, nano, tower};

/// Bytes of the rows of a picture of [`pictures`]: 4 rows of 256 values.
const PICTURE_BYTES: usize = 4 * 256 * 4;

fn encoder(backend: &Arc<Cpu>, remembered_bytes: usize) -> Result<Encoder<Cpu>> {
    let tower = tower(backend, &nano()?, TowerOptions::default())?;
    Ok(Encoder::new(tower, remembered_bytes))
}

/// Three pictures of 4 x 4 patches.
fn pictures() -> [Patches; 3] {
    [10, 20, 30].map(|red| {
        let mut pixels = Pixels::pattern(56, 56);
        pixels.values.iter_mut().step_by(3).for_each(|x| *x = x.wrapping_add(red));
        pixels.patches()
    })
}

/// Advances by 5 rows until the rows are there; counts the calls.
fn finish<B: Backend>(
    encoder: &mut dyn VisionEncoder<B>,
    id: EncodeId,
) -> Result<(Arc<B::Buf>, usize)> {
    for calls in 1.. {
        if let Some(rows) = encoder.advance(id, 5)? {
            return Ok((rows, calls));
        }
    }
    unreachable!("an endless loop")
}

#[test]
fn a_picture_is_encoded_once_for_all_requests() -> Result<()> {
    let backend = Arc::new(fast_cpu());
    let mut encoder = encoder(&backend, PICTURE_BYTES)?;
    let [first, second, _] = pictures();
    assert_eq!(encoder.rows(&first), 4);
    let want = encode(&*backend, encoder.tower(), &first, WHOLE)?.rows;

    let ids = [encoder.begin(&first)?, encoder.begin(&first)?];
    let (rows, calls) = finish(&mut encoder, ids[0])?;
    assert!(calls > 20, "{calls} calls of 5 rows");
    let mut got = vec![0.0; want.len()];
    backend.read(&rows, 0, &mut got)?;
    assert!(got == want, "the tower's own rows");
    let (shared, calls) = finish(&mut encoder, ids[1])?;
    assert!(Arc::ptr_eq(&rows, &shared) && calls == 1, "rows of the first request");

    // Remembered until another picture takes the place.
    let id = encoder.begin(&first)?;
    let (again, calls) = finish(&mut encoder, id)?;
    assert!(Arc::ptr_eq(&rows, &again) && calls == 1, "remembered rows");
    let id = encoder.begin(&second)?;
    assert!(finish(&mut encoder, id)?.1 > 20, "another picture");
    let id = encoder.begin(&first)?;
    let (anew, calls) = finish(&mut encoder, id)?;
    assert!(!Arc::ptr_eq(&rows, &anew) && calls > 20, "forgotten rows");
    backend.read(&anew, 0, &mut got)?;
    assert!(got == want, "encoded again");
    Ok(())
}

#[test]
fn pictures_are_encoded_in_the_order_of_their_requests() -> Result<()> {
    let backend = Arc::new(fast_cpu());
    let mut encoder = encoder(&backend, 0)?;
    let pictures = pictures();
    let ids = [0, 1, 2].map(|i| encoder.begin(&pictures[i]).expect("a sound picture"));
    // Asking for the last one works on the first ones before.
    let (rows, calls) = finish(&mut encoder, ids[2])?;
    let (_, left) = finish(&mut encoder, ids[0])?;
    assert!(calls > 60 && left == 1, "{calls} and {left} calls");
    let want = encode(&*backend, encoder.tower(), &pictures[2], WHOLE)?.rows;
    let mut got = vec![0.0; want.len()];
    backend.read(&rows, 0, &mut got)?;
    assert!(got == want, "rows of the last picture");
    assert_eq!(finish(&mut encoder, ids[1])?.1, 1);
    Ok(())
}

#[test]
fn a_cancelled_picture_is_dropped_unless_another_request_shows_it() -> Result<()> {
    let backend = Arc::new(fast_cpu());
    let mut encoder = encoder(&backend, 0)?;
    let [first, second, _] = pictures();
    let ids = [encoder.begin(&first)?, encoder.begin(&second)?, encoder.begin(&first)?];
    for _ in 0..10 {
        assert!(encoder.advance(ids[0], 5)?.is_none());
    }
    encoder.cancel(ids[0]);
    let error = encoder.advance(ids[0], 5).expect_err("no longer known");
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    assert!(error.to_string().contains("cancelled"), "{error}");
    let (whole, rest) = (finish(&mut encoder, ids[1])?.1, finish(&mut encoder, ids[2])?.1);
    assert_eq!(rest, 1, "the first picture was finished on the way");

    // Nobody else shows it: the next picture starts at once.
    let ids = [encoder.begin(&first)?, encoder.begin(&second)?];
    assert!(encoder.advance(ids[0], 5)?.is_none());
    encoder.cancel(ids[0]);
    encoder.cancel(ids[0]);
    let (_, alone) = finish(&mut encoder, ids[1])?;
    assert!(alone < whole, "{alone} calls, {whole} with the rest of another picture");
    Ok(())
}

/// A device without the tower's operations gets the same rows.
#[test]
fn rows_reach_a_device_that_cannot_encode() -> Result<()> {
    let host = Arc::new(fast_cpu());
    let inner = encoder(&host, PICTURE_BYTES)?;
    let [picture, ..] = pictures();
    let want = encode(&*host, inner.tower(), &picture, WHOLE)?.rows;
    let device = Arc::new(FakeBackend::default());
    let mut encoder = HostEncoder::new(host, inner, Arc::clone(&device), 256);
    assert_eq!(encoder.rows(&picture), 4);
    let ids = [0, 1, 2].map(|_| encoder.begin(&picture).expect("a sound picture"));
    encoder.cancel(ids[2]);
    let (rows, _) = finish(&mut encoder, ids[0])?;
    let (shared, _) = finish(&mut encoder, ids[1])?;
    assert!(Arc::ptr_eq(&rows, &shared), "one copy for both requests");
    let mut got = vec![0.0; want.len()];
    device.read(&rows, 0, &mut got)?;
    assert!(got == want, "rows on the device");
    assert!(encoder.advance(ids[2], 5).is_err(), "cancelled");
    Ok(())
}
